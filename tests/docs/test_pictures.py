"""Pictures of the documentation are small, shown, and made by a command."""

import pytest

from inferno_operator.cli.drawing import draw_solver_curve
from tests import curve, plots
from tests.console_screens import DOCS, SHOWN
from tests.controlplane.processes import ROOT

EACH, TOGETHER = 100 * 1024, 1024 * 1024
"""Most bytes of a picture, and of all."""


def test_pictures_of_pages_are_small_and_shown() -> None:
    guide = (ROOT / "docs" / "guides" / "console.md").read_text()
    sizes = {file.name: file.stat().st_size for file in DOCS.glob("*.png")}

    assert sizes.keys() == set(SHOWN.values())
    assert all(f"(../pictures/{name})" in guide for name in sizes)
    assert max(sizes.values()) < EACH
    assert sum(sizes.values()) < TOGETHER


def test_every_drawing_is_shown() -> None:
    pages = [file.read_text() for file in (ROOT / "docs").rglob("*.md")]
    drawings = {file.name for file in DOCS.glob("*.svg")} - {"icon.svg"}

    assert {
        name for name in drawings if not any(f"pictures/{name})" in page for page in pages)
    } == set()


def test_the_curve_of_the_solver_is_drawn_from_the_recorded_search() -> None:
    assert curve.FILE.read_text() == draw_solver_curve(curve.recorded())


@pytest.mark.extended
def test_plots_of_a_server_are_what_its_page_shows() -> None:
    made = plots.server_plots()

    assert {name: (DOCS / name).read_text() for name in made} == made
