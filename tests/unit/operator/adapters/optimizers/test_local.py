"""Solving in a process of its own: off the event loop, and to be stopped at any time."""

import asyncio
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from inferno_operator.adapters.optimizers.local import LocalOptimizer
from inferno_optimizer.errors import SolverError
from inferno_optimizer.optimize import optimize
from inferno_optimizer.system import Accelerator, DecodeParameters, System
from tests.unit.optimizer.test_workers import children, until

SYSTEM = System(accelerators=(Accelerator("A", "T", 10),), capacity={"T": 4})


def _spin(started_by: int, arrived: Path) -> object:
    while os.getpid() != started_by:
        arrived.touch()
    return None


def busy(arrived: Path) -> System:
    """A system that takes for ever to be read where it is solved, and says that it is there."""

    class Busy(DecodeParameters):
        def __reduce__(self) -> tuple[Callable[[int, Path], object], tuple[int, Path]]:
            return _spin, (os.getpid(), arrived)

    accelerator = Accelerator("A", "T", 10)
    object.__setattr__(accelerator, "type", Busy(1, 1))
    return System(accelerators=(accelerator,), capacity={})


async def test_the_answer_is_that_of_the_library() -> None:
    solution = await LocalOptimizer().optimize(SYSTEM)

    assert solution.capacity == optimize(SYSTEM).capacity


@pytest.mark.parametrize("warmed_up", [False, True])
async def test_the_process_waits_for_the_next_request(*, warmed_up: bool) -> None:
    optimizer, before = LocalOptimizer(), children()
    await (optimizer.warm_up() if warmed_up else optimizer.optimize(SYSTEM))
    process = children() - before

    await optimizer.optimize(SYSTEM)

    assert len(process) == 1
    assert children() - before == process


async def test_a_cancelled_request_ends_its_process(tmp_path: Path) -> None:
    optimizer, before, arrived = LocalOptimizer(), children(), tmp_path / "arrived"
    task = asyncio.create_task(optimizer.optimize(busy(arrived)))
    await until(arrived.exists)
    task.cancel()

    with pytest.raises(asyncio.CancelledError):
        await task

    await until(lambda: children() <= before)


async def test_a_process_that_dies_is_an_error_and_replaced(tmp_path: Path) -> None:
    optimizer, before, arrived = LocalOptimizer(), children(), tmp_path / "arrived"
    task = asyncio.create_task(optimizer.optimize(busy(arrived)))
    await until(arrived.exists)
    for process in children() - before:
        os.kill(process, 9)

    with pytest.raises(SolverError, match="memory"):
        await task

    assert (await optimizer.optimize(SYSTEM)).capacity == optimize(SYSTEM).capacity


async def test_a_request_meanwhile_waits_for_that_process_and_starts_no_other() -> None:
    optimizer, before = LocalOptimizer(), children()

    await asyncio.gather(optimizer.warm_up(), optimizer.optimize(SYSTEM))

    assert len(children() - before) == 1
