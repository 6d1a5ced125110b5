"""Measure Servers regularly, and give optimizations their newest loads."""

import asyncio
import logging
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial

from inferno_operator.controllers.measurement.correction import add_correction
from inferno_operator.controllers.measurement.load import (
    add_planned_load,
    apply_measurement,
    has_jumped,
    remove_load,
    set_scheduled_replicas,
)
from inferno_operator.controllers.measurement.lookahead import Lookahead, PastRates
from inferno_operator.controllers.measurement.measured_servers import MeasuredServers, find_measure
from inferno_operator.controllers.measurement.quality import (
    NO_REQUESTS,
    ONE_STAYS,
    judge_reading,
    note_missed_targets,
    note_missing_lengths,
)
from inferno_operator.controllers.measurement.status import (
    NOT_CONFIGURED,
    clear_measurement,
    find_hint,
    find_last_good,
    group_by_namespace,
    report_measurement,
    report_refusal,
)
from inferno_operator.engines.catalogue import MetricSource
from inferno_operator.engines.demand import DemandReading, DemandSurvey
from inferno_operator.engines.survey import Results, Survey, SurveyResult
from inferno_operator.resources import DemandSource, Load, Measure, Measured, MeasuredDemand, Server
from inferno_operator.resources.measurement import USABLE
from inferno_operator.resources.objects import Key, Now
from inferno_operator.resources.observation import Observation, is_of, of_kind
from inferno_operator.runtime.informers import Informers
from inferno_operator.runtime.observer import Observer
from inferno_operator.runtime.ports import Cluster, FieldManager
from inferno_operator.runtime.updates import FieldUpdate, Writer
from inferno_operator.runtime.work_queue import Cycles, ReconcileResult
from inferno_optimizer.errors import InfernoError

logger = logging.getLogger(__name__)

CYCLE = "measure all Servers"
"""The name of the cycle that measures."""

DEMAND = "look for requests of Servers without replicas"
"""The name of the other cycle."""

DEMAND_SECONDS = 2.0
"""Seconds between two looks for requests."""

LEAST_PAUSE = 1 / 3
"""Part of the interval that lies at least between two cycles: Prometheus may be slow."""

PATIENCE_SECONDS = 15.0
"""Seconds that an optimization waits for Servers that have never been measured."""

DIGITS = 3
"""Decimals of numbers of requests."""

COUNTED_TWICE = (
    "prefill and decode replicas have each counted all requests: take a source that counts them"
    " before, such as EPP or Dynamo, or let spec.measure.labels select only replicas that answer"
)

MissedTargets = tuple[tuple[str, ...], Load | None]
"""The targets that a Server misses, and its load."""


@dataclass(frozen=True, slots=True)
class Context:
    """What cycles need; without a survey, there is no Prometheus to ask.

    What outlives the cycles: `measured` has what was measured last, by Server; `lookahead` what was
    measured in the last day; `readings` what waits for Servers; `reported` the namespaces with
    metrics. After each step `progress` is notified, and `measured_some` is called with the Servers
    that were measured.
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

    def find_before(self, observation: Observation[Server]) -> Measured | None:
        """Return what was measured last of a Server, by this operator or another one."""
        return self.measured.get(observation.reference.key) or find_last_good(observation)


async def reconcile(context: Context) -> None:
    """Measure all Servers, and write what moved; failures of writes are tried again later."""
    servers = context.servers.all()
    measures = _find_measures(servers)
    if context.survey is None:
        now = context.now()
        await _write((report_refusal(servers[k], NOT_CONFIGURED, now) for k in measures), context)
    else:
        # What waits for a Server is one of the things by which its numbers are judged.
        await _ask_for_demand(_find_demand_sources(servers), context)
        take, is_awaited = partial(_take, context), partial(_is_awaited, context)
        await context.survey.ask_each(measures, take, is_awaited)
    await _write((clear_measurement(o) for k, o in servers.items() if k not in measures), context)
    metrics = group_by_namespace(
        (
            (key, server, newest, context.servers.target(key, server))
            for key in measures
            if (server := servers[key].resource) and (newest := context.measured.get(key))
        ),
        context.now(),
    )
    for namespace in context.reported | metrics.keys():  # one without measured Servers is empty
        context.observer.measured(namespace, metrics.get(namespace, ()))
    context.reported.clear()
    context.reported.update(metrics)


async def _take(context: Context, results: Results) -> None:
    """Write what moved of Servers that are still there, while others are still asked about."""
    servers = context.servers.all()
    awaited = [(servers[k], r) for k, r in results.items() if _is_awaited(context, k)]
    updates = []
    for observation, result in awaited:
        if server := observation.resource:
            newest = _measure(observation, server, result, context)
            context.measured[observation.reference.key] = newest
            updates.append(report_measurement(observation, server, newest, context.now()))
    await _write(updates, context)
    async with context.progress:
        context.progress.notify_all()
    context.measured_some([observation.reference.key for observation, _ in awaited])


def _measure(
    observation: Observation[Server], server: Server, result: SurveyResult, context: Context
) -> Measured:
    """Judge what Prometheus answers about a Server, and add what follows from it for plans."""
    key, before, reading = (
        observation.reference.key,
        context.find_before(observation),
        result.reading,
    )
    ready_pods = context.servers.ready_pods(key, reading.time, reading.grace_s)
    hint = find_hint(observation, server, result.hint)
    newest = judge_reading(reading, result.source, before, hint, ready_pods)
    if is_counted_twice(newest, server, result.source):
        refused = replace(reading, refused=COUNTED_TWICE)
        newest = judge_reading(refused, result.source, before)
    measure = server.spec.measure
    if measure and measure.demand:
        seen = context.readings.get(key, DemandReading())
        newest = add_demand(newest, server, before, seen, context.lookahead.mean_rate(key))
    target, model = context.servers.target(key, server), context.servers.model(key, server)
    ahead = context.lookahead.look_ahead(key, server, newest, before)
    newest = note_missed_targets(newest, target).model_copy(update={"ahead": ahead})
    newest = add_correction(newest, server, before, target, model)
    newest = add_planned_load(newest, server, before, target, context.now())
    return note_missing_lengths(newest, measure.source if measure else "", result.source)


def _is_awaited(context: Context, key: Key) -> bool:
    observation = context.servers.get(key)
    return observation is not None and find_measure(observation) is not None


def _find_measures(servers: Mapping[Key, Observation[Server]]) -> dict[Key, Measure]:
    return {key: found for key, o in servers.items() if (found := find_measure(o))}


async def _write(updates: Iterable[FieldUpdate | None], context: Context) -> None:
    """Write updates; those that fail are written by the next cycle."""
    writer = Writer(context.cluster, FieldManager.MEASUREMENT, context.now)
    try:
        await writer.write_all(filter(None, updates))
    except InfernoError as error:
        logger.warning("some measurements are not written: %s", error)


def is_counted_twice(newest: Measured, server: Server, source: MetricSource | None) -> bool:
    """Whether each request was counted twice, by a prefill and by a decode replica.

    Where these are apart, an engine of either role counts each request, and that of a prefill
    replica as one with a single output token. A sum over both is twice the rate, with half of the
    output tokens. `source` is None for a source of queries only.
    """
    current, measure = server.spec.current_alloc, server.spec.measure
    if source is None or source.without_replicas or current is None or current.roles is None:
        return False
    if not newest.arrival_rate or newest.quality not in USABLE or newest.replicas is None:
        return False
    queries = measure.queries if measure else None
    if queries and queries.arrival_rate and queries.avg_out_tokens:
        return False
    # As many report as there are of both roles, and not of decode alone.
    prefill, decode = current.roles.prefill.num_replicas, current.roles.decode.num_replicas
    return newest.replicas.ready >= prefill + decode > decode


async def look_for_demand(context: Context) -> set[Key]:
    """Ask what waits for Servers without replicas; returns those for which there are requests.

    Servers that were never measured, by no other operator either, are left out until they are.
    """
    servers = context.servers.all()
    sleeping = {key: o for key, o in servers.items() if o.resource and o.resource.sleeps}
    sources = _find_demand_sources(sleeping)
    await _ask_for_demand(sources, context)
    requested = set()
    for key in sources.keys() & context.readings.keys():
        seen, before = context.readings[key], context.find_before(servers[key])
        if before is not None:
            demand = (before.demand or MeasuredDemand()).model_copy(
                update={"requests": seen.requests, "message": seen.problem, "idle_since": None}
            )
            context.measured[key] = before.model_copy(update={"demand": demand})
        if seen.requests and key in context.measured:
            requested.add(key)
    return requested


def _find_demand_sources(servers: Mapping[Key, Observation[Server]]) -> dict[Key, DemandSource]:
    measures = _find_measures(servers)
    return {key: measure.demand for key, measure in measures.items() if measure.demand}


async def _ask_for_demand(sources: Mapping[Key, DemandSource], context: Context) -> None:
    if sources and context.demand is not None:
        context.readings.update(await context.demand.ask(sources))


def add_demand(
    newest: Measured,
    server: Server,
    before: Measured | None,
    seen: DemandReading,
    mean_rate: float | None,
) -> Measured:
    """Add what is seen of requests, and since when there are none.

    `seen` is what `measure.demand` sees, `mean_rate` the mean of the rates of the last day
    [requests/min].
    """
    newest = _judge_without_replicas(newest, server, seen)
    if newest.quality == "Idle" and newest.message == NO_REQUESTS + ONE_STAYS:
        newest = newest.model_copy(update={"message": NO_REQUESTS})
    last = (before.demand if before else None) or MeasuredDemand()
    mean_rate = last.mean_rate if mean_rate is None else mean_rate
    is_idle = newest.quality == "Idle" and seen.requests == 0
    demand = MeasuredDemand(
        requests=None if seen.requests is None else round(seen.requests, DIGITS),
        mean_rate=None if mean_rate is None else round(mean_rate, DIGITS),
        idle_since=(last.idle_since or newest.time) if is_idle else None,
        message=seen.problem,
    )
    return newest.model_copy(update={"demand": demand})


def _judge_without_replicas(newest: Measured, server: Server, seen: DemandReading) -> Measured:
    """Take what is seen of requests where no replica reports, because none runs."""
    current = server.spec.current_alloc
    runs = current is not None and current.num_replicas > 0
    if newest.quality not in ("Stale", "Missing") or seen.requests is None or runs:
        return newest
    if seen.requests:
        message = "requests come, and no replica serves yet"
        return newest.model_copy(update={"quality": "Partial", "message": message})
    if server.sleeps:
        message = "no replica runs, and no request is seen"
        idle = {"quality": "Idle", "message": message, "arrival_rate": 0.0, "waiting": None}
        return newest.model_copy(update=idle)
    return newest


class MeasurementController:
    """Measures Servers with `spec.measure`, every `interval` seconds.

    The interval begins with a cycle; the next one waits for the end of a longer cycle, and for a
    part of the interval after it. Without a `survey`, the operator does not know where Prometheus
    is; `demand` asks for requests that wait for Servers without replicas.
    """

    def __init__(
        self,
        cluster: Cluster,
        informers: Informers,
        survey: Survey | None,
        interval: float,
        now: Now,
        observer: Observer,
        demand: DemandSurvey | None = None,
    ) -> None:
        servers = MeasuredServers(informers, self._forget)
        self._context = Context(
            cluster,
            servers,
            survey,
            now,
            Lookahead(interval),
            demand,
            observer,
            measured_some=self._measured_some,
        )
        self._interval = interval
        self._past: PastRates | None = None
        self._missed: dict[Key, MissedTargets] = {}
        self._loads: dict[Key, Load] = {}
        self._requested: set[Key] = set()
        self._ask_for_plan: Callable[[str], None] = _ignore
        self._ask_to_wake: Callable[[str], None] = _ignore
        self.queue = Cycles({CYCLE: self._cycle, DEMAND: self._look_for_demand})

    def when_a_plan_is_needed(self, ask_for_plan: Callable[[str], None]) -> None:
        """Call this with a namespace as soon as it is known that it needs a plan now.

        Nobody waits for the end of a cycle: queries of others may be slow. It is called when a
        Server begins to miss a target, and as long as its load grows then; when the load of a
        Server is known for the first time; and when one jumps.
        """
        self._ask_for_plan = ask_for_plan

    def when_a_server_is_wanted(self, ask_to_wake: Callable[[str], None]) -> None:
        """Call this with a namespace when there are requests for a Server without replicas."""
        self._ask_to_wake = ask_to_wake

    def begin_with(self, past: PastRates) -> None:
        """Read the loads of the last day at the start; until then, the growth is as it was told."""
        self._past = past

    async def run(self) -> None:
        """Measure until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._context.servers.run())
            await self._context.servers.complete()
            self.queue.start()
            if self._past is not None:
                await self._past.fill(
                    self._context.lookahead, _find_measures(self._context.servers.all())
                )

    async def stop(self) -> None:
        """Stop measuring."""
        await self.queue.close()

    def servers(self) -> Sequence[tuple[Key, Server]]:
        """Return the Servers that are measured."""
        servers = self._context.servers.all().items()
        return [(key, o.resource) for key, o in servers if o.resource and o.resource.spec.measure]

    async def with_loads(self, observations: Sequence[Observation]) -> Sequence[Observation]:
        """Return objects in which measured Servers have their newest load.

        Servers that were never measured are measured first.
        """
        known, progress = self._context.measured, self._context.progress
        measured = [o for o in of_kind(observations, Server) if find_measure(o)]
        unmeasured = [o for o in measured if o.reference.key not in known]
        if unmeasured and self._context.survey is not None:
            for observation in unmeasured:
                self._context.servers.note(observation)
            self.queue.request(CYCLE)
            with suppress(TimeoutError):
                async with asyncio.timeout(PATIENCE_SECONDS), progress:
                    await progress.wait_for(
                        lambda: all(o.reference.key in known for o in unmeasured)
                    )
        return self.with_known_loads(observations)

    def with_known_loads(self, observations: Sequence[Observation]) -> Sequence[Observation]:
        """Return the same without any wait: Servers that were never measured stay as they are."""
        return [self._with_load(o) if is_of(o, Server) else o for o in observations]

    def _with_load(self, observation: Observation[Server]) -> Observation[Server]:
        server = observation.resource
        if server is None or server.spec.measure is None:
            return observation
        newest = self._context.find_before(observation)
        if server.is_uncounted:  # what nobody has counted could be moved or reduced by mistake
            loaded = remove_load(server)
        else:
            scheduled = set_scheduled_replicas(server, self._context.now())
            loaded = apply_measurement(scheduled, newest)
        status = loaded.status.model_copy(update={"measured": newest})
        return replace(observation, resource=loaded.model_copy(update={"status": status}))

    async def _look_for_demand(self) -> ReconcileResult:
        """Wake where a Server without replicas is wanted that was not before."""
        requested = await look_for_demand(self._context)
        for namespace in sorted({key.namespace for key in requested - self._requested}):
            self._ask_to_wake(namespace)
        self._requested = requested
        return ReconcileResult.due_after(DEMAND_SECONDS)

    async def _cycle(self) -> ReconcileResult:
        began = asyncio.get_running_loop().time()
        await reconcile(self._context)
        seconds = asyncio.get_running_loop().time() - began
        self._context.observer.measuring_ended(seconds)
        pause = max(self._interval - seconds, LEAST_PAUSE * self._interval)
        return ReconcileResult.due_after(pause)

    def _measured_some(self, keys: Collection[Key]) -> None:
        """Ask for plans for what was measured of some Servers in a step."""
        namespaces = set()
        for key in keys:
            missed_before, load_before = self._missed.pop(key, None), self._loads.pop(key, None)
            newest, observation = self._context.measured.get(key), self._context.servers.get(key)
            if newest is None:
                continue
            # It misses a target that it did not miss before, or misses it under another load.
            if newest.misses_targets and newest.quality in USABLE:
                missed = newest.misses_targets, newest.load
                self._missed[key] = missed
                if missed != missed_before:
                    namespaces.add(key.namespace)
            if newest.load:
                self._loads[key] = newest.load
                measure = find_measure(observation) if observation else None
                if has_jumped(load_before, newest.load, measure):
                    namespaces.add(key.namespace)
        for namespace in sorted(namespaces):
            self._ask_for_plan(namespace)

    def _forget(self, key: Key) -> None:
        self._missed.pop(key, None)
        self._loads.pop(key, None)
        self._context.measured.pop(key, None)
        self._context.readings.pop(key, None)
        self._context.lookahead.forget(key)


def _ignore(_: str) -> None:
    """Stand in for those who make plans, where nobody does."""
