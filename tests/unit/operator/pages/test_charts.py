"""Charts of pages."""

import re

import pytest

from inferno_operator.pages.charts import Named, front_chart, front_of, line_chart, stacked_chart
from inferno_operator.pages.svg import Frame

FRAME = Frame("Replicas", "hours", "replicas", 2.0, 10.0)


def test_the_front_has_what_nothing_else_beats() -> None:
    points = [
        Named("dear", 9.0, 99.0),
        Named("cheap", 1.0, 90.0),
        Named("as cheap, and better", 1.0, 95.0),
        Named("worse and dearer", 5.0, 94.0),
        Named("dearer, and as good", 6.0, 95.0),
    ]

    assert [point.name for point in front_of(points)] == ["as cheap, and better", "dear"]


def test_names_of_points_at_one_place_are_below_each_other() -> None:
    chart = front_chart(FRAME, [Named(name, 1.0, 5.0) for name in "abc"], "three")
    heights = [float(y) for y in re.findall(r'class="label" x="[\d.]+" y="([\d.]+)"', chart.svg)]

    assert [high - heights[0] for high in heights] == pytest.approx([0.0, 12.0, 24.0])


def test_areas_lie_on_another_and_have_a_legend() -> None:
    chart = stacked_chart(FRAME, [0.0, 2.0], [("L4", [1.0, 2.0]), ("H100", [3.0, 3.0])], "replicas")
    first, second = re.findall(r'<polygon class="(s\d)" points="([^"]+)"', chart.svg)

    top_of_first = first[1].split()[:2]
    bottom_of_second = second[1].split()[2:]
    assert top_of_first == bottom_of_second[::-1]
    assert [(entry.name, entry.colour) for entry in chart.legend] == [("L4", "s0"), ("H100", "s1")]


def test_texts_of_charts_are_no_markup() -> None:
    chart = line_chart(FRAME, [("line", [(0.0, 1.0)])], '"><script>')
    named = front_chart(FRAME, [Named("<script>", 1.0, 1.0)], "words")

    assert "<script" not in chart.svg + named.svg
    assert 'aria-label="&quot;&gt;&lt;script&gt;"' in chart.svg
