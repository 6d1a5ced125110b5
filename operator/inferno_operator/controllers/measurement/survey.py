"""Asks Prometheus about all servers at once: a fixed number of queries for each group."""

import asyncio
import logging
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace

from inferno_operator.controllers.measurement import expressions as promql
from inferno_operator.controllers.measurement.catalogue import Catalogue, Source, find_source
from inferno_operator.controllers.measurement.diagnosis import Diagnosis
from inferno_operator.controllers.measurement.expressions import (
    WINDOWS,
    Group,
    Identity,
    Query,
    Windows,
)
from inferno_operator.controllers.measurement.quality import (
    COVS,
    CUSTOM_ANSWERS,
    LAST_SEEN,
    LOAD_LONG,
    LOAD_SHORT,
    MEANS,
    REPLICAS,
    TOKENS,
)
from inferno_operator.controllers.measurement.reading import (
    Parts,
    Reading,
    Values,
    by_server,
    cov_by_server,
)
from inferno_operator.resources import CUSTOM, Measure
from inferno_operator.resources.objects import Key
from inferno_operator.runtime.prometheus import Answer, Prometheus, RefusedError
from inferno_optimizer.errors import InfernoError, InputError

logger = logging.getLogger(__name__)

VARIATION_OF = 1000
"""Servers of a group up to which the variation of tokens is measured: it needs all buckets."""

AT_ONCE = 4
"""Largest number of queries of Servers' own that run at the same time."""

SCRAPES = 4
"""Scrape intervals that the short window has at least."""

MEMORY_SECONDS = 3600
"""How long ago a replica may have reported to be called stale instead of missing [s]."""

NEEDED = frozenset({LOAD_SHORT, LOAD_LONG, MEANS, REPLICAS})
"""Queries without whose answers a measurement is refused; without others it lacks something."""

Table = Mapping[Values, Parts]
"""The parts of an answer for each server of a group."""


@dataclass(frozen=True, slots=True)
class Result:
    """The reading of a server, its source, and what to say if it has no series."""

    reading: Reading
    source: Source | None
    hint: str = ""


@dataclass(slots=True)
class _Round:
    """The answers about a group; a failure of one query does not affect the others."""

    group: Group
    windows: Windows
    tables: dict[str, Table] = field(default_factory=dict)
    refused: dict[str, str] = field(default_factory=dict)
    unavailable: str = ""
    warnings: tuple[str, ...] = ()
    time: float = 0.0


@dataclass(slots=True)
class _Memory:
    """What is kept of a group: its rounds, its short window, and the answers that move slowly."""

    short: int
    rounds: int = 0
    slow: dict[str, Table] = field(default_factory=dict)


class Survey:
    """Asks Prometheus about servers, again and again.

    Percentiles and the variation of tokens move slowly: the first survey of a group asks for
    all of them, each later one for one of them.

    Parameters
    ----------
    prometheus
        What to ask.
    catalogue
        The sources.
    clock
        The time of day, Unix time [s].
    windows
        The windows of rates; the short one grows with the scrape interval.
    """

    def __init__(
        self,
        prometheus: Prometheus,
        catalogue: Catalogue,
        clock: Callable[[], float],
        windows: Windows = WINDOWS,
    ) -> None:
        self._prometheus = prometheus
        self._catalogue = catalogue
        self._clock = clock
        self._windows = windows
        self._places = asyncio.Semaphore(AT_ONCE)
        self._diagnosis = Diagnosis(prometheus)
        self._memory: defaultdict[Identity, _Memory]
        self._memory = defaultdict(lambda: _Memory(windows.short))

    async def ask(self, measures: Mapping[Key, Measure]) -> Mapping[Key, Result]:
        """Return the readings of servers; a failure becomes a part of the reading."""
        results: dict[Key, Result] = {}
        groups: defaultdict[Identity, list[Key]] = defaultdict(list)
        for key, measure in measures.items():
            try:
                groups[_group_key(measure, self._catalogue)].append(key)
            except InputError as error:
                refused = Reading(refused=str(error), time=self._clock())
                results[key] = Result(refused, None)
        for (name, labels), keys in groups.items():
            members = {key: measures[key] for key in keys}
            results |= await self._ask_group(name, labels, members)
        return await self._with_custom(measures, results)

    async def _ask_group(
        self, name: str, labels: tuple[str, ...], members: Mapping[Key, Measure]
    ) -> Mapping[Key, Result]:
        if name == CUSTOM:
            return {key: Result(Reading(time=self._clock()), None) for key in members}
        source = self._catalogue[name]
        values = {key: tuple(m.labels[label] for label in labels) for key, m in members.items()}
        group = Group(name, source, labels, tuple(sorted(set(values.values()))))
        round_ = await self._round(group)
        hints = await self._look_for_missing(round_)
        return {
            key: Result(_reading(round_, value), source, hints.get(value, ""))
            for key, value in values.items()
        }

    async def _round(self, group: Group) -> _Round:
        """Ask all queries of a group that are due."""
        memory = self._memory[group.identity]
        windows = replace(self._windows, short=memory.short)
        round_ = _Round(group, windows, time=self._clock())
        slow = _slow_queries(group, windows.long)
        due = slow[memory.rounds % len(slow) :][:1] if slow and memory.rounds else slow
        memory.rounds += 1
        await self._run(round_, [*_queries(group, windows), *due])
        memory.slow |= {query.name: round_.tables.pop(query.name, {}) for query in due}
        round_.tables |= _merged(memory.slow)
        memory.short = _short_window(round_, self._windows)
        return round_

    async def _run(self, round_: _Round, queries: Iterable[Query]) -> None:
        """Ask one query after the other: an answer takes memory, and Prometheus is shared."""
        for query in queries:
            if not round_.unavailable:
                await self._take(round_, query)

    async def _take(self, round_: _Round, query: Query) -> None:
        """Ask one query, and put its answer into the round."""
        try:
            answer = await self._prometheus.query(query.expression)
        except RefusedError as error:
            round_.refused[query.name] = str(error)
            logger.warning("%s: %s: %s", round_.group.name, query.name, error)
        except InfernoError as error:
            round_.unavailable = str(error)
        else:
            round_.warnings += tuple(w for w in answer.warnings if w not in round_.warnings)
            round_.tables[query.name] = _table(query, answer)
            if answer.samples:
                round_.time = max(round_.time, answer.samples[0].time)

    async def _look_for_missing(self, round_: _Round) -> Mapping[Values, str]:
        """Find out when servers without series reported last, and what is wrong otherwise."""
        reporting = round_.tables.get(REPLICAS)
        if reporting is None:
            return {}
        absent = tuple(v for v in round_.group.values if "reporting" not in reporting.get(v, {}))
        if not absent:
            return {}
        group = replace(round_.group, values=absent)
        await self._take(round_, promql.last_seen(group, MEMORY_SECONDS))
        seen = round_.tables.get(LAST_SEEN, {})
        missing = replace(group, values=tuple(v for v in absent if v not in seen))
        return await self._diagnosis.hints(missing)

    async def _with_custom(
        self, measures: Mapping[Key, Measure], results: Mapping[Key, Result]
    ) -> Mapping[Key, Result]:
        """Add the answers to the queries that Servers name themselves."""
        own = {k: m.queries.to_json() for k, m in measures.items() if m.queries}
        answers = await asyncio.gather(
            *(self._with_own(results[key], queries) for key, queries in own.items())
        )
        return {**results, **dict(zip(own, answers, strict=True))}

    async def _own_query(self, expression: str) -> Answer:
        async with self._places:
            return await self._prometheus.query(expression)

    async def _with_own(self, result: Result, queries: Mapping[str, str]) -> Result:
        values: dict[str, float] = {}
        reading = result.reading
        for quantity, expression in queries.items():
            try:
                answer = await self._own_query(expression)
                value = _single(answer)
            except (RefusedError, InputError) as error:
                reading = replace(reading, refused=f"spec.measure.queries.{quantity}: {error}")
            except InfernoError as error:
                reading = replace(reading, unavailable=str(error))
            else:
                reading = replace(reading, warnings=(*reading.warnings, *answer.warnings))
                values |= {} if value is None else {quantity: value}
        answers = {**reading.answers, CUSTOM_ANSWERS: values}
        return replace(result, reading=replace(reading, answers=answers))


def _group_key(measure: Measure, catalogue: Catalogue) -> Identity:
    if measure.source == CUSTOM and CUSTOM not in catalogue:
        return CUSTOM, ()
    find_source(catalogue, measure.source)
    return measure.source, promql.label_names(measure.labels)


def _queries(group: Group, windows: Windows) -> list[Query]:
    """The queries of each survey."""
    means = promql.means(group, windows)
    return [
        promql.arrivals(group, windows.short, LOAD_SHORT),
        promql.arrivals(group, windows.long, LOAD_LONG),
        *([means] if means else []),
        promql.replicas(group, windows.long),
    ]


def _slow_queries(group: Group, seconds: int) -> list[Query]:
    """The queries of which each survey asks one."""
    shares = (promql.percentiles(group, share, seconds) for share in promql.PERCENTILES)
    quantities = TOKENS if len(group.values) <= VARIATION_OF else ()
    covs = (promql.buckets(group, quantity, seconds) for quantity in quantities)
    return [query for query in (*shares, *covs) if query is not None]


def _table(query: Query, answer: Answer) -> Table:
    if not query.name.startswith(promql.BUCKETS):
        return by_server(query.group, answer.samples)
    quantity = query.name.removeprefix(promql.BUCKETS)
    return {v: {quantity: cov} for v, cov in cov_by_server(query.group, answer).items()}


def _merged(slow: Mapping[str, Table]) -> dict[str, Table]:
    """The slow answers, with the variations of all quantities in one table."""
    merged = {name: table for name, table in slow.items() if not name.startswith(promql.BUCKETS)}
    covs: defaultdict[Values, dict[str, float]] = defaultdict(dict)
    for name, table in slow.items():
        if name.startswith(promql.BUCKETS):
            for values, parts in table.items():
                covs[values] |= parts
    return {**merged, COVS: covs}


def _short_window(round_: _Round, windows: Windows) -> int:
    """The short window for the longest scrape interval of a group [s]."""
    nobody = ("",) * len(round_.group.labels)
    interval = round_.tables.get(REPLICAS, {}).get(nobody, {}).get("interval", 0.0)
    return min(windows.long, max(windows.short, round(SCRAPES * interval)))


def _reading(round_: _Round, values: Values) -> Reading:
    answers = {name: table[values] for name, table in round_.tables.items() if values in table}
    answers.setdefault(REPLICAS, {})
    return Reading(
        answers=answers,
        refused=next((text for name, text in round_.refused.items() if name in NEEDED), ""),
        unavailable=round_.unavailable,
        warnings=round_.warnings,
        time=round_.time,
        windows=round_.windows,
    )


def _single(answer: Answer) -> float | None:
    """The value of an answer with one series; None if there is none."""
    if len(answer.samples) > 1:
        raise InputError(
            f"returns {len(answer.samples)} series: aggregate them to one, such as with sum(...)"
        )
    return answer.samples[0].value if answer.samples else None
