"""Tells open pages that something changed, by one watch of each kind for all of them."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from inferno_operator.adapters.kubernetes.kubectl import Session
from inferno_operator.resources import SYSTEM_RESOURCES, Plan
from inferno_operator.resources.objects import kind_of
from inferno_operator.runtime.cache import ObjectDifference
from inferno_operator.runtime.informers import Informers

TOGETHER_S = 0.5
"""Changes within this time are one piece of news [s]."""

REST = 10.0
"""After news there are none for so many times what a page takes: pages take a tenth of a core."""

ALIVE_S = 15.0
"""How often a connection says that it lives [s]."""

MOST = 50
"""Pages that are told at once, at most."""


class News:
    """What changed in a namespace since a page asked last."""

    def __init__(self, session: Session) -> None:
        informers = Informers(session.reader, (session.namespace,))
        kinds = [*map(kind_of, SYSTEM_RESOURCES), kind_of(Plan)]
        self._objects = informers.subscribe(kinds, self._changed)
        self._pages: set[asyncio.Event] = set()
        self._over = asyncio.Event()
        self._rest_s = 0.0
        self.version = 0
        """How many changes there were: a page that was made at another version is old."""

    def page_took(self, seconds: float) -> None:
        """Note how long a page took that was made after news."""
        self._rest_s = REST * seconds

    @asynccontextmanager
    async def followed(self) -> AsyncIterator[None]:
        """Watch as long as this is open; then what pages are told ends, too."""
        watch = asyncio.create_task(self._objects.run())
        try:
            yield
        finally:
            self._over.set()
            for page in self._pages:
                page.set()
            watch.cancel()
            await asyncio.gather(watch, return_exceptions=True)

    @property
    def is_full(self) -> bool:
        """Whether no more pages can be told."""
        return len(self._pages) >= MOST

    def _changed(self, _: ObjectDifference) -> None:
        self.version += 1
        for page in self._pages:
            page.set()

    async def events(self) -> AsyncIterator[str]:
        """Yield server-sent events: the version, at first and when it changes, or a comment."""
        change = asyncio.Event()
        self._pages.add(change)
        try:
            yield f"data: {self.version}\n\n"
            while True:
                if not await _is_set(change, ALIVE_S):
                    yield ": alive\n\n"
                    continue
                if await _is_set(self._over, TOGETHER_S):
                    return
                change.clear()
                yield f"data: {self.version}\n\n"
                if await _is_set(self._over, self._rest_s):
                    return
        finally:
            self._pages.discard(change)


async def _is_set(event: asyncio.Event, patience: float) -> bool:
    """Wait until something happens; False if that takes longer than `patience` [s]."""
    try:
        async with asyncio.timeout(patience):
            return await event.wait()
    except TimeoutError:
        return False
