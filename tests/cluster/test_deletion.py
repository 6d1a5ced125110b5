"""Whatever is deleted, in whatever order: nothing hangs, and no finalizer is left behind."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cluster.scene import (
    FINALIZER,
    MODES,
    Mode,
    Scene,
    environment_of,
    in_mode,
    mode_called,
)
from tests.conftest import ROOT, StartOperator
from tests.controlplane import ControlPlane
from tests.controlplane.errors import ApiError
from tests.controlplane.waiting import wait_until

pytestmark = pytest.mark.usefixtures("crds_installed")


@pytest.fixture
def holding(tmp_path: Path) -> Iterator[Mode]:
    """The one way to run in which objects carry our finalizer."""
    with mode_called("stateful-remote", tmp_path) as mode:
        yield mode


def is_gone(control_plane: ControlPlane, resource: str, name: str, namespace: str | None) -> bool:
    try:
        control_plane.get(resource, name, namespace)
    except ApiError as error:
        return "NotFound" in str(error)
    return False


def delete(scene: Scene, *what: str) -> None:
    """Delete and wait until it is gone; kubectl fails after a minute."""
    arguments = ["--namespace", scene.namespace, "--timeout=60s"]
    scene.control_plane.kubectl("delete", *what, *arguments)


def test_objects_are_held_in_one_mode_only(
    scene: Scene, operator: StartOperator, mode: Mode
) -> None:
    scene.apply_sample("small")
    in_mode(operator, mode.environment)()
    scene.request("inferno")
    scene.wait_until_done("inferno")

    scene.wait_until_held(mode)


def test_every_object_can_be_deleted(scene: Scene, operator: StartOperator, mode: Mode) -> None:
    scene.apply_sample("small")
    in_mode(operator, mode.environment)()
    scene.wait_until_held(mode)

    delete(scene, "inferno", "--all")

    assert scene.finalizers() == {}
    assert not mode.holds or not mode.told


def test_a_namespace_with_everything_in_it_can_be_deleted(
    scene: Scene, operator: StartOperator, mode: Mode, controller_manager: None
) -> None:
    del controller_manager
    scene.apply_sample("small")
    in_mode(operator, mode.environment)()
    scene.wait_until_held(mode)

    scene.control_plane.kubectl("delete", "namespace", scene.namespace, "--timeout=60s")

    assert is_gone(scene.control_plane, "namespace", scene.namespace, None)


def test_the_optimizer_is_told_before_an_object_goes(
    scene: Scene, operator: StartOperator, holding: Mode
) -> None:
    scene.apply_sample("small")
    in_mode(operator, holding.environment)()
    scene.wait_until_held(holding)
    wait_until(lambda: len(holding.told), lambda count: count == 2, "two servers told", 30.0)

    delete(scene, "server", "free-granite-13b")

    assert holding.told == ["Premium-granite-13b"]


def test_an_optimizer_that_is_gone_for_good_holds_no_object(
    scene: Scene, operator: StartOperator, holding: Mode
) -> None:
    assert holding.optimizer is not None
    scene.apply_sample("small")
    in_mode(operator, holding.environment)()
    scene.wait_until_held(holding)
    holding.optimizer.stop()

    delete(scene, "inferno", "--all")

    assert scene.finalizers() == {}


def test_an_operator_that_ends_lets_go_of_everything(
    scene: Scene, operator: StartOperator, holding: Mode
) -> None:
    scene.apply_sample("small")
    process = in_mode(operator, holding.environment)()
    scene.wait_until_held(holding)

    assert process.stop() == 0

    assert not any(scene.finalizers().values())
    delete(scene, "inferno", "--all")


@pytest.mark.parametrize("mode", MODES[:3], indirect=True)
def test_what_another_mode_left_is_taken_off_at_the_start(
    scene: Scene, operator: StartOperator, holding: Mode, mode: Mode
) -> None:
    scene.apply_sample("small")
    process = in_mode(operator, holding.environment)()
    scene.wait_until_held(holding)
    process.kill()
    left = {"metadata": {"finalizers": [FINALIZER, "example.com/other"]}}
    scene.control_plane.patch("optimizer", "inferno", left, scene.namespace)
    arguments = ["--namespace", scene.namespace, "--wait=false"]
    scene.control_plane.kubectl("delete", "server", "free-granite-13b", *arguments)
    assert any(scene.finalizers().values())

    in_mode(operator, mode.environment)()

    wait_until(
        lambda: {names for found in scene.finalizers().values() for names in found},
        lambda names: names == {"example.com/other"},
        "only the finalizers of others",
        30.0,
    )
    assert is_gone(scene.control_plane, "server", "free-granite-13b", scene.namespace)
    scene.control_plane.patch(
        "optimizer", "inferno", {"metadata": {"finalizers": None}}, scene.namespace
    )


def test_switching_through_all_ways_to_run_leaves_nothing_behind(
    scene: Scene, operator: StartOperator, tmp_path: Path
) -> None:
    scene.apply_sample("small")
    for name in ("stateful-remote", "stateless-remote", "stateful-remote", "stateful-local"):
        with mode_called(name, tmp_path) as mode:
            process = in_mode(operator, mode.environment)()
            scene.wait_until_held(mode)
            process.kill()

    in_mode(operator, environment_of("stateless-local"))()
    delete(scene, "inferno", "--all")

    assert scene.finalizers() == {}


def test_the_definitions_can_be_deleted_while_the_operator_is_at_work(
    scene: Scene, operator: StartOperator, holding: Mode
) -> None:
    scene.apply_sample("small")
    process = in_mode(operator, holding.environment)()
    scene.wait_until_held(holding)
    control_plane, definitions = scene.control_plane, ROOT / "crds"
    try:
        control_plane.kubectl("delete", "--filename", definitions, "--timeout=60s")
    finally:
        control_plane.install_crds(definitions)

    process.check_running()
    scene.apply_sample("small")
    scene.request("inferno")
    optimizer = scene.wait_until_done("inferno")
    assert optimizer["status"]["lastOptimization"]["allocated"] == 2
