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
import logging
from collections.abc import AsyncGenerator, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import aclosing
from typing import Protocol

from inferno_operator.resources import GROUP
from inferno_operator.resources.objects import Kind, Manifest, Place, without_managers
from inferno_operator.resources.observation import Observation
from inferno_operator.runtime.cache import Cache, Decode, ObjectDifference, version_of
from inferno_operator.runtime.ports import Listing, ObjectChange, Reader, RejectedError
from inferno_operator.runtime.work_queue import Backoff
from inferno_optimizer.errors import InfernoError, UnavailableError

Area = tuple[Kind, str]
"""A kind, and a namespace or all namespaces ("")."""

RELIST = Backoff(limit=5.0)
"""Seconds until a kind is listed again after a failure."""

PAUSE = 0.1
"""Seconds between the end of a watch and the next one."""

logger = logging.getLogger(__name__)


class Follower(Protocol):
    """Is told what an informer learns."""

    def changed(self, difference: ObjectDifference) -> None:
        """Take the creation, change or deletion of an object."""

    def listed(self, area: Area) -> None:
        """Take note that all objects of an area are known, and their differences were told."""

    def lost(self, area: Area, error: InfernoError) -> None:
        """Take note that the watch failed: no changes arrive until the next list."""


class Informer:
    """Lists the objects of an area, then watches them; lists them again after a failure.

    Parameters
    ----------
    reader
        The API server.
    area
        The objects to watch.
    decode
        How the cache decodes them if it keeps them only decoded; None if it does not.

    Attributes
    ----------
    cache
        The objects that are known.
    is_complete
        Whether these are all objects now.
    error
        Why they are not, if the API server has answered.
    """

    def __init__(self, reader: Reader, area: Area, decode: Decode | None = None) -> None:
        self._reader = reader
        self._area = area
        self._followers: list[Follower] = []
        self._newest = -1
        """Newest version that the API server has shown of anything in the area."""
        self.cache = Cache(area[0], decode)
        self.is_complete = False
        self.error: InfernoError | None = None

    @property
    def is_followed(self) -> bool:
        """Whether anybody is told."""
        return bool(self._followers)

    def add_follower(self, follower: Follower) -> None:
        """Tell a follower what is known, and from now on what changes."""
        self._followers.append(follower)
        for key in tuple(self.cache.keys()):
            place = Place(self.cache.kind, key)
            follower.changed(ObjectDifference(place, None, self.cache.get(key)))
        if self.is_complete:
            follower.listed(self._area)
        elif self.error is not None:
            follower.lost(self._area, self.error)

    def remove_follower(self, follower: Follower) -> None:
        """Tell a follower nothing more."""
        self._followers.remove(follower)

    async def run(self) -> None:
        """List and watch until cancelled."""
        failures, now = 0, asyncio.get_running_loop().time
        while True:
            began = now()
            try:
                await self._list_and_watch()
            except InfernoError as error:
                self._note_loss(error)
            failures = 1 if now() - began > RELIST.limit else failures + 1
            await asyncio.sleep(RELIST.seconds(failures))

    def written(
        self, manifest: Manifest, writer: Follower | None = None
    ) -> tuple[ObjectDifference, ...]:
        """Take an object as a write returned it, and tell all but the writer."""
        self._newest = max(self._newest, version_of(manifest))
        differences = self.cache.written(self._reduce(manifest))
        self._tell(differences, [each for each in self._followers if each is not writer])
        return differences

    async def _list_and_watch(self) -> None:
        newest = self._newest
        listing = await self._reader.list(*self._area)
        kept = tuple(map(self._reduce, listing.manifests))
        listing = Listing(listing.kind, listing.namespace, listing.version, kept)
        self.is_complete, self.error = True, None
        self._tell(self._take(listing, newest), self._followers)
        for follower in tuple(self._followers):
            follower.listed(self._area)
        async with aclosing(_watch_changes(self._reader, listing)) as changes:
            async for change in changes:
                self._newest = max(self._newest, change.version)
                if change.manifest is not None:
                    listed = ObjectChange(
                        change.version, self._reduce(change.manifest), gone=change.gone
                    )
                    self._tell(self.cache.apply(listed), self._followers)

    def _take(self, listing: Listing, newest: int) -> tuple[ObjectDifference, ...]:
        """Take a list; `newest` is the newest version that was known when it was asked for."""
        has_gone_back = listing.version < newest
        if not has_gone_back and not self.cache.contradicts(listing):
            self._newest = max(self._newest, listing.version)
            return self.cache.replace(listing)
        logger.warning(
            "%s: the API server %s from version %d to %d, as after a restore of etcd from an older"
            " copy: its objects replace what was known",
            *(self._area[0], "went back" if has_gone_back else "has another history"),
            *(newest, listing.version),
        )
        self._newest = listing.version
        return self.cache.restore(listing)

    def _reduce(self, manifest: Manifest) -> Manifest:
        """Return what is kept of an object: who manages the fields of ours is not read."""
        return without_managers(manifest) if self.cache.kind.group == GROUP else manifest

    @staticmethod
    def _tell(differences: Iterable[ObjectDifference], followers: Iterable[Follower]) -> None:
        all_followers = tuple(followers)
        for difference in differences:
            for follower in all_followers:
                follower.changed(difference)

    def _note_loss(self, error: InfernoError) -> None:
        if str(self.error) != str(error):  # a kind that is not installed is logged once
            lasts = isinstance(error, RejectedError)  # such as rights that are missing
            logger.log(logging.WARNING if lasts else logging.INFO, "%s; listing again", error)
        self.is_complete, self.error = False, error
        for follower in tuple(self._followers):
            follower.lost(self._area, error)


async def _watch_changes(reader: Reader, listing: Listing) -> AsyncGenerator[ObjectChange, None]:
    """Yield all changes after a list, from one watch after the other, until a watch fails."""
    version = listing.version
    while True:
        async with aclosing(reader.watch(listing.kind, listing.namespace, version)) as changes:
            async for change in changes:
                version = max(version, change.version)
                yield change
        await asyncio.sleep(PAUSE)


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
                self._joined[area].add_follower(self)
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            for task in tasks:
                if task.done():
                    task.result()
        finally:
            for informer in self._joined.values():
                informer.remove_follower(self)
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
        informer = self._find_informer(place)
        return informer.cache.get(place.key) if informer else None

    def observation(self, place: Place) -> Observation | None:
        """Return an object of our kinds as it was read, or None if it does not exist."""
        informer = self._find_informer(place)
        return informer.cache.observation(place.key) if informer else None

    def places(self, kind: Kind, namespace: str = "") -> Iterator[Place]:
        """Return the objects of a kind in a namespace, or in all namespaces ("")."""
        for cache in self._list_caches(kind, namespace):
            yield from (Place(kind, key) for key in cache.keys(namespace))

    def manifests(self, kind: Kind, namespace: str = "") -> Iterator[Manifest]:
        """Return the objects of a kind in a namespace, or in all namespaces ("")."""
        for cache in self._list_caches(kind, namespace):
            yield from cache.manifests(namespace)

    def observations(self, kind: Kind, namespace: str = "") -> Iterator[Observation]:
        """Return the objects of one of our kinds, including those that are being deleted."""
        for cache in self._list_caches(kind, namespace):
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
        informer = self._find_informer(Place.of(kind, manifest))
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

    def _list_caches(self, kind: Kind, namespace: str) -> Iterator[Cache]:
        """Return the caches that have objects of a kind in a namespace, or in any ("")."""
        for (followed, area), informer in self._joined.items():
            if followed == kind and (not area or not namespace or area == namespace):
                yield informer.cache

    def _find_informer(self, place: Place) -> Informer | None:
        kind, namespace = place.kind, place.key.namespace
        return self._joined.get((kind, "")) or self._joined.get((kind, namespace))
