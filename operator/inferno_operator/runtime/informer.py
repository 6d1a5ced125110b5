"""Keeps a mirror of the cluster's objects, and tells which namespaces changed."""

import asyncio
import logging
from collections.abc import Callable, Iterable, Sequence
from contextlib import aclosing
from functools import partial

from inferno_operator.resources import RESOURCES, Optimizer, Resource
from inferno_operator.resources.observation import Observation
from inferno_operator.runtime.cache import Mirror
from inferno_operator.runtime.ports import Change, Listing, Watch
from inferno_operator.runtime.watches import changes_since
from inferno_operator.runtime.work_queue import Backoff
from inferno_optimizer.errors import InfernoError, UnavailableError

Area = tuple[type[Resource], str]
"""A kind, and a namespace or all of them ("")."""

logger = logging.getLogger(__name__)


class Informer:
    """Lists and watches all six kinds; the `Source` of what it has seen.

    Parameters
    ----------
    watch
        What it follows.
    mirror
        What it fills.
    namespaces
        Which ones; none means all.
    changed
        Is told of every namespace in which something changed, once all objects are known.
    patience
        Seconds that an optimization waits until they are.
    """

    def __init__(
        self,
        watch: Watch,
        mirror: Mirror,
        namespaces: Sequence[str],
        changed: Callable[[str], None],
        patience: float = 10.0,
    ) -> None:
        self._watch = watch
        self._mirror = mirror
        self._changed = changed
        self._patience = patience
        self._areas = [(kind, namespace) for kind in RESOURCES for namespace in namespaces or ("",)]
        self._unknown = dict.fromkeys(self._areas, "")
        """What is not known now, and why."""
        self._known = asyncio.Event()

    async def run(self) -> None:
        """Follow what happens, until cancelled."""
        async with asyncio.TaskGroup() as group:
            for area in self._areas:
                group.create_task(self._follow(*area))

    async def objects(self, namespace: str) -> Sequence[Observation]:
        """Every object but Optimizers that is to stay."""
        try:
            await asyncio.wait_for(self._known.wait(), self._patience)
        except TimeoutError as error:
            missing = ", ".join(sorted({kind.plural for kind, _ in self._unknown}))
            why = next(filter(None, self._unknown.values()), "being listed")
            raise UnavailableError(f"not known yet: {missing}: {why}") from error
        return [
            observation
            for observation in self._mirror.all(namespace)
            if observation.deleted is None and observation.reference.resource is not Optimizer
        ]

    async def _follow(self, kind: type[Resource], namespace: str) -> None:
        failures, backoff, now = 0, Backoff(), asyncio.get_running_loop().time
        while True:
            began = now()
            try:
                listing = await self._watch.listing(kind, namespace)
                self._listed(listing)
                await self._keep_up(listing)
            except InfernoError as error:
                logger.info("%s; listing anew", error)
                self._unknown[kind, namespace] = str(error)
            self._known.clear()
            failures = 1 if now() - began > backoff.limit else failures + 1
            await asyncio.sleep(backoff.seconds(failures))

    async def _keep_up(self, listing: Listing) -> None:
        """Apply changes, watch after watch, for as long as the API server remembers them."""
        watch = partial(self._watch.changes, listing)
        async with aclosing(changes_since(listing.version, watch)) as changes:
            async for change in changes:
                self._apply(listing.resource, change)

    def _listed(self, listing: Listing) -> None:
        changed = self._mirror.replace(listing)
        self._unknown.pop((listing.resource, listing.namespace), None)
        if self._unknown:
            return
        if not self._known.is_set():
            self._known.set()
            changed = self._mirror.namespaces()
        self._tell(changed)

    def _apply(self, kind: type[Resource], change: Change) -> None:
        if change.manifest is None:
            return
        note = self._mirror.remove if change.gone else self._mirror.put
        changed = note(kind, change.manifest)
        if self._known.is_set():
            self._tell(changed)

    def _tell(self, namespaces: Iterable[str]) -> None:
        for namespace in namespaces:
            self._changed(namespace)
