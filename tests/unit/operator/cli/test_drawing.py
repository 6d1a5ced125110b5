"""What is drawn of a certificate and of a calibration."""

from dataclasses import replace
from xml.etree import ElementTree as ET

import pytest

from inferno_operator.cli.drawing import draw_calibration, draw_solver_curve
from inferno_optimizer.calibration.calibrate import Evidence, calibrate
from inferno_optimizer.calibration.windows import RUNS, Window
from inferno_optimizer.solution import Certificate, CurvePoint, Level, SolverStatus

CURVE = (
    CurvePoint(0.0, 1, {1: 50.0, 2: 0.0}, 100.0, None),
    CurvePoint(1.0, 1, {1: 80.0, 2: 0.0}, 150.0, 90.0),
    CurvePoint(2.0, 2, {1: 80.0, 2: 30.0}, 220.0, 30.0),
    CurvePoint(3.0, None, {1: 80.0, 2: 30.0}, 220.0, 190.0),
    CurvePoint(4.0, None, {1: 80.0, 2: 30.0}, 200.0, 190.0),
)
LEVELS = (Level(1, 80.0, 90.0), Level(2, 30.0, 30.0))


def lines(picture: str, kind: str) -> list[list[tuple[float, float]]]:
    """Points of the lines of a class, one line for each panel [px]."""
    return [
        [(float(x), float(y)) for x, y in (p.split(",") for p in e.get("points", "").split())]
        for e in ET.fromstring(picture).iter()  # noqa: S314 - made here
        if e.get("class") == kind
    ]


def test_each_priority_and_the_value_have_a_panel_with_a_line_and_a_bound() -> None:
    picture = draw_solver_curve(
        Certificate("milp", SolverStatus.FEASIBLE, 200.0, 190.0, 4.0, LEVELS, (), CURVE)
    )

    first, second, value = lines(picture, "line")
    assert first[0][1] > first[-1][1]  # the load rises
    assert second[0][0] > first[0][0]  # the second priority begins later
    assert value[0][1] < value[-1][1]  # the value falls
    assert len(lines(picture, "bound")) == 3


def test_lines_go_on_until_the_search_ends() -> None:
    phases = (("sizing", 1.0), ("assignment", 8.0))

    picture = draw_solver_curve(
        Certificate("milp", SolverStatus.FEASIBLE, 200.0, 190.0, 9.0, LEVELS, phases, CURVE)
    )

    ends = {line[-1][0] for line in lines(picture, "line") + lines(picture, "bound")}
    assert len(ends) == 1
    assert ends == {max(x for line in lines(picture, "axis") for x, _ in line)}


def test_a_curve_of_a_single_moment_is_drawn() -> None:
    point = CurvePoint(0.0, None, {1: 0.0}, 0.0, None)

    picture = draw_solver_curve(
        Certificate(
            "milp", SolverStatus.FEASIBLE, 0.0, None, 0.0, (Level(1, 0.0, 0.0),), (), (point,)
        )
    )

    assert "nan" not in picture


def window(batch: float) -> Window:
    prefill = 20 + 0.1 * batch
    itl = 8 + 0.1 * batch + (batch - 1) * (20 + 0.1 * (batch + 1)) / 199
    return Window(0.0, itl, 5000, batch, prefill, 50, 200, 200)


def drawn(windows: list[Window]) -> ET.Element:
    (result,) = calibrate([Evidence(windows)], 0.0, RUNS)
    return ET.fromstring(draw_calibration(windows, result, RUNS))  # noqa: S314 - made here


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
