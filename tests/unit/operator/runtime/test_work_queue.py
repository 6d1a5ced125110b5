"""Requests become runs: few, one at a time for each key, and again after failures."""

import asyncio
import logging
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import pytest

from inferno_operator.runtime.work_queue import Backoff, Cycle, Cycles, ReconcileResult, WorkQueue
from tests.controlplane.waiting import PATIENCE_S

AT_ONCE = Backoff(first=0.0, limit=0.0)
NEVER = Backoff(first=3600.0, limit=3600.0)


class Reconciler:
    """Ends at once, as told: outcomes and errors in turn, then settled; a gate holds a run."""

    def __init__(self, ends: Iterable[ReconcileResult | Exception] = ()) -> None:
        self._ends = list(ends)
        self.gate = asyncio.Event()
        self.gate.set()
        self.started: list[str] = []
        self.cancelled: list[str] = []
        self._running: list[str] = []
        self.overlapping = False
        self._changed = asyncio.Condition()

    async def __call__(self, key: str) -> ReconcileResult:
        self.overlapping |= key in self._running
        self._running.append(key)
        self.started.append(key)
        async with self._changed:
            self._changed.notify_all()
        try:
            await self.gate.wait()
        except asyncio.CancelledError:
            self.cancelled.append(key)
            raise
        finally:
            self._running.remove(key)
        end = self._ends.pop(0) if self._ends else ReconcileResult.SETTLED
        if isinstance(end, Exception):
            raise end
        return end

    async def wait_for_runs(self, count: int) -> None:
        """Wait until so many runs have started."""
        async with asyncio.timeout(PATIENCE_S), self._changed:
            await self._changed.wait_for(lambda: len(self.started) >= count)


@dataclass(frozen=True)
class Recorded(Backoff):
    """Remembers for how many failures it was asked, and has nobody wait."""

    asked: list[int] = field(default_factory=list)

    def seconds(self, failures: int) -> float:
        self.asked.append(failures)
        return 0.0


def other_tasks() -> list["asyncio.Task[object]"]:
    own = asyncio.current_task()
    return [task for task in asyncio.all_tasks() if task is not own]


async def all_work_done() -> None:
    """Wait until no task but the test's own is left; raises what ended one of them."""
    async with asyncio.timeout(PATIENCE_S):
        while others := other_tasks():
            await asyncio.gather(*others)


async def everybody_had_a_turn() -> None:
    """Let all tasks run until each one waits for something."""
    for _ in range(20):
        await asyncio.sleep(0)


async def waiting() -> tuple[Reconciler, WorkQueue[str]]:
    """A queue in which a key failed, and waits for its next try for very long."""
    reconcile = Reconciler([ReconcileResult.FAILED])
    queue = WorkQueue(reconcile, NEVER)
    queue.add("a", 1)
    await reconcile.wait_for_runs(1)
    await everybody_had_a_turn()
    return reconcile, queue


async def test_a_key_that_settled_is_reconciled_again_when_asked_for_again() -> None:
    reconcile = Reconciler()
    queue = WorkQueue(reconcile)

    for version in (1, 1, 2):
        queue.add("a", version)
        await all_work_done()

    assert reconcile.started == ["a", "a", "a"]


async def test_many_requests_before_the_first_run_become_at_most_two() -> None:
    reconcile = Reconciler()
    queue = WorkQueue(reconcile)

    for version in range(100):
        queue.add("a", version)
    await all_work_done()

    assert 1 <= len(reconcile.started) <= 2


async def test_requests_while_others_are_awaited_become_one_run() -> None:
    reconcile = Reconciler([ReconcileResult.SETTLED, ReconcileResult.FAILED])
    queue = WorkQueue(reconcile, NEVER, settle=1.0)

    for version in range(10):
        queue.add("a", version)
        await asyncio.sleep(0.05)
    assert reconcile.started == []
    await reconcile.wait_for_runs(1)
    queue.add("a", 10)
    await reconcile.wait_for_runs(2)
    queue.add("a", 11)
    await asyncio.sleep(0.5)
    assert reconcile.started == ["a", "a"]
    await reconcile.wait_for_runs(3)
    await queue.close()

    assert reconcile.started == ["a", "a", "a"]


async def test_newer_versions_during_a_run_become_one_more_run() -> None:
    reconcile = Reconciler()
    queue = WorkQueue(reconcile)
    reconcile.gate.clear()
    queue.add("a", 1)
    await reconcile.wait_for_runs(1)

    for version in (2, 3, 4):
        queue.add("a", version)
    reconcile.gate.set()
    await all_work_done()

    assert reconcile.started == ["a", "a"]


@pytest.mark.parametrize(("version", "runs"), [(1, 1), (None, 2)])
async def test_the_same_version_during_a_run_changes_nothing_but_none_is_always_another(
    version: int | None, runs: int
) -> None:
    reconcile = Reconciler()
    queue = WorkQueue(reconcile)
    reconcile.gate.clear()
    queue.add("a", version)
    await reconcile.wait_for_runs(1)

    queue.add("a", version)
    reconcile.gate.set()
    await all_work_done()

    assert len(reconcile.started) == runs


async def test_a_key_has_one_worker_at_a_time() -> None:
    reconcile = Reconciler([ReconcileResult.FAILED, ReconcileResult.FAILED])
    queue = WorkQueue(reconcile, AT_ONCE)

    for version in range(50):
        queue.add("a", version)
        await asyncio.sleep(0)
    await all_work_done()

    assert not reconcile.overlapping


async def test_failures_in_a_row_are_counted_until_it_settles() -> None:
    reconcile = Reconciler(
        [ReconcileResult.FAILED] * 3 + [ReconcileResult.SETTLED, ReconcileResult.FAILED]
    )
    backoff = Recorded()
    queue = WorkQueue(reconcile, backoff)

    queue.add("a", 1)
    await all_work_done()
    queue.add("a", 2)
    await all_work_done()

    assert len(reconcile.started) == 6
    assert backoff.asked == [1, 2, 3, 1]


async def test_a_newer_version_during_a_failing_run_is_run_at_once_and_counts_anew() -> None:
    reconcile = Reconciler([ReconcileResult.FAILED, ReconcileResult.FAILED])
    backoff = Recorded()
    queue = WorkQueue(reconcile, backoff)
    reconcile.gate.clear()
    queue.add("a", 1)
    await reconcile.wait_for_runs(1)

    queue.add("a", 2)
    reconcile.gate.set()
    await all_work_done()

    assert len(reconcile.started) == 3
    assert backoff.asked == [1]  # of the second run, the first of the new version


@pytest.mark.parametrize(("version", "runs"), [(2, 2), (1, 1)])
async def test_only_a_newer_version_ends_the_wait_for_the_next_try(version: int, runs: int) -> None:
    reconcile, queue = await waiting()

    queue.add("a", version)
    await everybody_had_a_turn()

    assert len(reconcile.started) == runs
    await queue.close()


async def test_the_wait_for_the_next_try_of_one_key_holds_up_no_other() -> None:
    reconcile, queue = await waiting()

    queue.add("b", 1)
    await reconcile.wait_for_runs(2)

    assert reconcile.started == ["a", "b"]
    await queue.close()


@pytest.mark.parametrize(
    ("failures", "seconds"),
    [(1, 0.5), (2, 1), (3, 2), (6, 16), (7, 30), (8, 30), (1000, 30), (10**9, 30)],
)
def test_the_wait_doubles_up_to_half_a_minute(failures: int, seconds: float) -> None:
    assert Backoff().seconds(failures) == seconds


async def test_keys_that_run_or_wait_are_counted_until_closing_cancels_them_at_once() -> None:
    reconcile, queue = await waiting()
    assert queue.longest_run == 0.0
    reconcile.gate.clear()
    queue.add("runs", 1)
    await reconcile.wait_for_runs(2)  # no key waits for another
    await asyncio.sleep(3.0)
    assert queue.longest_run == pytest.approx(3.0)
    assert queue.depth == 2
    asked = asyncio.get_running_loop().time()

    await queue.close()

    assert asyncio.get_running_loop().time() == asked
    assert reconcile.cancelled == ["runs"]
    assert queue.depth == 0
    assert not other_tasks()


async def test_a_reconcile_that_breaks_is_logged_with_its_key_and_cause_and_tried_again(
    caplog: pytest.LogCaptureFixture,
) -> None:
    reconcile = Reconciler([RuntimeError("a defect")])
    queue = WorkQueue(reconcile, AT_ONCE)

    queue.add("default/inferno", 1)
    await all_work_done()

    assert reconcile.started == ["default/inferno"] * 2

    errors = [record for record in caplog.records if record.levelno >= logging.ERROR]
    assert any("default/inferno" in record.getMessage() for record in errors)
    assert any("a defect" in str(record.exc_info) for record in errors)


async def test_a_reconcile_that_breaks_holds_up_no_other_key() -> None:
    reconcile = Reconciler([RuntimeError("a defect")])
    queue = WorkQueue(reconcile, NEVER)

    queue.add("a", 1)
    broken = other_tasks()
    queue.add("b", 1)
    await reconcile.wait_for_runs(2)

    assert reconcile.started == ["a", "b"]
    await queue.close()
    await asyncio.gather(*broken, return_exceptions=True)


async def test_a_closed_queue_runs_nothing_and_takes_nothing() -> None:
    reconcile = Reconciler()
    queue = WorkQueue(reconcile)
    queue.add("a", 1)

    await queue.close()
    await queue.close()
    queue.add("a", 1)
    await all_work_done()

    assert not reconcile.started


async def test_a_queue_that_is_closed_just_as_a_key_is_asked_for_again_ends() -> None:
    reconciler = Reconciler([ReconcileResult.due_after(3600.0)])
    queue = WorkQueue(reconciler)
    queue.add("a", 1)
    await reconciler.wait_for_runs(1)
    await asyncio.sleep(0)
    queue.add("a", 2)

    async with asyncio.timeout(PATIENCE_S):
        await queue.close()

    assert reconciler.started == ["a"]


# Cycles repeat when they are due, and at once when they are asked for


PERIOD = 30.0


class Work:
    """A cycle that takes some seconds and is due again after more."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self.began: list[float] = []

    async def __call__(self) -> ReconcileResult:
        self.began.append(asyncio.get_running_loop().time())
        await asyncio.sleep(self._seconds)
        return ReconcileResult.due_after(PERIOD)


@asynccontextmanager
async def started(**cycles: Cycle) -> AsyncIterator[Cycles]:
    queue = Cycles(cycles)
    queue.start()
    yield queue
    await queue.close()


async def test_each_cycle_is_repeated_when_it_is_due() -> None:
    short, long = Work(1.0), Work(9.0)

    async with started(short=short, long=long):
        await asyncio.sleep(100.0)

    assert short.began == pytest.approx([0.0, 31.0, 62.0, 93.0])
    assert long.began == pytest.approx([0.0, 39.0, 78.0])


async def test_a_cycle_that_is_asked_for_runs_at_once_and_then_when_it_is_due() -> None:
    asked, other = Work(1.0), Work(1.0)

    async with started(asked=asked, other=other) as cycles:
        await asyncio.sleep(10.0)
        cycles.request("asked")
        await asyncio.sleep(40.0)

    assert asked.began == pytest.approx([0.0, 10.0, 41.0])
    assert other.began == pytest.approx([0.0, 31.0])


async def test_a_cycle_that_is_asked_for_while_it_runs_runs_once_more_after_that() -> None:
    work = Work(5.0)

    async with started(work=work) as cycles:
        for _ in range(3):
            await asyncio.sleep(1.0)
            cycles.request("work")
        await asyncio.sleep(20.0)

    assert work.began == pytest.approx([0.0, 5.0])
