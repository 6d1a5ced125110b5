"""Asks the queries about one group; divides it where one of its servers makes them fail."""

import asyncio
import logging
from collections import defaultdict, deque
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from inferno_operator.engines import promql
from inferno_operator.engines.catalogue import TOKENS
from inferno_operator.engines.division import LEFT_OUT_FOR, Namespaces, Suspects, halve
from inferno_operator.engines.promql import Query
from inferno_operator.engines.reading import (
    COVS,
    LOAD_BRIEF,
    LOAD_LONG,
    LOAD_SHORT,
    REPLICAS,
    Reading,
    ReadingsByValues,
    Values,
    cov_by_server,
    find_differing_labels,
    merge_warnings,
    parts_of,
)
from inferno_operator.engines.series_groups import RateWindows, SeriesGroup
from inferno_operator.runtime.prometheus import BusyError, Prometheus, QueryResult, RefusedError
from inferno_optimizer.errors import InfernoError, UnavailableError

logger = logging.getLogger(__name__)

VARIATION_OF = 1000
"""Servers of a group up to which the variation of tokens is measured: it needs all buckets."""

COPIES_LOOKED_AT = 500
"""Servers of a group whose copies are looked at in a survey: each answer has all their labels."""

PROBE = "vector(1)"
"""A query that every Prometheus answers, unless it answers none."""

DIVISION_QUERIES = 60
DIVISION_SECONDS = 20.0
"""Most queries, and time [s], in which a survey looks for servers that make Prometheus fail."""

PART_SECONDS = 3.0
"""Time limit of a query of several suspects [s]."""

WHOLE_FOR = 20
"""Surveys for which a group is not divided again after all its parts failed."""


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
class Round:
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
class GroupMemory:
    """What is kept of a group: its short window, the answers that move slowly, and suspects.

    `interval` is the time between two scrapes [s]; 0: not known yet. `copies` are the number of
    copies of the series of a server, and the labels in which they differ.
    """

    short: int
    interval: float = 0.0
    surveys: int = 0
    slow: dict[str, ReadingsByValues] = field(default_factory=dict)
    suspects: Suspects = field(default_factory=Suspects)
    whole_until: int = 0
    copies: dict[Values, tuple[float, str]] = field(default_factory=dict)


class RoundQueries:
    """Asks the queries of a round, one after the other: an answer takes memory."""

    def __init__(
        self, prometheus: Prometheus, memory: GroupMemory, namespaces: Namespaces, effort: Effort
    ) -> None:
        self._prometheus = prometheus
        self._memory = memory
        self._namespaces = namespaces
        self._effort = effort

    async def ask_needed(self, round_: Round) -> None:
        """Ask the queries without which there is no measurement."""
        for name in _list_needed_queries(round_.group, round_.windows):
            if round_.group.values and not round_.has_failed:
                query = _list_needed_queries(round_.group, round_.windows)[name]
                try:
                    ask = self._ask_suspects if round_.is_apart else self._ask
                    await ask(round_, query)
                except InfernoError as error:
                    await self._handle_failure(round_, query, error)

    async def ask_about_suspects(self, round_: Round, problem: str) -> None:
        """Ask the same about a few servers, one of which made queries fail."""
        suspects = round_.group.values
        if not self._effort.is_left or self._effort.down:
            self._suspect(round_, suspects, problem)
            round_.group = replace(round_.group, values=())
            return
        await self.ask_needed(round_)
        if round_.has_failed:
            self._memory.suspects.suspect(suspects, problem)

    async def ask_first_seen(self, round_: Round) -> None:
        """Ask when servers were first seen that have no samples of the whole long window."""
        replicas = round_.tables.get(REPLICAS, {})
        young = tuple(v for v in round_.group.values if "young" in replicas.get(v, {}))
        if young and not round_.has_failed:
            group, step = replace(round_.group, values=young), max(1, round(round_.interval))
            await self.ask_optional(round_, promql.known_since(group, round_.windows.long, step))

    async def ask_about_copies(self, round_: Round) -> None:
        """Ask about servers whose series have copies: are they alike, and what do they differ in.

        The labels are asked for once.
        """
        replicas = round_.tables.get(REPLICAS, {})
        counts = {v: n for v in round_.group.values if (n := replicas.get(v, {}).get("copies"))}
        known = self._memory.copies
        new = [v for v, n in counts.items() if known.get(v, (0.0, ""))[0] != n][:COPIES_LOOKED_AT]
        self._memory.copies = {v: known[v] for v in counts if v in known and v not in new}
        if not counts or round_.has_failed or self._effort.down:
            return
        if unlike := promql.unlike_copies(round_.group, round_.windows.short):
            await self.ask_optional(round_, unlike)
        if not new:
            return
        query = promql.labels_of_copies(replace(round_.group, values=tuple(new), is_part=True))
        try:
            answer = await self._prometheus.query(query.expression)
        except InfernoError as error:
            logger.warning("%s: %s: %s", query.group.name, query.name, error)
            return
        labels = find_differing_labels(query.group, answer.samples)
        self._memory.copies |= {v: (counts[v], labels.get(v, "")) for v in new}

    async def ask_slow(self, round_: Round) -> None:
        """Ask one of the queries that move slowly; at first, all of them."""
        memory, queries = self._memory, _list_slow_queries(round_.group, round_.windows.long)
        turn = (memory.surveys - 1) % len(queries) if queries else 0
        due = queries[turn:][:1] if memory.surveys > 1 else queries
        for query in due:
            if round_.has_failed or self._effort.down or not round_.group.values:
                break
            await self.ask_optional(round_, query)
            memory.slow[query.name] = round_.tables.pop(query.name, {})
        round_.tables |= _merge_slow_answers(memory.slow)

    async def ask_optional(self, round_: Round, query: Query) -> None:
        """Ask a query; without an answer a reading only lacks a number."""
        try:
            await self._ask(round_, query)
        except InfernoError as error:
            logger.warning("%s: %s: %s", query.group.name, query.name, error)
            if isinstance(error, UnavailableError):
                await self._answers_others(error)

    async def _handle_failure(self, round_: Round, query: Query, error: InfernoError) -> None:
        """Divide the group after a failure of a query, or note the failure for all its servers."""
        logger.warning("%s: %s: %s", query.group.name, query.name, error)
        if await self._may_be_of_a_server(round_, error) and await self._divide(
            round_, query, str(error)
        ):
            return
        if isinstance(error, RefusedError):
            round_.refused = str(error)
        else:
            round_.unavailable = str(error)

    async def _may_be_of_a_server(self, round_: Round, error: InfernoError) -> bool:
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

    async def _divide(self, round_: Round, query: Query, problem: str) -> bool:
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
            for half in halve(group, self._namespaces):
                try:
                    part = _list_needed_queries(half, round_.windows)[query.name]
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

    async def _ask(self, round_: Round, query: Query) -> None:
        """Ask a query, and put its answer into the round."""
        _put_answer(round_, query, await self._prometheus.query(query.expression))

    async def _ask_suspects(self, round_: Round, query: Query) -> None:
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

    def _accuse(self, round_: Round, values: Values, problem: str) -> None:
        logger.warning("%s: left out: %s", round_.group.name, ", ".join(values))
        self._memory.suspects.accuse(values, self._memory.surveys, problem)
        round_.failures[values] = Reading(refused=describe_blame(problem), time=round_.time)

    def _suspect(self, round_: Round, values: tuple[Values, ...], problem: str) -> None:
        self._memory.suspects.suspect(values, problem)
        text = f"one of {len(values)} servers makes Prometheus fail, and is looked for: {problem}"
        failure = Reading(unavailable=text, time=round_.time)
        round_.failures |= dict.fromkeys(values, failure)


def describe_blame(problem: str) -> str:
    """Return what to say of a Server that made the queries fail."""
    return (
        f"this Server is left out of shared queries for {LEFT_OUT_FOR} measurements,"
        f" because they fail with it: {problem}"
    )


def _list_needed_queries(group: SeriesGroup, windows: RateWindows) -> Mapping[str, Query]:
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


def _list_slow_queries(group: SeriesGroup, seconds: int) -> list[Query]:
    """The queries of which each survey asks one."""
    shares = (promql.percentiles(group, share, seconds) for share in promql.PERCENTILES)
    quantities = TOKENS if len(group.values) <= VARIATION_OF else ()
    covs = (promql.buckets(group, quantity, seconds) for quantity in quantities)
    return [query for query in (*shares, *covs) if query is not None]


def _put_answer(round_: Round, query: Query, answer: QueryResult) -> None:
    """Put an answer into a round, beside those about other parts of the group."""
    table = _build_table(query, answer)
    round_.tables[query.name] = {**round_.tables.get(query.name, {}), **table}
    round_.warnings = merge_warnings(round_.warnings, answer.warnings)
    if answer.samples:
        round_.time = max(round_.time, answer.samples[0].time)


def _build_table(query: Query, answer: QueryResult) -> ReadingsByValues:
    if not query.name.startswith(promql.BUCKETS):
        return parts_of(query, answer)
    quantity = query.name.removeprefix(promql.BUCKETS)
    return {v: {quantity: cov} for v, cov in cov_by_server(query, answer).items()}


def _merge_slow_answers(slow: Mapping[str, ReadingsByValues]) -> dict[str, ReadingsByValues]:
    """The slow answers, with the variations of all quantities in one table."""
    merged = {name: table for name, table in slow.items() if not name.startswith(promql.BUCKETS)}
    covs: defaultdict[Values, dict[str, float]] = defaultdict(dict)
    for name, table in slow.items():
        if name.startswith(promql.BUCKETS):
            for values, parts in table.items():
                covs[values] |= parts
    return {**merged, COVS: covs}
