"""Accounts of Servers: what is counted, written, and continued by the next operator."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

import pytest

from inferno_operator.controllers.planning.snapshot import build_system
from inferno_operator.controllers.savings.controller import SavingsController
from inferno_operator.controllers.savings.reconcile import WRITE_STEPS
from inferno_operator.resources import Measured, Server
from inferno_operator.resources.objects import Key, Manifest, kind_of
from inferno_operator.runtime.fakes import FakeCluster
from inferno_operator.runtime.informers import Informers
from inferno_operator.runtime.observer import Observer, ServerSpending
from tests.unit.operator.background import started
from tests.unit.operator.objects import (
    NOW,
    running,
    server,
    system,
)

STEP_S = 60.0
HOUR = 3600.0
MEASURE = {"source": "vLLM", "labels": {"model_name": "m"}}
PAID, PLANNED = 20.0, 10.0
"""Cents/hour of two replicas that run, and of one that is decided."""


class Spending(Observer):
    """Keeps the last report."""

    def __init__(self) -> None:
        self.servers: Sequence[ServerSpending] = ()

    def spent(self, namespace: str, servers: Sequence[ServerSpending]) -> None:
        assert namespace == "default"
        self.servers = servers


class Scene:
    """A measured Server that runs two replicas where one is decided and enough."""

    def __init__(self, **spec: Any) -> None:  # noqa: ANN401 - fields of a manifest
        self.cluster = FakeCluster()
        for manifest in system(100):
            self.cluster.add(manifest)
        fields = {
            "measure": MEASURE,
            "currentAlloc": running(2, 1),
            "desiredAlloc": running(1, 1),
            **spec,
        }
        self.key = self.cluster.add(server(spec=fields))
        self.rate, self.quality = 30.0, "Fresh"
        self.missed: tuple[str, ...] = ()
        self.observer = Spending()

    def measured(self) -> dict[Key, Measured]:
        found = {
            "time": NOW,
            "quality": self.quality,
            "arrivalRate": self.rate,
            "avgInTokens": 0.0,
            "avgOutTokens": 1.0,
            "missesTargets": self.missed,
        }
        return {self.key: Measured.model_validate(found, by_alias=True)}

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        controller = SavingsController(
            self.cluster,
            Informers(self.cluster),
            self,
            lambda resources: build_system(resources).system,
            STEP_S,
            lambda: NOW + timedelta(seconds=asyncio.get_running_loop().time()),
            self.observer,
        )
        async with started(controller):
            yield

    async def steps(self, count: int) -> None:
        """Let so many steps pass; the first one is due at once."""
        await asyncio.sleep((count - 0.5) * STEP_S)

    @property
    def status(self) -> Manifest:
        stored: Manifest = self.cluster.objects[kind_of(Server).kind, self.key]
        found: Manifest = stored.get("status", {}).get("savings", {})
        return found


async def test_what_ran_and_what_was_decided_is_counted_over_time() -> None:
    scene = Scene()

    async with scene.running():
        await scene.steps(WRITE_STEPS + 1)

    found, counted_s = scene.status, (WRITE_STEPS + 1) * STEP_S
    assert found["countedSeconds"] == counted_s
    assert found["paid"] == pytest.approx(PAID * counted_s / HOUR)
    assert found["planned"] == pytest.approx(PLANNED * counted_s / HOUR)
    assert found["staticPeak"] == pytest.approx(PLANNED * counted_s / HOUR)
    assert found["requests"] == found["keptRequests"] == pytest.approx(30.0 * counted_s / 60)
    assert [policy["policy"] for policy in found["policies"]] == ["hpa", "keda-slo"]


async def test_the_static_peak_costs_its_replicas_also_before_the_peak() -> None:
    scene = Scene()

    async with scene.running():
        await scene.steps(WRITE_STEPS)
        scene.rate = 90.0
        await asyncio.sleep(STEP_S)

    assert scene.status["peakReplicas"] == 2
    assert scene.status["staticPeak"] == pytest.approx(2 * 10 * (WRITE_STEPS + 1) * STEP_S / HOUR)


async def test_minutes_that_miss_a_target_are_not_kept() -> None:
    scene = Scene()
    scene.missed = ("slo-ttft",)

    async with scene.running():
        await scene.steps(1)

    assert scene.status["requests"] > 0
    assert scene.status["keptRequests"] == 0


@pytest.mark.parametrize("quality", ["Stale", "Missing", "Refused"])
async def test_time_in_which_nobody_knows_the_load_is_not_counted(quality: str) -> None:
    scene = Scene()

    async with scene.running():
        await scene.steps(1)
        scene.quality = quality
        await asyncio.sleep(WRITE_STEPS * STEP_S)

    assert scene.status["countedSeconds"] == STEP_S


async def test_the_next_operator_continues_the_account() -> None:
    scene = Scene()

    async with scene.running():
        await scene.steps(1)
    first = scene.status
    async with scene.running():
        await scene.steps(1)

    assert scene.status["since"] == first["since"]
    assert scene.status["paid"] == pytest.approx(2 * first["paid"])
    assert scene.status["countedSeconds"] == 2 * STEP_S


async def test_a_server_is_written_once_in_several_steps() -> None:
    scene = Scene()

    async with scene.running():
        await scene.steps(1)
        scene.cluster.writes.clear()
        await asyncio.sleep(2 * WRITE_STEPS * STEP_S)

    assert len(scene.cluster.writes) == 2


async def test_a_server_of_which_nobody_knows_what_runs_is_not_counted() -> None:
    scene = Scene(currentAlloc=running(0, 1))

    async with scene.running():
        await scene.steps(1)

    assert scene.status == {}


async def test_metrics_get_the_sums_and_what_runs_by_workload() -> None:
    scene = Scene(workloads=[{"accelerator": "A", "name": "llama-a"}])

    async with scene.running():
        await scene.steps(1)

    (found,) = scene.observer.servers
    assert found.running == {("A", "llama-a"): PAID}
    assert found.cents["paid"] == pytest.approx(PAID * STEP_S / HOUR)
    assert set(found.cents) == {"paid", "planned", "static-peak", "hpa", "keda-slo"}
    assert found.kept["paid"] == found.requests == 30.0
