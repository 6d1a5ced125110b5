"""Several things at once, but not too many."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable
from typing import TypeVar

from inferno_operator.runtime.ports import GoneError

T = TypeVar("T")

CONCURRENT_WRITES = 16

logger = logging.getLogger(__name__)


async def write_each(items: Iterable[T], write: Callable[[T], Awaitable[object]]) -> None:
    """Write on objects, some at once; all are tried before the first failure is raised."""
    limit = asyncio.Semaphore(CONCURRENT_WRITES)

    async def attempt(item: T) -> None:
        async with limit:
            try:
                await write(item)
            except GoneError as error:
                logger.info("%s: nothing left to write on", error)

    results = await asyncio.gather(*map(attempt, items), return_exceptions=True)
    failures = [result for result in results if isinstance(result, BaseException)]
    if failures:
        raise failures[0]
