"""Asks Prometheus about all servers: shared queries first, those of Servers' own last."""

import asyncio
from collections import defaultdict
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, replace

from inferno_operator.engines.catalogue import (
    MetricSource,
    MetricSources,
    find_source,
)
from inferno_operator.engines.diagnosis import AT_A_TIME, Diagnosis
from inferno_operator.engines.division import Namespaces, chunks
from inferno_operator.engines.own_queries import OwnQueries
from inferno_operator.engines.reading import Reading, Values
from inferno_operator.engines.round_queries import Effort
from inferno_operator.engines.rounds import GroupPart, Rounds, ServerAnswer
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

        await self._shared(measures, take_shared)
        asking = {
            key: (found.reading, queries)
            for key, found in own.items()
            if (queries := measures[key].queries)
        }
        await self._own.ask(asking, take_own, is_wanted)

    async def _shared(self, measures: Mapping[Key, Measure], take: Receive) -> None:
        groups, refused = self._grouped(measures)
        await take(refused)
        custom = groups.pop(_OWN_QUERIES, {})
        await take({key: SurveyResult(Reading(time=self._clock()), None) for key in custom})
        parts = {
            (identity, number): (members, chunk)
            for identity, servers in groups.items()
            for members in [_Members.of(identity[1], servers)]
            for number, chunk in enumerate(chunks(self._group(identity, members), members.first))
        }
        self._seconds = {part: self._seconds.get(part, 0.0) for part in parts}
        self._rounds.keep(parts)
        effort, end = Effort.of_a_survey(), asyncio.get_running_loop().time() + SHARED_SECONDS
        for part in sorted(parts, key=lambda part: self._seconds[part]):
            began = asyncio.get_running_loop().time()
            members, chunk = parts[part]
            if effort.down or began >= end:
                await take(self._unasked(members, chunk, effort.down or _LATE))
                self._seconds[part] = 0.0
                continue
            async for answers in self._rounds.ask(chunk, part[1], members.first, effort):
                await take(_results(members, chunk.source, answers))
            self._seconds[part] = asyncio.get_running_loop().time() - began

    def _grouped(
        self, measures: Mapping[Key, Measure]
    ) -> tuple[dict[GroupIdentity, dict[Key, Measure]], Results]:
        """Return the servers that share queries, and why some cannot be asked about."""
        groups: defaultdict[GroupIdentity, dict[Key, Measure]] = defaultdict(dict)
        refused = {}
        for key, measure in measures.items():
            try:
                groups[self._identity(measure)][key] = measure
            except InputError as error:
                reading = Reading(refused=str(error), time=self._clock())
                refused[key] = SurveyResult(reading, None)
        return groups, refused

    def _group(self, identity: GroupIdentity, members: "_Members") -> SeriesGroup:
        name, labels, windows = identity
        values = tuple(sorted(members.keys))
        return SeriesGroup(name, self._catalogue[name], labels, values, windows=windows)

    def _identity(self, measure: Measure) -> GroupIdentity:
        if measure.source == CUSTOM and CUSTOM not in self._catalogue:
            return _OWN_QUERIES
        find_source(self._catalogue, measure.source)
        return measure.source, label_names(measure.labels), windows_of(measure, self._windows)

    def _unasked(self, members: "_Members", chunk: SeriesGroup, problem: str) -> Results:
        answer = ServerAnswer(Reading(unavailable=problem, time=self._clock()))
        return _results(members, chunk.source, dict.fromkeys(chunk.values, answer))


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


def _results(
    members: _Members, source: MetricSource, answers: Mapping[Values, ServerAnswer]
) -> Results:
    return {
        key: SurveyResult(item.reading, source, item.hint)
        for values, item in answers.items()
        for key in members.keys[values]
    }
