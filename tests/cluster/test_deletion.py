"""Whatever is deleted, in whatever order: nothing hangs, and no finalizer is left behind."""

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cluster.scene import (
    FINALIZER,
    MODES,
    Manifest,
    Mode,
    Scene,
    environment_of,
    in_every_mode,
    in_mode,
    mode_called,
)
from tests.conftest import ROOT, StartOperator
from tests.controlplane import ControlPlane
from tests.controlplane.errors import ApiError
from tests.controlplane.operator_process import OperatorProcess
from tests.controlplane.waiting import wait_until
from tests.deployment.make import Make
from tests.reference.shown import run, shown

pytestmark = pytest.mark.usefixtures("crds_installed")


@pytest.fixture
def definitions_anew(control_plane: ControlPlane) -> Iterator[Make]:
    """For a test that deletes definitions: the next one has all of them, and nothing is held."""
    make = Make(control_plane)
    yield make
    left = control_plane.items("crds")
    if any("deletionTimestamp" in definition["metadata"] for definition in left):
        make("uninstall", "ignore-not-found=true")
    else:
        make("release")
    control_plane.install_crds(ROOT / "crds")


@pytest.fixture
def holding(control_plane: ControlPlane) -> Iterator[Mode]:
    """The one way to run in which objects carry our finalizer."""
    with mode_called("stateful-remote", control_plane.processes) as mode:
        yield mode


def is_gone(control_plane: ControlPlane, resource: str, name: str, namespace: str | None) -> bool:
    try:
        control_plane.get(resource, name, namespace)
    except ApiError as error:
        return "NotFound" in str(error)
    return False


def delete(scene: Scene, *what: str) -> None:
    """Delete and wait until it is gone."""
    scene.kubectl("delete", *what)


@in_every_mode
def test_objects_are_held_in_one_mode_only_and_can_be_deleted_in_all(
    scene: Scene, operator: StartOperator, mode: Mode, controller_manager: None
) -> None:
    del controller_manager
    scene.apply_sample("small")
    in_mode(operator, mode.environment)()
    scene.optimize()
    scene.wait_until_held(mode)

    delete(scene, "inferno", "--all")

    assert scene.finalizers() == {}
    assert not mode.holds or not mode.told

    scene.apply_sample("small")
    scene.wait_until_held(mode)
    scene.control_plane.kubectl("delete", "namespace", scene.namespace)

    assert is_gone(scene.control_plane, "namespace", scene.namespace, None)


def start_and_hold(scene: Scene, operator: StartOperator, holding: Mode) -> OperatorProcess:
    """Start an operator that holds the objects of the sample."""
    scene.apply_sample("small")
    process = in_mode(operator, holding.environment)()
    scene.wait_until_held(holding)
    return process


def test_the_optimizer_is_told_before_an_object_goes(
    scene: Scene, operator: StartOperator, holding: Mode
) -> None:
    start_and_hold(scene, operator, holding)
    wait_until(lambda: len(holding.told), lambda count: count == 2, "two servers told")

    delete(scene, "server", "free-granite-13b")

    assert holding.told == ["Premium-granite-13b"]


def test_an_optimizer_that_is_gone_for_good_holds_no_object(
    scene: Scene, operator: StartOperator, holding: Mode
) -> None:
    assert holding.optimizer is not None
    start_and_hold(scene, operator, holding)
    os.kill(holding.optimizer.pid, signal.SIGKILL)

    delete(scene, "inferno", "--all")

    assert scene.finalizers() == {}


def test_an_operator_that_ends_lets_go_of_everything(
    scene: Scene, operator: StartOperator, holding: Mode
) -> None:
    process = start_and_hold(scene, operator, holding)

    assert process.stop() == 0

    assert not any(scene.finalizers().values())
    delete(scene, "inferno", "--all")


@pytest.mark.parametrize("mode", [MODES[0]], indirect=True)
def test_what_another_mode_left_is_taken_off_at_the_start(
    scene: Scene, operator: StartOperator, holding: Mode, mode: Mode
) -> None:
    process = start_and_hold(scene, operator, holding)
    process.kill()
    left = {"metadata": {"finalizers": [FINALIZER, "example.com/other"]}}
    scene.patch("optimizer", "inferno", left)
    scene.kubectl("delete", "server", "free-granite-13b", "--wait=false")
    assert any(scene.finalizers().values())

    in_mode(operator, mode.environment)()

    wait_until(
        lambda: {names for found in scene.finalizers().values() for names in found},
        lambda names: names == {"example.com/other"},
        "only the finalizers of others",
    )
    assert is_gone(scene.control_plane, "server", "free-granite-13b", scene.namespace)
    scene.patch("optimizer", "inferno", {"metadata": {"finalizers": None}})


@pytest.mark.extended
def test_switching_through_all_ways_to_run_leaves_nothing_behind(
    scene: Scene, operator: StartOperator
) -> None:
    scene.apply_sample("small")
    for name in ("stateful-remote", "stateless-remote", "stateful-remote", "stateful-local"):
        with mode_called(name, scene.control_plane.processes) as mode:
            process = in_mode(operator, mode.environment)()
            scene.wait_until_held(mode)
            process.kill()

    in_mode(operator, environment_of("stateless-local"))()
    delete(scene, "inferno", "--all")

    assert scene.finalizers() == {}


@pytest.mark.extended
def test_the_definitions_can_be_deleted_while_the_operator_is_at_work(
    scene: Scene, operator: StartOperator, holding: Mode, definitions_anew: Make
) -> None:
    process = start_and_hold(scene, operator, holding)
    definitions_anew("uninstall")
    definitions_anew("install")
    scene.control_plane.wait_until_served(ROOT / "crds")

    process.check_running()
    scene.apply_sample("small")
    optimizer = scene.optimize()
    assert optimizer["status"]["lastOptimization"]["allocated"] == 2


@pytest.mark.usefixtures("definitions_anew")
def test_an_operator_at_work_keeps_objects_whose_definitions_are_deleted(
    scene: Scene, operator: StartOperator, holding: Mode
) -> None:
    process = start_and_hold(scene, operator, holding)
    held = "accelerators,capacities,models,servers,serviceclasses"
    before = scene.items(held)
    scene.control_plane.kubectl("delete", "--filename", ROOT / "crds", "--wait=false")
    wait_until(lambda: process.log, lambda log: "run 'make release'" in log, "advice")

    assert len(scene.items(held)) == len(before)


def leave_behind(scene: Scene) -> None:
    """What is left of the original when its definitions go with it: all objects are held."""
    scene.apply_sample("small")
    finalizers = {"metadata": {"finalizers": [FINALIZER]}}
    for place in scene.finalizers():
        kind, _, name = place.partition("/")
        scene.patch(kind, name, finalizers)
    scene.control_plane.kubectl("delete", "--filename", ROOT / "crds", "--wait=false")
    wait_until(
        lambda: scene.optimizer("inferno")["metadata"],
        lambda metadata: "deletionTimestamp" in metadata,
        "its deletion",  # the API server works on five definitions at once, for a minute at most
    )


@pytest.mark.extended
@pytest.mark.usefixtures("definitions_anew")
def test_objects_stay_with_a_definition_that_is_being_deleted_until_a_person_lets_them_go(
    scene: Scene, operator: StartOperator, mode: Mode, tmp_path: Path
) -> None:
    leave_behind(scene)
    held, specs = scene.finalizers(), specs_of(scene)
    process = in_mode(operator, mode.environment)()
    scene.wait_for_condition("inferno", "DefinitionTerminating")
    wait_until(lambda: process.log, lambda log: "run 'make release'" in log, "advice")

    assert scene.finalizers() == held
    assert process.stop() == 0
    assert scene.finalizers() == held

    do_as_troubleshooting_says(scene, tmp_path)
    assert specs_of(scene) == specs
    assert not any("deletionTimestamp" in item["metadata"] for item in objects_of(scene))


def do_as_troubleshooting_says(scene: Scene, folder: Path) -> None:
    """Run what the page shows for definitions that are being deleted, in one namespace."""
    page = ROOT / "docs" / "troubleshooting" / "objects.md"
    commands = [command.text for command in shown(page)]
    first = next(i for i, text in enumerate(commands) if "objects.yaml" in text)
    programs = {
        "KUBECTL": str(scene.control_plane.kubectl_program),
        "KUBECONFIG": str(scene.control_plane.kubeconfig),
        "PATH": os.pathsep.join(
            [str(scene.control_plane.kubectl_program.parent), os.environ["PATH"]]
        ),
    }
    for text in commands[first : first + 5]:
        here = text.replace("--all-namespaces", f"--namespace={scene.namespace}")
        done = run(here.replace("objects.yaml", str(folder / "objects.yaml")), **programs)
        assert done.returncode == 0, f"{text}\n{done.stderr}"


def objects_of(scene: Scene) -> list[Manifest]:
    return scene.items("inferno")


def specs_of(scene: Scene) -> dict[tuple[str, str], Manifest]:
    return {(item["kind"], item["metadata"]["name"]): item["spec"] for item in objects_of(scene)}
