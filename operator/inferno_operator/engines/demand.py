"""Asks how many requests servers have to serve, also servers without a replica."""

import asyncio
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from math import isfinite, nan

from inferno_operator.engines import promql
from inferno_operator.engines.catalogue import MetricSources, find_demand_source
from inferno_operator.engines.division import divide_into_chunks
from inferno_operator.engines.own_queries import read_single
from inferno_operator.engines.reading import Values, parts_of
from inferno_operator.engines.series_groups import (
    WINDOWS,
    RateWindows,
    SeriesGroup,
    by_values,
    label_names,
)
from inferno_operator.resources import CUSTOM, DemandSource
from inferno_operator.resources.objects import Key
from inferno_operator.runtime.prometheus import Prometheus
from inferno_optimizer.errors import InfernoError, InputError

ASKED_SECONDS = 5.0
"""Time limit of all queries about what waits [s]."""

AT_ONCE = 8
"""Queries of Servers' own that run at the same time."""


@dataclass(frozen=True, slots=True)
class DemandReading:
    """The requests that are seen for a server; without a number, `problem` says what to do."""

    requests: float | None = None
    problem: str = ""


DemandReadings = Mapping[Key, DemandReading]
"""What is seen for servers; a Server of which nothing is known has a reading without a number."""


SourceLabels = tuple[str, tuple[str, ...]]
"""The name of a source, and the names of the labels of its series."""


class DemandSurvey:
    """Asks Prometheus for the requests that servers should serve.

    Parameters
    ----------
    prometheus, catalogue
        What to ask, and the sources.
    windows
        The long one is that in which requests count that have arrived.
    """

    def __init__(
        self, prometheus: Prometheus, catalogue: MetricSources, windows: RateWindows = WINDOWS
    ) -> None:
        self._prometheus = prometheus
        self._catalogue = catalogue
        self._seconds = windows.long

    async def ask(self, sources: Mapping[Key, DemandSource]) -> DemandReadings:
        """Return what is seen for each server; a failure is a reading without a number."""
        answers: dict[Key, DemandReading] = {}
        groups: defaultdict[SourceLabels, list[Key]] = defaultdict(list)
        own: list[Key] = []
        for key, source in sorted(sources.items()):
            try:
                if source.source == CUSTOM:
                    own.append(key)
                else:
                    groups[self._identify_group(source)].append(key)
            except InputError as error:
                answers[key] = DemandReading(problem=str(error))
        places = asyncio.Semaphore(AT_ONCE)
        try:
            async with asyncio.timeout(ASKED_SECONDS), asyncio.TaskGroup() as tasks:
                for identity, keys in groups.items():
                    tasks.create_task(self._ask_shared(identity, keys, sources, answers))
                for key in own:
                    tasks.create_task(self._ask_own(key, sources[key].query or "", places, answers))
        except TimeoutError:
            late = DemandReading(problem=f"{_FIELD}: no answer within {ASKED_SECONDS:g} s")
            return {key: answers.get(key, late) for key in sources}
        return answers

    def _identify_group(self, source: DemandSource) -> SourceLabels:
        find_demand_source(self._catalogue, source.source)
        return source.source, label_names(source.labels, f"{_FIELD}.labels")

    async def _ask_shared(
        self,
        identity: SourceLabels,
        keys: list[Key],
        sources: Mapping[Key, DemandSource],
        found: dict[Key, DemandReading],
    ) -> None:
        name, labels = identity
        members = by_values(labels, {key: sources[key] for key in keys})
        group = SeriesGroup(name, self._catalogue[name], labels, tuple(sorted(members)))
        first = {values: known[0].namespace for values, known in members.items()}
        for part in divide_into_chunks(group, first):
            readings = await self._ask_about_group(part)
            for values in part.values:
                found |= dict.fromkeys(members[values], readings[values])

    async def _ask_about_group(self, group: SeriesGroup) -> Mapping[Values, DemandReading]:
        query = promql.demand(group, self._seconds)
        try:
            answers = parts_of(query, await self._prometheus.query(query.expression))
        except InfernoError as error:
            return dict.fromkeys(group.values, DemandReading(problem=f"{_FIELD}: {error}"))
        return {
            values: _build_reading(
                sum(answers.get(values, {"": nan}).values()), _describe_absence(group)
            )
            for values in group.values
        }

    async def _ask_own(
        self,
        key: Key,
        expression: str,
        places: asyncio.Semaphore,
        found: dict[Key, DemandReading],
    ) -> None:
        async with places:
            try:
                value = read_single(await self._prometheus.query(expression))
            except InfernoError as error:
                found[key] = DemandReading(problem=f"{_FIELD}.query: {error}")
                return
        found[key] = _build_reading(nan if value is None else value, f"{_FIELD}.query: no number")


_FIELD = "spec.measure.demand"


def _build_reading(requests: float, problem: str) -> DemandReading:
    """The reading for a number; that of a problem for what is no number."""
    return DemandReading(requests) if isfinite(requests) else DemandReading(problem=problem)


def _describe_absence(group: SeriesGroup) -> str:
    names = ", ".join(group.source.heartbeat)
    return f"{_FIELD}: no series of {names} has these labels: correct the labels, or send a request"
