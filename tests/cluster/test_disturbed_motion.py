"""What happens while replicas move: definitions change, a namespace ends, somebody types a load."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from inferno_operator.resources import GROUP, VERSION
from tests.cluster.kubelet import running_pods
from tests.cluster.scene import ACCOUNT, Manifest, Scene
from tests.conftest import ROOT, StartOperator
from tests.controlplane import ControlPlane
from tests.controlplane.deployments import deployment
from tests.controlplane.waiting import wait_until
from tests.unit.operator import objects

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


BEFORE, AFTER = 590, 650
"""Loads [requests/min]: two on B cost 140, and on A ten cost 100 and eleven 110."""


def fleet() -> Iterator[Manifest]:
    """Yield a Server that runs on ten A and is to move to one B, and what it needs."""
    yield objects.accelerator("A", cost=10)
    yield objects.accelerator("B", cost=70)
    yield objects.model(data=[objects.performance(), objects.performance("B", alpha=99.9, beta=0)])
    yield objects.service_class()
    yield objects.capacity(100)
    yield ACCOUNT
    yield deployment("s-a", RUNS)
    yield deployment("s-b", 0)
    workloads = [{"accelerator": name, "name": f"s-{name.lower()}"} for name in "AB"]
    runs = {**objects.running(RUNS, RUNS), "load": {"arrivalRate": BEFORE, "avgLength": 1}}
    yield objects.server("S", spec={"workloads": workloads, "currentAlloc": runs})
    optimizer = objects.optimizer(optimize=False)
    optimizer["spec"]["interval"] = 1
    yield optimizer


class Move:
    """A Server that runs on ten A and goes to one B."""

    def __init__(self, scene: Scene) -> None:
        self._scene = scene
        manifests = list(fleet())
        self._optimizer = [m for m in manifests if m["kind"] == "Optimizer"]
        scene.apply(*(m for m in manifests if m["kind"] != "Optimizer"))

    def begin(self) -> None:
        """Let plans be made once all replicas on A are ready."""

        def ready(manifest: Manifest) -> bool:
            return bool(manifest.get("status", {}).get("readyReplicas") == RUNS)

        self._scene.control_plane.wait_for("deployment", "s-a", ready, self._scene.namespace)
        self._scene.apply(*self._optimizer)

    def wait_for_replicas(self, **wanted: int) -> None:
        """Wait until both Deployments ask for so much."""
        numbers = {f"s-{name}": count for name, count in wanted.items()}
        wait_until(self._scene.replicas, lambda found: found == numbers, f"{numbers}")

    def wait_until_half_done(self) -> None:
        """Wait until the new replica is asked for; it starts as long as its pod is held."""
        self.wait_for_replicas(a=RUNS, b=1)

    def wait_until_done(self) -> None:
        """Wait until it runs on B alone, and says so."""
        self.wait_for_replicas(a=0, b=1)
        self._scene.wait_for_actuated("Actuated")


def may_have_later(scene: Scene) -> bool:
    """Whether the Server may have the field of the next release."""
    patch = json.dumps({"spec": {"later": "on"}})
    options = ("--type=merge", "--patch", patch, "--dry-run=server", "--output=json")
    return "later" in json.loads(scene.kubectl("patch", "server", "s", *options))["spec"]


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
        wait_until(lambda: may_have_later(scene), bool, "definitions that count")
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
        scene.patch("deployment", "s-a", {"spec": {"paused": True}})
        held.clear()
        move.wait_until_done()

        assert witness.broken == []


def test_a_load_that_somebody_types_during_a_move_turns_it_back_only_when_it_has_ended(
    scene: Scene, operator: StartOperator
) -> None:
    def decision() -> tuple[str, float]:
        """The accelerator, and the load that it is for."""
        return decision_of(scene.servers()["s"])

    held = {NEW}
    with (
        running_pods(scene.control_plane.kubeconfig, scene.namespace, {}, held=held),
        scene.changes(GROUP, VERSION, "servers") as servers,
        scene.changes("apps", "v1", "deployments") as deployments,
    ):
        move = Move(scene)
        move.begin()
        operator()
        wait_until(decision, lambda made: made == ("B", BEFORE), "a decision for B")
        move.wait_until_half_done()
        load = {"load": {"arrivalRate": AFTER, "avgLength": 1}}
        scene.patch("server", "s", {"spec": {"currentAlloc": load}})
        wait_until(decision, lambda made: made[1] == AFTER, "a plan that knows it")
        held.clear()
        wait_until(decision, lambda made: made == ("A", AFTER), "a decision for what costs less")
        move.wait_for_replicas(a=RUNS + 1, b=0)

        ended = wait_until(
            lambda: [at for at, found in deployments.states if replicas_on_a(found) == 0],
            bool,
            "the end of the move",
        )
        made = wait_until(
            lambda: [(at, *decision_of(found)) for at, found in servers.states],
            lambda seen: ("A", AFTER) in [(name, load) for _, name, load in seen],
            "the decisions",
        )
    during = [
        (accelerator, load) for at, accelerator, load in made if accelerator and at < ended[0]
    ]
    assert {accelerator for accelerator, _ in during} == {"B"}
    assert ("B", AFTER) in during


def decision_of(server: Manifest) -> tuple[str, float]:
    desired = server["spec"].get("desiredAlloc", {})
    return desired.get("accelerator", ""), desired.get("load", {}).get("arrivalRate", 0)


def replicas_on_a(deployment: Manifest) -> int | None:
    """What the Deployment of A asks for; None for another one."""
    is_it = deployment["metadata"]["name"] == "s-a"
    return deployment["spec"]["replicas"] if is_it else None
