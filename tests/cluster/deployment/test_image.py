"""What is in the image, and what is not."""

import json
import subprocess
from pathlib import Path

import pytest

from tests.conftest import ROOT

pytestmark = pytest.mark.extended

MEGABYTE = 10**6
BASE = 130 * MEGABYTE
"""Of python:3.12-slim-bookworm, unpacked, rounded up."""
LARGEST = 300 * MEGABYTE

IMPORT_EVERYTHING = """
import importlib, pkgutil, inferno_operator, inferno_optimizer
for package in (inferno_operator, inferno_optimizer):
    for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
        if not module.name.endswith("__main__"):
            importlib.import_module(module.name)
from kubernetes.aio.client import V1ConfigMap, V1ObjectMeta, V1Status
print("all there")
"""


def python(image: Path, program: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [image / "bin" / "python", "-c", program], capture_output=True, text=True, check=False
    )


def test_nothing_can_be_built_or_installed_in_it(image: Path) -> None:
    for name in ("hatchling", "pip", "pytest", "setuptools", "wheel"):
        assert "ModuleNotFoundError" in python(image, f"import {name}").stderr


def test_it_is_no_larger_than_what_it_does_needs(image: Path) -> None:
    size = sum(path.lstat().st_size for path in image.rglob("*") if not path.is_dir())

    assert BASE + size < LARGEST


def test_every_module_finds_what_it_imports(image: Path) -> None:
    looked = python(image, IMPORT_EVERYTHING)

    assert (looked.stdout.strip(), looked.stderr) == ("all there", "")


def test_what_is_left_of_the_solver_finds_the_plan(image: Path) -> None:
    program, sample = image / "bin" / "inferno", ROOT / "samples/fleet"
    found = subprocess.run(
        [program, "plan", sample, "--output", "json"],
        capture_output=True,
        text=True,
        check=False,
    )

    certificate = json.loads(found.stdout)["certificate"]
    assert (certificate["solver"], certificate["status"]) == ("milp", "Optimal")


@pytest.mark.parametrize("name", ["cbcbox", "scipy"])
def test_what_nothing_needs_is_not_in_it(image: Path, name: str) -> None:
    assert "ModuleNotFoundError" in python(image, f"import {name}").stderr
