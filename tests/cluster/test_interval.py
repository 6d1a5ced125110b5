"""Optimizers that optimize by themselves, again and again."""

from datetime import datetime
from typing import Any

import pytest

from tests.cluster.scene import Manifest, Mode, Scene, decided, in_mode
from tests.conftest import StartOperator
from tests.controlplane.waiting import wait_until

pytestmark = pytest.mark.usefixtures("crds_installed")

EVERY_SECOND = {"spec": {"interval": 1}}


def last_time(optimizer: Manifest) -> datetime | None:
    last = optimizer.get("status", {}).get("lastOptimization")
    return datetime.fromisoformat(last["time"]) if last else None


def patch(scene: Scene, resource: str, name: str, change: dict[str, Any]) -> None:
    scene.control_plane.patch(resource, name, change, scene.namespace)


def wait_until_optimized_after(scene: Scene, name: str, before: datetime | None) -> datetime:
    def later(optimizer: Manifest) -> bool:
        now = last_time(optimizer)
        return now is not None and (before is None or now > before)

    found = last_time(scene.control_plane.wait_for("optimizer", name, later, scene.namespace))
    assert found is not None
    return found


def test_new_loads_are_met_without_being_asked(
    scene: Scene, operator: StartOperator, mode: Mode
) -> None:
    scene.apply_sample("small")
    in_mode(operator, mode.environment)()
    patch(scene, "optimizer", "inferno", EVERY_SECOND)
    wait_until_optimized_after(scene, "inferno", None)
    assert decided(scene.servers()["free-granite-13b"])[1] == 1
    load = {"spec": {"currentAlloc": {"load": {"arrivalRate": 600}}}}
    patch(scene, "server", "free-granite-13b", load)

    replicas = wait_until(
        lambda: decided(scene.servers()["free-granite-13b"])[1],
        lambda count: count > 1,
        "more replicas",
    )

    assert replicas > 1
    assert not scene.optimizer("inferno")["spec"]["optimize"]
