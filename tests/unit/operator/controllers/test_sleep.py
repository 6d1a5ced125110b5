"""Servers that have no replica while nobody wants them, and get one at once when somebody does."""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from inferno_operator.controllers.measurement.controller import MeasurementController
from inferno_operator.controllers.planning.controller import OptimizationController
from inferno_operator.engines.catalogue import read_built_in_sources
from inferno_operator.engines.demand import DemandSurvey
from inferno_operator.engines.series_groups import PART
from inferno_operator.engines.survey import Survey
from inferno_operator.resources import Server
from inferno_operator.resources.objects import Key, Manifest
from inferno_operator.runtime.informers import Informers
from inferno_operator.runtime.observer import Observer
from inferno_operator.runtime.prometheus import QueryResult, Sample
from inferno_optimizer.errors import UnavailableError
from inferno_optimizer.solution import Solution
from inferno_optimizer.system import System
from tests.fakes import FakeCluster, FakeOptimizer
from tests.unit.operator.background import in_background, started
from tests.unit.operator.controllers.planning.scene import context_of
from tests.unit.operator.engines.prometheus import NOW, Table
from tests.unit.operator.objects import (
    accelerator,
    capacity,
    model,
    observed,
    optimizer,
    server,
    service_class,
)

LEAD_S, CYCLE_S, PLAN_S, LONG_S = 30, 30, 60, 300
COST, PRIORITY = 10.0, 100
BREAK_EVEN_S = LEAD_S + 30 / COST * LEAD_S
"""30 cents/hour is what a waiting request of the least important class costs; few arrive."""

LEAST_IDLE_S, MOST_IDLE_S = BREAK_EVEN_S, LONG_S + BREAK_EVEN_S + 2 * (CYCLE_S + PLAN_S)
WAKE_S = 5.0
DEMAND = {"source": "EPP", "labels": {"model_name": "m"}}
MEASURE = {"source": "vLLM", "labels": {"model_name": "m"}, "demand": DEMAND}
KEY = Key("default", "s")


def performance(accelerator: str = "A") -> dict[str, Any]:
    """A replica serves one request after the other, each for a second."""
    parameters = {"alpha": 999, "beta": 0}
    sizes = {"accCount": 1, "maxBatchSize": 1, "atTokens": 1}
    return {"acc": accelerator, **sizes, "decodeParms": parameters}


class Engines(Table):
    """A Prometheus that tells what engines report, and of a gateway what waits there."""

    waiting: float | None = 0.0
    delay = 0.0
    """Seconds until Prometheus tells what engines report."""

    async def query(self, expression: str, at: float | None = None) -> QueryResult:
        if "flow_control_queue" not in expression or self.failing:
            await asyncio.sleep(self.delay)
            return await super().query(expression, at)
        seen = () if self.waiting is None else (self.waiting,)
        labels = {"model_name": "m", PART: "1"}
        return QueryResult(tuple(Sample(labels, self.clock(), value) for value in seen))


class SlowOptimizer(FakeOptimizer):
    """Solves at once, and holds its answer for `seconds`; `runs` while it does."""

    seconds = 0.0
    runs = False

    async def optimize(self, system: System) -> Solution:
        self.runs = True
        solution = await super().optimize(system)
        await asyncio.sleep(self.seconds)
        self.runs = False
        return solution


class Scene:
    """A Server whose replica starts and ends as decided, and a gateway in front of it.

    Attributes
    ----------
    waiting
        Requests that wait at the gateway.
    rate
        Requests/s that arrive at the replica.
    decided
        The replicas of each new decision, with its time [s].
    """

    def __init__(self, *, measure: Manifest = MEASURE, interval: int | None = PLAN_S) -> None:
        self.cluster, self.table = FakeCluster(), Engines(["model_name"])
        self.table.clock = lambda: self.now().timestamp()
        self.optimizer = SlowOptimizer()
        self.waiting: float | None = 0.0
        self.rate = 0.02
        self.serves_since: float | None = None
        self.last_request = 0.0
        self.decided: list[tuple[float, int]] = []
        spec = {"measure": measure, "currentAlloc": None, "startupSeconds": LEAD_S}
        planning = optimizer(optimize=False)
        planning["spec"]["interval"] = interval
        for manifest in (
            accelerator(cost=COST),
            model(data=[performance()]),
            service_class(priority=PRIORITY),
            capacity(4),
            server(spec=spec),
            planning,
        ):
            self.cluster.add(manifest)

    def now(self) -> datetime:
        return datetime.fromtimestamp(NOW, UTC) + timedelta(seconds=_time())

    @property
    def stored(self) -> Manifest:
        return self.cluster.objects["Server", KEY]

    @property
    def replicas(self) -> int | None:
        """What is decided now; None if nothing is."""
        found: int | None = self.stored["spec"].get("desiredAlloc", {}).get("numReplicas")
        return found

    @property
    def accelerator(self) -> str:
        """Where it is decided to run."""
        found: str = self.stored["spec"]["desiredAlloc"]["accelerator"]
        return found

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Let an operator work, and the replica and Prometheus do what they would."""
        informers = Informers(self.cluster)
        measurement = MeasurementController(
            self.cluster,
            informers,
            Survey(self.table, read_built_in_sources(), self.table.clock),
            CYCLE_S,
            self.now,
            Observer(),
            DemandSurvey(self.table, read_built_in_sources()),
        )
        context = context_of(self.cluster, self.optimizer, self.now, loads=measurement)
        optimization = OptimizationController(context, informers)
        measurement.when_a_plan_is_needed(optimization.plan_now)
        measurement.when_a_server_is_wanted(optimization.wake)
        async with in_background(self.run()), started(measurement, optimization):
            yield

    async def run(self) -> None:
        """Start and end the replica, and let Prometheus know."""
        while True:
            self._tick()
            await asyncio.sleep(1.0)

    def _tick(self) -> None:
        replicas = self.replicas
        if replicas is not None and (not self.decided or self.decided[-1][1] != replicas):
            self.decided.append((_time(), replicas))
            self.serves_since = _time() + LEAD_S if replicas else None
        serves = self.serves_since is not None and _time() >= self.serves_since
        if serves and self.waiting:
            self.waiting = 0.0
        self.last_request = _time() if self.waiting or self.rate else self.last_request
        self.table.rows.clear()
        self.table.waiting = self.waiting
        words: dict[str, Mapping[str, float]] = {}
        if serves:
            is_idle = _time() - self.last_request > LONG_S
            rate = {"0": 0.0 if is_idle else max(self.rate, 1 / LONG_S)}
            lengths = {} if is_idle else {"avgInTokens": 1.0, "avgOutTokens": 1.0}
            words |= {"delta": rate, "tokens_sum": lengths}
            words["count_over_time"] = {"reporting": 1.0}
        self.table.serve("m", **words)

    async def until(self, holds: Callable[[], bool], within: float) -> float:
        """Wait; returns how long it took [s]."""
        began = _time()
        async with asyncio.timeout(within):
            while not holds():  # noqa: ASYNC110 - virtual time
                await asyncio.sleep(0.25)
        return _time() - began

    async def begin(self) -> None:
        """Get the first replica."""
        self.waiting = 1.0
        await self.until(lambda: self.serves_since is not None, 60.0)

    async def sleep(self) -> None:
        """Serve some requests, and then none until it sleeps."""
        await self.begin()
        await asyncio.sleep(LONG_S + 60)
        self.rate = 0.0
        await self.until(lambda: self.replicas == 0, 4 * LONG_S)


def _time() -> float:
    return asyncio.get_running_loop().time()


NOTHING_YET = {"accelerator": "", "numReplicas": 0, "load": {"arrivalRate": 0, "avgOutTokens": 1}}
"""What is written of a Server that was measured, and whose replicas were not counted."""


@pytest.mark.parametrize(
    ("current", "sleeps"),
    [(None, False), (NOTHING_YET, False), ({**NOTHING_YET, "cost": 0}, True)],
)
def test_a_server_whose_replicas_nobody_has_counted_yet_may_run(
    current: dict[str, Any] | None, sleeps: bool
) -> None:
    workloads = [{"accelerator": "A", "name": "s"}]
    spec = {"measure": MEASURE, "workloads": workloads, "currentAlloc": current}
    found = observed(server(spec=spec)).resource

    assert isinstance(found, Server)
    assert found.sleeps is sleeps


@pytest.mark.parametrize("sees_demand", [True, False])
async def test_nothing_is_decided_for_a_server_before_what_runs_is_counted(
    *, sees_demand: bool
) -> None:
    scene = Scene()
    spec = scene.stored["spec"]
    if not sees_demand:
        spec = {**spec, "measure": {**spec["measure"], "demand": None}}
    workloads = [{"accelerator": "A", "name": "s"}]
    scene.cluster.add(server(spec={**spec, "workloads": workloads, "currentAlloc": None}))
    scene.serves_since, scene.rate = 0.0, 0.0

    async with scene.running():
        await asyncio.sleep(2 * PLAN_S)
        before = scene.replicas
        spec = scene.stored["spec"]
        counted = {**spec["currentAlloc"], "accelerator": "A", "numReplicas": 1, "cost": COST}
        scene.cluster.add({**scene.stored, "spec": {**spec, "currentAlloc": counted}})
        await scene.until(lambda: bool(scene.decided), 2 * PLAN_S)

    assert before is None
    assert [replicas for _, replicas in scene.decided] == [1]


async def test_a_server_sleeps_when_it_was_idle_for_as_long_as_a_cold_start_is_worth() -> None:
    scene = Scene()

    async with scene.running():
        await scene.sleep()
        idle = _time() - scene.last_request

    assert LEAST_IDLE_S <= idle <= MOST_IDLE_S
    assert {replicas for _, replicas in scene.decided} <= {0, 1}
    assert len(scene.decided) <= 3


async def test_a_server_that_sleeps_goes_on_sleeping_and_is_idle() -> None:
    scene = Scene()

    async with scene.running():
        await scene.sleep()
        await asyncio.sleep(1800)

    measured = scene.stored["status"]["measured"]
    assert {replicas for _, replicas in scene.decided} <= {0, 1}
    assert len(scene.decided) <= 3
    assert (measured["quality"], measured["demand"]["requests"]) == ("Idle", 0)


async def test_a_request_wakes_a_server_within_5_seconds_and_it_stays_for_its_payback() -> None:
    scene = Scene()

    async with scene.running():
        await scene.sleep()
        await asyncio.sleep(67)
        scene.waiting = 1.0
        woke = await scene.until(lambda: scene.replicas == 1, WAKE_S)
        began = _time()
        await scene.until(lambda: scene.replicas == 0, 4 * LONG_S)
        stayed = _time() - began

    assert woke <= WAKE_S
    assert stayed >= LEAD_S + BREAK_EVEN_S


async def test_a_request_that_nobody_waits_for_any_more_wakes_it_for_its_payback_too() -> None:
    scene = Scene()

    async with scene.running():
        await scene.sleep()
        scene.waiting = 1.0
        await scene.until(lambda: scene.replicas == 1, WAKE_S)
        scene.waiting, began = 0.0, _time()
        await scene.until(lambda: scene.replicas == 0, 4 * LONG_S)

    assert _time() - began >= LEAD_S + BREAK_EVEN_S


async def test_a_gateway_that_nobody_sees_puts_no_server_to_sleep() -> None:
    scene = Scene()

    async with scene.running():
        await scene.begin()
        await asyncio.sleep(LONG_S)
        scene.rate, scene.waiting = 0.0, None
        await asyncio.sleep(1800)

    assert scene.replicas == 1
    assert "correct the labels" in scene.stored["status"]["measured"]["demand"]["message"]


async def test_a_prometheus_that_is_down_neither_wakes_a_server_nor_puts_one_to_sleep() -> None:
    scene = Scene()

    async with scene.running():
        await scene.sleep()
        scene.table.failing = {"": UnavailableError("http://p: no answer within 10 s")}
        await asyncio.sleep(1200)

    assert scene.replicas == 0
    assert scene.stored["status"]["measured"]["quality"] == "Stale"


async def test_without_a_source_of_demand_one_replica_stays_and_the_server_says_why() -> None:
    scene = Scene(measure={name: part for name, part in MEASURE.items() if name != "demand"})

    async with scene.running():
        scene.serves_since = 0.0
        await scene.until(lambda: scene.replicas == 1, 2 * LONG_S)
        scene.rate = 0.0
        await asyncio.sleep(1800)

    (told,) = (c for c in scene.stored["status"]["conditions"] if c["type"] == "Measured")
    assert scene.replicas == 1
    assert "also with minNumReplicas 0" in told["message"]
    assert "spec.measure.demand" in told["message"]


async def test_a_server_that_never_ran_gets_its_first_replica_by_its_first_request() -> None:
    scene = Scene()

    async with scene.running():
        scene.rate = 0.0
        await scene.until(lambda: scene.replicas == 0, 60.0)
        await asyncio.sleep(1200)
        scene.waiting = 1.0
        await scene.until(lambda: scene.replicas == 1, WAKE_S)

    assert [replicas for _, replicas in scene.decided][:1] == [0]


@pytest.mark.parametrize("seconds", [3.0, 20.0, 60.0])
async def test_a_server_wakes_beside_an_optimization_that_runs_and_is_not_put_to_sleep_by_it(
    seconds: float,
) -> None:
    scene = Scene()

    async with scene.running():
        await scene.sleep()
        scene.optimizer.seconds = seconds
        await scene.until(lambda: scene.optimizer.runs, 2 * PLAN_S)
        scene.waiting = 1.0
        woke = await scene.until(lambda: scene.replicas == 1, WAKE_S)
        await asyncio.sleep(seconds + LEAD_S)

    assert woke <= WAKE_S
    assert [replicas for _, replicas in scene.decided][-2:] == [0, 1]


async def test_a_server_wakes_while_nobody_has_measured_another_one_that_sleeps() -> None:
    scene = Scene()

    async with scene.running():
        await scene.sleep()
        scene.table.delay = 10 * WAKE_S
        scene.cluster.add(server("T", spec={"measure": MEASURE, "currentAlloc": None}))
        scene.waiting = 1.0
        woke = await scene.until(lambda: scene.replicas == 1, WAKE_S)

    assert woke <= WAKE_S


async def test_an_operator_that_has_just_started_wakes_a_server_before_it_has_measured() -> None:
    scene = Scene()

    async with scene.running():
        await scene.sleep()
    scene.table.delay = 10 * WAKE_S
    async with scene.running():
        scene.waiting = 1.0
        woke = await scene.until(lambda: scene.replicas == 1, WAKE_S)

    assert woke <= WAKE_S


async def test_a_server_wakes_where_it_ran_last_whoever_put_it_to_sleep() -> None:
    scene = Scene()

    async with scene.running():
        await scene.sleep()
    scene.cluster.add(accelerator("B", cost=0.9 * COST))
    scene.cluster.add(model(data=[performance("A"), performance("B")]))
    async with scene.running():
        scene.waiting = 1.0
        await scene.until(lambda: scene.replicas == 1, WAKE_S)
        woke = scene.accelerator
        await asyncio.sleep(2 * PLAN_S)

    assert (woke, scene.accelerator) == ("A", "A")
