"""What only an API server does while replicas move: definitions change, a namespace ends."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from tests.cluster.kubelet import running_pods
from tests.cluster.scene import Manifest, Scene, condition
from tests.cluster.test_typed_motion import fleet
from tests.conftest import ROOT, StartOperator
from tests.controlplane import ControlPlane
from tests.controlplane.waiting import wait_until

pytestmark = [
    pytest.mark.usefixtures("crds_installed", "deployment_controllers"),
    pytest.mark.extended,
]

RUNS = 10
"""Replicas on A; one on B carries as much."""

NEW = "s-b"
"""The Deployment that a Server goes to; its pod is held until what disturbs the move has come."""

COLD_START_S = 8.0
"""Watches of a definition that has changed end in this time."""


class Move:
    """A Server that runs on ten A and goes to one B."""

    def __init__(self, scene: Scene) -> None:
        self._scene = scene
        self._plane, self._namespace = scene.control_plane, scene.namespace
        manifests = list(fleet())
        self._optimizer = [m for m in manifests if m["kind"] == "Optimizer"]
        scene.apply(*(m for m in manifests if m["kind"] != "Optimizer"))

    def begin(self) -> None:
        """Let plans be made once all replicas on A are ready."""
        self._wait_until_it_runs()
        self._scene.apply(*self._optimizer)

    def pause(self, name: str, *, paused: bool) -> None:
        """Pause a Deployment, or resume it."""
        self._plane.patch("deployment", name, {"spec": {"paused": paused}}, self._namespace)

    def replicas(self) -> dict[str, int]:
        """What both Deployments ask for."""
        items = self._plane.items("deployments", self._namespace)
        return {item["metadata"]["name"]: item["spec"]["replicas"] for item in items}

    def wait_until_half_done(self) -> None:
        """Wait until the new replica is asked for; it starts as long as its pod is held."""
        found = wait_until(self.replicas, lambda found: found[NEW] == 1, "a replica on B")
        assert found["s-a"] == RUNS

    def wait_until_done(self) -> None:
        """Wait until it runs on B alone, and says so."""
        wait_until(self.replicas, lambda found: found == {"s-a": 0, "s-b": 1}, "the move")

        def told(server: Manifest) -> bool:
            return condition(server, "Actuated").get("status") == "True"

        self._plane.wait_for("server", "s", told, self._namespace)

    def may_have_later(self) -> bool:
        """Whether its Server may have the field of the next release."""
        patch = json.dumps({"spec": {"later": "on"}})
        options = ("--type=merge", "--patch", patch, "--dry-run=server", "--output=json")
        told = self._plane.kubectl("patch", "server", "s", "--namespace", self._namespace, *options)
        return "later" in json.loads(told.stdout)["spec"]

    def _wait_until_it_runs(self) -> None:
        def ready(manifest: Manifest) -> bool:
            return bool(manifest.get("status", {}).get("readyReplicas") == RUNS)

        self._plane.wait_for("deployment", "s-a", ready, self._namespace)


def upgraded(path: Path) -> Manifest:
    """A definition of the next release: each object may have one more field."""
    definition: Manifest = yaml.safe_load(path.read_text())
    for version in definition["spec"]["versions"]:
        fields = version["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]
        fields["later"] = {"type": "string"}
    return definition


@pytest.fixture
def next_release(control_plane: ControlPlane) -> Iterator[list[Manifest]]:
    """The definitions of the next release; afterwards there are those of this one again."""
    yield [upgraded(path) for path in sorted((ROOT / "crds").glob("*.yaml"))]
    control_plane.install_crds(ROOT / "crds")


def test_definitions_that_are_upgraded_during_a_move_stop_nothing(
    scene: Scene, operator: StartOperator, next_release: list[Manifest]
) -> None:
    """The API server ends all watches then, and validates by other schemas from then on."""
    plane, held = scene.control_plane, {NEW}
    cards = {"A": 20, "B": 20}
    where = plane.kubeconfig, scene.namespace
    with running_pods(*where, cards, COLD_START_S, held=held) as witness:
        move = Move(scene)
        move.begin()
        witness.need({"s": 1})
        process = operator()
        move.wait_until_half_done()
        plane.api.apply(next_release)
        wait_until(move.may_have_later, bool, "definitions that count")
        held.clear()
        move.wait_until_done()

        process.check_running()
        assert witness.broken == []


def test_a_namespace_that_is_deleted_during_a_move_holds_up_no_other_one(
    scene: Scene, other: Scene, operator: StartOperator
) -> None:
    """Nothing can be created there any more, and what is there ends."""
    plane = scene.control_plane
    with (
        running_pods(plane.kubeconfig, scene.namespace, {}, held={NEW}),
        running_pods(plane.kubeconfig, other.namespace, {}) as witness,
    ):
        first = Move(scene)
        first.begin()
        process = operator(namespace=None)
        first.wait_until_half_done()
        plane.api.delete_namespace(scene.namespace)
        second = Move(other)
        second.begin()
        witness.need({"s": 1})
        second.wait_until_done()

        process.check_running()
        assert witness.broken == []


def test_a_deployment_that_is_paused_during_a_move_is_left_all_the_same(
    scene: Scene, operator: StartOperator
) -> None:
    """Its template may not change, and its number of replicas may."""
    kubeconfig, held = scene.control_plane.kubeconfig, {NEW}
    with running_pods(kubeconfig, scene.namespace, {}, held=held) as witness:
        move = Move(scene)
        move.begin()
        witness.need({"s": 1})
        operator()
        move.wait_until_half_done()
        move.pause("s-a", paused=True)
        held.clear()
        move.wait_until_done()

        assert witness.broken == []
