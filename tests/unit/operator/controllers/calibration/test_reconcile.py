"""Cycles on a cluster in memory."""

import asyncio
import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import pytest

from inferno_operator.controllers.calibration.controller import (
    CalibrationController,
    Context,
    reconcile,
)
from inferno_operator.controllers.calibration.windows import Pair
from inferno_operator.resources.objects import Key
from inferno_optimizer.calibration.windows import Window
from inferno_optimizer.errors import InfernoError, UnavailableError
from tests.fakes import FakeCluster
from tests.loops import VirtualTimeLoop
from tests.unit.operator import objects
from tests.unit.operator.background import started
from tests.unit.operator.controllers.calibration.seen import (
    NOW,
    PAIR,
    spread,
    window,
)


class Seen:
    """Windows that a test sets; the next reads raise `failures`.

    `past` has the windows of the time before; `asked` are the times that were asked for.
    """

    def __init__(self, *windows: Window, pair: Pair = PAIR, past: Sequence[Window] = ()) -> None:
        self.windows: dict[Pair, list[Window]] = {pair: list(windows)} if windows else {}
        self.failures: list[InfernoError] = []
        self.past = past
        self.asked: list[float | None] = []

    async def read(self, at: float | None = None) -> Mapping[Pair, Sequence[Window]]:
        self.asked.append(at)
        if self.failures:
            raise self.failures.pop()
        if at is not None:
            return {PAIR: [window for window in self.past if window.end == at]}
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


async def test_a_cycle_writes_the_parameters_and_the_condition_until_it_is_off() -> None:
    cycle = context(Seen(*spread()))

    await reconcile(cycle)

    assert [row["reason"] for row in status(cycle)["calibration"]] == ["Calibrated"]
    assert [(c["type"], c["status"]) for c in status(cycle)["conditions"]] == [
        ("Calibrated", "True")
    ]
    manifest = objects.model("M")
    manifest["spec"]["calibrate"] = "Off"
    fake(cycle).add(manifest)
    await reconcile(cycle)
    assert status(cycle) == {}


async def test_a_second_cycle_with_nothing_new_writes_nothing() -> None:
    cycle = context(Seen(*spread()))
    await reconcile(cycle)
    before = list(fake(cycle).writes)

    cycle.memory.clear()
    await reconcile(cycle)

    assert fake(cycle).writes == before


async def test_definitions_of_another_release_are_told_once() -> None:
    cycle = context(Seen(*spread()))
    fake(cycle).undefined = {"calibration"}

    await reconcile(cycle)
    await reconcile(cycle)

    (told,) = status(cycle)["conditions"]
    assert (told["status"], told["reason"]) == ("False", "Rejected")
    assert ".status.calibration" in told["message"]
    assert fake(cycle).writes == ["status Model m"]


async def test_windows_are_remembered_from_cycle_to_cycle_but_not_those_of_yesterday() -> None:
    seen = Seen()
    cycle = context(seen)
    old = replace(window(1, 5), end=NOW.timestamp() - 90000)
    for one in (*spread(), old):
        seen.windows = {PAIR: [one]}
        await reconcile(cycle)

    assert status(cycle)["calibration"][0]["reason"] == "Calibrated"
    assert old not in cycle.memory[PAIR]


async def test_after_a_start_windows_of_two_hours_are_read_a_few_in_each_cycle() -> None:
    now = NOW.timestamp()
    past = [window(number, 2 + number * 7 % 30) for number in range(1, 180)]
    seen = Seen(window(0, 5), past=past)
    cycle = context(seen)

    for _ in range(12):
        await reconcile(cycle)

    assert seen.asked[:6] == [None, now - 7200, now - 7140, None, now - 7080, now - 7020]
    assert {w.end for w in cycle.memory[PAIR]} == {now, *(now - 7200 + 60 * n for n in range(24))}
    for _ in range(60):
        await reconcile(cycle)
    assert [end for end in seen.asked if end is not None] == [
        now - 60 * n for n in range(120, 0, -1)
    ]


async def test_the_past_waits_until_there_is_a_replica_to_ask_about() -> None:
    seen = Seen()
    cycle = context(seen)
    await reconcile(cycle)
    seen.windows = {PAIR: [window(0, 5)]}

    await reconcile(cycle)

    assert seen.asked == [None, None, NOW.timestamp() - 7200, NOW.timestamp() - 7140]


async def test_prefills_of_the_past_have_the_batch_of_the_time_before_them() -> None:
    seen = Seen(window(0, 5), past=[window(120, 4), window(119, 16)])
    cycle = context(seen)

    await reconcile(cycle)

    first, second, _ = cycle.memory[PAIR]
    assert math.isnan(first.prefill_batch)
    assert 4 < second.prefill_batch < 16


@pytest.mark.parametrize("mode", ["Report", "Use"])
async def test_without_windows_what_was_written_stays(mode: str) -> None:
    seen = Seen(*spread())
    cycle = context(seen, calibrate=mode)
    await reconcile(cycle)
    before = status(cycle)

    seen.windows = {}
    cycle.memory.clear()  # as after a restart
    await reconcile(cycle)

    assert status(cycle) == before


@pytest.mark.parametrize("what", ["read", "read the past", "write"])
async def test_a_failure_is_left_to_the_next_cycle(what: str) -> None:
    class Forgetful(Seen):
        async def read(self, at: float | None = None) -> Mapping[Pair, Sequence[Window]]:
            if at is not None and what == "read the past":
                raise UnavailableError("no answer")
            return await super().read(at)

    seen = Forgetful(*spread())
    cycle = context(seen)
    if what == "read":
        seen.failures.append(UnavailableError("no answer"))
    if what == "write":
        fake(cycle).failing["Model"] = UnavailableError("no answer")
    await reconcile(cycle)
    assert len(fake(cycle).writes) == (what == "read the past")

    fake(cycle).failing.clear()
    await reconcile(cycle)

    assert {*fake(cycle).writes} == {"status Model m"}
    assert status(cycle)["calibration"][0]["reason"] == "Calibrated"


def test_the_controller_calibrates_every_minute() -> None:
    cluster, seen, reads = FakeCluster(), Seen(), []
    cluster.add(objects.model("M"))

    class Counted(Seen):
        async def read(self, at: float | None = None) -> Mapping[Pair, Sequence[Window]]:
            reads.append(asyncio.get_running_loop().time())
            return await seen.read(at)

    async def run() -> None:
        controller = CalibrationController(cluster, Counted(), (), lambda: NOW)
        async with started(controller):
            await asyncio.sleep(timedelta(minutes=2, seconds=30).total_seconds())

    with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
        runner.run(run())

    assert reads == pytest.approx([0, 60, 120], abs=1)
