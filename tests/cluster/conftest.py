"""Everything in this folder needs a control plane, and says so."""

from collections.abc import Iterator

import pytest

from tests.cluster.scene import OPPOSITE, Mode, Scene, mode_called
from tests.conftest import new_namespace
from tests.controlplane import ControlPlane

SHARED_MODE = "stateless-remote"


@pytest.fixture(scope="session")
def stateless_remote(control_plane: ControlPlane) -> Iterator[Mode]:
    """The way to run whose optimizer remembers nothing, so that tests share it."""
    with mode_called(SHARED_MODE, control_plane.processes) as mode:
        yield mode


@pytest.fixture(params=OPPOSITE)
def mode(request: pytest.FixtureRequest, control_plane: ControlPlane) -> Iterator[Mode]:
    """Two ways to run that have nothing in common; `in_every_mode` if they are a test's subject."""
    if request.param == SHARED_MODE:
        yield request.getfixturevalue("stateless_remote")
        return
    with mode_called(request.param, control_plane.processes) as mode:
        yield mode


@pytest.fixture
def scene(control_plane: ControlPlane, namespace: str) -> Scene:
    """The test's namespace."""
    return Scene(control_plane, namespace)


@pytest.fixture
def other(control_plane: ControlPlane, namespace: str) -> Iterator[Scene]:
    """Another namespace."""
    with new_namespace(control_plane, f"{namespace}-b") as name:
        yield Scene(control_plane, name)
