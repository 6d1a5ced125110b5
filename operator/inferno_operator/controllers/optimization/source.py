"""Sources of the objects of a namespace: read on demand, or mirrored."""

import asyncio
from collections.abc import Callable, Iterable, Sequence
from typing import Protocol

from inferno_operator.resources import SYSTEM_RESOURCES, Optimizer, Resource
from inferno_operator.resources.objects import Kind, Manifest, Place, kind_of
from inferno_operator.resources.observation import Observation, observe
from inferno_operator.runtime.cache import Cache, Difference
from inferno_operator.runtime.informer import Informer
from inferno_operator.runtime.ports import Change, Listing, Reader
from inferno_optimizer.errors import InfernoError, UnavailableError

READ = tuple(kind for kind in SYSTEM_RESOURCES if kind is not Optimizer)
"""The kinds that an optimization reads."""


class Source(Protocol):
    """Gives an optimization its objects."""

    async def objects(self, namespace: str) -> Sequence[Observation]:
        """Return the objects of the kinds in `READ` that are not being deleted, in any order.

        Raises
        ------
        UnavailableError
            Some kinds cannot be read now.
        """


class OnDemand:
    """Reads the objects from the API server for each optimization."""

    def __init__(self, reader: Reader) -> None:
        self._reader = reader

    async def objects(self, namespace: str) -> Sequence[Observation]:
        """Return the objects as they are now."""
        lists = await asyncio.gather(*(self._reader.list(kind_of(k), namespace) for k in READ))
        found = (
            observe(kind, manifest)
            for kind, listing in zip(READ, lists, strict=True)
            for manifest in listing.manifests
        )
        return [observation for observation in found if observation.deleted is None]


def _ignore(_: object = None) -> None:
    """Do nothing; the default of callbacks."""


class Mirror:
    """A copy of the objects of our kinds, kept up to date by watches.

    Parameters
    ----------
    reader
        The API server.
    kinds, namespaces
        The objects to mirror; without namespaces, those of all namespaces.
    changed
        Called with every difference.
    completed
        Called when all objects are known, and again after each interruption of a watch.
    patience
        Seconds that `objects` waits until all objects are known.
    """

    def __init__(
        self,
        reader: Reader,
        kinds: Iterable[type[Resource]],
        namespaces: Sequence[str],
        changed: Callable[[Difference], None] = _ignore,
        completed: Callable[[], None] = _ignore,
        patience: float = 10.0,
    ) -> None:
        self._types = {kind_of(kind): kind for kind in kinds}
        self._informer = Informer(reader, self._types, namespaces, self)
        self._changed = changed
        self._completed = completed
        self._patience = patience
        self._cache = Cache()
        self._observations: dict[Place, Observation] = {}
        """The parsed objects; an object is parsed again only after it changed."""

    async def run(self) -> None:
        """List and watch until cancelled."""
        await self._informer.run()

    @property
    def is_complete(self) -> bool:
        """Whether all objects are known."""
        return not self._informer.missing

    def missing(self) -> str:
        """Return the kinds whose objects are not known now, and why; "" if all are known."""
        missing = self._informer.missing
        if not missing:
            return ""
        names = ", ".join(sorted({kind.plural for kind, _ in missing}))
        why = next((str(error) for error in missing.values() if error), "not listed yet")
        return f"not known yet: {names}: {why}"

    def trouble(self) -> InfernoError | None:
        """Return why objects are not known, if the API server refuses to list them."""
        return next(filter(None, self._informer.missing.values()), None)

    async def complete(self) -> None:
        """Wait until all objects are known; raises `UnavailableError` if that takes too long."""
        try:
            async with asyncio.timeout(self._patience):
                await self._informer.complete()
        except TimeoutError as error:
            raise UnavailableError(self.missing()) from error

    async def objects(self, namespace: str) -> Sequence[Observation]:
        """Return all objects that are not being deleted, except Optimizers."""
        await self.complete()
        return [o for o in self.all(namespace) if o.deleted is None and o.kind is not Optimizer]

    def all(self, namespace: str) -> list[Observation]:
        """Return all objects of a namespace, including those that are being deleted."""
        return [
            self._observe(Place(kind, key))
            for kind in self._types
            for key in self._cache.keys(kind, namespace)
        ]

    def namespaces(self) -> frozenset[str]:
        """Return the namespaces that have objects."""
        return frozenset[str]().union(*map(self._cache.namespaces, self._types))

    def written(self, kind: Kind, manifest: Manifest) -> None:
        """Take an object as the API server returned it to a write."""
        self._note(self._cache.written(kind, manifest))

    def listed(self, listing: Listing) -> None:
        """Take a list of all objects of a kind."""
        self._note(self._cache.replace(listing))
        if self.is_complete:
            self._completed()

    def changed(self, kind: Kind, change: Change) -> None:
        """Take the creation, change or deletion of an object."""
        self._note(self._cache.apply(kind, change))

    def lost(self, kind: Kind, namespace: str, error: InfernoError) -> None:
        """Do nothing: the informer knows what is missing."""

    def _note(self, differences: Iterable[Difference]) -> None:
        for difference in differences:
            self._observations.pop(difference.place, None)
            self._changed(difference)

    def _observe(self, place: Place) -> Observation:
        if place not in self._observations:
            manifest: Manifest = self._cache.get(place) or {}
            self._observations[place] = observe(self._types[place.kind], manifest)
        return self._observations[place]
