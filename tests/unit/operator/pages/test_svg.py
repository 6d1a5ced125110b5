"""The axes of charts."""

import pytest

from inferno_operator.pages.svg import Frame, stairs, ticks


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
    assert ticks(least, most) == pytest.approx(values)


@pytest.mark.parametrize(
    ("most", "values"),
    [(1.1, [0, 1]), (3.3, [0, 1, 2, 3]), (11, [0, 3, 6, 9]), (64, [0, 20, 40, 60])],
)
def test_an_axis_of_counts_has_whole_values(most: float, values: list[float]) -> None:
    assert ticks(0, most, whole=True) == values


def test_stairs_keep_each_value_until_the_next() -> None:
    assert stairs([(0.0, 3.0), (2.0, 5.0)], 4.0) == [(0, 3), (2, 3), (2, 5), (4, 5)]


def test_long_values_of_an_axis_are_in_groups_of_digits() -> None:
    drawn = "".join(Frame("Load", "tokens", "ms", 33_000.0, 4_100.0).axes())

    assert ">30,000<" in drawn
    assert ">4,000<" in drawn
    assert ">0<" in drawn
