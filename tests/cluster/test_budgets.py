"""A PodDisruptionBudget allows no eviction: replicas move all the same, and the drain then ends."""

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.cluster.scene import Manifest, Scene
from tests.cluster.test_drain import fleet, is_ready, node, scheduled, wait_until_half_moved
from tests.conftest import StartOperator
from tests.controlplane import ControlPlane
from tests.controlplane.cluster import DEPLOYMENTS
from tests.controlplane.waiting import PATIENCE_S, wait_until

pytestmark = [
    pytest.mark.usefixtures("crds_installed", "budget_controllers"),
    pytest.mark.extended,
]


@pytest.fixture
def budget_controllers(control_plane: ControlPlane) -> Iterator[None]:
    """Deployments have pods, and budgets say how many of them may be evicted."""
    control_plane.start_controller_manager(f"{DEPLOYMENTS},disruption-controller")
    yield
    control_plane.stop_controller_manager()


def budget(application: str) -> Manifest:
    """No pod of an application may be evicted."""
    selector = {"matchLabels": {"app": application}}
    return {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": application},
        "spec": {"maxUnavailable": 0, "selector": selector},
    }


@contextmanager
def drained(plane: ControlPlane, name: str, log: Path) -> Iterator[subprocess.Popen[bytes]]:
    """Drain a node; what kubectl complains of is in the log as soon as it does."""
    options = ("--force", "--ignore-daemonsets", f"--timeout={PATIENCE_S:.0f}s")
    program = (str(plane.kubectl_program), "--kubeconfig", str(plane.kubeconfig))
    with (
        log.open("w") as said,
        subprocess.Popen([*program, "drain", name, *options], stderr=said) as drain,
    ):
        yield drain
        drain.kill()  # if it has not ended


def test_a_drain_that_a_budget_forbids_ends_when_the_server_has_moved(
    scene: Scene, operator: StartOperator, tmp_path: Path
) -> None:
    """A reduction is no eviction: the move is not held up, and nobody loses a replica for it."""
    log, forbids = tmp_path / "log", "violate the pod's disruption budget"
    with scheduled(scene) as placed:
        scene.apply(*fleet(), budget("chat-l4"), budget("chat-h100"))
        wait_until_half_moved(scene, operator, placed.witness)
        with drained(scene.control_plane, node(scene, "left"), log) as drain:
            wait_until(log.read_text, lambda said: forbids in said, "a refusal")
            placed.go_on()
            wait_until(is_ready(scene, chat_h100=4, mail_l4=2), bool, "the end of the move")

            assert drain.wait(PATIENCE_S) == 0, log.read_text()

    assert placed.witness.broken == []
