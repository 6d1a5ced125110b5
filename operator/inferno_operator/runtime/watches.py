"""One watch after the other, each from where the one before ended."""

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing

from inferno_operator.runtime.ports import Change

PAUSE = 0.1
"""Seconds between the end of a watch and the next one."""


async def changes_since(
    version: int, watch: Callable[[int], AsyncGenerator[Change, None]]
) -> AsyncGenerator[Change, None]:
    """All changes after a version, for as long as the API server remembers them.

    Parameters
    ----------
    version
        The one that is known.
    watch
        Tells what changed since a version, and ends after some time.
    """
    while True:
        async with aclosing(watch(version)) as changes:
            async for change in changes:
                version = max(version, change.version)
                yield change
        await asyncio.sleep(PAUSE)
