"""Where the objects of a namespace come from: read on demand, or mirrored."""

import asyncio
from collections.abc import Callable, Iterable, Sequence
from typing import Protocol

from inferno_operator.resources import RESOURCES, Optimizer, Resource
from inferno_operator.resources.objects import Kind, Manifest, Place, kind_of
from inferno_operator.resources.observation import Observation, observe
from inferno_operator.runtime.cache import Cache, Difference
from inferno_operator.runtime.informer import Informer
from inferno_operator.runtime.ports import Change, Listing, Reader
from inferno_optimizer.errors import InfernoError, UnavailableError

READ = tuple(kind for kind in RESOURCES if kind is not Optimizer)
"""The kinds that an optimization reads."""


class Source(Protocol):
    """What an optimization reads."""

    async def objects(self, namespace: str) -> Sequence[Observation]:
        """Every object of the kinds in `READ` that is not being deleted, in any order.

        Raises
        ------
        UnavailableError
            Not all of them are known now.
        """


class OnDemand:
    """Reads objects when an optimization asks for them."""

    def __init__(self, reader: Reader) -> None:
        self._reader = reader

    async def objects(self, namespace: str) -> Sequence[Observation]:
        """Every object as it is now."""
        lists = await asyncio.gather(*(self._reader.list(kind_of(k), namespace) for k in READ))
        found = (
            observe(kind, manifest)
            for kind, listing in zip(READ, lists, strict=True)
            for manifest in listing.manifests
        )
        return [observation for observation in found if observation.deleted is None]


def _ignore(_: object = None) -> None:
    """Do nothing with news."""


class Mirror:
    """Objects of our kinds, kept up to date by watches.

    Parameters
    ----------
    reader
        Where the objects are.
    kinds, namespaces
        Which ones; no namespaces: those of all.
    changed
        Gets every difference.
    completed
        Called when all objects are known, again after each interruption of a watch.
    patience
        Seconds that `objects` waits until all are known.
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
        """Of the objects that were looked at since they changed: parsing them takes time."""

    async def run(self) -> None:
        """List and watch, until cancelled."""
        await self._informer.run()

    @property
    def is_complete(self) -> bool:
        """Whether all objects are known."""
        return not self._informer.missing

    def missing(self) -> str:
        """Kinds that are not known now, and why; empty if all are known."""
        missing = self._informer.missing
        if not missing:
            return ""
        names = ", ".join(sorted({kind.plural for kind, _ in missing}))
        why = next((str(error) for error in missing.values() if error), "being listed")
        return f"not known yet: {names}: {why}"

    async def objects(self, namespace: str) -> Sequence[Observation]:
        """Every object but Optimizers that is not being deleted."""
        try:
            await asyncio.wait_for(self._informer.complete(), self._patience)
        except TimeoutError as error:
            raise UnavailableError(self.missing()) from error
        return [o for o in self.all(namespace) if o.deleted is None and o.kind is not Optimizer]

    def all(self, namespace: str) -> list[Observation]:
        """Every object of a namespace, also those that are being deleted."""
        places = [place for place in self._cache.places() if place.key.namespace == namespace]
        return [self._observe(place) for place in places]

    def namespaces(self) -> frozenset[str]:
        """Namespaces that have objects."""
        return frozenset(place.key.namespace for place in self._cache.places())

    def listed(self, listing: Listing) -> None:
        """All objects of a kind were listed."""
        self._note(self._cache.replace(listing))
        if self.is_complete:
            self._completed()

    def changed(self, kind: Kind, change: Change) -> None:
        """An object appeared, changed, or is gone."""
        self._note(self._cache.apply(kind, change))

    def lost(self, kind: Kind, namespace: str, error: InfernoError) -> None:
        """The informer tells what is missing."""

    def _note(self, differences: Iterable[Difference]) -> None:
        for difference in differences:
            self._observations.pop(difference.place, None)
            self._changed(difference)

    def _observe(self, place: Place) -> Observation:
        if place not in self._observations:
            manifest: Manifest = self._cache.get(place) or {}
            self._observations[place] = observe(self._types[place.kind], manifest)
        return self._observations[place]
