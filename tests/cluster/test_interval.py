"""Optimizers that optimize by themselves, again and again."""

from datetime import datetime
from typing import Any

import pytest

from tests.cluster.scene import Manifest, Mode, Scene, condition, decided, in_mode
from tests.conftest import StartOperator
from tests.controlplane.waiting import wait_until

pytestmark = pytest.mark.usefixtures("crds_installed")

EVERY_SECOND = {"spec": {"interval": 1}}
NEVER = {"spec": {"interval": None}}


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


def test_servers_are_written_only_when_their_decision_changes(
    scene: Scene, operator: StartOperator
) -> None:
    scene.apply_sample("small")
    operator()
    patch(scene, "optimizer", "inferno", EVERY_SECOND)
    first = wait_until_optimized_after(scene, "inferno", None)
    before = {name: s["metadata"]["resourceVersion"] for name, s in scene.servers().items()}

    second = wait_until_optimized_after(scene, "inferno", first)
    wait_until_optimized_after(scene, "inferno", second)

    assert before == {name: s["metadata"]["resourceVersion"] for name, s in scene.servers().items()}


def test_without_its_interval_it_waits_to_be_asked(scene: Scene, operator: StartOperator) -> None:
    scene.apply_sample("small")
    process = operator()
    patch(scene, "optimizer", "inferno", EVERY_SECOND)
    wait_until_optimized_after(scene, "inferno", None)
    patch(scene, "optimizer", "inferno", NEVER)
    scene.request("inferno")
    last = last_time(scene.wait_until_done("inferno"))

    assert process.stop() == 0

    assert last_time(scene.optimizer("inferno")) == last


def test_the_younger_of_two_with_an_interval_is_refused_until_it_is_alone(
    scene: Scene, operator: StartOperator
) -> None:
    scene.apply_sample("small")
    operator()
    patch(scene, "optimizer", "inferno", EVERY_SECOND)
    wait_until_optimized_after(scene, "inferno", None)
    older = scene.optimizer("inferno")
    spec = {**older["spec"], "interval": 1, "optimize": False}
    # Of those born in one second the names decide.
    header = {key: older[key] for key in ("apiVersion", "kind")}
    scene.apply({**header, "metadata": {"name": "younger"}, "spec": spec})

    def refused(optimizer: Manifest) -> bool:
        return condition(optimizer, "Ready").get("reason") == "SeveralIntervals"

    told = scene.control_plane.wait_for("optimizer", "younger", refused, scene.namespace)

    assert condition(told, "Ready")["status"] == "False"
    assert "'inferno'" in condition(told, "Ready")["message"]
    assert last_time(told) is None
    assert condition(scene.optimizer("inferno"), "Ready")["status"] == "True"

    patch(scene, "optimizer", "inferno", NEVER)

    wait_until_optimized_after(scene, "younger", None)
    alone = scene.optimizer("younger")
    assert condition(alone, "Ready")["status"] == "True"
