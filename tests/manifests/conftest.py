"""Rendering takes kubectl and Helm, which are found or built as those of a control plane are."""

import os
from pathlib import Path

import pytest

from tests.controlplane.binaries import Binaries


@pytest.hookimpl(tryfirst=True)  # before `-m` is looked at
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the tests of this folder."""
    for item in items:
        if item.path.is_relative_to(Path(__file__).parent):
            item.add_marker(pytest.mark.cluster)


@pytest.fixture(scope="session")
def kubectl() -> Path:
    return Binaries(os.environ).find("kubectl")


@pytest.fixture(scope="session")
def helm() -> Path:
    return Binaries(os.environ).find("helm")
