"""One watch and one cache for each kind and namespace, shared by all who subscribe.

    API server --list, watch--> Informer --> Cache
                                   |  what differs
                                   +--> Subscription --> controller, its index, its queue
                                   +--> Subscription --> another controller

The first who follows an area begins its watch, the last who leaves ends it. Whoever comes later
is told what is known, as if it had just been listed. So the order in which controllers begin does
not matter, and each is ready when its own subscription is complete.
"""

import asyncio
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from inferno_operator.resources.objects import Kind, Manifest, Place
from inferno_operator.resources.observation import Observation
from inferno_operator.runtime.cache import Cache, Decode, ObjectDifference
from inferno_operator.runtime.informer import Area, Informer
from inferno_operator.runtime.ports import Reader
from inferno_optimizer.errors import InfernoError, UnavailableError


def _ignore(*_: object) -> None:
    """Do nothing: who subscribes need not be told."""


class Informers:
    """The informers of an operator.

    Parameters
    ----------
    reader
        The API server.
    namespaces
        The namespaces to watch; if empty, all.
    decode
        How caches decode objects if they keep them only decoded, which is for those who read all of
        ours again and again; None if they do not.
    """

    def __init__(
        self, reader: Reader, namespaces: Sequence[str] = (), decode: Decode | None = None
    ) -> None:
        self._reader, self._decode = reader, decode
        self.namespaces = namespaces
        self._informers: dict[Area, tuple[Informer, asyncio.Task[None]]] = {}

    def subscribe(
        self,
        kinds: Iterable[Kind],
        changed: Callable[[ObjectDifference], None] = _ignore,
        *,
        listed: Callable[[Area], None] = _ignore,
        lost: Callable[[Area, InfernoError], None] = _ignore,
        everywhere: bool = False,
    ) -> "Subscription":
        """Return a subscription, which begins when it runs.

        Parameters
        ----------
        kinds
            The kinds to follow.
        changed, listed, lost
            What to call; see `Follower`.
        everywhere
            Whether to follow the objects of all namespaces, not only of those to watch.
        """
        namespaces = () if everywhere else self.namespaces
        areas = [(kind, namespace) for kind in kinds for namespace in namespaces or ("",)]
        return Subscription(self, areas, changed, listed, lost)

    def informer(self, area: Area) -> tuple[Informer, asyncio.Task[None]]:
        """Return the informer of an area, and its task; it begins if nobody follows the area."""
        if area not in self._informers:
            informer = Informer(self._reader, area, self._decode)
            self._informers[area] = informer, asyncio.create_task(informer.run())
        return self._informers[area]

    async def end(self, areas: Iterable[Area]) -> None:
        """End the informers of areas that nobody follows any more."""
        left = [a for a in areas if a in self._informers and not self._informers[a][0].is_followed]
        tasks = [self._informers.pop(area)[1] for area in left]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


class Subscription:
    """What one controller follows: it is told of changes, and reads the shared caches."""

    def __init__(
        self,
        informers: Informers,
        areas: Sequence[Area],
        changed: Callable[[ObjectDifference], None],
        listed: Callable[[Area], None],
        lost: Callable[[Area, InfernoError], None],
    ) -> None:
        self._informers = informers
        self._areas = areas
        self.changed = changed
        self._tell_listed = listed
        self._tell_lost = lost
        self._joined: dict[Area, Informer] = {}
        self._complete = asyncio.Event()

    async def run(self) -> None:
        """Follow the objects until cancelled."""
        tasks = []
        try:
            for area in self._areas:
                self._joined[area], task = self._informers.informer(area)
                tasks.append(task)
                self._joined[area].join(self)
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            for task in tasks:
                if task.done():
                    task.result()
        finally:
            for informer in self._joined.values():
                informer.leave(self)
            self._joined.clear()
            self._complete.clear()
            await self._informers.end(self._areas)

    @property
    def missing(self) -> Mapping[Area, InfernoError | None]:
        """Areas whose objects are not known now, with the error; None: not listed yet."""
        return {
            area: informer.error if informer else None
            for area, informer in ((area, self._joined.get(area)) for area in self._areas)
            if informer is None or not informer.is_complete
        }

    @property
    def is_complete(self) -> bool:
        """Whether all objects are known."""
        return self._complete.is_set()

    @property
    def trouble(self) -> InfernoError | None:
        """Why objects are not known; None if they are, or the answer is awaited."""
        return next(filter(None, self.missing.values()), None)

    def unready(self) -> str:
        """Return the kinds whose objects are not known now, and why; "" if all are known."""
        missing = self.missing
        if not missing:
            return ""
        names = ", ".join(sorted({kind.plural for kind, _ in missing}))
        return f"not known yet: {names}: {self.trouble or 'not listed yet'}"

    async def complete(self, patience: float | None = None) -> None:
        """Wait until all objects are known; `UnavailableError` if that takes too long [s]."""
        try:
            async with asyncio.timeout(patience):
                await self._complete.wait()
        except TimeoutError as error:
            raise UnavailableError(self.unready()) from error

    def get(self, place: Place) -> Manifest | None:
        """Return an object, or None if it does not exist."""
        informer = self._of(place)
        return informer.cache.get(place.key) if informer else None

    def observation(self, place: Place) -> Observation | None:
        """Return an object of our kinds as it was read, or None if it does not exist."""
        informer = self._of(place)
        return informer.cache.observation(place.key) if informer else None

    def places(self, kind: Kind, namespace: str = "") -> Iterator[Place]:
        """Return the objects of a kind in a namespace, or in all namespaces ("")."""
        for cache in self._caches(kind, namespace):
            yield from (Place(kind, key) for key in cache.keys(namespace))

    def manifests(self, kind: Kind, namespace: str = "") -> Iterator[Manifest]:
        """Return the objects of a kind in a namespace, or in all namespaces ("")."""
        for cache in self._caches(kind, namespace):
            yield from cache.manifests(namespace)

    def observations(self, kind: Kind, namespace: str = "") -> Iterator[Observation]:
        """Return the objects of one of our kinds, including those that are being deleted."""
        for cache in self._caches(kind, namespace):
            yield from cache.observations(namespace)

    def namespaces(self) -> frozenset[str]:
        """Return the namespaces that have objects."""
        by_informer = (informer.cache.namespaces() for informer in self._joined.values())
        return frozenset[str]().union(*by_informer)

    def written(
        self, kind: Kind, manifest: Manifest, *, echo: bool = False
    ) -> tuple[ObjectDifference, ...]:
        """Take an object as the API server returned it to a write of this operator.

        All others who follow it are told; with `echo`, this subscription is told, too.
        """
        informer = self._of(Place.of(kind, manifest))
        return informer.written(manifest, None if echo else self) if informer else ()

    def listed(self, area: Area) -> None:
        """Take note that the objects of an area are known."""
        if not self.missing:
            self._complete.set()
        self._tell_listed(area)

    def lost(self, area: Area, error: InfernoError) -> None:
        """Take note that the objects of an area may differ from what is known."""
        self._complete.clear()
        self._tell_lost(area, error)

    def _caches(self, kind: Kind, namespace: str) -> Iterator[Cache]:
        """Return the caches that have objects of a kind in a namespace, or in any ("")."""
        for (followed, area), informer in self._joined.items():
            if followed == kind and (not area or not namespace or area == namespace):
                yield informer.cache

    def _of(self, place: Place) -> Informer | None:
        kind, namespace = place.kind, place.key.namespace
        return self._joined.get((kind, "")) or self._joined.get((kind, namespace))
