"""Asks Prometheus about all servers: shared queries first, those of Servers' own last.

A group of servers shares its queries; what is known of it is kept from one survey to the next.
"""

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable, Container, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import islice
from math import isfinite

from inferno_operator.engines import promql
from inferno_operator.engines.catalogue import (
    MetricSource,
    MetricSources,
    find_source,
)
from inferno_operator.engines.diagnosis import AT_A_TIME, Diagnosis
from inferno_operator.engines.division import Namespaces, divide_into_chunks
from inferno_operator.engines.own_queries import OwnQueries
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
    describe_blame,
)
from inferno_operator.engines.series_groups import (
    WINDOWS,
    GroupIdentity,
    RateWindows,
    SeriesGroup,
    by_values,
    label_names,
    windows_of,
)
from inferno_operator.resources import CUSTOM, Measure
from inferno_operator.resources.objects import Key
from inferno_operator.runtime.prometheus import Prometheus
from inferno_optimizer.errors import InputError

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
        yield {
            values: ServerAnswer(self._build_left_out(problem)) for values, (_, problem) in left_out
        }
        queries = RoundQueries(self._prometheus, memory, namespaces, effort)
        others = memory.suspects.others(chunk)
        apart, memory.suspects.apart = memory.suspects.apart, []
        if others:
            usual = await self._ask_together(replace(chunk, values=others), queries, memory)
            while some := dict(islice(usual, AT_ONCE)):
                yield some
        for values, problem in apart:
            group = replace(chunk, values=values, is_part=True)
            yield dict(await self._ask_apart(group, queries, problem))

    def keep(self, parts: Container[GroupPart]) -> None:
        """Forget all groups but these."""
        for part in [part for part in self._memory if part not in parts]:
            del self._memory[part]

    async def _ask_together(
        self, group: SeriesGroup, queries: RoundQueries, memory: GroupMemory
    ) -> Iterator[tuple[Values, ServerAnswer]]:
        """Ask about servers that share their queries."""
        brief = _choose_brief_window(memory.interval, memory.short)
        windows = replace(group.windows, short=memory.short, brief=brief)
        round_ = Round(group, windows, time=self._clock())
        await queries.ask_needed(round_)
        memory.interval = round_.interval = _find_interval(round_) or memory.interval
        memory.short = _choose_short_window(memory.interval, group.windows)
        await queries.ask_first_seen(round_)
        await queries.ask_about_copies(round_)
        await queries.ask_slow(round_)
        missing = await self._look_for_missing(round_, queries)
        return _list_answers(round_, missing, memory.copies)

    async def _ask_apart(
        self, group: SeriesGroup, queries: RoundQueries, problem: str
    ) -> Iterator[tuple[Values, ServerAnswer]]:
        """Ask about a few servers, one of which made queries fail, as far as there is time."""
        round_ = Round(group, group.windows, is_apart=True, time=self._clock())
        await queries.ask_about_suspects(round_, problem)
        round_.interval = _find_interval(round_)
        await queries.ask_first_seen(round_)
        return _list_answers(round_, await self._look_for_missing(round_, queries), {})

    async def _look_for_missing(self, round_: Round, queries: RoundQueries) -> Mapping[Values, str]:
        """Find out when servers without series reported last, and what is wrong otherwise."""
        reporting = round_.tables.get(REPLICAS)
        if reporting is None or round_.has_failed:
            return {}
        absent = tuple(v for v in round_.group.values if "reporting" not in reporting.get(v, {}))
        if not absent:
            return {}
        group = replace(round_.group, values=absent)
        await queries.ask_optional(round_, promql.last_seen(group, MEMORY_SECONDS))
        seen = round_.tables.get(LAST_SEEN, {})
        missing = replace(group, values=tuple(v for v in absent if v not in seen))
        return await self._diagnosis.find_hints(missing, {*round_.group.values} - {*absent})

    def _build_left_out(self, problem: str) -> Reading:
        return Reading(refused=describe_blame(problem), time=self._clock())


def _find_interval(round_: Round) -> float:
    """The longest scrape interval of a group [s]; 0 if it is not known."""
    nobody = ("",) * len(round_.group.labels)
    seconds = round_.tables.get(REPLICAS, {}).get(nobody, {}).get("interval", 0.0)
    return seconds if isfinite(seconds) else 0.0


def _choose_short_window(interval: float, windows: RateWindows) -> int:
    """The short window for a scrape interval [s]."""
    return min(windows.long, max(windows.short, round(SCRAPES * interval)))


def _choose_brief_window(interval: float, short: int) -> int:
    """The brief window for a scrape interval [s]; 0 if it would not be much shorter."""
    seconds = max(BRIEF_SECONDS, round(SCRAPES * interval))
    return seconds if interval and 2 * seconds <= short else 0


def _list_answers(
    round_: Round, hints: Mapping[Values, str], copies: Mapping[Values, tuple[float, str]]
) -> Iterator[tuple[Values, ServerAnswer]]:
    for values in round_.group.values:
        _, labels = copies.get(values, (0.0, ""))
        yield values, ServerAnswer(_build_reading(round_, values, labels), hints.get(values, ""))
    for values, reading in round_.failures.items():
        yield values, ServerAnswer(reading)


def _build_reading(round_: Round, values: Values, differing: str) -> Reading:
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


SHARED_SECONDS = 60.0
"""Time after which a survey asks about no further groups [s]."""


@dataclass(frozen=True, slots=True)
class SurveyResult:
    """The reading of a server, its source, and what to say if it has no series."""

    reading: Reading
    source: MetricSource | None
    hint: str = ""


Results = Mapping[Key, SurveyResult]

Receive = Callable[[Results], Awaitable[object]]
"""Takes results as soon as they are there."""


class Survey:
    """Asks Prometheus about servers, again and again.

    Groups that were fast come first, so that a slow one delays no other. A survey takes limited
    time, whatever Prometheus does.

    Parameters
    ----------
    prometheus, catalogue
        What to ask, and the sources.
    clock
        The time of day, Unix time [s].
    windows
        The windows of rates of Servers that name none; short ones grow with the scrape interval.
    looked_at
        Servers of a group for which each survey looks why they have no series.
    """

    def __init__(
        self,
        prometheus: Prometheus,
        catalogue: MetricSources,
        clock: Callable[[], float],
        windows: RateWindows = WINDOWS,
        looked_at: int = AT_A_TIME,
    ) -> None:
        self._catalogue = catalogue
        self._clock = clock
        self._windows = windows
        self._rounds = Rounds(prometheus, clock, Diagnosis(prometheus, catalogue, looked_at))
        self._own = OwnQueries(prometheus)
        self._seconds: dict[GroupPart, float] = {}

    async def ask(self, measures: Mapping[Key, Measure]) -> Results:
        """Return the readings of servers, by where each is measured."""
        answers: dict[Key, SurveyResult] = {}

        async def take(results: Results) -> None:
            answers.update(results)

        await self.ask_each(measures, take)
        return answers

    async def ask_each(
        self,
        measures: Mapping[Key, Measure],
        receive: Receive,
        is_wanted: Callable[[Key], bool] = lambda _: True,
    ) -> None:
        """Ask for the readings of servers; a failure becomes a part of the reading.

        Parameters
        ----------
        measures
            Where each server is measured.
        receive
            Called with the results of some servers as soon as they are there.
        is_wanted
            Whether a server is still there: queries of its own are not asked otherwise.
        """
        own: dict[Key, SurveyResult] = {}

        async def take_shared(results: Results) -> None:
            own.update((key, each) for key, each in results.items() if measures[key].queries)
            await receive({key: each for key, each in results.items() if key not in own})

        async def take_own(key: Key, reading: Reading) -> None:
            await receive({key: replace(own[key], reading=reading)})

        await self._ask_shared(measures, take_shared)
        asking = {
            key: (found.reading, queries)
            for key, found in own.items()
            if (queries := measures[key].queries)
        }
        await self._own.ask(asking, take_own, is_wanted)

    async def _ask_shared(self, measures: Mapping[Key, Measure], take: Receive) -> None:
        groups, refused = self._group_servers(measures)
        await take(refused)
        custom = groups.pop(_OWN_QUERIES, {})
        await take({key: SurveyResult(Reading(time=self._clock()), None) for key in custom})
        parts = {
            (identity, number): (members, chunk)
            for identity, servers in groups.items()
            for members in [_Members.of(identity[1], servers)]
            for number, chunk in enumerate(
                divide_into_chunks(self._build_group(identity, members), members.first)
            )
        }
        self._seconds = {part: self._seconds.get(part, 0.0) for part in parts}
        self._rounds.keep(parts)
        effort, end = Effort.of_a_survey(), asyncio.get_running_loop().time() + SHARED_SECONDS
        for part in sorted(parts, key=lambda part: self._seconds[part]):
            began = asyncio.get_running_loop().time()
            members, chunk = parts[part]
            if effort.down or began >= end:
                await take(self._build_unasked(members, chunk, effort.down or _LATE))
                self._seconds[part] = 0.0
                continue
            async for answers in self._rounds.ask(chunk, part[1], members.first, effort):
                await take(_build_results(members, chunk.source, answers))
            self._seconds[part] = asyncio.get_running_loop().time() - began

    def _group_servers(
        self, measures: Mapping[Key, Measure]
    ) -> tuple[dict[GroupIdentity, dict[Key, Measure]], Results]:
        """Return the servers that share queries, and why some cannot be asked about."""
        groups: defaultdict[GroupIdentity, dict[Key, Measure]] = defaultdict(dict)
        refused = {}
        for key, measure in measures.items():
            try:
                groups[self._identify_group(measure)][key] = measure
            except InputError as error:
                reading = Reading(refused=str(error), time=self._clock())
                refused[key] = SurveyResult(reading, None)
        return groups, refused

    def _build_group(self, identity: GroupIdentity, members: "_Members") -> SeriesGroup:
        name, labels, windows = identity
        values = tuple(sorted(members.keys))
        return SeriesGroup(name, self._catalogue[name], labels, values, windows=windows)

    def _identify_group(self, measure: Measure) -> GroupIdentity:
        if measure.source == CUSTOM and CUSTOM not in self._catalogue:
            return _OWN_QUERIES
        find_source(self._catalogue, measure.source)
        return measure.source, label_names(measure.labels), windows_of(measure, self._windows)

    def _build_unasked(self, members: "_Members", chunk: SeriesGroup, problem: str) -> Results:
        answer = ServerAnswer(Reading(unavailable=problem, time=self._clock()))
        return _build_results(members, chunk.source, dict.fromkeys(chunk.values, answer))


_OWN_QUERIES: GroupIdentity = (CUSTOM, (), WINDOWS)
"""Servers that share no query."""

_LATE = (
    f"not asked, as other sources and labels took {SHARED_SECONDS:g} s:"
    " it comes first in the next measurement"
)


@dataclass(frozen=True, slots=True)
class _Members:
    """The servers of a group by the values of their labels; several may have the same ones."""

    keys: Mapping[Values, list[Key]]

    @classmethod
    def of(cls, labels: tuple[str, ...], servers: Mapping[Key, Measure]) -> "_Members":
        return cls(by_values(labels, servers))

    @property
    def first(self) -> Namespaces:
        """The namespace of the first server with these values."""
        return {values: keys[0].namespace for values, keys in self.keys.items()}


def _build_results(
    members: _Members, source: MetricSource, answers: Mapping[Values, ServerAnswer]
) -> Results:
    return {
        key: SurveyResult(item.reading, source, item.hint)
        for values, item in answers.items()
        for key in members.keys[values]
    }
