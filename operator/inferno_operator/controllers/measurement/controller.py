"""Measure Servers regularly, and give optimizations their newest loads."""

import asyncio
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import replace

from inferno_operator.controllers.measurement.history import PastRates
from inferno_operator.controllers.measurement.load import (
    measured_server,
    with_scheduled_replicas,
    without_load,
)
from inferno_operator.controllers.measurement.lookahead import Lookahead
from inferno_operator.controllers.measurement.measured_servers import MeasuredServers
from inferno_operator.controllers.measurement.reconcile import (
    Context,
    last_good,
    look_for_demand,
    reconcile,
)
from inferno_operator.controllers.measurement.urgency import (
    MissedTargets,
    missed_now,
    with_jumps,
    with_news,
)
from inferno_operator.engines.demand import DemandSurvey
from inferno_operator.engines.survey import Survey
from inferno_operator.resources import Load, Measure, Server
from inferno_operator.resources.objects import Key, Now
from inferno_operator.resources.observation import Observation
from inferno_operator.runtime.informers import Informers
from inferno_operator.runtime.observer import Observer
from inferno_operator.runtime.ports import Cluster
from inferno_operator.runtime.work_queue import Cycles, ReconcileResult

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


class MeasurementController:
    """Measures Servers with `spec.measure`, every `interval` seconds.

    Parameters
    ----------
    cluster, informers
        The API server, and what watches it.
    survey
        What asks Prometheus; None if the operator does not know where it is.
    interval
        Seconds from the begin of a cycle to that of the next one, which waits for the end of a
        longer cycle, and for a part of the interval after it.
    now
        The time of day.
    observer
        Receives a call for each namespace and each cycle.
    demand
        What asks Prometheus for requests that wait for Servers without replicas.
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
        self._wanted: set[Key] = set()
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
                    self._context.lookahead, self._measures(self._context.servers.all())
                )

    async def stop(self) -> None:
        """Stop measuring."""
        await self.queue.close()

    def servers(self) -> Sequence[tuple[Key, Server]]:
        """Return the Servers that are measured."""
        asking = ((key, o) for key, o in self._context.servers.all().items() if _asks(o))
        return [(key, o.resource) for key, o in asking if isinstance(o.resource, Server)]

    def _measures(self, keys: Iterable[Key]) -> dict[Key, Measure]:
        found = ((key, self._context.servers.get(key)) for key in keys)
        servers = ((key, o.resource) for key, o in found if o is not None)
        return {k: s.spec.measure for k, s in servers if isinstance(s, Server) and s.spec.measure}

    async def with_loads(self, observations: Sequence[Observation]) -> Sequence[Observation]:
        """Return objects in which measured Servers have their newest load.

        Servers that were never measured are measured first.
        """
        asking = [o for o in observations if _asks(o)]
        unknown = [o for o in asking if o.reference.key not in self._context.measured]
        if unknown and self._context.survey is not None:
            for observation in unknown:
                self._context.servers.note(observation)
            await self._measured([o.reference.key for o in unknown])
        return self.with_known_loads(observations)

    def with_known_loads(self, observations: Sequence[Observation]) -> Sequence[Observation]:
        """Return the same without any wait: Servers that were never measured stay as they are."""
        return [self._with_load(o) if _asks(o) else o for o in observations]

    def _with_load(self, observation: Observation) -> Observation:
        server, key = observation.resource, observation.reference.key
        if not isinstance(server, Server):
            return observation
        newest = self._context.measured.get(key) or last_good(observation)
        scheduled = with_scheduled_replicas(server, self._context.now())
        loaded = measured_server(scheduled, newest)
        if server.is_uncounted:  # what nobody has counted could be moved or reduced by mistake
            loaded = without_load(server)
        status = loaded.status.model_copy(update={"measured": newest})
        return replace(observation, resource=loaded.model_copy(update={"status": status}))

    async def _measured(self, keys: Sequence[Key]) -> None:
        """Wait until Servers are measured, for a limited time."""
        self.queue.request(CYCLE)
        known, progress = self._context.measured, self._context.progress
        try:
            async with asyncio.timeout(PATIENCE_SECONDS), progress:
                await progress.wait_for(lambda: all(key in known for key in keys))
        except TimeoutError:
            return

    async def _look_for_demand(self) -> ReconcileResult:
        """Wake where a Server without replicas is wanted that was not before."""
        wanted = await look_for_demand(self._context)
        for namespace in sorted({key.namespace for key in wanted - self._wanted}):
            self._ask_to_wake(namespace)
        self._wanted = wanted
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
        measured = {k: found for k in keys if (found := self._context.measured.get(k)) is not None}
        missed = missed_now(measured)
        loads = {key: found.load for key, found in measured.items() if found.load}
        jumps = with_jumps(self._loads, loads, self._measures(loads))
        news = with_news(self._missed, missed)
        for key in keys:
            self._missed.pop(key, None)
            self._loads.pop(key, None)
        self._missed |= missed
        self._loads |= loads
        for namespace in sorted(news | jumps):
            self._ask_for_plan(namespace)

    def _forget(self, key: Key) -> None:
        self._missed.pop(key, None)
        self._loads.pop(key, None)
        self._context.measured.pop(key, None)
        self._context.readings.pop(key, None)
        self._context.lookahead.forget(key)


def _ignore(_: str) -> None:
    """Do nothing: nobody makes plans."""


def _asks(observation: Observation) -> bool:
    server = observation.resource
    return isinstance(server, Server) and server.spec.measure is not None
