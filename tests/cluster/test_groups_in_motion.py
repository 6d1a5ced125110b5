"""A Server on LeaderWorkerSets while much happens, beside one that KEDA scales."""

from collections.abc import Iterator
from random import Random
from typing import Any

import pytest

from tests.cluster.kubelet import Witness, running_pods
from tests.cluster.role_pods import objects_of, of_leader_worker_set, running_roles
from tests.cluster.scene import ACCOUNT, Scene, accelerator, counted
from tests.conftest import StartOperator
from tests.controlplane import ControlPlane
from tests.unit.operator import objects

Manifest = dict[str, Any]

pytestmark = pytest.mark.usefixtures("crds_installed", "groups_installed")

PODS = 2
"""Pods of a replica; each has a card."""

CARDS = {"A": 12, "B": 12}
KIND = {"apiVersion": "leaderworkerset.x-k8s.io/v1", "kind": "LeaderWorkerSet"}
SETS = ("s-a", "s-b", "t-a")


def hpa(name: str, target: str) -> Manifest:
    """The HorizontalPodAutoscaler that KEDA makes of a ScaledObject."""
    owner = {"apiVersion": "keda.sh/v1alpha1", "kind": "ScaledObject", "name": name, "uid": "u"}
    return {
        "apiVersion": "autoscaling/v2",
        "kind": "HorizontalPodAutoscaler",
        "metadata": {"name": f"keda-hpa-{name}", "ownerReferences": [owner]},
        "spec": {"maxReplicas": 9, "scaleTargetRef": {**KIND, "name": target}},
    }


def workload(accelerator: str, name: str) -> Manifest:
    return {"accelerator": accelerator, **KIND, "name": name}


@pytest.fixture
def witness(control_plane: ControlPlane, scene: Scene) -> Iterator[Witness]:
    """Servers `s` on A or B, and `t` with one replica, whose ScaledObject has no more."""
    sets = [of_leader_worker_set(name, PODS) for name in SETS]
    found = list(objects_of(sets))
    found[-1]["spec"]["replicas"] = 1
    scene.apply(
        ACCOUNT,
        *found,
        hpa("t", "t-a"),
        accelerator("A"),
        accelerator("B", cost=20),
        objects.model("M", [{**objects.performance(name), "accCount": PODS} for name in CARDS]),
        objects.service_class(),
        counted(**CARDS),
        objects.server("S", 2, {"workloads": [workload("A", "s-a"), workload("B", "s-b")]}),
        objects.server("T", 2, {"workloads": [workload("A", "t-a")]}),
        objects.optimizer(),
    )
    with (
        running_roles(control_plane.kubeconfig, scene.namespace, sets),
        running_pods(control_plane.kubeconfig, scene.namespace, CARDS) as witness,
    ):
        yield witness


@pytest.mark.extended
def test_groups_follow_and_nothing_that_is_needed_goes(
    scene: Scene, operator: StartOperator, witness: Witness
) -> None:
    running = [operator()]
    chance = Random(1)  # noqa: S311 - the same moments each run

    def load(replicas: int) -> None:
        """Have a load that takes so many replicas, and a decision for it."""
        body = {"currentAlloc": {"load": objects.running(0, replicas)["load"]}}
        scene.patch("server", "s", {"spec": body})
        scene.optimize()

    def kill(times: int) -> None:
        """Kill the operator with -9 at some moments; another one begins each time."""
        for _ in range(times):
            witness.pause(chance.uniform(0.1, 1.0))
            running.pop().kill()
            running.append(operator())

    scene.wait_for_actuated("Actuated", "2 x A")
    told = scene.wait_for_actuated("ForeignWriter", "ScaledObject 't'", "t")
    assert told["spec"]["currentAlloc"]["numReplicas"] == 1

    witness.need({"s": 2, "t": 1})
    load(4)
    kill(2)
    scene.wait_for_actuated("Actuated", "4 x A")

    witness.need({"s": 4, "t": 1})
    load(5)  # too many for A
    kill(2)
    scene.wait_for_actuated("Actuated", "5 x B")

    witness.need({"s": 4, "t": 1})
    right, mistyped = ([workload("A", "s-a"), workload(name, "s-b")] for name in ("B", "8"))
    scene.patch("server", "s", {"spec": {"workloads": mistyped}})
    scene.optimize()
    scene.wait_for_actuated("Held")
    scene.patch("server", "s", {"spec": {"workloads": right}})
    load(5)
    load(4)
    kill(1)
    scene.wait_for_actuated("Actuated", "4 x A")

    assert witness.broken == []
    assert scene.replicas("leaderworkersets") == {"s-a": 4, "s-b": 0, "t-a": 1}
