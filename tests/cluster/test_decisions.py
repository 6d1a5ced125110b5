"""The main job on a real control plane: requests become decisions.

In each way to run one operator gets one request after another.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from tests.cluster.scene import EVERY, Manifest, Scene, condition, decided, mode_called
from tests.conftest import new_namespace
from tests.controlplane import ControlPlane
from tests.controlplane.waiting import wait_until

Servers = dict[str, Manifest]

PREMIUM, FREE = "premium-granite-13b", "free-granite-13b"
MIXES = {"unlimited": False, "milpSolver": True, "heterogeneous": True}


@dataclass(frozen=True, slots=True)
class Answers:
    """What an operator made of the sample `small`: its Servers after each request."""

    before: Servers
    """Before the first request."""

    first: Servers
    optimizer: Manifest
    """After the first request."""

    table: str
    """What `kubectl get servers` shows after the first request."""

    events: list[Manifest]
    """That Servers were decided upon, by the first request."""

    again: Servers
    """Nothing has changed."""

    costly: Servers
    """What the premium Server runs on now costs far too much."""

    mixed: Servers
    """With the exact solver for mixes."""

    unknown: Servers
    """There is no Model of that name for the free Server."""


@pytest.fixture(scope="module", params=EVERY)
def answers(request: pytest.FixtureRequest, control_plane: ControlPlane) -> Iterator[Answers]:
    request.getfixturevalue("crds_installed")
    with (
        new_namespace(control_plane) as namespace,
        mode_called(request.param, control_plane.processes) as mode,
    ):
        scene = Scene(control_plane, namespace)
        scene.apply_sample("small")
        before = scene.servers()
        process = scene.start_operator(f"operator-{namespace}", **mode.environment)
        try:
            yield answers_of(scene, before)
        finally:
            process.stop()


def answers_of(scene: Scene, before: Servers) -> Answers:
    """Ask in turn; the sample is in the namespace, and an operator at work."""
    first, optimizer = asked(scene), scene.optimizer("inferno")
    table = scene.kubectl("get", "servers")
    events = wait_until(
        lambda: scene.events("Allocated"), lambda found: len(found) >= len(first), "events"
    )
    again = asked(scene)
    cost = before[PREMIUM]["spec"]["currentAlloc"]["cost"]
    change(scene, "server", PREMIUM, {"currentAlloc": {"cost": 10 * cost}})
    costly = asked(scene)
    change(scene, "server", PREMIUM, {"currentAlloc": {"cost": cost}})
    parameters = optimizer["spec"]["data"]["optimizer"]
    change(scene, "optimizer", "inferno", {"data": {"optimizer": MIXES}})
    mixed = asked(scene)
    restored = {**dict.fromkeys(MIXES), **parameters}
    change(scene, "optimizer", "inferno", {"data": {"optimizer": restored}})
    asked(scene)
    change(scene, "server", FREE, {"model": "granit-13b"})
    unknown = asked(scene)
    return Answers(before, first, optimizer, table, events, again, costly, mixed, unknown)


def asked(scene: Scene) -> Servers:
    """The Servers after one more request."""
    done = scene.optimizer("inferno").get("status", {}).get("lastOptimization", {})
    earlier = done.get("requestedGeneration", 0)
    scene.request("inferno")

    def is_answered(optimizer: Manifest) -> bool:
        last = optimizer.get("status", {}).get("lastOptimization", {})
        return not optimizer["spec"]["optimize"] and last.get("requestedGeneration", 0) > earlier

    scene.control_plane.wait_for("optimizer", "inferno", is_answered, scene.namespace)
    return scene.servers()


def change(scene: Scene, kind: str, name: str, spec: Manifest) -> None:
    scene.patch(kind, name, {"spec": spec})


def test_a_sample_and_a_merge_patch_are_all_that_it_takes(answers: Answers) -> None:
    premium, free = answers.first[PREMIUM], answers.first[FREE]

    assert decided(premium) == ("G2", 2, 50, 19)
    assert decided(free) == ("G2", 1, 25, 38)
    assert premium["spec"]["desiredAlloc"]["itlAverage"] == pytest.approx(19.79, abs=0.005)
    assert free["spec"]["desiredAlloc"]["itlAverage"] == pytest.approx(22.78, abs=0.005)
    assert premium["spec"]["currentAlloc"]["load"] == premium["spec"]["desiredAlloc"]["load"]
    assert answers.optimizer["status"]["done"]
    assert condition(answers.optimizer, "Optimized")["status"] == "True"
    assert answers.optimizer["status"]["lastOptimization"]["cost"] == 75


def test_the_table_of_servers_shows_the_decision(answers: Answers) -> None:
    header, free, _ = answers.table.splitlines()

    assert header.split()[:7] == [
        *("NAME", "CLASS", "MODEL", "ACCELERATOR", "REPLICAS", "COST", "READY")
    ]
    assert free.split()[:7] == [FREE, "Free", "granite-13b", "G2", "1", "25", "True"]


def test_each_decision_is_an_event(answers: Answers) -> None:
    assert sorted(event["regarding"]["name"] for event in answers.events) == [FREE, PREMIUM]


def test_only_our_fields_are_written_and_nothing_is_annotated(answers: Answers) -> None:
    before, after = answers.before[FREE], answers.first[FREE]

    assert "annotations" not in after["metadata"]
    assert {**after["spec"], "desiredAlloc": None} == {**before["spec"], "desiredAlloc": None}


def test_asking_again_with_nothing_changed_writes_no_server(answers: Answers) -> None:
    assert versions(answers.again) == versions(answers.first)


def versions(servers: Servers) -> dict[str, str]:
    return {name: server["metadata"]["resourceVersion"] for name, server in servers.items()}


def test_a_current_cost_far_too_high_makes_staying_the_better_choice(answers: Answers) -> None:
    premium = answers.costly[PREMIUM]

    assert decided(premium) == ("A100", 2, 80, 16)
    assert premium["spec"]["desiredAlloc"]["itlAverage"] == pytest.approx(24.40, abs=0.005)
    assert premium["spec"]["desiredAlloc"]["waitAverage"] == pytest.approx(84.95, abs=0.005)


def test_a_server_may_run_on_several_accelerators(answers: Answers) -> None:
    premium, free = answers.mixed[PREMIUM], answers.mixed[FREE]

    mix = premium["spec"]["desiredAlloc"]["mix"]

    assert sorted((part["accelerator"], part["numReplicas"], part["cost"]) for part in mix) == [
        ("A100", 1, 40),
        ("G2", 1, 25),
    ]
    assert decided(premium) == ("G2", 2, 65, 19)
    assert decided(free) == ("G2", 1, 25, 38)
    assert not free["spec"]["desiredAlloc"]["mix"]


def test_a_decision_stands_while_none_is_possible(answers: Answers) -> None:
    server = answers.unknown[FREE]

    assert decided(server) == decided(answers.first[FREE])
    assert condition(server, "Allocated")["reason"] == "UnknownModel"
