"""Concurrent writes, up to a limit."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable
from typing import TypeVar

from inferno_operator.runtime.ports import GoneError

T = TypeVar("T")

CONCURRENT_WRITES = 16

logger = logging.getLogger(__name__)


async def write_each(items: Iterable[T], write: Callable[[T], Awaitable[object]]) -> None:
    """Call `write` for each item, several at once; raises the first failure after all calls."""
    limit = asyncio.Semaphore(CONCURRENT_WRITES)

    async def attempt(item: T) -> None:
        async with limit:
            try:
                await write(item)
            except GoneError as error:
                logger.info("%s: not written, the object was deleted", error)

    results = await asyncio.gather(*map(attempt, items), return_exceptions=True)
    failures = [result for result in results if isinstance(result, BaseException)]
    if failures:
        raise failures[0]
