"""List and watch objects: every controller gets the changes of its kinds from an `Informer`."""

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
"""A kind, and a namespace or all namespaces ("")."""

RELIST = Backoff(limit=5.0)
"""Seconds until a kind is listed again after a failure."""

PAUSE = 0.1
"""Seconds between the end of a watch and the next one."""

logger = logging.getLogger(__name__)


class Handler(Protocol):
    """Receives the lists and changes of an informer."""

    def listed(self, listing: Listing) -> None:
        """Take all objects of a kind, in a namespace or in all; no others of the kind exist."""

    def changed(self, kind: Kind, change: Change) -> None:
        """Take the creation, change or deletion of an object; `change` has a manifest."""

    def lost(self, kind: Kind, namespace: str, error: InfernoError) -> None:
        """Take note that the watch failed: no changes arrive until the next list."""


class Informer:
    """Lists the objects of some kinds, then watches them; lists them again after a failure.

    Parameters
    ----------
    reader
        The API server.
    kinds, namespaces
        The objects to watch; without namespaces, those of all namespaces.
    handler
        Receives the lists and changes.
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
        """Areas whose objects are not known now, with the error; None: not listed yet."""
        return self._missing

    async def complete(self) -> None:
        """Wait until all objects are known."""
        await self._complete.wait()

    async def run(self) -> None:
        """List and watch until cancelled."""
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
        if str(before) != str(error):  # a kind that is not installed is logged once
            logger.info("%s; listing again", error)
        self._missing[kind, namespace] = error
        self._complete.clear()
        self._handler.lost(kind, namespace, error)


async def _changes_since(reader: Reader, listing: Listing) -> AsyncGenerator[Change, None]:
    """Yield all changes after a list, from one watch after the other, until a watch fails."""
    version = listing.version
    while True:
        async with aclosing(reader.watch(listing.kind, listing.namespace, version)) as changes:
            async for change in changes:
                version = max(version, change.version)
                yield change
        await asyncio.sleep(PAUSE)
