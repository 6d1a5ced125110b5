"""Asks Prometheus about groups of servers; leaves out a server that makes the queries fail."""

import asyncio
import logging
from collections import defaultdict, deque
from collections.abc import AsyncIterator, Callable, Container, Mapping
from dataclasses import dataclass, field, replace
from math import isfinite

from inferno_operator.engines import promql
from inferno_operator.engines.catalogue import TOKENS
from inferno_operator.engines.diagnosis import Diagnosis
from inferno_operator.engines.division import (
    LEFT_OUT_FOR,
    Namespaces,
    Suspects,
    halves,
)
from inferno_operator.engines.promql import SCRAPES, Query
from inferno_operator.engines.reading import (
    COVS,
    LAST_SEEN,
    LOAD_BRIEF,
    LOAD_LONG,
    LOAD_SHORT,
    MEANS,
    REPLICAS,
    Reading,
    ReadingsByValues,
    Values,
    cov_by_server,
    merged_warnings,
    parts_of,
)
from inferno_operator.engines.series_groups import GroupIdentity, RateWindows, SeriesGroup
from inferno_operator.runtime.prometheus import (
    BusyError,
    Prometheus,
    QueryResult,
    RefusedError,
)
from inferno_optimizer.errors import InfernoError, UnavailableError

logger = logging.getLogger(__name__)

VARIATION_OF = 1000
"""Servers of a group up to which the variation of tokens is measured: it needs all buckets."""

MEMORY_SECONDS = 3600
"""How long ago a replica may have reported to be called stale instead of missing [s]."""

NEEDED = frozenset({LOAD_BRIEF, LOAD_SHORT, LOAD_LONG, MEANS, REPLICAS})
"""Queries without whose answers a measurement is refused; without others it lacks something."""

BRIEF_SECONDS = 20
"""Length of the brief window at least [s]."""

PROBE = "vector(1)"
"""A query that every Prometheus answers, unless it answers none."""

DIVISION_QUERIES = 60
DIVISION_SECONDS = 20.0
"""Most queries, and time [s], in which a survey looks for servers that make Prometheus fail."""

PART_SECONDS = 3.0
"""Time limit of a query of several suspects [s]."""

WHOLE_FOR = 20
"""Surveys for which a group is not divided again after all its parts failed."""


GroupPart = tuple[GroupIdentity, int]
"""A group, and the number of its part."""


@dataclass(slots=True)
class Effort:
    """What is left of the limits of a survey.

    `answers` says whether Prometheus answered the probe, `down` why nothing is asked any more.
    """

    until: float
    queries: int = DIVISION_QUERIES
    answers: bool | None = None
    down: str = ""

    @classmethod
    def of_a_survey(cls) -> "Effort":
        """Return the limits of a survey that begins now."""
        return cls(asyncio.get_running_loop().time() + DIVISION_SECONDS)

    @property
    def is_left(self) -> bool:
        """Whether another part may be asked."""
        return self.queries > 0 and asyncio.get_running_loop().time() < self.until


@dataclass(slots=True)
class _Round:
    """The answers about a group; a failure of one query does not affect the others."""

    group: SeriesGroup
    windows: RateWindows
    is_apart: bool = False
    tables: dict[str, ReadingsByValues] = field(default_factory=dict)
    refused: str = ""
    unavailable: str = ""
    warnings: tuple[str, ...] = ()
    time: float = 0.0
    interval: float = 0.0
    failures: dict[Values, Reading] = field(default_factory=dict)
    """Of the servers that are not in the group any more."""

    @property
    def has_failed(self) -> bool:
        """Whether a needed query has no answer."""
        return bool(self.refused or self.unavailable)


@dataclass(slots=True)
class _Memory:
    """What is kept of a group: its short window, the answers that move slowly, and suspects.

    `interval` is the time between two scrapes [s]; 0: not known yet.
    """

    short: int
    interval: float = 0.0
    surveys: int = 0
    slow: dict[str, ReadingsByValues] = field(default_factory=dict)
    suspects: Suspects = field(default_factory=Suspects)
    whole_until: int = 0


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
    """

    def __init__(self, prometheus: Prometheus, clock: Callable[[], float]) -> None:
        self._prometheus = prometheus
        self._clock = clock
        self._diagnosis = Diagnosis(prometheus)
        self._memory: dict[GroupPart, _Memory] = {}

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
        fresh = _Memory(chunk.windows.short)
        memory = self._memory.setdefault((chunk.identity, number), fresh)
        memory.surveys += 1
        memory.suspects.begin(chunk, memory.surveys)
        left_out = memory.suspects.left_out.items()
        yield {values: ServerAnswer(self._left_out(problem)) for values, (_, problem) in left_out}
        queries = _RoundQueries(self._prometheus, memory, namespaces, effort)
        others = memory.suspects.others(chunk)
        apart, memory.suspects.apart = memory.suspects.apart, []
        if others:
            yield await self._usual(replace(chunk, values=others), queries, memory)
        for values, problem in apart:
            yield await self._apart(replace(chunk, values=values, is_part=True), queries, problem)

    def keep(self, parts: Container[GroupPart]) -> None:
        """Forget all groups but these."""
        for part in [part for part in self._memory if part not in parts]:
            del self._memory[part]

    async def _usual(
        self, group: SeriesGroup, queries: "_RoundQueries", memory: _Memory
    ) -> Mapping[Values, ServerAnswer]:
        """Ask about servers that share their queries."""
        brief = _brief_window(memory.interval, memory.short)
        windows = replace(group.windows, short=memory.short, brief=brief)
        round_ = _Round(group, windows, time=self._clock())
        await queries.needed(round_)
        memory.interval = round_.interval = _interval(round_) or memory.interval
        memory.short = _short_window(memory.interval, group.windows)
        await queries.young(round_)
        await queries.slow(round_)
        return _server_answers(round_, await self._look_for_missing(round_, queries))

    async def _apart(
        self, group: SeriesGroup, queries: "_RoundQueries", problem: str
    ) -> Mapping[Values, ServerAnswer]:
        """Ask about a few servers, one of which made queries fail, as far as there is time."""
        round_ = _Round(group, group.windows, is_apart=True, time=self._clock())
        await queries.suspected(round_, problem)
        round_.interval = _interval(round_)
        await queries.young(round_)
        return _server_answers(round_, await self._look_for_missing(round_, queries))

    async def _look_for_missing(
        self, round_: _Round, queries: "_RoundQueries"
    ) -> Mapping[Values, str]:
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
        return await self._diagnosis.hints(missing)

    def _left_out(self, problem: str) -> Reading:
        return Reading(refused=_blamed(problem), time=self._clock())


class _RoundQueries:
    """Asks the queries of a round, one after the other: an answer takes memory."""

    def __init__(
        self, prometheus: Prometheus, memory: _Memory, namespaces: Namespaces, effort: Effort
    ) -> None:
        self._prometheus = prometheus
        self._memory = memory
        self._namespaces = namespaces
        self._effort = effort

    async def needed(self, round_: _Round) -> None:
        """Ask the queries without which there is no measurement."""
        for name in _needed(round_.group, round_.windows):
            if round_.group.values and not round_.has_failed:
                query = _needed(round_.group, round_.windows)[name]
                try:
                    ask = self._ask_suspects if round_.is_apart else self._ask
                    await ask(round_, query)
                except InfernoError as error:
                    await self._failed(round_, query, error)

    async def suspected(self, round_: _Round, problem: str) -> None:
        """Ask the same about a few servers, one of which made queries fail."""
        suspects = round_.group.values
        if not self._effort.is_left or self._effort.down:
            self._suspect(round_, suspects, problem)
            round_.group = replace(round_.group, values=())
            return
        await self.needed(round_)
        if round_.has_failed:
            self._memory.suspects.suspect(suspects, problem)

    async def young(self, round_: _Round) -> None:
        """Ask when servers were first seen that have no samples of the whole long window."""
        replicas = round_.tables.get(REPLICAS, {})
        young = tuple(v for v in round_.group.values if "young" in replicas.get(v, {}))
        if young and not round_.has_failed:
            group, step = replace(round_.group, values=young), max(1, round(round_.interval))
            await self.optional(round_, promql.known_since(group, round_.windows.long, step))

    async def slow(self, round_: _Round) -> None:
        """Ask one of the queries that move slowly; at first, all of them."""
        memory, queries = self._memory, _slow(round_.group, round_.windows.long)
        turn = (memory.surveys - 1) % len(queries) if queries else 0
        due = queries[turn:][:1] if memory.surveys > 1 else queries
        for query in due:
            if round_.has_failed or self._effort.down or not round_.group.values:
                break
            await self.optional(round_, query)
            memory.slow[query.name] = round_.tables.pop(query.name, {})
        round_.tables |= _merged(memory.slow)

    async def optional(self, round_: _Round, query: Query) -> None:
        """Ask a query without which something is lacking."""
        try:
            await self._ask(round_, query)
        except InfernoError as error:
            logger.warning("%s: %s: %s", query.group.name, query.name, error)
            if isinstance(error, UnavailableError):
                await self._answers_others(error)

    async def _failed(self, round_: _Round, query: Query, error: InfernoError) -> None:
        """Divide the group after a failure of a query, or note the failure for all its servers."""
        logger.warning("%s: %s: %s", query.group.name, query.name, error)
        if await self._is_of_a_server(round_, error) and await self._divided(
            round_, query, str(error)
        ):
            return
        if isinstance(error, RefusedError):
            round_.refused = str(error)
        else:
            round_.unavailable = str(error)

    async def _is_of_a_server(self, round_: _Round, error: InfernoError) -> bool:
        """Whether a server may be the cause of a failure: Prometheus answers other queries."""
        if isinstance(error, BusyError) or not await self._answers_others(error):
            return False
        return round_.is_apart or (
            len(round_.group.values) > 1 and self._memory.surveys >= self._memory.whole_until
        )

    async def _answers_others(self, error: InfernoError) -> bool:
        """Whether Prometheus answers another query; if it is down, nothing more is asked."""
        if self._effort.answers is None:
            self._effort.answers = False
            try:
                await self._prometheus.query(PROBE)
                self._effort.answers = True
            except UnavailableError:
                self._effort.down = str(error)
            except InfernoError as other:
                logger.warning("%s", other)
        return self._effort.answers

    async def _divided(self, round_: _Round, query: Query, problem: str) -> bool:
        """Ask a query about ever smaller parts, until each server that makes it fail is alone.

        Returns whether the round goes on with the servers about which there is an answer; the
        others are suspects then. If all parts fail, it goes on only with former suspects.
        """
        failing = deque([(query.group, problem)])  # as text: an error keeps its answer in memory
        alone: list[tuple[Values, str]] = []
        answered: list[Values] = []
        while failing and self._effort.is_left:
            group, cause = failing.popleft()
            if len(group.values) == 1:
                alone.append((group.values[0], cause))
                continue
            for half in halves(group, self._namespaces):
                try:
                    part = _needed(half, round_.windows)[query.name]
                    await self._ask_suspects(round_, part)
                except InfernoError as error:
                    failing.append((half, str(error)))
                else:
                    answered += half.values
        if not answered and not failing and not round_.is_apart:
            self._memory.whole_until = self._memory.surveys + WHOLE_FOR
            return False
        for values, cause in alone:
            self._accuse(round_, values, cause)
        for group, cause in failing:
            self._suspect(round_, group.values, cause)
        round_.group = replace(round_.group, values=tuple(sorted(answered)), is_part=True)
        return True

    async def _ask(self, round_: _Round, query: Query) -> None:
        """Ask a query, and put its answer into the round."""
        _keep(round_, query, await self._prometheus.query(query.expression))

    async def _ask_suspects(self, round_: _Round, query: Query) -> None:
        """Ask a query about a few servers, one of which made it fail.

        The time limit is short for several servers, and the usual one for a server alone.
        """
        self._effort.queries -= 1
        count = len(query.group.values)
        try:
            async with asyncio.timeout(PART_SECONDS if count > 1 else None):
                await self._ask(round_, query)
        except TimeoutError as error:
            text = f"no answer about {count} servers within {PART_SECONDS:g} s"
            raise UnavailableError(text) from error

    def _accuse(self, round_: _Round, values: Values, problem: str) -> None:
        logger.warning("%s: left out: %s", round_.group.name, ", ".join(values))
        self._memory.suspects.accuse(values, self._memory.surveys, problem)
        round_.failures[values] = Reading(refused=_blamed(problem), time=round_.time)

    def _suspect(self, round_: _Round, values: tuple[Values, ...], problem: str) -> None:
        self._memory.suspects.suspect(values, problem)
        text = f"one of {len(values)} servers makes Prometheus fail, and is looked for: {problem}"
        failure = Reading(unavailable=text, time=round_.time)
        round_.failures |= dict.fromkeys(values, failure)


def _blamed(problem: str) -> str:
    return (
        f"this Server is left out of shared queries for {LEFT_OUT_FOR} measurements,"
        f" because they fail with it: {problem}"
    )


def _needed(group: SeriesGroup, windows: RateWindows) -> Mapping[str, Query]:
    """The queries of each survey, by name."""
    means = promql.means(group, windows)
    brief = promql.arrivals(group, windows.brief, windows.short, LOAD_BRIEF)
    queries = [
        *([brief] if windows.brief else []),
        promql.arrivals(group, windows.short, windows.short, LOAD_SHORT),
        promql.arrivals(group, windows.long, windows.short, LOAD_LONG),
        *([means] if means else []),
        promql.replicas(group, windows),
    ]
    return {query.name: query for query in queries}


def _slow(group: SeriesGroup, seconds: int) -> list[Query]:
    """The queries of which each survey asks one."""
    shares = (promql.percentiles(group, share, seconds) for share in promql.PERCENTILES)
    quantities = TOKENS if len(group.values) <= VARIATION_OF else ()
    covs = (promql.buckets(group, quantity, seconds) for quantity in quantities)
    return [query for query in (*shares, *covs) if query is not None]


def _keep(round_: _Round, query: Query, answer: QueryResult) -> None:
    """Put an answer into a round, beside those about other parts of the group."""
    table = _table(query, answer)
    round_.tables[query.name] = {**round_.tables.get(query.name, {}), **table}
    round_.warnings = merged_warnings(round_.warnings, answer.warnings)
    if answer.samples:
        round_.time = max(round_.time, answer.samples[0].time)


def _table(query: Query, answer: QueryResult) -> ReadingsByValues:
    if not query.name.startswith(promql.BUCKETS):
        return parts_of(query, answer)
    quantity = query.name.removeprefix(promql.BUCKETS)
    return {v: {quantity: cov} for v, cov in cov_by_server(query, answer).items()}


def _merged(slow: Mapping[str, ReadingsByValues]) -> dict[str, ReadingsByValues]:
    """The slow answers, with the variations of all quantities in one table."""
    merged = {name: table for name, table in slow.items() if not name.startswith(promql.BUCKETS)}
    covs: defaultdict[Values, dict[str, float]] = defaultdict(dict)
    for name, table in slow.items():
        if name.startswith(promql.BUCKETS):
            for values, parts in table.items():
                covs[values] |= parts
    return {**merged, COVS: covs}


def _interval(round_: _Round) -> float:
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


def _server_answers(round_: _Round, hints: Mapping[Values, str]) -> Mapping[Values, ServerAnswer]:
    answered = {v: ServerAnswer(_reading(round_, v), hints.get(v, "")) for v in round_.group.values}
    return {**answered, **{v: ServerAnswer(reading) for v, reading in round_.failures.items()}}


def _reading(round_: _Round, values: Values) -> Reading:
    answers = {name: table[values] for name, table in round_.tables.items() if values in table}
    answers.setdefault(REPLICAS, {})
    return Reading(
        answers=answers,
        refused=round_.refused,
        unavailable=round_.unavailable,
        warnings=round_.warnings,
        time=round_.time,
        windows=round_.windows,
        interval=round_.interval,
    )
