"""Concurrent writes, up to a limit."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable
from itertools import islice
from typing import TypeVar

from inferno_operator.runtime.ports import GoneError

T = TypeVar("T")

CONCURRENT_WRITES = 16

AT_A_TIME = 500
"""Items that are made and written together: thousands may be due after a start."""

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

    remaining, failures = iter(items), list[BaseException]()
    while batch := tuple(islice(remaining, AT_A_TIME)):
        results = await asyncio.gather(*map(attempt, batch), return_exceptions=True)
        failures += [result for result in results if isinstance(result, BaseException)]
    if failures:
        raise failures[0]
