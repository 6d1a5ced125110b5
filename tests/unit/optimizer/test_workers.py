"""Calls in worker processes: what is cancelled leaves none behind, and faults tell where."""

import asyncio
import os
import subprocess
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest
from anyio import BrokenWorkerProcess

from inferno_optimizer.workers import call_in_worker
from tests.controlplane.waiting import wait_until


def children() -> set[int]:
    found: list[str] = []
    for task in Path(f"/proc/{os.getpid()}/task").iterdir():
        with suppress(FileNotFoundError, ProcessLookupError):  # a thread that has just ended
            found += (task / "children").read_text().split()
    return set(map(int, found))


async def until(condition: Callable[[], bool]) -> None:
    await asyncio.to_thread(wait_until, condition, bool, "processes as expected")


async def called(free: asyncio.Semaphore, function: Callable[..., object], *args: object) -> object:
    await free.acquire()
    return await call_in_worker(free, function, *args)


def spin(started: Path) -> None:
    with subprocess.Popen(["sleep", "1000"]) as child:
        started.with_suffix(".new").write_text(str(child.pid))
        started.with_suffix(".new").rename(started)


def fail() -> None:
    raise ZeroDivisionError


def take_too_much() -> None:
    raise MemoryError


def complain() -> None:
    os.write(2, b" " * 1_000_000)


async def test_a_call_that_is_cancelled_while_a_process_starts_leaves_none_behind() -> None:
    free, before = asyncio.Semaphore(1), children()
    for _ in range(3):
        call = asyncio.create_task(called(free, os.getpid))
        await until(lambda: children() > before)
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call

    process = await called(free, os.getpid)

    assert children() - before == {process}


async def test_calls_at_once_take_no_more_processes_than_are_free() -> None:
    free, before = asyncio.Semaphore(2), children()

    await asyncio.gather(*(called(free, os.getpid) for _ in range(20)))

    assert len(children() - before) == 2


async def test_a_cancelled_call_ends_what_its_process_has_started(tmp_path: Path) -> None:
    free, before, started = asyncio.Semaphore(1), children(), tmp_path / "started"
    call = asyncio.create_task(called(free, spin, started))
    await until(started.exists)
    call.cancel()

    await until(lambda: not Path(f"/proc/{started.read_text()}").exists())
    await free.acquire()

    assert children() <= before


async def test_an_error_tells_where_in_the_process_it_was_raised() -> None:
    with pytest.raises(ZeroDivisionError) as caught:
        await called(asyncio.Semaphore(1), fail)

    assert "in fail" in caught.value.__notes__[0]


async def test_a_process_that_has_not_enough_memory_ends() -> None:
    free, before = asyncio.Semaphore(1), children()

    with pytest.raises(BrokenWorkerProcess):
        await called(free, take_too_much)

    await until(lambda: children() <= before)


async def test_a_process_may_write_to_its_standard_error_as_much_as_it_likes() -> None:
    await called(asyncio.Semaphore(1), complain)
