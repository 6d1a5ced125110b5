"""Cycles on a cluster in memory."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import pytest

from inferno_operator.controllers.calibration.controller import CalibrationController
from inferno_operator.controllers.calibration.ports import Pair
from inferno_operator.controllers.calibration.reconcile import Context, calibrate_all
from inferno_operator.resources.objects import Key
from inferno_operator.runtime.fakes import FakeCluster
from inferno_optimizer.calibration.windows import Window
from inferno_optimizer.errors import InfernoError, UnavailableError
from tests.unit.operator import objects
from tests.unit.operator.controllers.calibration.seen import (
    NOW,
    PAIR,
    slower_lately,
    spread,
    window,
)
from tests.unit.operator.virtual_time import VirtualTimeLoop


class Seen:
    """Windows that a test sets; the next reads raise `failures`."""

    def __init__(self, *windows: Window, pair: Pair = PAIR) -> None:
        self.windows: dict[Pair, list[Window]] = {pair: list(windows)}
        self.failures: list[InfernoError] = []

    async def read(self) -> Mapping[Pair, Sequence[Window]]:
        if self.failures:
            raise self.failures.pop()
        return self.windows


def context(seen: Seen, now: datetime = NOW, **fields: Any) -> Context:  # noqa: ANN401
    cluster = FakeCluster()
    manifest = objects.model("M")
    manifest["spec"] |= fields
    cluster.add(manifest)
    return Context(cluster, seen, (), lambda: now)


def fake(context: Context) -> FakeCluster:
    assert isinstance(context.cluster, FakeCluster)
    return context.cluster


def status(context: Context) -> dict[str, Any]:
    found: dict[str, Any] = fake(context).objects["Model", Key("default", "m")].get("status", {})
    return found


async def test_a_cycle_writes_the_parameters_and_the_condition() -> None:
    cycle = context(Seen(*spread()))

    await calibrate_all(cycle)

    assert [row["reason"] for row in status(cycle)["calibration"]] == ["Calibrated"]
    assert [c["type"] for c in status(cycle)["conditions"]] == ["Calibrated"]


async def test_a_second_cycle_with_nothing_new_writes_nothing() -> None:
    cycle = context(Seen(*spread()))
    await calibrate_all(cycle)
    before = list(fake(cycle).writes)

    cycle.memory.clear()
    await calibrate_all(cycle)

    assert fake(cycle).writes == before


async def test_windows_are_remembered_from_cycle_to_cycle() -> None:
    seen = Seen()
    cycle = context(seen)
    for one in spread():
        seen.windows = {PAIR: [one]}
        await calibrate_all(cycle)

    assert status(cycle)["calibration"][0]["reason"] == "Calibrated"


async def test_windows_of_yesterday_are_forgotten() -> None:
    cycle = context(Seen(replace(window(1, 5), end=NOW.timestamp() - 90000)))

    await calibrate_all(cycle)

    assert cycle.memory == {}


async def test_a_change_of_the_engine_is_published() -> None:
    cycle = context(Seen(*slower_lately()))

    await calibrate_all(cycle)

    assert [(event.type, event.reason) for event in fake(cycle).events] == [("Warning", "Shifted")]


@pytest.mark.parametrize("mode", ["Report", "Use"])
async def test_without_windows_what_was_written_stays(mode: str) -> None:
    seen = Seen(*spread())
    cycle = context(seen, calibrate=mode)
    await calibrate_all(cycle)
    before = status(cycle)

    seen.windows = {}
    cycle.memory.clear()  # as after a restart
    await calibrate_all(cycle)

    assert status(cycle) == before


async def test_off_removes_what_was_written() -> None:
    cycle = context(Seen(*spread()))
    await calibrate_all(cycle)
    manifest = objects.model("M")
    manifest["spec"]["calibrate"] = "Off"
    fake(cycle).add(manifest)

    await calibrate_all(cycle)

    assert status(cycle) == {}


async def test_a_failure_to_read_changes_nothing() -> None:
    seen = Seen(*spread())
    cycle = context(seen)
    seen.failures.append(UnavailableError("no answer"))

    await calibrate_all(cycle)

    assert fake(cycle).writes == []


async def test_a_failure_to_write_is_left_to_the_next_cycle() -> None:
    cycle = context(Seen(*spread()))
    fake(cycle).failing["Model"] = UnavailableError("no answer")
    await calibrate_all(cycle)

    del fake(cycle).failing["Model"]
    await calibrate_all(cycle)

    assert fake(cycle).writes == ["status Model m"]


def test_the_controller_calibrates_every_minute() -> None:
    cluster, seen, reads = FakeCluster(), Seen(), []
    cluster.add(objects.model("M"))

    class Counted(Seen):
        async def read(self) -> Mapping[Pair, Sequence[Window]]:
            reads.append(asyncio.get_running_loop().time())
            return seen.windows

    async def run() -> None:
        controller = CalibrationController(cluster, Counted(), (), lambda: NOW)
        task = asyncio.create_task(controller.run())
        await asyncio.sleep(timedelta(minutes=2, seconds=30).total_seconds())
        task.cancel()
        await controller.stop()

    with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
        runner.run(run())

    assert reads == pytest.approx([0, 60, 120], abs=1)
