"""Calls in the worker processes of anyio: each can be broken off, and no process is lost."""

import asyncio
import os
import signal
import sys
import time
from collections.abc import Callable
from contextlib import nullcontext, suppress
from functools import cache
from threading import Thread
from traceback import format_exc
from typing import TypeVar, TypeVarTuple, cast

from anyio import BrokenWorkerProcess, CapacityLimiter, to_process

T = TypeVar("T")
Ts = TypeVarTuple("Ts")

WATCH_S = 0.5
"""How often a worker sees whether its parent is there [s]."""

# anyio's own limiters let other tasks run between the call and the choice of a process.
UNLIMITED = cast("CapacityLimiter", nullcontext())


async def call_in_worker(free: asyncio.Semaphore, function: Callable[[*Ts], T], *args: *Ts) -> T:
    """Call a function in a process, which is killed with all that it started on cancellation.

    Parameters
    ----------
    free
        Bounds the processes. The caller has acquired it; it is released when the process waits
        for the next call or has ended. That can be after the cancellation: a process that is
        about to start is left to start, as anyio would forget it.
    function, args
        What can be pickled. An exception comes back with a note: its traceback in the process.

    Raises
    ------
    BrokenWorkerProcess
        The process ended, or had not enough memory.
    """
    started: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    calling = asyncio.create_task(_call(started, function, *args))
    calling.add_done_callback(lambda _: free.release())
    try:
        return await asyncio.shield(calling)
    except asyncio.CancelledError:
        if not started.cancel():  # it has started
            calling.cancel()
        raise


async def _call(started: asyncio.Future[None], function: Callable[[*Ts], T], *args: *Ts) -> T:
    pid = await to_process.run_sync(_prepare, os.getpid(), limiter=UNLIMITED)
    if started.cancelled():
        raise asyncio.CancelledError
    started.set_result(None)
    try:  # nothing runs in between, so this takes the same process
        return await to_process.run_sync(
            _answer, function, *args, cancellable=True, limiter=UNLIMITED
        )
    except (asyncio.CancelledError, BrokenWorkerProcess):
        with suppress(ProcessLookupError):
            os.killpg(pid, signal.SIGKILL)  # such as CBC; anyio kills the worker alone
        raise


@cache
def _prepare(parent: int) -> int:
    """Leave Ctrl-C to the parent, and end when it does, whatever this process is doing."""
    os.setsid()
    os.dup2(sys.stderr.fileno(), 2)  # which anyio has opened; nobody reads the pipe that 2 is

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(WATCH_S)
        os.killpg(0, signal.SIGKILL)

    Thread(target=watch, daemon=True).start()
    return os.getpid()


def _answer(function: Callable[[*Ts], T], *args: *Ts) -> T:
    try:
        return function(*args)
    except MemoryError:
        os._exit(1)  # or it would keep what it has taken
    except Exception as error:
        error.add_note(format_exc())
        raise
