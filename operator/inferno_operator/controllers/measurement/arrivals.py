"""The arrival rate of a server, from what Prometheus counted in windows; pure."""

from dataclasses import dataclass

from inferno_operator.engines.promql import EXTRAPOLATED, SCRAPES
from inferno_operator.engines.reading import (
    CUSTOM_ANSWERS,
    LOAD_BRIEF,
    LOAD_LONG,
    LOAD_SHORT,
    REPLICAS,
    SINCE,
    Reading,
)
from inferno_optimizer.noise import significant_rate

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

    It is that of the long window, and that of a shorter one if it is significantly larger: an
    increase is seen at once, a decrease after the long window. That of a young server is not
    known before enough requests arrived. It is 0 where replicas wait for their first request.
    """
    custom = reading.part(CUSTOM_ANSWERS, "arrivalRate")
    if custom is not None:
        return max(custom, 0.0)
    known = _KnownTime.of(reading)
    for name in sorted(reading.answers.get(LOAD_LONG, {})):
        rate = _of_windows(reading, name, known)
        if rate is not None:
            break
    else:
        rate = 0.0 if reading.is_unused else None
    if rate is None or known.youth is None or known.youth.tells(rate, reading.windows.short):
        return rate
    return None


@dataclass(frozen=True, slots=True)
class _KnownTime:
    """The parts of the windows that the rates of a reading cover.

    Prometheus divides by the whole window. What it counts begins half an interval before the
    first sample in it, and ends half an interval after the last one, where these are not near
    the ends of the window.

    Attributes
    ----------
    youth
        What is known of a young server; None of others.
    interval
        The time between two scrapes [s]; that of a young server is known from itself.
    time
        When Prometheus evaluated the queries [s].
    late
        The time after the last interval [s].
    """

    youth: Youth | None
    interval: float
    time: float
    late: float

    @classmethod
    def of(cls, reading: Reading) -> "_KnownTime":
        youth, newest = Youth.of(reading), reading.part(REPLICAS, "newest")
        interval = youth.interval if youth else reading.interval
        late = 0.0 if newest is None else max(0.0, reading.time - newest - interval / 2)
        return cls(youth, interval, reading.time, late)

    def seconds(self, window: int) -> float:
        """Return the part of a window that is known [s]."""
        unknown, begin = self.late, self.time - window
        if self.youth is not None and self.youth.since - begin > EXTRAPOLATED * self.interval:
            unknown += self.youth.since - begin - self.interval / 2
        return max(window - unknown, self.interval, 1.0)


def _of_windows(reading: Reading, name: str, known: _KnownTime) -> float | None:
    """Return the largest arrival rate of an alternative that is not larger by chance."""
    windows = reading.windows
    long = _known_rate(reading, LOAD_LONG, name, windows.long, known)
    if long is None:
        return None
    shorter = [
        (rate, known.seconds(window))
        for query, window in ((LOAD_SHORT, windows.short), (LOAD_BRIEF, windows.brief))
        if window >= (SCRAPES - 1) * known.interval
        and (rate := _known_rate(reading, query, name, window, known)) is not None
    ]
    return float(significant_rate(long, known.seconds(windows.long), shorter))


def _known_rate(
    reading: Reading, query: str, name: str, window: int, known: _KnownTime
) -> float | None:
    """Return the rate in the part of a window that is known; None without a rate."""
    rate = reading.part(query, name)
    return None if rate is None else rate * window / known.seconds(window)
