"""List and watch the objects of one kind, and keep the newest version of each in a cache."""

import asyncio
import logging
from collections.abc import AsyncGenerator, Iterable
from contextlib import aclosing
from typing import Protocol

from inferno_operator.resources import GROUP
from inferno_operator.resources.objects import Kind, Manifest, Place, without_managers
from inferno_operator.runtime.cache import Cache, Decode, ObjectDifference, version_of
from inferno_operator.runtime.ports import Listing, ObjectChange, Reader, RejectedError
from inferno_operator.runtime.work_queue import Backoff
from inferno_optimizer.errors import InfernoError

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

    def join(self, follower: Follower) -> None:
        """Tell a follower what is known, and from now on what changes."""
        self._followers.append(follower)
        for key in tuple(self.cache.keys()):
            place = Place(self.cache.kind, key)
            follower.changed(ObjectDifference(place, None, self.cache.get(key)))
        if self.is_complete:
            follower.listed(self._area)
        elif self.error is not None:
            follower.lost(self._area, self.error)

    def leave(self, follower: Follower) -> None:
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
                self._lost(error)
            failures = 1 if now() - began > RELIST.limit else failures + 1
            await asyncio.sleep(RELIST.seconds(failures))

    def written(
        self, manifest: Manifest, writer: Follower | None = None
    ) -> tuple[ObjectDifference, ...]:
        """Take an object as a write returned it, and tell all but the writer."""
        self._newest = max(self._newest, version_of(manifest))
        differences = self.cache.written(self._kept(manifest))
        self._tell(differences, [each for each in self._followers if each is not writer])
        return differences

    async def _list_and_watch(self) -> None:
        newest = self._newest
        listing = await self._reader.list(*self._area)
        kept = tuple(map(self._kept, listing.manifests))
        listing = Listing(listing.kind, listing.namespace, listing.version, kept)
        self.is_complete, self.error = True, None
        self._tell(self._take(listing, newest), self._followers)
        for follower in tuple(self._followers):
            follower.listed(self._area)
        async with aclosing(_changes_since(self._reader, listing)) as changes:
            async for change in changes:
                self._newest = max(self._newest, change.version)
                if change.manifest is not None:
                    listed = ObjectChange(
                        change.version, self._kept(change.manifest), gone=change.gone
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

    def _kept(self, manifest: Manifest) -> Manifest:
        """Return what is kept of an object: who manages the fields of ours is not read."""
        return without_managers(manifest) if self.cache.kind.group == GROUP else manifest

    @staticmethod
    def _tell(differences: Iterable[ObjectDifference], followers: Iterable[Follower]) -> None:
        all_followers = tuple(followers)
        for difference in differences:
            for follower in all_followers:
                follower.changed(difference)

    def _lost(self, error: InfernoError) -> None:
        if str(self.error) != str(error):  # a kind that is not installed is logged once
            lasts = isinstance(error, RejectedError)  # such as rights that are missing
            logger.log(logging.WARNING if lasts else logging.INFO, "%s; listing again", error)
        self.is_complete, self.error = False, error
        for follower in tuple(self._followers):
            follower.lost(self._area, error)


async def _changes_since(reader: Reader, listing: Listing) -> AsyncGenerator[ObjectChange, None]:
    """Yield all changes after a list, from one watch after the other, until a watch fails."""
    version = listing.version
    while True:
        async with aclosing(reader.watch(listing.kind, listing.namespace, version)) as changes:
            async for change in changes:
                version = max(version, change.version)
                yield change
        await asyncio.sleep(PAUSE)
