"""Concurrent writes, up to a limit."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable
from itertools import compress, islice
from typing import TypeVar

from inferno_operator.runtime.ports import GoneError

T = TypeVar("T")

CONCURRENT_WRITES = 16

AT_A_TIME = 2 * CONCURRENT_WRITES
"""Items that take one step together, before they take the next one."""

logger = logging.getLogger(__name__)


async def write_each(items: Iterable[T], *steps: Callable[[T], Awaitable[object]]) -> None:
    """Take the steps for each item, several at once; raises the first failure after all calls.

    Some items take a step before they take the next one. An item takes no further step after one
    that failed, or after its object was deleted.
    """
    limit = asyncio.Semaphore(CONCURRENT_WRITES)

    async def attempt(step: Callable[[T], Awaitable[object]], item: T) -> bool:
        async with limit:
            try:
                await step(item)
            except GoneError as error:
                logger.info("%s: not written, the object was deleted", error)
                return False
        return True

    remaining, failures = iter(items), list[BaseException]()
    while batch := tuple(islice(remaining, AT_A_TIME)):
        for step in steps:
            attempts = (attempt(step, item) for item in batch)
            results = await asyncio.gather(*attempts, return_exceptions=True)
            failures += [result for result in results if isinstance(result, BaseException)]
            batch = tuple(compress(batch, (result is True for result in results)))
    if failures:
        raise failures[0]
