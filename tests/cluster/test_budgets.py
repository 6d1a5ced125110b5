"""A PodDisruptionBudget allows no eviction: replicas move all the same, and the drain then ends."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

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


def test_a_drain_that_a_budget_forbids_ends_when_the_server_has_moved(
    scene: Scene, operator: StartOperator
) -> None:
    """A reduction is no eviction: the move is not held up, and nobody loses a replica for it."""
    plane = scene.control_plane
    with scheduled(scene) as witness, ThreadPoolExecutor(1) as pool:
        scene.apply(*fleet(), budget("chat-l4"), budget("chat-h100"))
        wait_until_half_moved(scene, operator, witness)
        options = ("--force", "--ignore-daemonsets", f"--timeout={PATIENCE_S:.0f}s")
        drain = pool.submit(plane.kubectl, "drain", node(scene, "left"), *options)
        wait_until(is_ready(scene, chat_h100=4, mail_l4=2), bool, "the end of the move")
        said = drain.result().stderr

    assert "violate the pod's disruption budget" in said
    assert witness.broken == []
