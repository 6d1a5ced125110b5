"""Solving in a process of its own: off the event loop, and to be stopped at any time."""

import asyncio
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from inferno_operator.adapters.optimizer_local import LocalOptimizer
from inferno_optimizer.errors import SolverError
from inferno_optimizer.optimize import optimize
from inferno_optimizer.system import Accelerator, DecodeParameters, System
from tests.controlplane.waiting import wait_until

SYSTEM = System(accelerators=(Accelerator("A", "T", 10),), capacity={"T": 4})


class Busy(DecodeParameters):
    """Takes for ever to arrive at the process that solves."""

    def __reduce__(self) -> tuple[Callable[[int], object], tuple[int]]:
        return _spin, (os.getpid(),)


def _spin(started_by: int) -> object:
    while os.getpid() != started_by:
        pass
    return None


def children() -> set[int]:
    tasks = Path(f"/proc/{os.getpid()}/task").iterdir()
    return {int(pid) for task in tasks for pid in (task / "children").read_text().split()}


async def until(condition: Callable[[], bool]) -> None:
    await asyncio.to_thread(wait_until, condition, bool, "processes as expected", 30.0)


def busy() -> System:
    accelerator = Accelerator("A", "T", 10)
    object.__setattr__(accelerator, "type", Busy(1, 1))
    return System(accelerators=(accelerator,), capacity={})


async def test_the_answer_is_that_of_the_library() -> None:
    solution = await LocalOptimizer().optimize(SYSTEM)

    assert solution.capacity == optimize(SYSTEM).capacity


async def test_the_process_waits_for_the_next_request() -> None:
    optimizer, before = LocalOptimizer(), children()
    await optimizer.optimize(SYSTEM)
    process = children() - before

    await optimizer.optimize(SYSTEM)

    assert len(process) == 1
    assert children() - before == process


async def test_a_cancelled_request_ends_its_process() -> None:
    optimizer, before = LocalOptimizer(), children()
    task = asyncio.create_task(optimizer.optimize(busy()))
    await until(lambda: bool(children() - before))
    task.cancel()

    with pytest.raises(asyncio.CancelledError):
        await task

    await until(lambda: children() <= before)


async def test_a_process_that_dies_is_an_error_and_replaced() -> None:
    optimizer, before = LocalOptimizer(), children()
    task = asyncio.create_task(optimizer.optimize(busy()))
    await until(lambda: bool(children() - before))
    for process in children() - before:
        os.kill(process, 9)

    with pytest.raises(SolverError, match="memory"):
        await task

    assert (await optimizer.optimize(SYSTEM)).capacity == optimize(SYSTEM).capacity
