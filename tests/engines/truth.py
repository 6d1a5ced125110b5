"""What was really sent to simulated replicas, and what clients really saw."""

from array import array
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field


class Series:
    """Values in the order of time; one may stand for several equal ones.

    Attributes
    ----------
    times, values
        The time [s] of each value, and the value.
    """

    def __init__(self) -> None:
        self.times = array("d")
        self.values = array("d")
        self._weights = array("d")

    def add(self, time: float, value: float, weight: int = 1) -> None:
        """Append a value; `time` [s] must not be before the one of the last value."""
        self.times.append(time)
        self.values.append(value)
        self._weights.append(weight)

    def total(self, start: float, end: float) -> tuple[float, float]:
        """Sum and number of the values with start <= time < end."""
        first, last = (bisect_left(self.times, time) for time in (start, end))
        weights = self._weights[first:last]
        values = zip(self.values[first:last], weights, strict=True)
        return sum(value * weight for value, weight in values), sum(weights)

    def between(self, start: float, end: float) -> Sequence[float]:
        """Return the values with start <= time < end."""
        first, last = (bisect_left(self.times, time) for time in (start, end))
        return self.values[first:last]


@dataclass(frozen=True, slots=True)
class Record:
    """What happened to one replica: times and durations in seconds, lengths in tokens."""

    input_tokens: Series = field(default_factory=Series)
    """Of each request that arrived, rejected ones included."""

    output_tokens: Series = field(default_factory=Series)
    """Of the same requests."""

    waits: Series = field(default_factory=Series)
    """From arrival to the start of the prefill, at its start."""

    first_tokens: Series = field(default_factory=Series)
    """From arrival to the first token, at the first token."""

    intervals: Series = field(default_factory=Series)
    """Between tokens, at the later token."""

    completions: Series = field(default_factory=Series)
    """From arrival to the last token, at the last token."""

    response_starts: Series = field(default_factory=Series)
    """Of the same requests: from arrival to the first token."""

    response_intervals: Series = field(default_factory=Series)
    """Of the same requests: the mean time between two tokens; 0 for a single one."""


@dataclass(frozen=True, slots=True)
class Truth:
    """What happened between two times; a mean of nothing is NaN.

    Attributes
    ----------
    arrivals, completions
        Requests that arrived (rejected ones included) and that were completed.
    arrival_rate
        Arrivals [requests/s].
    input_tokens, output_tokens
        Means of the requests that arrived [tokens].
    wait_ms, ttft_ms, itl_ms
        Means: time in the queue, time to first token (with the queue), inter-token latency.
    """

    arrivals: int
    completions: int
    arrival_rate: float
    input_tokens: float
    output_tokens: float
    wait_ms: float
    ttft_ms: float
    itl_ms: float


def within_targets(
    records: Iterable[Record], start: float, end: float, *, ttft_ms: float, itl_ms: float
) -> tuple[int, int]:
    """Count the requests that arrived between two times [s].

    Returns
    -------
    Those that were completed, with time to first token and mean inter-token latency within
    targets, and all.
    """
    good = arrived = 0
    for record in records:
        arrived += int(record.input_tokens.total(start, end)[1])
        ends, lasted = record.completions.times, record.completions.values
        first, each = record.response_starts.values, record.response_intervals.values
        good += sum(
            start <= ends[n] - lasted[n] < end
            and 1000 * first[n] <= ttft_ms
            and 1000 * each[n] <= itl_ms
            for n in range(bisect_left(ends, start), len(ends))
        )
    return good, arrived


def truth_of(records: Iterable[Record], start: float, end: float) -> Truth:
    """Summarize what happened to several replicas between two times [s]."""
    records = list(records)

    def total(name: str) -> tuple[float, float]:
        totals = [getattr(record, name).total(start, end) for record in records]
        return sum(value for value, _ in totals), sum(number for _, number in totals)

    def mean(name: str) -> float:
        value, number = total(name)
        return value / number if number else float("nan")

    arrivals = int(total("input_tokens")[1])
    return Truth(
        arrivals,
        completions=int(total("completions")[1]),
        arrival_rate=arrivals / (end - start),
        input_tokens=mean("input_tokens"),
        output_tokens=mean("output_tokens"),
        wait_ms=1000 * mean("waits"),
        ttft_ms=1000 * mean("first_tokens"),
        itl_ms=1000 * mean("intervals"),
    )
