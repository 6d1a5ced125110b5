"""The objects of a namespace as they are now, and news of them for open pages.

One list and one watch of each kind serve all pages. If each page listed them anew, a page would
cost as much as the namespace is large, here and at the API server.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from secrets import randbits
from weakref import WeakValueDictionary

from inferno_operator.adapters.kubernetes.kubectl import Session
from inferno_operator.resources import SYSTEM_RESOURCES, Plan, Resource
from inferno_operator.resources.objects import Manifest, kind_of
from inferno_operator.resources.observation import Observation, observe
from inferno_operator.runtime.cache import Decode, ObjectDifference
from inferno_operator.runtime.informers import RELIST, Informers
from inferno_optimizer.errors import UnavailableError

KINDS: Sequence[type[Resource]] = (*SYSTEM_RESOURCES, Plan)

LISTED_S = 60.0  # how long a page waits for the lists [s]

# How long a page waits for lists that failed, such as while an API server starts [s].
RECOVERED_S = 2 * RELIST.limit

TOGETHER_S = 0.5  # changes within this time are one piece of news [s]

# After news there are none for so many times what pages cost: they take a twelfth of a core.
REST = 12.0

# Between these times after news there are some again, whatever pages cost [s].
SOONEST_S, LATEST_S = 0.5, 60.0

ALIVE_S = 15.0  # how often a connection says that it lives [s]
MOST_PAGES = 50  # pages that are told at once, at most


class DecodedObjects:
    """The objects that somebody has read, as long as somebody keeps them.

    Nobody gets an object that the API server did not return to a read with that person's own token:
    what is shared is the form in memory of what two of them read. The API server gives each object
    a uid, and each version of it a number (kubernetes.io/docs/reference/using-api/api-concepts).
    """

    def __init__(self) -> None:
        self._known: WeakValueDictionary[tuple[str, str], Observation] = WeakValueDictionary()

    def __len__(self) -> int:
        """Return how many there are."""
        return len(self._known)

    def decode(self, kind: type[Resource], manifest: Manifest) -> Observation:
        """Return an object that was read, decoded; the same for each who read this version."""
        metadata = manifest["metadata"]
        version = metadata["uid"], metadata["resourceVersion"]
        found = self._known.get(version)
        if found is None:
            found = self._known[version] = observe(kind, manifest)
        return found


class WatchedNamespace:
    """Follows the objects of a namespace.

    `session`: the namespace, and the rights of a person; `changed`: called at each change;
    `decode`: decodes what was read.
    """

    def __init__(
        self, session: Session, changed: Callable[[ObjectDifference], None], decode: Decode
    ) -> None:
        self._session = session
        informers = Informers(session.reader, (session.namespace,), decode)
        self._objects = informers.subscribe(map(kind_of, KINDS), changed)

    async def run(self) -> None:
        """Follow the objects until cancelled."""
        await self._objects.run()

    async def objects(self) -> Sequence[Observation]:
        """Return the objects that are not being deleted.

        The API server is asked first whether the person may still list them.

        Raises InfernoError if the person may not, or the objects are not known.
        """
        await self._session.check_rights(KINDS)
        trouble = self._objects.trouble
        if trouble and not isinstance(trouble, UnavailableError):
            raise trouble
        await self._objects.complete(RECOVERED_S if trouble else LISTED_S)
        seen = (o for kind in KINDS for o in self._objects.observations(kind_of(kind)))
        return [observation for observation in seen if observation.deleted is None]


class News:
    """What changed in a namespace since a page asked last.

    All open pages are told at once: so they ask for the same page, which is made once.

    `session`: the namespace, and the rights of a person; `busy`: seconds that this process has
    spent on processors; `decode`: decodes the objects that are read.
    """

    def __init__(
        self, session: Session, busy: Callable[[], float], decode: Decode = observe
    ) -> None:
        self._busy = busy
        self.watched = WatchedNamespace(session, self._changed, decode)
        self._pages: set[asyncio.Event] = set()
        self._change = asyncio.Event()
        self._over = asyncio.Event()
        self.version = randbits(32)
        """Grows with each change: a page that was made at another version, or by others, is old."""

    @asynccontextmanager
    async def follow(self) -> AsyncIterator[None]:
        """Watch as long as this is open; then what pages are told ends, too."""
        tasks = [asyncio.create_task(work) for work in (self.watched.run(), self._tell_pages())]
        try:
            yield
        finally:
            self._over.set()
            self._tell()
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    @property
    def is_full(self) -> bool:
        """Whether no more pages can be told."""
        return len(self._pages) >= MOST_PAGES

    def _changed(self, _: ObjectDifference) -> None:
        self.version += 1
        self._change.set()

    async def _tell_pages(self) -> None:
        """Tell the pages of changes, those within a short time together, and rest afterwards."""
        while True:
            await self._change.wait()
            await asyncio.sleep(TOGETHER_S)
            self._change.clear()
            self._tell()
            await self._rest()

    async def _rest(self) -> None:
        """Wait until what pages cost since the news is little of the time since then."""
        begun_s, spent_s = asyncio.get_running_loop().time(), self._busy()
        wait_s = SOONEST_S
        while wait_s > 0:
            await asyncio.sleep(max(wait_s, SOONEST_S))
            passed_s = asyncio.get_running_loop().time() - begun_s
            wait_s = min(REST * (self._busy() - spent_s), LATEST_S) - passed_s

    def _tell(self) -> None:
        for page in self._pages:
            page.set()

    async def events(self) -> AsyncIterator[str]:
        """Yield server-sent events: the version, at first and when it changes, or a comment."""
        changed = asyncio.Event()
        self._pages.add(changed)
        try:
            yield f"data: {self.version}\n\n"
            while not self._over.is_set():
                try:
                    async with asyncio.timeout(ALIVE_S):
                        await changed.wait()
                except TimeoutError:
                    yield ": alive\n\n"
                    continue
                changed.clear()
                if not self._over.is_set():
                    yield f"data: {self.version}\n\n"
        finally:
            self._pages.discard(changed)
