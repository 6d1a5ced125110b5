"""Watches that break, or cannot go on: nothing that happened meanwhile is missed."""

import os
import signal
from datetime import UTC, datetime
from pathlib import Path

import pytest

from inferno_operator.resources import Server
from inferno_operator.resources.objects import kind_of
from inferno_optimizer.errors import UnavailableError
from tests.cluster.connection import connected
from tests.cluster.forgetful import ForgetfulProxy
from tests.cluster.scene import (
    Mode,
    Scene,
    in_mode,
    in_opposite_modes,
)
from tests.conftest import StartOperator
from tests.controlplane import ControlPlane

pytestmark = pytest.mark.usefixtures("crds_installed")


async def test_a_version_that_is_too_old_is_no_end_of_a_watch(
    control_plane: ControlPlane, namespace: str
) -> None:
    control_plane.items("servers", namespace)  # kubectl waits until their cache is ready
    async with connected(control_plane.kubeconfig, lambda: datetime.now(UTC)) as reader:
        with pytest.raises(UnavailableError, match=r"too old resource version|HTTP 410"):
            await anext(reader.watch(kind_of(Server), namespace, since=1))


def delete_a_server(scene: Scene) -> None:
    """Delete one of the two Servers, without the operator."""
    scene.patch("server", "free-granite-13b", {"metadata": {"finalizers": None}})
    scene.kubectl("delete", "server", "free-granite-13b")


@in_opposite_modes
def test_what_happened_while_nobody_watched_is_noticed(
    scene: Scene, operator: StartOperator, mode: Mode
) -> None:
    scene.apply_sample("small")
    process = in_mode(operator, mode.environment)()
    scene.wait_until_held(mode)
    os.kill(process.pid, signal.SIGSTOP)
    delete_a_server(scene)
    scene.control_plane.stop_api_server()
    scene.control_plane.start_api_server()  # which remembers nothing but what is there now
    scene.request("inferno")
    os.kill(process.pid, signal.SIGCONT)

    optimizer = scene.wait_until_done("inferno")

    assert optimizer["status"]["lastOptimization"]["servers"] == 1
    if mode.holds:
        assert mode.told == ["Premium-granite-13b"]


@in_opposite_modes
def test_watches_that_are_gone_begin_anew(
    scene: Scene, operator: StartOperator, mode: Mode, tmp_path: Path
) -> None:
    scene.apply_sample("small")
    with ForgetfulProxy(scene.control_plane.kubeconfig) as proxy:
        kubeconfig = proxy.write_kubeconfig(tmp_path / "kubeconfig")
        process = in_mode(operator, mode.environment)(kubeconfig=kubeconfig)
        scene.wait_until_held(mode)
        os.kill(process.pid, signal.SIGSTOP)
        proxy.forget()
        delete_a_server(scene)
        scene.request("inferno")
        os.kill(process.pid, signal.SIGCONT)

        optimizer = scene.wait_until_done("inferno")

        process.stop()

    assert optimizer["status"]["lastOptimization"]["servers"] == 1
    watched = {path.rpartition("/")[2] for path in proxy.gone}
    assert "optimizers" in watched
    if mode.name.startswith("stateful"):
        assert "servers" in watched
        assert "too old resource version" in process.log
