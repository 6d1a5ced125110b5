"""What is drawn of a curve."""

from xml.etree import ElementTree as ET

from inferno_operator.cli.drawing.curve import draw
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
    picture = draw(Certificate("milp", SolverStatus.FEASIBLE, 200.0, 190.0, 4.0, LEVELS, (), CURVE))

    first, second, value = lines(picture, "line")
    assert first[0][1] > first[-1][1]  # the load rises
    assert second[0][0] > first[0][0]  # the second priority begins later
    assert value[0][1] < value[-1][1]  # the value falls
    assert len(lines(picture, "bound")) == 3


def test_lines_go_on_until_the_search_ends() -> None:
    phases = (("sizing", 1.0), ("assignment", 8.0))

    picture = draw(
        Certificate("milp", SolverStatus.FEASIBLE, 200.0, 190.0, 9.0, LEVELS, phases, CURVE)
    )

    ends = {line[-1][0] for line in lines(picture, "line") + lines(picture, "bound")}
    assert len(ends) == 1
    assert ends == {max(x for line in lines(picture, "axis") for x, _ in line)}


def test_a_curve_of_a_single_moment_is_drawn() -> None:
    point = CurvePoint(0.0, None, {1: 0.0}, 0.0, None)

    picture = draw(
        Certificate(
            "milp", SolverStatus.FEASIBLE, 0.0, None, 0.0, (Level(1, 0.0, 0.0),), (), (point,)
        )
    )

    assert "nan" not in picture
