"""Rendering takes kubectl and Helm, which are found or built as those of a control plane are."""

import os
from pathlib import Path

import pytest

from tests.controlplane.binaries import Binaries


@pytest.fixture(scope="session")
def kubectl() -> Path:
    return Binaries(os.environ).find("kubectl")


@pytest.fixture(scope="session")
def helm() -> Path:
    return Binaries(os.environ).find("helm")
