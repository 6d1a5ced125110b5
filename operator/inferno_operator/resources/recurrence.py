"""Windows of time that come again and again, as people write them: cron, duration, time zone."""

import re
from datetime import UTC, datetime, timedelta
from typing import Annotated
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from cronsim import CronSim, CronSimError
from pydantic import AfterValidator, Field

from inferno_operator.resources.schema import (
    NonEmptyText,
    Part,
    ShortText,
)

DURATION = r"^([0-9]{1,5}h)?([0-9]{1,5}m)?$"
MAX_WINDOWS = 64
"""Most windows of an object."""

CLOCK_CHANGE = timedelta(hours=3)
"""More than clocks are ever changed by: cron goes by what they show, which may come twice."""


def _cron(text: str) -> str:
    """Return a cron expression of five fields, or raise a ValueError."""
    try:
        next(CronSim(text, datetime(2000, 1, 1, tzinfo=UTC)))
    except (CronSimError, StopIteration) as error:
        raise ValueError(f"{text!r} is no cron expression: {error}") from error
    if len(text.split()) != len(("minute", "hour", "day", "month", "weekday")):
        raise ValueError(f"{text!r} is no cron expression: five fields are needed")
    return text


def _zone(name: str) -> str:
    """Return the name of a time zone, or raise a ValueError."""
    try:
        ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError) as error:
        raise ValueError(f"{name!r} is no time zone such as Europe/Berlin") from error
    return name


class RecurringWindow(Part):
    """A window of time that comes again and again."""

    start: Annotated[NonEmptyText, AfterValidator(_cron)]
    """When it begins, as a cron expression of five fields."""
    duration: Annotated[str, Field(min_length=2, max_length=16, pattern=DURATION)]
    """How long it lasts, such as 60h or 1h30m."""
    timezone: Annotated[ShortText, AfterValidator(_zone)] = "UTC"
    """The time zone of the start, such as Europe/Berlin."""

    @property
    def length(self) -> timedelta:
        """How long it lasts."""
        hours, minutes = (
            int(part[:-1]) if part else 0
            for part in re.fullmatch(DURATION, self.duration).groups()  # type: ignore[union-attr]  # the pattern was checked
        )
        return timedelta(hours=hours, minutes=minutes)

    def end(self, now: datetime) -> datetime | None:
        """Return when the window that is open at a time ends; None if none is open.

        The window lasts for the time that passes, also where clocks are changed meanwhile. A
        start that clocks skip is at the end of the gap; of one that comes twice, the first counts.
        """
        later = (now + CLOCK_CHANGE).astimezone(ZoneInfo(self.timezone))
        starts = (start.astimezone(UTC) for start in CronSim(self.start, later, reverse=True))
        last = next((start for start in starts if start <= now), None)
        end = last + self.length if last else now
        return end if now < end else None
