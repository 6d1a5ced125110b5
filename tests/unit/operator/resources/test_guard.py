"""Freeze windows, by the clock and across its changes; what is no window."""

from datetime import UTC, datetime, timedelta

import pytest

from inferno_operator.resources import Freeze, ManifestError, parse
from tests.unit.operator import objects

WEEKEND = Freeze(start="0 18 * * 5", duration="60h", timezone="Europe/Berlin")
NIGHT = Freeze(start="30 2 * * *", duration="1h", timezone="Europe/Berlin")


def utc(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


@pytest.mark.parametrize(
    ("begin", "end"),
    [
        ("2026-03-13T17:00", "2026-03-16T05:00"),  # an ordinary weekend, in winter
        ("2026-03-27T17:00", "2026-03-30T05:00"),  # it is 07:00 on Monday, not 06:00
        ("2026-07-03T16:00", "2026-07-06T04:00"),  # in summer
        ("2026-10-23T16:00", "2026-10-26T04:00"),  # it is 05:00 on Monday, not 06:00
    ],
    ids=["winter", "clocks go forward", "summer", "clocks go back"],
)
def test_a_weekend_lasts_60_hours_also_if_clocks_change(begin: str, end: str) -> None:
    first, last = utc(begin), utc(end)
    second = timedelta(seconds=1)

    assert [WEEKEND.end(t) for t in (first, last - second)] == [last, last]
    assert [WEEKEND.end(t) for t in (first - second, last)] == [None, None]


@pytest.mark.parametrize(
    ("begin", "end"),
    [
        ("2026-03-29T01:00", "2026-03-29T02:00"),  # there is no 02:30: it begins at 03:00
        ("2026-10-25T00:30", "2026-10-25T01:30"),  # 02:30 comes twice: it begins at the first
    ],
    ids=["the start is skipped", "the start comes twice"],
)
def test_a_window_begins_once_where_clocks_change_at_its_start(begin: str, end: str) -> None:
    minutes = [utc(begin) + timedelta(minutes=n) for n in range(-40, 160)]

    opened = [minute for minute in minutes if NIGHT.end(minute)]

    assert opened == [minute for minute in minutes if utc(begin) <= minute < utc(end)]


def test_windows_may_begin_rarely_and_last_long() -> None:
    rare = Freeze(start="0 0 29 2 *", duration="1h")
    longest = Freeze(start="0 0 29 2 *", duration="99999h99999m")

    assert rare.end(utc("2026-03-01T12:00")) is None
    assert longest.end(utc("2026-03-01T12:00")) == utc("2024-02-29T00:00") + longest.length


@pytest.mark.parametrize(
    ("window", "message"),
    [
        ({"start": "0 18 * *", "duration": "1h"}, "no cron expression"),
        ({"start": "0 0 0 18 * *", "duration": "1h"}, "five fields"),
        ({"start": "0 0 31 2 *", "duration": "1h"}, "no cron expression"),
        ({"start": "0 18 * * 5", "duration": "1d"}, "duration"),
        ({"start": "0 18 * * 5", "duration": "999999999999h"}, "duration"),
        ({"start": "0 18 * * 5", "duration": "1h", "timezone": "Berlin"}, "no time zone"),
        ({"start": "0 18 * * 5", "duration": "1h", "timezone": "../etc"}, "no time zone"),
    ],
)
def test_what_is_no_window_is_refused(window: dict[str, str], message: str) -> None:
    manifest = objects.optimizer()
    manifest["spec"]["guard"] = {"freeze": [window]}

    with pytest.raises(ManifestError, match=message):
        parse(manifest)
