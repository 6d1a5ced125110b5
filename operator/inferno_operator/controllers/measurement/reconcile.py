"""One measuring cycle: ask Prometheus about all Servers, judge its answers, write what moved."""

import asyncio
import logging
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial

from inferno_operator.controllers.measurement import report, status
from inferno_operator.controllers.measurement.correction import with_correction
from inferno_operator.controllers.measurement.halves import counted_twice
from inferno_operator.controllers.measurement.load import with_planned_load
from inferno_operator.controllers.measurement.lookahead import Lookahead
from inferno_operator.controllers.measurement.measured_servers import MeasuredServers
from inferno_operator.controllers.measurement.quality import (
    measured,
    with_missing_lengths,
    with_targets,
)
from inferno_operator.controllers.measurement.sleepers import (
    demand_sources,
    sleeping,
    wanted,
    with_demand,
    with_requests_seen,
)
from inferno_operator.engines.demand import DemandReading, DemandSurvey
from inferno_operator.engines.survey import Results, Survey, SurveyResult
from inferno_operator.resources import DemandSource, Measure, Measured, Server, ServerStatus
from inferno_operator.resources.objects import Key, Now
from inferno_operator.resources.observation import Observation
from inferno_operator.runtime.observer import Observer
from inferno_operator.runtime.ports import Cluster, FieldManager
from inferno_operator.runtime.updates import FieldUpdate, Writer
from inferno_optimizer.errors import InfernoError

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Context:
    """What cycles need; without a survey, there is no Prometheus to ask.

    `measured` has what was measured last, by Server; `lookahead` what was measured in the last
    day; `readings` what waits for Servers; `reported` the namespaces with metrics. They outlive
    the cycles. After each step `progress` is notified, and `measured_some` is called with the
    Servers that were measured.
    """

    cluster: Cluster
    servers: MeasuredServers
    survey: Survey | None
    now: Now
    lookahead: Lookahead
    demand: DemandSurvey | None = None
    observer: Observer = field(default_factory=Observer)
    measured: dict[Key, Measured] = field(default_factory=dict)
    readings: dict[Key, DemandReading] = field(default_factory=dict)
    reported: set[str] = field(default_factory=set)
    progress: asyncio.Condition = field(default_factory=asyncio.Condition)
    measured_some: Callable[[Collection[Key]], None] = lambda _: None


async def reconcile(context: Context) -> None:
    """Measure all Servers, and write what moved; failures of writes are tried again later."""
    servers = context.servers.all()
    measures = _measures(servers)
    if context.survey is None:
        unmeasured = (servers[key] for key in measures)
        await _write(
            (status.refused(o, status.unconfigured(), context.now()) for o in unmeasured), context
        )
    else:
        await _ask_for_demand(demand_sources(servers), context)
        take, is_wanted = partial(_take, context), partial(_is_wanted, context)
        await context.survey.ask_each(measures, take, is_wanted)
    gone = (status.cleared(o) for key, o in servers.items() if key not in measures)
    await _write(gone, context)
    _report(servers, context)


async def look_for_demand(context: Context) -> set[Key]:
    """Ask what waits for Servers without replicas; returns those for which there are requests.

    Servers that were never measured, by no other operator either, are left out until they are.
    """
    servers = context.servers.all()
    sources = sleeping(servers)
    await _ask_for_demand(sources, context)
    readings = {key: context.readings[key] for key in sources.keys() & context.readings.keys()}
    for key, reading in readings.items():
        before = context.measured.get(key) or last_good(servers[key])
        if before is not None:
            context.measured[key] = with_requests_seen(reading, before)
    return wanted({k: reading for k, reading in readings.items() if k in context.measured})


async def _ask_for_demand(sources: Mapping[Key, DemandSource], context: Context) -> None:
    if sources and context.demand is not None:
        context.readings.update(await context.demand.ask(sources))


async def _take(context: Context, results: Results) -> None:
    """Write what moved of Servers that are still there, while others are still asked about."""
    servers = context.servers.all()
    wanted = [(servers[k], r) for k, r in results.items() if _is_wanted(context, k)]
    measured = [(server, _newest(server, result, context)) for server, result in wanted]
    await _write((status.update(*pair, context.now()) for pair in measured), context)
    async with context.progress:
        context.progress.notify_all()
    context.measured_some([server.reference.key for server, _ in wanted])


def _is_wanted(context: Context, key: Key) -> bool:
    """Whether a Server is still there, and still to be measured."""
    observation = context.servers.get(key)
    return (
        observation is not None
        and isinstance(observation.resource, Server)
        and bool(observation.resource.spec.measure)
    )


def _report(servers: Mapping[Key, Observation], context: Context) -> None:
    """Report what was measured to the observer; namespaces without measured Servers are empty."""
    measured = report.by_namespace(_reported(servers, context), context.now())
    for namespace in context.reported | measured.keys():
        context.observer.measured(namespace, measured.get(namespace, ()))
    context.reported.clear()
    context.reported.update(measured)


def _reported(
    servers: Mapping[Key, Observation], context: Context
) -> Iterator[report.ReportedServer]:
    for key, observation in servers.items():
        server, newest = observation.resource, context.measured.get(key)
        if isinstance(server, Server) and server.spec.measure and newest is not None:
            yield key, server, newest, context.servers.target(key, server)


def _measures(servers: Mapping[Key, Observation]) -> Mapping[Key, Measure]:
    resources = {key: observation.resource for key, observation in servers.items()}
    return {
        key: resource.spec.measure
        for key, resource in resources.items()
        if isinstance(resource, Server) and resource.spec.measure
    }


def _newest(observation: Observation, result: SurveyResult, context: Context) -> Measured:
    """Judge a reading, and keep what was measured."""
    key, server = observation.reference.key, observation.resource
    before = context.measured.get(key) or last_good(observation)
    hint = status.hint(observation, result.hint)
    reading = result.reading
    ready_pods = context.servers.ready_pods(key, reading.time, reading.grace_s)
    newest = measured(reading, result.source, before, hint, ready_pods)
    if isinstance(server, Server):
        if why := counted_twice(newest, server, result.source):
            newest = measured(replace(reading, refused=why), result.source, before)
        demand = _reading(server, key, context)
        if demand is not None:
            mean_rate = context.lookahead.mean_rate(key)
            newest = with_demand(newest, server, before, demand, mean_rate)
        target = context.servers.target(key, server)
        ahead = context.lookahead.ahead(key, server, newest, before)
        newest = with_targets(newest, target).model_copy(update={"ahead": ahead})
        model = context.servers.model(key, server)
        newest = with_correction(newest, server, before, target, model)
        newest = with_planned_load(newest, server, before, target, context.now())
        newest = with_missing_lengths(newest, _source_name(server), result.source)
    context.measured[key] = newest
    return newest


def _source_name(server: Server) -> str:
    return server.spec.measure.source if server.spec.measure else ""


def _reading(server: Server, key: Key, context: Context) -> DemandReading | None:
    """What is seen of requests; None for a Server that does not say where."""
    measure = server.spec.measure
    if measure is None or measure.demand is None:
        return None
    return context.readings.get(key, DemandReading())


def last_good(observation: Observation) -> Measured | None:
    """Return what the status of a Server has: what this operator or another one measured."""
    written = observation.status
    return written.measured if isinstance(written, ServerStatus) else None


async def _write(updates: Iterable[FieldUpdate | None], context: Context) -> None:
    """Write updates; those that fail are written by the next cycle."""
    writer = Writer(context.cluster, FieldManager.MEASUREMENT, context.now)
    try:
        await writer.write_all(filter(None, updates))
    except InfernoError as error:
        logger.warning("some measurements are not written: %s", error)
