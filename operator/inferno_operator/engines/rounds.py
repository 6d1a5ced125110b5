"""Asks Prometheus about groups of servers, again and again, and keeps what it needs of each."""

from collections.abc import AsyncIterator, Callable, Container, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import islice
from math import isfinite

from inferno_operator.engines import promql
from inferno_operator.engines.diagnosis import Diagnosis
from inferno_operator.engines.division import Namespaces
from inferno_operator.engines.promql import SCRAPES
from inferno_operator.engines.reading import (
    LAST_SEEN,
    REPLICAS,
    Reading,
    Values,
    describe_copies,
)
from inferno_operator.engines.round_queries import (
    Effort,
    GroupMemory,
    Round,
    RoundQueries,
    blamed,
)
from inferno_operator.engines.series_groups import GroupIdentity, RateWindows, SeriesGroup
from inferno_operator.runtime.prometheus import Prometheus

MEMORY_SECONDS = 3600
"""How long ago a replica may have reported to be called stale instead of missing [s]."""

BRIEF_SECONDS = 20
"""Length of the brief window at least [s]."""

AT_ONCE = 1000
"""Servers of which there are answers at a time: those of ten thousand take megabytes."""

GroupPart = tuple[GroupIdentity, int]
"""A group, and the number of its part."""


@dataclass(frozen=True, slots=True)
class ServerAnswer:
    """What Prometheus says about a server, and what to say if it has no series."""

    reading: Reading
    hint: str = ""


class Rounds:
    """Asks Prometheus about groups, again and again.

    Percentiles and the variation of tokens move slowly: the first survey of a group asks for
    all of them, each later one for one of them.

    Parameters
    ----------
    prometheus
        What to ask.
    clock
        The time of day, Unix time [s].
    diagnosis
        Finds out why servers have no series.
    """

    def __init__(
        self, prometheus: Prometheus, clock: Callable[[], float], diagnosis: Diagnosis
    ) -> None:
        self._prometheus = prometheus
        self._clock = clock
        self._diagnosis = diagnosis
        self._memory: dict[GroupPart, GroupMemory] = {}

    async def ask(
        self, chunk: SeriesGroup, number: int, namespaces: Namespaces, effort: Effort
    ) -> AsyncIterator[Mapping[Values, ServerAnswer]]:
        """Yield answers about the servers of a group: first about those that share queries.

        Parameters
        ----------
        chunk
            The group, or the part of it with this number, which is the same in each survey.
        number
            The number of the part.
        namespaces
            The namespace of each server.
        effort
            The limits of the survey.
        """
        fresh = GroupMemory(chunk.windows.short)
        memory = self._memory.setdefault((chunk.identity, number), fresh)
        memory.surveys += 1
        memory.suspects.begin(chunk, memory.surveys)
        left_out = memory.suspects.left_out.items()
        yield {values: ServerAnswer(self._left_out(problem)) for values, (_, problem) in left_out}
        queries = RoundQueries(self._prometheus, memory, namespaces, effort)
        others = memory.suspects.others(chunk)
        apart, memory.suspects.apart = memory.suspects.apart, []
        if others:
            usual = await self._usual(replace(chunk, values=others), queries, memory)
            while some := dict(islice(usual, AT_ONCE)):
                yield some
        for values, problem in apart:
            group = replace(chunk, values=values, is_part=True)
            yield dict(await self._apart(group, queries, problem))

    def keep(self, parts: Container[GroupPart]) -> None:
        """Forget all groups but these."""
        for part in [part for part in self._memory if part not in parts]:
            del self._memory[part]

    async def _usual(
        self, group: SeriesGroup, queries: RoundQueries, memory: GroupMemory
    ) -> Iterator[tuple[Values, ServerAnswer]]:
        """Ask about servers that share their queries."""
        brief = _brief_window(memory.interval, memory.short)
        windows = replace(group.windows, short=memory.short, brief=brief)
        round_ = Round(group, windows, time=self._clock())
        await queries.needed(round_)
        memory.interval = round_.interval = _interval(round_) or memory.interval
        memory.short = _short_window(memory.interval, group.windows)
        await queries.young(round_)
        await queries.copies(round_)
        await queries.slow(round_)
        missing = await self._look_for_missing(round_, queries)
        return _server_answers(round_, missing, memory.copies)

    async def _apart(
        self, group: SeriesGroup, queries: RoundQueries, problem: str
    ) -> Iterator[tuple[Values, ServerAnswer]]:
        """Ask about a few servers, one of which made queries fail, as far as there is time."""
        round_ = Round(group, group.windows, is_apart=True, time=self._clock())
        await queries.suspected(round_, problem)
        round_.interval = _interval(round_)
        await queries.young(round_)
        return _server_answers(round_, await self._look_for_missing(round_, queries), {})

    async def _look_for_missing(self, round_: Round, queries: RoundQueries) -> Mapping[Values, str]:
        """Find out when servers without series reported last, and what is wrong otherwise."""
        reporting = round_.tables.get(REPLICAS)
        if reporting is None or round_.has_failed:
            return {}
        absent = tuple(v for v in round_.group.values if "reporting" not in reporting.get(v, {}))
        if not absent:
            return {}
        group = replace(round_.group, values=absent)
        await queries.optional(round_, promql.last_seen(group, MEMORY_SECONDS))
        seen = round_.tables.get(LAST_SEEN, {})
        missing = replace(group, values=tuple(v for v in absent if v not in seen))
        return await self._diagnosis.hints(missing, {*round_.group.values} - {*absent})

    def _left_out(self, problem: str) -> Reading:
        return Reading(refused=blamed(problem), time=self._clock())


def _interval(round_: Round) -> float:
    """The longest scrape interval of a group [s]; 0 if it is not known."""
    nobody = ("",) * len(round_.group.labels)
    seconds = round_.tables.get(REPLICAS, {}).get(nobody, {}).get("interval", 0.0)
    return seconds if isfinite(seconds) else 0.0


def _short_window(interval: float, windows: RateWindows) -> int:
    """The short window for a scrape interval [s]."""
    return min(windows.long, max(windows.short, round(SCRAPES * interval)))


def _brief_window(interval: float, short: int) -> int:
    """The brief window for a scrape interval [s]; 0 if it would not be much shorter."""
    seconds = max(BRIEF_SECONDS, round(SCRAPES * interval))
    return seconds if interval and 2 * seconds <= short else 0


def _server_answers(
    round_: Round, hints: Mapping[Values, str], copies: Mapping[Values, tuple[float, str]]
) -> Iterator[tuple[Values, ServerAnswer]]:
    for values in round_.group.values:
        _, labels = copies.get(values, (0.0, ""))
        yield values, ServerAnswer(_reading(round_, values, labels), hints.get(values, ""))
    for values, reading in round_.failures.items():
        yield values, ServerAnswer(reading)


def _reading(round_: Round, values: Values, differing: str) -> Reading:
    answers = {name: table[values] for name, table in round_.tables.items() if values in table}
    answers.setdefault(REPLICAS, {})
    copies = answers[REPLICAS].get("copies")
    return Reading(
        copies=describe_copies(copies, differing) if copies else "",
        answers=answers,
        refused=round_.refused,
        unavailable=round_.unavailable,
        warnings=round_.warnings,
        time=round_.time,
        windows=round_.windows,
        interval=round_.interval,
    )
