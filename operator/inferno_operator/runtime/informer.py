"""List and watch kinds of objects: every controller gets its news through an `Informer`."""

import asyncio
import logging
from collections.abc import AsyncGenerator, Iterable, Mapping, Sequence
from contextlib import aclosing
from typing import Protocol

from inferno_operator.resources.objects import Kind
from inferno_operator.runtime.ports import Change, Listing, Reader
from inferno_operator.runtime.work_queue import Backoff
from inferno_optimizer.errors import InfernoError

Area = tuple[Kind, str]
"""A kind, and a namespace or all of them ("")."""

RELIST = Backoff(limit=5.0)
"""Seconds until a kind is listed again after a failure."""

PAUSE = 0.1
"""Seconds between the end of a watch and the next one."""

logger = logging.getLogger(__name__)


class Handler(Protocol):
    """Gets what an informer sees."""

    def listed(self, listing: Listing) -> None:
        """All objects of a kind, in a namespace or in all: others of that kind are gone."""

    def changed(self, kind: Kind, change: Change) -> None:
        """An object appeared, changed, or is gone; `change` has a manifest."""

    def lost(self, kind: Kind, namespace: str, error: InfernoError) -> None:
        """From now on changes are not seen, until the next listing."""


class Informer:
    """Lists kinds of objects, then watches them; after a failure it lists them again.

    Parameters
    ----------
    reader
        Where the objects are.
    kinds, namespaces
        Which objects; no namespaces: those of all.
    handler
        Gets what is seen.
    """

    def __init__(
        self, reader: Reader, kinds: Iterable[Kind], namespaces: Sequence[str], handler: Handler
    ) -> None:
        self._reader = reader
        self._handler = handler
        areas = [(kind, namespace) for kind in kinds for namespace in namespaces or ("",)]
        self._missing: dict[Area, InfernoError | None] = dict.fromkeys(areas)
        self._areas = areas
        self._complete = asyncio.Event()

    @property
    def missing(self) -> Mapping[Area, InfernoError | None]:
        """What is not known now, and why; None: it was not listed yet."""
        return self._missing

    async def complete(self) -> None:
        """Wait until nothing is missing."""
        await self._complete.wait()

    async def run(self) -> None:
        """List and watch, until cancelled."""
        async with asyncio.TaskGroup() as group:
            for area in self._areas:
                group.create_task(self._follow(*area))

    async def _follow(self, kind: Kind, namespace: str) -> None:
        failures, now = 0, asyncio.get_running_loop().time
        while True:
            began = now()
            try:
                await self._list_and_watch(kind, namespace)
            except InfernoError as error:
                self._lost(kind, namespace, error)
            failures = 1 if now() - began > RELIST.limit else failures + 1
            await asyncio.sleep(RELIST.seconds(failures))

    async def _list_and_watch(self, kind: Kind, namespace: str) -> None:
        listing = await self._reader.list(kind, namespace)
        self._missing.pop((kind, namespace), None)
        if not self._missing:
            self._complete.set()
        self._handler.listed(listing)
        async with aclosing(_changes_since(self._reader, listing)) as changes:
            async for change in changes:
                if change.manifest is not None:
                    self._handler.changed(kind, change)

    def _lost(self, kind: Kind, namespace: str, error: InfernoError) -> None:
        before = self._missing.get((kind, namespace))
        if str(before) != str(error):  # a kind that is never served is logged once
            logger.info("%s; listing again", error)
        self._missing[kind, namespace] = error
        self._complete.clear()
        self._handler.lost(kind, namespace, error)


async def _changes_since(reader: Reader, listing: Listing) -> AsyncGenerator[Change, None]:
    """All changes after a listing, watch after watch, as long as the API server remembers them."""
    version = listing.version
    while True:
        async with aclosing(reader.watch(listing.kind, listing.namespace, version)) as changes:
            async for change in changes:
                version = max(version, change.version)
                yield change
        await asyncio.sleep(PAUSE)
