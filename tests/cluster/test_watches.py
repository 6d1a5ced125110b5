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
from tests.cluster.kubelet import running_pods
from tests.cluster.machines import KINDS, machines
from tests.cluster.scene import (
    ACCOUNT,
    Manifest,
    Mode,
    Scene,
    accelerator,
    condition,
    in_mode,
    in_opposite_modes,
)
from tests.conftest import StartOperator
from tests.controlplane import ControlPlane
from tests.controlplane.deployments import deployment
from tests.controlplane.waiting import wait_until
from tests.unit.operator import objects

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


def counted(scene: Scene) -> dict[str, int]:
    """Cards by type, as they were counted."""
    status = scene.get("capacity", "cards").get("status", {})
    return {cards["type"]: cards["total"] for cards in status.get("counted", ())}


def one_server_on_nodes(wanted: int) -> list[Manifest]:
    """Server `s` with Deployment `engine` on H100, which are counted."""
    workloads = [{"accelerator": "H100", "name": "engine"}]
    current = objects.running(0, wanted, "H100")
    return [
        ACCOUNT,
        accelerator("H100"),
        objects.model("M", [objects.performance("H100")]),
        objects.service_class(),
        objects.manifest("Capacity", {"fromNodes": True}, name="cards"),
        objects.server("s", spec={"workloads": workloads, "currentAlloc": current}),
        deployment("engine"),
        objects.optimizer(),
    ]


@pytest.mark.extended
@pytest.mark.usefixtures("deployment_controllers")
def test_what_happened_while_all_watches_were_gone_is_noticed_for_each_kind(
    scene: Scene, operator: StartOperator, tmp_path: Path
) -> None:
    plane = scene.control_plane
    kubeconfig = plane.kubeconfig

    def actuated() -> Manifest:
        return condition(scene.servers()["s"], "Actuated")

    def runs() -> int:
        replicas: int = scene.servers()["s"]["spec"]["currentAlloc"]["numReplicas"]
        return replicas

    with ForgetfulProxy(kubeconfig) as proxy, machines(kubeconfig) as cluster:
        cluster.add_nodes(len(KINDS))
        scene.apply(*one_server_on_nodes(2))
        process = operator(kubeconfig=proxy.write_kubeconfig(tmp_path / "kubeconfig"))
        with running_pods(kubeconfig, scene.namespace, {}):
            wait_until(actuated, lambda told: told.get("message") == "2 x H100", "it")
        watched = proxy.watched
        os.kill(process.pid, signal.SIGSTOP)
        proxy.forget()
        plane.stop_api_server()
        plane.start_api_server()  # which remembers no version but those from now on
        plane.items("inferno,plans,deployments", scene.namespace)  # waits for its caches
        cluster.add_nodes(len(KINDS))
        scene.kubectl("scale", "deployment/engine", "--replicas=1")
        load = {"spec": {"currentAlloc": {"load": objects.running(0, 5)["load"]}}}
        scene.patch("server", "s", load)
        scene.request("inferno")
        os.kill(process.pid, signal.SIGCONT)
        with running_pods(kubeconfig, scene.namespace, {}):
            scene.wait_until_done("inferno")
            wait_until(lambda: counted(scene), lambda found: found.get("H100") == 16, "it")
            wait_until(actuated, lambda told: told.get("reason") == "ForeignWriter", "it")
            wait_until(runs, lambda number: number == 1, "the pod that is left")
        server = scene.servers()["s"]

    kinds = {path.rpartition("/")[2] for path in watched}
    assert kinds >= {"servers", "optimizers", "capacities", "deployments", "pods", "nodes"}
    assert set(proxy.gone) >= watched
    assert process.log.count("too old resource version") >= len(watched)
    assert server["spec"]["desiredAlloc"]["numReplicas"] == 5
