"""The clock of the operator is set while it runs, by an hour: nothing that serves goes, or stops.

Leases, watches and cycles go by seconds that pass. What is measured has the times of Prometheus.
What people know by the calendar, such as a freeze, follows the clock.
"""

import asyncio
from datetime import datetime, timedelta

import pytest

from inferno_operator.controllers.planning.reconcile import reconcile
from inferno_operator.resources.objects import Key
from inferno_operator.runtime.steady_clock import SteadyClock
from tests.fakes import FakeCluster
from tests.unit.operator import objects
from tests.unit.operator.background import in_background
from tests.unit.operator.controllers.planning.scene import context_of
from tests.unit.operator.controllers.test_mistakes_in_motion import (
    ARRIVES,
    GOES_TO,
    INTERVAL_S,
    PATIENCE_S,
    RUNS,
    Moving,
    get_a_node_late,
    half_done,
    operator,
)

STEPS_H = [-1.0, 1.0]

WINDOW_S = 300
"""How long fewer replicas must be enough."""


@pytest.mark.parametrize("step_h", STEPS_H)
@pytest.mark.parametrize("serving", [0, 1])
async def test_a_move_arrives_across_a_step_of_the_clock(step_h: float, serving: int) -> None:
    async with half_done(serving) as scene:
        scene.ahead_h += step_h
        await scene.until(lambda: scene.places() == ARRIVES)
        await scene.until(lambda: scene.reason() == "Actuated")

        assert scene.least == RUNS


@pytest.mark.parametrize("step_h", STEPS_H)
async def test_pods_that_get_a_node_late_are_not_given_up_by_a_step_of_the_clock(
    step_h: float,
) -> None:
    scene = Moving()
    scene.unstarted.add("b")
    async with half_done(scene=scene):
        scene.ahead_h += step_h
        await get_a_node_late(scene)

        assert scene.least == RUNS


@pytest.mark.parametrize("step_h", STEPS_H)
async def test_pods_that_get_no_node_are_given_up_in_time_across_a_step(step_h: float) -> None:
    scene = Moving()
    scene.unstarted.add("b")
    async with half_done(scene=scene):
        scene.ahead_h += step_h
        await asyncio.sleep(0.8 * PATIENCE_S)
        assert scene.replicas("b") == GOES_TO
        await asyncio.sleep(0.4 * PATIENCE_S)

        assert scene.replicas("b") == 0
        assert (scene.reason(), scene.least) == ("Blocked", RUNS)


@pytest.mark.parametrize("step_h", STEPS_H)
@pytest.mark.parametrize("restarts", [False, True], ids=["runs on", "another leader"])
async def test_the_pause_after_pods_were_given_up_is_no_longer_by_a_step_of_the_clock(
    step_h: float, *, restarts: bool
) -> None:
    """It is the time that the condition has, of the clock of before or of another leader."""
    scene = Moving()
    scene.unstarted.add("b")
    async with half_done(scene=scene):
        await scene.until(lambda: scene.replicas("b") == 0)
        scene.ahead_h += step_h
        scene.unstarted.clear()
        if not restarts:
            await asyncio.sleep(1.2 * PATIENCE_S)
            assert scene.replicas("b") == GOES_TO
    if restarts:
        async with in_background(scene.live(), scene.watch()), operator(scene):
            await asyncio.sleep(1.2 * PATIENCE_S)
            assert scene.replicas("b") == GOES_TO

    assert scene.least == RUNS


class Planning:
    """A measured Server whose load a test sets; plans are made one by one."""

    def __init__(self) -> None:
        self.cluster = FakeCluster()
        self.elapsed_s = self.ahead_s = 0.0
        measured = {
            "measure": {"source": "vLLM", "labels": {"model_name": "m"}},
            "scaleDown": {"windowSeconds": WINDOW_S},
            "currentAlloc": objects.running(8, 8),
        }
        for manifest in (*objects.system(20), objects.server("S", spec=measured)):
            self.cluster.add(manifest)
        optimizer = objects.optimizer(optimize=False)
        optimizer["spec"]["interval"] = INTERVAL_S
        self.cluster.add(optimizer)
        steady = SteadyClock(self.now, lambda: self.elapsed_s)
        self._context = context_of(self.cluster, now=self.now, steady=steady)

    def now(self) -> datetime:
        return objects.NOW + timedelta(seconds=self.elapsed_s + self.ahead_s)

    async def plan(self, wanted: int) -> int:
        """Return the replicas that are decided for a load that takes so many."""
        key = Key("default", "s")
        stored = self.cluster.objects["Server", key]
        runs = stored["spec"].get("desiredAlloc", {}).get("numReplicas", 8)
        spec = {**stored["spec"], "currentAlloc": objects.running(runs, wanted)}
        self.cluster.add({**stored, "spec": spec})
        self.elapsed_s += INTERVAL_S
        self._context.memories["default"].urgent_optimizers.add("inferno")
        await reconcile(Key("default", "inferno"), self._context)
        decided: int = self.cluster.objects["Server", key]["spec"]["desiredAlloc"]["numReplicas"]
        return decided


@pytest.mark.parametrize("step_s", [-3600.0, 3600.0])
async def test_a_step_of_the_clock_does_not_end_the_time_for_which_fewer_must_be_enough(
    step_s: float,
) -> None:
    planning = Planning()
    assert await planning.plan(8) == 8
    assert await planning.plan(2) == 8
    planning.ahead_s = step_s

    within = [await planning.plan(2) for _ in range(round(0.8 * WINDOW_S / INTERVAL_S) - 1)]
    later = [await planning.plan(2) for _ in range(5)]

    assert set(within) == {8}
    assert later[-1] < 8
