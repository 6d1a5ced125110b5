"""The curve of the exact solver: the real program on a sample."""

import json
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from tests.cli.program import SAMPLE, inferno
from tests.cli.test_bad_input import assert_refused
from tests.generate import fleet


@pytest.fixture
def tight(tmp_path: Path) -> Path:
    """A tight fleet for the exact solver."""
    document = fleet(20, 6, 1, 3.0)
    document["system"]["optimizerData"]["optimizer"] = {"milpSolver": True}
    file = tmp_path / "system.json"
    file.write_text(json.dumps(document))
    return file


def test_the_curve_is_drawn_and_printed(tight: Path, tmp_path: Path) -> None:
    file = tmp_path / "curve.svg"

    printed = inferno("plan", tight, "--curve", file, "-o", "json")

    certificate = json.loads(printed.stdout)["certificate"]
    last = certificate["curve"][-1]
    assert [load["load"] for load in last["served"]] == [
        level["served"] for level in certificate["levels"]
    ]
    assert last["value"] == certificate["objective"]
    picture = ET.fromstring(file.read_text())  # noqa: S314 - written by the program
    titles = [e.text for e in picture.iter() if e.get("class") == "title"]
    assert titles == [*(f"Served load of priority {p}" for p in (1, 2, 3)), "Value"]


def test_without_the_option_there_is_no_curve(tight: Path) -> None:
    printed = inferno("plan", tight, "-o", "json")

    assert "curve" not in json.loads(printed.stdout)["certificate"]


def test_only_the_exact_solver_is_traced(tmp_path: Path) -> None:
    printed = inferno("plan", SAMPLE, "--curve", tmp_path / "curve.svg")

    assert_refused(printed, "--curve is for the exact solver: it needs milpSolver: true")
