"""Everything in this folder needs a control plane, and says so."""

from collections.abc import Iterator

import pytest

from inferno_operator.resources.dialects import DIALECTS
from tests.cluster.scene import Mode, Scene, mode_called
from tests.conftest import ROOT, new_namespace
from tests.controlplane import ControlPlane

SHARED_MODE = "stateless-remote"


@pytest.fixture(scope="session")
def stateless_remote(control_plane: ControlPlane) -> Iterator[Mode]:
    """The way to run whose optimizer remembers nothing, so that tests share it."""
    with mode_called(SHARED_MODE, control_plane.processes) as mode:
        yield mode


@pytest.fixture(scope="session")
def boosters_installed(control_plane: ControlPlane) -> None:
    """The kinds of both dialects are served."""
    for dialect in DIALECTS:
        control_plane.install_crds(ROOT / "crds" / dialect)


@pytest.fixture(scope="session")
def groups_installed(control_plane: ControlPlane) -> None:
    """LeaderWorkerSets and DisaggregatedSets are served."""
    control_plane.install_crds(ROOT / "tests/data/workloads")


@pytest.fixture(params=["stateful-remote"])
def mode(request: pytest.FixtureRequest, control_plane: ControlPlane) -> Iterator[Mode]:
    """The way to run with most beside it, or those that a test names."""
    if request.param == SHARED_MODE:
        yield request.getfixturevalue("stateless_remote")
        return
    with mode_called(request.param, control_plane.processes) as mode:
        yield mode


@pytest.fixture
def scene(control_plane: ControlPlane, namespace: str) -> Scene:
    return Scene(control_plane, namespace)


@pytest.fixture
def other(control_plane: ControlPlane, namespace: str) -> Iterator[Scene]:
    with new_namespace(control_plane, f"{namespace}-b") as name:
        yield Scene(control_plane, name)
