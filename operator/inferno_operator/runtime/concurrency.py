"""Concurrent writes, up to a limit."""

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Iterable
from itertools import islice
from typing import TypeVar
from weakref import WeakValueDictionary

from inferno_operator.runtime.ports import GoneError
from inferno_optimizer.errors import InfernoError

T = TypeVar("T")

CONCURRENT_WRITES = 16

APART = 2 * CONCURRENT_WRITES
"""Steps of other items between two steps of an item, while there are that many."""

logger = logging.getLogger(__name__)


class Locks:
    """A lock for each name, kept only while somebody holds it or waits for it."""

    def __init__(self) -> None:
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    def __getitem__(self, name: str) -> asyncio.Lock:
        """Return the lock of a name."""
        return self._locks.setdefault(name, asyncio.Lock())

    def __len__(self) -> int:
        """Return how many are held or waited for."""
        return len(self._locks)


async def write_each(items: Iterable[T], *steps: Callable[[T], Awaitable[object]]) -> None:
    """Take the steps for each item, several at once; raises the first failure after all calls.

    Some items take a step before they take the next one. An item takes no further step after one
    that failed, or after its object was deleted. Items are made when their turn comes: ten
    thousand writes take tens of megabytes.
    """
    fresh = ((item, steps) for item in items)
    waiting = deque(islice(fresh, APART + 1))
    failures: list[InfernoError] = []

    async def work() -> None:
        while waiting:
            item, (step, *others) = waiting.popleft()
            waiting.extend(islice(fresh, max(APART + 1 - len(waiting), 0)))
            try:
                await step(item)
            except GoneError as error:
                logger.info("%s: not written, the object was deleted", error)
            except InfernoError as error:
                failures.append(error)
            else:
                if others:
                    waiting.insert(APART, (item, tuple(others)))

    workers = (work() for _ in range(min(CONCURRENT_WRITES, len(waiting))))
    ended = await asyncio.gather(*workers, return_exceptions=True)
    for failure in (*failures, *filter(None, ended)):
        raise failure
