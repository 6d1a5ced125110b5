"""Run what a command waits for, so that Ctrl-C ends it in order."""
# ruff: noqa: PLC0415 - asyncio takes a while to import, and `--help` does without

import signal
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


def run_async(work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine, which Ctrl-C cancels.

    asyncio sees to that only where Ctrl-C has Python's own handler. Else `KeyboardInterrupt` is
    raised in the middle of some task, which complains of it, or leaves a lock that nobody opens.
    """
    import asyncio

    before = signal.getsignal(signal.SIGINT)
    if before is not signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        return asyncio.run(work)
    finally:
        signal.signal(signal.SIGINT, before)
