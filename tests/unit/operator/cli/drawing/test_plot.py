"""What is drawn of a calibration."""

from dataclasses import replace
from xml.etree import ElementTree as ET

import pytest

from inferno_operator.cli.drawing.plot import plot
from inferno_optimizer.calibration.calibrate import Evidence, calibrate
from inferno_optimizer.calibration.windows import RUNS, Window


def window(batch: float) -> Window:
    prefill = 20 + 0.1 * batch
    itl = 8 + 0.1 * batch + (batch - 1) * (20 + 0.1 * (batch + 1)) / 199
    return Window(0.0, itl, 5000, batch, prefill, 50, 200, 200)


def drawn(windows: list[Window]) -> ET.Element:
    (result,) = calibrate([Evidence(windows)], 0.0, RUNS)
    return ET.fromstring(plot(windows, result, RUNS))  # noqa: S314 - made here


def test_runs_lie_on_their_line() -> None:
    picture = drawn([window(batch) for batch in (1, 8, 32)])

    for panel in picture.findall("{*}g"):
        (line,) = [e for e in panel.iter() if e.get("class") == "line"]
        (left, low), (right, high) = (
            map(float, point.split(",")) for point in (line.get("points") or "").split()
        )
        for mark in panel.iter("{*}circle"):
            x, y = float(mark.get("cx", 0)), float(mark.get("cy", 0))
            assert y == pytest.approx(low + (high - low) * (x - left) / (right - left), abs=1)


def test_a_run_that_is_not_used_is_a_ring_that_says_why() -> None:
    windows = [window(batch) for batch in (1, 8, 32)]

    picture = drawn([*windows, replace(window(16), restarts=1.0)])

    rings = [e for e in picture.iter() if e.get("class") == "rejected"]
    assert len(rings) == 2  # one in each panel
    assert all("Restarted" in "".join(ring.itertext()) for ring in rings)


def test_an_outlier_does_not_flatten_the_line() -> None:
    windows = [window(batch) for batch in (1, 4, 8, 16, 32)]

    picture = drawn([*windows, replace(window(16), itl_ms=1e6)])

    (line, _) = [e for e in picture.iter() if e.get("class") == "line"]
    left, right = (line.get("points") or "").split()
    assert float(left.split(",")[1]) - float(right.split(",")[1]) > 10
