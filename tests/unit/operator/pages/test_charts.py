"""Charts: their axes, and where the names of points are."""

import re
from datetime import UTC, datetime, timedelta
from itertools import combinations, product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from inferno_operator.pages.charts import (
    BOTTOM,
    HEIGHT,
    LEFT,
    TOP,
    Frame,
    Named,
    Timeline,
    draw_front,
    draw_lines,
    draw_stack,
    find_front,
    list_ticks,
    to_stairs,
)

FRAME = Frame("Replicas", "hours", "replicas", 2.0, 10.0)


def test_the_front_has_what_nothing_else_beats() -> None:
    points = [
        Named("dear", 9.0, 99.0),
        Named("cheap", 1.0, 90.0),
        Named("as cheap, and better", 1.0, 95.0),
        Named("worse and dearer", 5.0, 94.0),
        Named("dearer, and as good", 6.0, 95.0),
    ]

    assert [point.name for point in find_front(points)] == ["as cheap, and better", "dear"]


NAMES = re.compile(r'class="label" x="([\d.]+)" y="([\d.]+)" text-anchor="(\w+)">(\w+)<')


def names_in(svg: str) -> list[tuple[float, float, float, float]]:
    """Left, top, right and bottom of each name: letters of 6 px, lines of 12 px."""
    return [
        (float(x) - (6 * len(name) if anchor == "end" else 0), float(y) - 10,
         float(x) + (0 if anchor == "end" else 6 * len(name)), float(y))
        for x, y, anchor, name in NAMES.findall(svg)
    ]  # fmt: skip


def apart(one: tuple[float, ...], other: tuple[float, ...]) -> bool:
    return (
        one[2] <= other[0] or other[2] <= one[0] or one[3] <= other[1] or other[3] <= one[1]
    )  # boxes (left, top, right, bottom)


@given(st.lists(st.tuples(st.floats(0, 2), st.floats(0, 10)), min_size=2, max_size=5))
def test_names_of_points_hide_neither_each_other_nor_points(
    places: list[tuple[float, float]],
) -> None:
    points = [Named(name, x, y) for name, (x, y) in zip("abcde", places, strict=False)]

    for chart in (
        draw_front(FRAME, points, "points"),
        draw_lines(FRAME, [], "points", points, set("abc")),
    ):
        names = names_in(chart.svg)
        dots = re.findall(r'cx="([\d.]+)" cy="([\d.]+)"', chart.svg)
        boxes = [(float(x) - 3, float(y) - 3, float(x) + 3, float(y) + 3) for x, y in dots]
        assert all(apart(one, other) for one, other in combinations(names, 2))
        assert all(apart(name, dot) for name, dot in product(names, boxes))
        assert all(top >= TOP - 10 and bottom <= HEIGHT - BOTTOM for _, top, _, bottom in names)


def test_a_name_is_beside_its_point_where_others_have_none() -> None:
    others = [Named("", 0.1 * n, 0.5 * m) for n in range(21) for m in range(1, 8)]

    svg = draw_lines(FRAME, [], "points", [*others, Named("best", 1.0, 0.5)], {"best"}).svg

    assert names_in(svg) == []  # where there is room it would look like the name of another one


@pytest.mark.parametrize("slope", [1.0, -1.0])
def test_a_name_is_beside_the_curve_that_its_point_is_on(slope: float) -> None:
    ends = [(x, 5.0 + slope * (5.0 * x - 5.0)) for x in (0.0, 2.0)]

    chart = draw_lines(FRAME, [("line", ends)], "", [Named("now", 1.0, 5.0)], {"now"})

    (name,) = names_in(chart.svg)
    passed = [FRAME.place(0.01 * n, 5.0 + slope * (0.05 * n - 5.0)) for n in range(201)]
    assert all(apart(name, (x, y, x, y)) for x, y in passed)


def test_a_name_without_room_is_left_to_the_browser() -> None:
    points = [Named(f"server{n:02}", 1.0, 5.0) for n in range(40)]

    svg = draw_front(FRAME, points, "points").svg

    names = names_in(svg)
    assert 0 < len(names) < len(points) == svg.count("<title>server")
    assert all(apart(one, other) for one, other in combinations(names, 2))


def test_areas_lie_on_another_and_have_a_legend() -> None:
    chart = draw_stack(FRAME, [0.0, 2.0], [("L4", [1.0, 2.0]), ("H100", [3.0, 3.0])], "replicas")
    first, second = re.findall(r'<polygon class="(s\d)" points="([^"]+)"', chart.svg)

    top_of_first = first[1].split()[:2]
    bottom_of_second = second[1].split()[2:]
    assert top_of_first == bottom_of_second[::-1]
    assert [(entry.name, entry.colour) for entry in chart.legend] == [("L4", "s0"), ("H100", "s1")]


def test_texts_of_charts_are_no_markup() -> None:
    chart = draw_lines(FRAME, [("line", [(0.0, 1.0)])], '"><script>')
    named = draw_front(FRAME, [Named("<script>", 1.0, 1.0)], "words")

    assert "<script" not in chart.svg + named.svg
    assert 'aria-label="&quot;&gt;&lt;script&gt;"' in chart.svg


@pytest.mark.parametrize(("letters", "drawn"), [(20, True), (63, False)])
def test_a_name_that_would_stand_over_the_axis_is_left_out(letters: int, drawn: bool) -> None:
    svg = draw_front(FRAME, [Named("n" * letters, 2.0, 5.0)], "points").svg

    assert bool(names_in(svg)) is drawn
    assert f"<title>{'n' * letters}: " in svg
    assert all(left >= LEFT for left, *_ in names_in(svg))


@pytest.mark.parametrize(
    ("least", "most", "values"),
    [
        (0, 64, [0, 20, 40, 60]),
        (0, 1, [0, 0.2, 0.4, 0.6, 0.8, 1]),
        (0, 33000, [0, 10000, 20000, 30000]),
        (98.4, 98.7, [98.4, 98.5, 98.6, 98.7]),
        (-30, 30, [-20, 0, 20]),
    ],
)
def test_an_axis_has_about_five_round_values(
    least: float, most: float, values: list[float]
) -> None:
    assert list_ticks(least, most) == pytest.approx(values)


@pytest.mark.parametrize(
    ("most", "values"),
    [(1.1, [0, 1]), (3.3, [0, 1, 2, 3]), (11, [0, 3, 6, 9]), (64, [0, 20, 40, 60])],
)
def test_an_axis_of_counts_has_whole_values(most: float, values: list[float]) -> None:
    assert list_ticks(0, most, whole=True) == values


def test_stairs_keep_each_value_until_the_next() -> None:
    assert to_stairs([(0.0, 3.0), (2.0, 5.0)], 4.0) == [(0, 3), (2, 3), (2, 5), (4, 5)]


def test_long_values_of_an_axis_are_in_groups_of_digits() -> None:
    drawn = "".join(Frame("Load", "tokens", "ms", 33_000.0, 4_100.0).axes())

    assert ">30,000<" in drawn
    assert ">4,000<" in drawn
    assert ">0<" in drawn


START = datetime(2026, 11, 1, 8, 30, tzinfo=UTC)


@pytest.mark.parametrize(
    ("length", "unit", "end"),
    [
        (timedelta(0), "minutes", 1.0),  # an axis has a length
        (timedelta(hours=2), "minutes", 120.0),
        (timedelta(hours=36), "hours", 36.0),
        (timedelta(days=10), "days", 10.0),
    ],
)
def test_the_unit_suits_the_length(length: timedelta, unit: str, end: float) -> None:
    line = Timeline.of([START + length / 2, START], START + length)

    assert line.label == f"{unit} since 2026-11-01 08:30 UTC"
    assert line.end == pytest.approx(end)
    assert line.at(START + length / 2) == pytest.approx(end / 2 if length else 0.0)


def test_without_moments_it_ends_where_it_begins() -> None:
    assert Timeline.of([], START).at(START) == 0.0
