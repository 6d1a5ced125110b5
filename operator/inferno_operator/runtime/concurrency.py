"""Concurrent writes, up to a limit."""

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Iterator
from typing import TypeVar

from inferno_operator.runtime.ports import GoneError
from inferno_optimizer.errors import InfernoError

T = TypeVar("T")

CONCURRENT_WRITES = 16

logger = logging.getLogger(__name__)


async def write_each(items: Iterable[T], *steps: Callable[[T], Awaitable[object]]) -> None:
    """Take the steps for each item, several at once; raises the first failure after all calls.

    Some items take a step before they take the next one. An item takes no further step after one
    that failed, or after its object was deleted. Items are made when their turn comes: ten
    thousand writes take tens of megabytes.
    """
    fresh = ((item, steps) for item in items)
    begun = deque[tuple[T, tuple[Callable[[T], Awaitable[object]], ...]]]()
    failures: list[InfernoError] = []

    async def work() -> None:
        while due := _due(fresh, begun):
            item, (step, *others) = due
            try:
                await step(item)
            except GoneError as error:
                logger.info("%s: not written, the object was deleted", error)
            except InfernoError as error:
                failures.append(error)
            else:
                if others:
                    begun.append((item, tuple(others)))

    workers = (work() for _ in range(CONCURRENT_WRITES))
    ended = await asyncio.gather(*workers, return_exceptions=True)
    for failure in (*failures, *filter(None, ended)):
        raise failure


def _due(fresh: Iterator[T], begun: deque[T]) -> T | None:
    """Return what is next; some others begin before an item goes on."""
    new = next(fresh, None) if len(begun) <= CONCURRENT_WRITES else None
    return begun.popleft() if new is None and begun else new
