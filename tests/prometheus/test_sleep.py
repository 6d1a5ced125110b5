"""With a real Prometheus: a Server sleeps, wakes as soon as a request is seen, and sleeps again."""

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime

import pytest

from inferno_operator.adapters.prometheus.client import connect
from inferno_operator.adapters.prometheus.endpoint import PrometheusEndpoint
from inferno_operator.controllers.measurement.controller import MeasurementController
from inferno_operator.controllers.planning.controller import OptimizationController
from inferno_operator.controllers.planning.ports import Context, OnDemand
from inferno_operator.engines.catalogue import read_built_in_sources
from inferno_operator.engines.demand import DemandSurvey
from inferno_operator.engines.series_groups import RateWindows
from inferno_operator.engines.survey import Survey
from inferno_operator.resources.objects import Key, Manifest
from inferno_operator.runtime.informers import Informers
from inferno_operator.runtime.observer import Observer
from tests.controlplane.waiting import PATIENCE_S
from tests.engines.engine import Engine
from tests.engines.fleet import Fleet, Settings
from tests.engines.gateway import Gateway
from tests.engines.prometheus import Prometheus
from tests.engines.workload import Uniform, Workload
from tests.fakes import FakeCluster, FakeOptimizer
from tests.unit.operator.objects import (
    accelerator,
    capacity,
    model,
    optimizer,
    performance,
    server,
    service_class,
)

WINDOWS = RateWindows(short=4, long=8)
"""Windows for replicas that are scraped every second."""

LEAD_S, PLAN_S, MEASURE_S = 2, 3, 1.0
NAME, KEY = "chat", Key("default", "s")
ENGINE = Engine(alpha=8.0, beta=0.1, gamma=20.0, delta=0.0008, max_batch_size=16)
LENGTHS = Workload(Uniform(50, 150), Uniform(50, 150))


class Scene:
    """A Server whose replica starts and ends as decided, behind a gateway with a queue.

    Attributes
    ----------
    decided
        The numbers of replicas, each time that another one was decided.
    """

    def __init__(self, prometheus: Prometheus, fleet: Fleet, gateway: Gateway) -> None:
        self.cluster, self.gateway = FakeCluster(), gateway
        self._prometheus, self._fleet = prometheus, fleet
        self.engines = fleet.add(NAME, Settings(ENGINE, LENGTHS, NAME), 0, 0.0)
        self.decided: list[int] = []
        demand = {"source": "EPP", "labels": {"inference_pool": NAME}}
        measure = {"source": "vLLM", "labels": {"model_name": NAME}, "demand": demand}
        spec = {"measure": measure, "currentAlloc": None, "startupSeconds": LEAD_S}
        planning = optimizer(optimize=False)
        planning["spec"]["interval"] = PLAN_S
        data = [performance(alpha=8, beta=0.1) | {"maxBatchSize": 16, "atTokens": 100}]
        others = (model(data=data), service_class(priority=100), capacity(4))
        for manifest in (accelerator(), *others, server(spec=spec), planning):
            self.cluster.add(manifest)

    @property
    def replicas(self) -> int | None:
        """What is decided now; None if nothing is."""
        spec = self.cluster.objects["Server", KEY]["spec"]
        found: int | None = spec.get("desiredAlloc", {}).get("numReplicas")
        return found

    @property
    def measured(self) -> Manifest:
        """What the status of the Server says."""
        status = self.cluster.objects["Server", KEY].get("status", {})
        found: Manifest = status.get("measured", {})
        return found

    def is_seen(self) -> bool:
        """Whether the operator knows that no request waits."""
        found: bool = self.measured.get("demand", {}).get("requests") == 0
        return found

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Let an operator work, and a kubelet start and end the replica."""
        informers = Informers(self.cluster)
        async with connect(PrometheusEndpoint(self._prometheus.url)) as client:
            measurement = MeasurementController(
                self.cluster,
                informers,
                Survey(client, read_built_in_sources(), time.time, WINDOWS),
                MEASURE_S,
                _now,
                Observer(),
                DemandSurvey(client, read_built_in_sources(), WINDOWS),
            )
            context = Context(
                self.cluster, OnDemand(self.cluster), FakeOptimizer(), _now, _now, loads=measurement
            )
            optimization = OptimizationController(context, informers)
            measurement.when_a_plan_is_needed(optimization.plan_now)
            measurement.when_a_server_is_wanted(optimization.wake)
            work = [
                asyncio.create_task(each)
                for each in (measurement.run(), optimization.run(), self._run_pods())
            ]
            yield
            for controller in (measurement, optimization):
                await controller.stop()
            for task in work:
                task.cancel()
            await asyncio.wait(work)

    async def _run_pods(self) -> None:
        self._scrape()
        while True:
            await self.cluster.something_changed()
            if self.replicas is None or self.decided[-1:] == [self.replicas]:
                continue
            self.decided.append(self.replicas)
            if self.replicas:
                await asyncio.sleep(LEAD_S)
                self.engines.start(f"{NAME}-0")
                self.gateway.waiting = 0
            elif self.engines.pods:
                self.engines.remove(f"{NAME}-0")
            self._scrape()

    def _scrape(self) -> None:
        self._prometheus.set_targets([*self._fleet.targets(), self.gateway.target])

    async def until(self, holds: Callable[[], bool], within: float) -> float:
        """Wait; returns how long it took [s]."""
        began = time.monotonic()
        async with asyncio.timeout(within):
            while not holds():
                await self.cluster.something_changed()
        return time.monotonic() - began


def _now() -> datetime:
    return datetime.now(UTC)


@pytest.mark.minutes
@pytest.mark.extended
def test_a_server_wakes_beside_the_plans_for_each_request_and_ends_without_replicas(
    prometheus: Prometheus, fleet: Fleet, caplog: pytest.LogCaptureFixture
) -> None:
    """How soon it wakes is tested in virtual time: see the controllers' test_sleep.py."""
    caplog.set_level(logging.INFO)

    async def play(scene: Scene) -> list[float]:
        async with scene.running():
            await scene.until(lambda: scene.replicas == 0, PATIENCE_S)
            woke = []
            for _ in range(2):
                await scene.until(
                    lambda: scene.measured.get("demand", {}).get("requests") == 0, PATIENCE_S
                )
                scene.gateway.waiting = 3
                woke.append(await scene.until(lambda: scene.replicas == 1, PATIENCE_S))
                await scene.until(lambda: bool(scene.engines.pods), PATIENCE_S)
                scene.engines.set_rate(2.0)
                await scene.until(lambda: bool(scene.measured.get("arrivalRate")), PATIENCE_S)
                scene.engines.set_rate(0.0)
                await scene.until(lambda: scene.replicas == 0, PATIENCE_S)
            return woke

    with Gateway(NAME) as gateway:
        scene = Scene(prometheus, fleet, gateway)
        woke = asyncio.run(play(scene))

    print(f"\nwoke after {woke[0]:.1f} s and {woke[1]:.1f} s")
    # The plan that is due at that moment may be first.
    assert any(" wakes: " in message for message in caplog.messages)
    assert scene.decided == [0, 1, 0, 1, 0]
