"""A Server on LeaderWorkerSets while much happens, beside one that KEDA scales."""

from collections.abc import Iterator
from random import Random
from typing import Any

import pytest

from tests.cluster.kubelet import Witness, running_pods
from tests.cluster.role_pods import objects_of, of_leader_worker_set, running_roles
from tests.cluster.scene import Scene, condition
from tests.conftest import ROOT, StartOperator
from tests.controlplane import ControlPlane
from tests.unit.operator import objects

Manifest = dict[str, Any]

pytestmark = pytest.mark.usefixtures("crds_installed", "definitions")

PODS = 2
"""Pods of a replica; each has a card."""

CARDS = {"A": 12, "B": 12}
SETS = ("s-a", "s-b", "t-a")


@pytest.fixture(scope="module")
def definitions(control_plane: ControlPlane) -> None:
    """LeaderWorkerSets are served."""
    control_plane.install_crds(ROOT / "tests/data/workloads")


def hpa(name: str, target: str) -> Manifest:
    """The HorizontalPodAutoscaler that KEDA makes of a ScaledObject."""
    kind = {"apiVersion": "leaderworkerset.x-k8s.io/v1", "kind": "LeaderWorkerSet"}
    owner = {"apiVersion": "keda.sh/v1alpha1", "kind": "ScaledObject", "name": name, "uid": "u"}
    return {
        "apiVersion": "autoscaling/v2",
        "kind": "HorizontalPodAutoscaler",
        "metadata": {"name": f"keda-hpa-{name}", "ownerReferences": [owner]},
        "spec": {"maxReplicas": 9, "scaleTargetRef": {**kind, "name": target}},
    }


def workload(accelerator: str, name: str) -> Manifest:
    kind = {"apiVersion": "leaderworkerset.x-k8s.io/v1", "kind": "LeaderWorkerSet"}
    return {"accelerator": accelerator, **kind, "name": name}


class Life:
    """Server `s` on accelerators A and B, and an operator that is killed again and again."""

    def __init__(self, scene: Scene, start: StartOperator, witness: Witness) -> None:
        self.scene, self.witness = scene, witness
        self._start, self._operator = start, start()
        self._chance = Random(1)  # noqa: S311 - the same moments each run

    def kill(self, times: int = 2) -> None:
        """Kill the operator with -9 at some moments; another one begins each time."""
        for _ in range(times):
            self.witness.pause(self._chance.uniform(0.1, 1.0))
            self._operator.kill()
            self._operator = self._start()

    def load(self, replicas: int) -> None:
        """Have a load that takes so many replicas, and a decision for it."""
        load = objects.running(0, replicas)["load"]
        self.patch("server", "s", {"spec": {"currentAlloc": {"load": load}}})
        self.ask()

    def ask(self) -> None:
        self.scene.request("inferno")
        self.scene.wait_until_done("inferno")

    def patch(self, resource: str, name: str, body: Manifest) -> None:
        self.scene.control_plane.patch(resource, name, body, self.scene.namespace)

    def wait_for(self, reason: str, text: str, name: str = "s") -> Manifest:
        """Wait until a Server says this; returns the Server."""

        def told(server: Manifest) -> bool:
            found = condition(server, "Actuated")
            return found.get("reason") == reason and text in found["message"]

        return self.scene.control_plane.wait_for("server", name, told, self.scene.namespace)

    def replicas(self, name: str) -> int:
        found = self.scene.control_plane.get("leaderworkerset", name, self.scene.namespace)
        replicas: int = found["spec"]["replicas"]
        return replicas


@pytest.fixture
def life(control_plane: ControlPlane, scene: Scene, operator: StartOperator) -> Iterator[Life]:
    """Two replicas of `s` on A, and one of `t`, whose ScaledObject has no more."""
    sets = [of_leader_worker_set(name, PODS) for name in SETS]
    data = [{**objects.performance(name), "accCount": PODS} for name in CARDS]
    accelerators = [
        objects.manifest("Accelerator", {"name": n, "type": n, "cost": c}, name=n.lower())
        for n, c in (("A", 10), ("B", 20))
    ]
    counts = [{"type": name, "count": count} for name, count in CARDS.items()]
    found = list(objects_of(sets))
    found[-1]["spec"]["replicas"] = 1
    scene.apply(
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default"}},
        *found,
        hpa("t", "t-a"),
        *accelerators,
        objects.model("M", data),
        objects.service_class(),
        objects.manifest("Capacity", {"count": counts}, name="cards"),
        objects.server("S", 2, {"workloads": [workload("A", "s-a"), workload("B", "s-b")]}),
        objects.server("T", 2, {"workloads": [workload("A", "t-a")]}),
        objects.optimizer(optimize=True, name="inferno"),
    )
    with (
        running_roles(control_plane.kubeconfig, scene.namespace, sets),
        running_pods(control_plane.kubeconfig, scene.namespace, CARDS) as witness,
    ):
        life = Life(scene, operator, witness)
        life.wait_for("Actuated", "2 x A")
        yield life


@pytest.mark.extended
def test_groups_follow_and_nothing_that_is_needed_goes(life: Life) -> None:
    told = life.wait_for("ForeignWriter", "ScaledObject 't'", "t")
    assert told["spec"]["currentAlloc"]["numReplicas"] == 1

    life.witness.need({"s": 2, "t": 1})
    life.load(4)
    life.kill()
    life.wait_for("Actuated", "4 x A")

    life.witness.need({"s": 4, "t": 1})
    life.load(5)  # too many for A
    life.kill()
    life.wait_for("Actuated", "5 x B")

    life.witness.need({"s": 4, "t": 1})
    mistyped = [workload("A", "s-a"), workload("8", "s-b")]
    life.patch("server", "s", {"spec": {"workloads": mistyped}})
    life.ask()
    life.wait_for("Held", "")
    life.patch("server", "s", {"spec": {"workloads": [workload("A", "s-a"), workload("B", "s-b")]}})
    life.load(5)
    life.load(4)
    life.kill(1)
    life.wait_for("Actuated", "4 x A")

    assert life.witness.broken == []
    assert (life.replicas("s-a"), life.replicas("s-b"), life.replicas("t-a")) == (4, 0, 1)


@pytest.mark.extended
def test_a_set_that_is_deleted_and_created_again_gets_its_replicas_back(life: Life) -> None:
    plane, namespace = life.scene.control_plane, life.scene.namespace
    plane.kubectl("delete", "leaderworkerset", "s-a", "--namespace", namespace)
    life.wait_for("NotFound", "'s-a' does not exist")
    life.kill(1)

    life.scene.apply(*objects_of([of_leader_worker_set("s-a", PODS)]))
    life.wait_for("Actuated", "2 x A")

    assert life.replicas("s-a") == 2
    assert life.witness.broken == []
