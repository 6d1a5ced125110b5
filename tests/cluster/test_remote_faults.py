"""A remote optimizer that fails: requests end by themselves, and no Server gets half an answer."""

import os
import signal
from collections.abc import Iterator, Sequence
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import pytest

from tests.cluster.scene import Manifest, Mode, Scene, condition, decided, environment_of, in_mode
from tests.conftest import StartOperator
from tests.controlplane import ControlPlane
from tests.controlplane.waiting import PATIENCE_S, wait_until
from tests.rest.serving import Served, serving
from tests.rest_optimizer import Failure, RestOptimizer

pytestmark = pytest.mark.usefixtures("crds_installed")

PATIENCE = 31
"""How long the operators of these tests wait for an answer [s]."""

SERIAL_SECONDS = 4 * PATIENCE
"""What four namespaces take if each waits for the answer to the one before [s]."""


@pytest.fixture
def rest() -> Iterator[RestOptimizer]:
    """An optimizer that fails when a test wants it to."""
    with RestOptimizer() as rest:
        yield rest


@pytest.fixture
def scenes(control_plane: ControlPlane, scene: Scene) -> Iterator[Sequence[Scene]]:
    """The test's namespace, and three more."""
    names = [f"{scene.namespace}-{number}" for number in range(3)]
    for name in names:
        control_plane.create_namespace(name)
    yield scene, *(Scene(control_plane, name) for name in names)
    for name in names:
        control_plane.kubectl("delete", "namespace", name, "--wait=false")


@pytest.fixture
def operator(operator: StartOperator, rest: RestOptimizer) -> StartOperator:
    return in_mode(operator, environment_of("stateful-remote", rest.url))


def optimized(manifest: Manifest) -> Manifest:
    return condition(manifest, "Optimized")


def assert_decided(scene: Scene) -> None:
    """Every Server has the one right answer."""
    desired = {
        name: (server["spec"]["desiredAlloc"]["accelerator"], server["status"]["active"])
        for name, server in scene.servers().items()
    }
    assert desired == {"premium-granite-13b": ("G2", True), "free-granite-13b": ("G2", True)}


def begin_to_hang(scene: Scene, rest: RestOptimizer) -> None:
    """Ask for an optimization, and let it have no end once it has come."""
    rest.gate.clear()
    scene.request("inferno")
    assert rest.arrived.wait(PATIENCE_S)


def assert_untouched(scene: Scene) -> None:
    assert all("status" not in server for server in scene.servers().values())


def running(server: Served) -> bool:
    """Whether it is at work on an optimization."""
    return "inferno_solves_running 1.0" in httpx.get(f"{server.url}/metrics").text


def test_an_optimizer_is_killed_during_a_solve_and_another_one_starts_empty(
    scene: Scene, operator: StartOperator, mode: Mode, tmp_path: Path
) -> None:
    server = mode.optimizer
    assert server is not None
    scene.apply_sample("small")
    in_mode(operator, mode.environment)()
    scene.wait_until_held(mode)
    workers = server.workers()
    for worker in workers:
        os.kill(worker, signal.SIGSTOP)  # a solve that has no end
    scene.request("inferno")
    wait_until(lambda: running(server), bool, "a solve")

    os.kill(server.pid, signal.SIGKILL)
    for worker in workers:
        os.kill(worker, signal.SIGKILL)

    told = optimized(scene.wait_until_failed("inferno"))
    assert told["reason"] == "Unavailable"
    assert server.url in told["message"]
    assert wait_until(lambda: scene.events("Unavailable"), bool, "an event")
    assert_untouched(scene)

    port = str(urlsplit(server.url).port)
    with serving(tmp_path, "--stateful", "--port", port):
        scene.wait_until_done("inferno")

    servers = scene.servers()
    assert decided(servers["premium-granite-13b"])[:2] == ("G2", 2)
    assert decided(servers["free-granite-13b"])[:2] == ("G2", 1)


def test_an_optimizer_that_answers_garbage(
    scene: Scene, operator: StartOperator, rest: RestOptimizer
) -> None:
    scene.apply_sample("small")
    operator()
    rest.failures = [Failure.NO_JSON] * 1000
    scene.request("inferno")

    told = optimized(scene.wait_until_failed("inferno"))
    assert told["reason"] in ("SolverFailed", "Unavailable")
    assert rest.url in told["message"]
    assert_untouched(scene)

    rest.failures = []
    scene.wait_until_done("inferno")
    assert_decided(scene)


def test_an_optimizer_that_answers_slowly(
    scene: Scene, operator: StartOperator, rest: RestOptimizer
) -> None:
    scene.apply_sample("small")
    operator()
    rest.gate.clear()
    scene.request("inferno")

    told = optimized(scene.wait_for_condition("inferno", "Optimizing"))
    assert told["status"] == "Unknown"
    assert rest.arrived.wait(PATIENCE_S)
    assert_untouched(scene)

    rest.gate.set()
    scene.wait_until_done("inferno")
    assert_decided(scene)


def test_answers_that_were_there_before_stay_while_it_fails(
    scene: Scene, operator: StartOperator, rest: RestOptimizer
) -> None:
    scene.apply_sample("small")
    operator()
    scene.optimize()
    before = {name: s["spec"]["desiredAlloc"] for name, s in scene.servers().items()}
    load = {"spec": {"currentAlloc": {"load": {"arrivalRate": 600}}}}
    scene.patch("server", "free-granite-13b", load)
    rest.failures = [Failure.HALF, Failure.OTHERS, Failure.NO_JSON, Failure.NOBODY] * 1000
    scene.request("inferno")

    scene.wait_until_failed("inferno")

    assert {name: s["spec"]["desiredAlloc"] for name, s in scene.servers().items()} == before
    rest.failures = []
    scene.wait_until_done("inferno")
    after = {name: s["spec"]["desiredAlloc"] for name, s in scene.servers().items()}
    assert after["premium-granite-13b"] == before["premium-granite-13b"]
    assert after["free-granite-13b"]["numReplicas"] > before["free-granite-13b"]["numReplicas"]


def test_requests_during_a_solve_become_one(
    scene: Scene, operator: StartOperator, rest: RestOptimizer
) -> None:
    scene.apply_sample("small")
    operator()
    begin_to_hang(scene, rest)
    for policy in ("RoundRobin", "PriorityRoundRobin", "PriorityExhaustive"):
        change = {"spec": {"data": {"optimizer": {"saturationPolicy": policy}}, "optimize": True}}
        scene.patch("optimizer", "inferno", change)
    rest.gate.set()

    optimizer = scene.wait_until_done("inferno")

    last = optimizer["status"]["lastOptimization"]["requestedGeneration"]
    assert last == optimizer["metadata"]["generation"] - 1  # then the request was cleared
    assert len(rest.solved) == 2
    assert_decided(scene)


def test_an_operator_that_ends_does_not_wait_for_the_optimizer(
    scene: Scene, operator: StartOperator, rest: RestOptimizer
) -> None:
    scene.apply_sample("small")
    process = operator()
    begin_to_hang(scene, rest)

    assert process.stop() == 0
    assert_untouched(scene)


def test_an_object_goes_while_a_request_hangs(
    scene: Scene, operator: StartOperator, rest: RestOptimizer
) -> None:
    scene.apply_sample("small")
    operator()
    begin_to_hang(scene, rest)

    scene.kubectl("delete", "server", "free-granite-13b")

    assert rest.at_once == 1  # it still hangs: what is told of the deletion does not wait for it


@pytest.mark.slow
@pytest.mark.soak("it waits a minute, twice; for a part of it see test_remote.py")
def test_namespaces_do_not_wait_one_after_the_other_for_an_optimizer_that_hangs(
    scenes: Sequence[Scene], operator: StartOperator, rest: RestOptimizer
) -> None:
    for each in scenes:
        each.apply_sample("small")
    operator(
        namespace=",".join(each.namespace for each in scenes),
        environment={"INFERNO_SOLVER_TIME_LIMIT": str(PATIENCE - 30)},
    )
    rest.gate.clear()
    for each in scenes:
        each.request("inferno")

    # The request that waited first takes its turn just when the patience of the others ends.
    # One after the other, each would find the optimizer free and none would wait for a turn.
    told = [
        optimized(each.wait_until_failed("inferno", SERIAL_SECONDS))["message"] for each in scenes
    ]

    assert sum(f"no turn within {PATIENCE} s" in message for message in told) >= 2
    assert all(rest.url in message for message in told)
