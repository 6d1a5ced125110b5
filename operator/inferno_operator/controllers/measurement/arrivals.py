"""The arrival rate of a server, from what Prometheus counted in windows; pure."""

from collections.abc import Iterable
from dataclasses import dataclass
from math import sqrt

from inferno_operator.controllers.measurement.expressions import EXTRAPOLATED, SCRAPES
from inferno_operator.controllers.measurement.reading import (
    CUSTOM_ANSWERS,
    LOAD_LONG,
    LOAD_SHORT,
    REPLICAS,
    SINCE,
    Reading,
)

SIGNIFICANT = 3.5
"""Standard deviations of a Poisson count by which the load must grow to be seen at once.

Chance exceeds it once in some hours of measurements every 30 s.
"""


ENOUGH_ARRIVALS = 100
"""Requests of which a first measurement is made: their number has an error of 10 %."""

ENOUGH_SAMPLES = 3
"""Samples of a first measurement: between two, what is extrapolated is more than what is known."""


@dataclass(frozen=True, slots=True)
class Youth:
    """What is known of a server that is known for less than the long window.

    Attributes
    ----------
    since, until
        The times of the first and of the newest sample [s].
    samples
        The most that there are of a replica.
    """

    since: float
    until: float
    samples: float

    @classmethod
    def of(cls, reading: Reading) -> "Youth | None":
        """Return what is known of a young server; None of others, and of one scraped once."""
        since, until = reading.part(SINCE, "since"), reading.part(SINCE, "until")
        samples = reading.part(SINCE, "samples")
        if since is None or until is None or samples is None or until <= since:
            return None
        return cls(since, until, samples)

    @property
    def seconds(self) -> float:
        """The time between its samples [s]."""
        return self.until - self.since

    @property
    def interval(self) -> float:
        """The time between two scrapes [s]."""
        return self.seconds / max(self.samples - 1, 1)

    def tells(self, rate: float, seconds: float) -> bool:
        """Whether a rate is known well: from enough requests, or from so many seconds."""
        enough = rate * self.seconds >= ENOUGH_ARRIVALS and self.samples >= ENOUGH_SAMPLES
        return enough or self.seconds >= seconds


def arrival_rate(reading: Reading) -> float | None:
    """Return the arrival rate [requests/s]; None if it is not known.

    It is that of the long window, and that of the short one if it is significantly larger: an
    increase is seen at once, a decrease after the long window. That of a young server is not
    known before enough requests arrived.
    """
    custom = reading.part(CUSTOM_ANSWERS, "arrivalRate")
    if custom is not None:
        return max(custom, 0.0)
    for name in sorted({*_names(reading, LOAD_LONG), *_names(reading, LOAD_SHORT)}):
        long, short = reading.part(LOAD_LONG, name), reading.part(LOAD_SHORT, name)
        if long is not None or short is not None:
            rate = max(_of_windows(reading, short or 0.0, long or 0.0), 0.0)
            youth = Youth.of(reading)
            return rate if youth is None or youth.tells(rate, reading.windows.short) else None
    return None


def _names(reading: Reading, query: str) -> Iterable[str]:
    return reading.answers.get(query, {})


def _of_windows(reading: Reading, short: float, long: float) -> float:
    """Return the arrival rate, from those that Prometheus says of both windows."""
    windows = reading.windows
    known = _known_seconds(reading, windows.short)
    short *= windows.short / known
    long *= windows.long / _known_seconds(reading, windows.long)
    if windows.short < (SCRAPES - 1) * _interval(reading):  # as before the interval is known
        return long
    noise = SIGNIFICANT * sqrt(max(short, long, 0.0) / known)
    return short if short - long > noise else long


def _known_seconds(reading: Reading, window: int) -> float:
    """Return the part of a window that its rates are about [s].

    Prometheus divides by the whole window. What it counts begins half an interval before the
    first sample in it, and ends half an interval after the last one, where these are not near
    the ends of the window.
    """
    youth, newest, unknown = Youth.of(reading), reading.part(REPLICAS, "newest"), 0.0
    interval, begin = _interval(reading), reading.time - window
    if youth is not None and youth.since - begin > EXTRAPOLATED * interval:
        unknown += youth.since - begin - interval / 2
    if newest is not None:
        unknown += max(0.0, reading.time - newest - interval / 2)
    return max(window - unknown, interval, 1.0)


def _interval(reading: Reading) -> float:
    """Return the time between two scrapes [s]; that of a young server is known from itself."""
    youth = Youth.of(reading)
    return youth.interval if youth else reading.interval
