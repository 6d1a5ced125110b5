"""The loads that servers had in the past, read from Prometheus in pieces.

The queries are those of the measurement, over the window of each step.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby

import numpy as np

from inferno_operator.engines import promql
from inferno_operator.engines.catalogue import (
    TOKENS,
    MetricSource,
    MetricSources,
    find_source,
)
from inferno_operator.engines.promql import FEW, SCRAPES, Query
from inferno_operator.engines.reading import Values, is_plausible
from inferno_operator.engines.series_groups import (
    PART,
    WINDOWS,
    Name,
    RateWindows,
    SeriesGroup,
    by_values,
    label_names,
    windows_of,
)
from inferno_operator.resources import CUSTOM, Measure, Queries
from inferno_operator.runtime.prometheus import MOST_POINTS, PrometheusPast, RefusedError, Series
from inferno_optimizer.errors import UnavailableError
from inferno_optimizer.sizing.queueing import FloatArray

NUMBERS_AT_ONCE = 100_000
"""Numbers of an answer: about 4 MiB, which is half of what is read."""

FEWEST_STEPS = 30
"""Steps of a piece that is not divided again where Prometheus fails."""

OFTEN_S = 3600.0
"""Time between two looks at how often replicas are scraped [s]."""

Tell = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Span:
    """A time in the past, in whole steps; Unix times [s]."""

    start: float
    end: float
    step_s: float

    @property
    def steps(self) -> int:
        """Number of steps."""
        return round((self.end - self.start) / self.step_s)

    def place(self, time: float) -> int:
        """The step that ends at a time."""
        return round((time - self.start) / self.step_s) - 1


@dataclass(slots=True)
class PastLoad:
    """Requests/s and mean tokens of a Server in each step; NaN where they are not known."""

    rate: FloatArray
    input_tokens: FloatArray
    output_tokens: FloatArray


async def read_loads(
    measures: Mapping[Name, Measure],
    prometheus: PrometheusPast,
    catalogue: MetricSources,
    span: Span,
    tell: Tell,
    least_window: int = 0,
) -> tuple[dict[Name, PastLoad], list[str]]:
    """Return the loads of servers by what they are called, and remarks.

    Rates are those of a step, or of the least window [s] if that is longer.

    Raises
    ------
    InputError
        A source is unknown.
    RefusedError, UnavailableError
        Prometheus refuses a query, or does not answer, also about a short time.
    """
    reader = _Reader(prometheus, span, tell)
    nothing = np.full(span.steps, np.nan)
    loads = {name: PastLoad(nothing, nothing, nothing) for name in measures}
    remarks = []
    for group, members in _groups(measures, catalogue):
        window, remark = await reader.window(group)
        remarks += remark
        window = max(window, least_window)
        rates = await reader.numbers(promql.arrivals(group, window, window, "arrivals"))
        windows = RateWindows(window, max(window, group.windows.long))
        means = promql.means(group, windows)
        tokens = {} if means is None else await reader.numbers(means)
        for values, names in members.items():
            load = _load(rates.get(values, {}), tokens.get(values, {}), nothing)
            loads |= dict.fromkeys(names, load)
    for name, measure in measures.items():
        if measure.queries:
            loads[name] = await _with_own(reader, loads[name], measure.queries)
    return loads, remarks


def _groups(
    measures: Mapping[Name, Measure], catalogue: MetricSources
) -> Iterator[tuple[SeriesGroup, Mapping[Values, Sequence[Name]]]]:
    """Yield Servers that share queries, with their names by the values of their labels."""
    shared = {
        name: (measure.source, label_names(measure.labels), windows_of(measure))
        for name, measure in measures.items()
        if measure.source != CUSTOM or CUSTOM in catalogue
    }
    for identity, names in groupby(
        sorted(shared, key=lambda n: (shared[n], n)), shared.__getitem__
    ):
        source, labels, windows = identity
        members = by_values(labels, {name: measures[name] for name in names})
        usable = _tokens_only(find_source(catalogue, source))
        values = tuple(sorted(members))
        yield SeriesGroup(source, usable, labels, values, windows=windows), members


def _tokens_only(source: MetricSource) -> MetricSource:
    """The source without the means that a load does not have."""
    means = {name: item for name, item in source.means.items() if name in TOKENS}
    return source.model_copy(update={"means": means})


def _load(
    rates: Mapping[str, FloatArray], tokens: Mapping[str, FloatArray], nothing: FloatArray
) -> PastLoad:
    """The load from the parts of the answers; of alternatives, the first that is known."""
    rate = nothing
    for number in sorted(rates):
        rate = np.where(np.isnan(rate), rates[number], rate)
    lengths = (_first(tokens, (name, FEW + name), nothing) for name in TOKENS)
    return PastLoad(np.maximum(rate, 0.0), *lengths)


def _first(
    parts: Mapping[str, FloatArray], names: Iterable[str], nothing: FloatArray
) -> FloatArray:
    first = nothing
    for name in names:
        first = np.where(np.isnan(first), parts.get(name, nothing), first)
    return first


async def _with_own(reader: "_Reader", load: PastLoad, queries: Queries) -> PastLoad:
    """The load with what the queries of the Server itself say."""
    asked = (queries.arrival_rate, queries.avg_in_tokens, queries.avg_out_tokens)
    shared = (load.rate, load.input_tokens, load.output_tokens)
    columns = [
        before if expression is None else await reader.number(expression)
        for expression, before in zip(asked, shared, strict=True)
    ]
    return PastLoad(*columns)


class _Reader:
    """Reads numbers over time, as much at once as Prometheus and the client allow."""

    def __init__(self, prometheus: PrometheusPast, span: Span, tell: Tell) -> None:
        self._prometheus, self._span, self._tell = prometheus, span, tell

    async def window(self, group: SeriesGroup) -> tuple[int, list[str]]:
        """The window of the rates of a group [s]: a step, or more where scrapes are rare."""
        seconds = WINDOWS.long
        looks = Span(
            self._span.start, self._span.end, min(OFTEN_S, self._span.end - self._span.start)
        )
        counts = [
            value
            for series in await self._whole(promql.scrapes(group, seconds), 1, looks)
            for value in series.values
            if value > 1
        ]
        interval = seconds / float(np.median(counts)) if counts else 0.0
        window = max(round(self._span.step_s), round(SCRAPES * interval))
        if window <= self._span.step_s:
            return window, []
        return window, [
            f"{group.name}: scraped every {interval:.0f} s, so each rate is a mean over {window} s"
        ]

    async def numbers(self, query: Query) -> Mapping[Values, Mapping[str, FloatArray]]:
        """The parts of an answer over time, for each server of a group."""
        group, table = query.group, defaultdict[Values, dict[str, FloatArray]](dict)
        series = len(group.values) * max(query.expression.count(f'"{PART}"'), 1)
        for one in await self._whole(query.expression, series, self._span):
            values = tuple(one.labels.get(label, "") for label in group.labels)
            parts, part = table[values], one.labels.get(PART, "")
            empty = np.full(self._span.steps, np.nan)
            self._write_samples(parts.setdefault(part, empty), one, query.name)
        return table

    async def number(self, expression: str) -> FloatArray:
        """The one number of a query over time."""
        numbers = np.full(self._span.steps, np.nan)
        for one in await self._whole(expression, 1, self._span):
            self._write_samples(numbers, one, expression)
        return numbers

    def _write_samples(self, column: FloatArray, series: Series, name: str) -> None:
        """Write values into their steps; one that is known already is of another series."""
        places = np.array([self._span.place(time) for time in series.times])
        values = np.array(series.values)
        if not np.isnan(column[places]).all():
            raise RefusedError(f"{name}: several series, where one was expected")
        wrong = [value for value in series.values if not is_plausible(value, signed=True)]
        if wrong:
            raise RefusedError(f"{name} is {wrong[0]:g}, which cannot be")
        column[places] = np.where(np.isfinite(values), values, np.nan)

    async def _whole(self, expression: str, series: int, span: Span) -> list[Series]:
        """The answer for a whole time, piece by piece."""
        most = max(min(MOST_POINTS, NUMBERS_AT_ONCE // max(series, 1)), FEWEST_STEPS)
        pieces: list[Series] = []
        for first in range(0, span.steps, most):
            last = min(first + most, span.steps)
            pieces += await self._piece(expression, span, first, last)
            if last < span.steps:
                self._tell(f"asking Prometheus: {last / span.steps:.0%} of a query")
        return pieces

    async def _piece(self, expression: str, span: Span, first: int, last: int) -> list[Series]:
        """The answer for some steps; where Prometheus fails, for half of them at a time."""
        begin, end = (span.start + number * span.step_s for number in (first + 1, last))
        try:
            answer = await self._prometheus.query_range(expression, begin, end, span.step_s)
        except (RefusedError, UnavailableError):
            if last - first <= FEWEST_STEPS:
                raise
            middle = (first + last) // 2
            halves = ((first, middle), (middle, last))
            return [one for half in halves for one in await self._piece(expression, span, *half)]
        return list(answer.series)
