"""Cycles repeat when they are due, and at once when they are asked for."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from inferno_operator.runtime.work_queue import Cycle, Cycles, ReconcileResult

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
