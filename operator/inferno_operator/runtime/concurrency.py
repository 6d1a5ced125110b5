"""Concurrent writes, up to a limit."""

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Iterable
from itertools import islice
from typing import TypeVar

from inferno_operator.runtime.ports import GoneError
from inferno_optimizer.errors import InfernoError

T = TypeVar("T")

CONCURRENT_WRITES = 16

APART = 2 * CONCURRENT_WRITES
"""Steps of other items between two steps of an item, while there are that many."""

logger = logging.getLogger(__name__)


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
