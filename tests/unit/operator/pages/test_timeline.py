"""The axis of time."""

from datetime import UTC, datetime, timedelta

import pytest

from inferno_operator.pages.timeline import Timeline

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
