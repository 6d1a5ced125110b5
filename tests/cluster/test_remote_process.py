"""A REST optimizer that is a process of its own, and dies: what it was asked is asked again."""

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import pytest

from tests.cluster.scene import Mode, Scene, condition, decided, in_mode, mode_called
from tests.conftest import StartOperator
from tests.controlplane import ControlPlane
from tests.controlplane.waiting import wait_until
from tests.rest.serving import Served, serving
from tests.tiers import extended

pytestmark = pytest.mark.usefixtures("crds_installed")


def running(server: Served) -> bool:
    """Whether it is at work on an optimization."""
    return "inferno_solves_running 1.0" in httpx.get(f"{server.url}/metrics").text


@pytest.fixture(params=[*extended("stateless-remote"), "stateful-remote"])
def mode(request: pytest.FixtureRequest, control_plane: ControlPlane) -> Iterator[Mode]:
    """Ways to run, with an optimizer that a test may kill."""
    with mode_called(request.param, control_plane.processes) as mode:
        yield mode


def test_a_server_is_killed_during_a_solve_and_another_one_starts_empty(
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

    told = condition(scene.wait_until_failed("inferno"), "Optimized")
    assert told["reason"] == "Unavailable"
    assert server.url in told["message"]
    assert all("status" not in found for found in scene.servers().values())

    port = str(urlsplit(server.url).port)
    stateful = ["--stateful"] if mode.holds else []
    with serving(tmp_path, *stateful, "--port", port):
        scene.wait_until_done("inferno")

    servers = scene.servers()
    assert decided(servers["premium-granite-13b"])[:2] == ("G2", 2)
    assert decided(servers["free-granite-13b"])[:2] == ("G2", 1)
