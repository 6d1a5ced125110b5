"""Follows Servers and, while one refers to them, ModelBoosters and what is made of them."""

import asyncio
import logging
from collections.abc import Callable, Sequence
from contextlib import aclosing
from functools import partial
from itertools import count

from inferno_operator.controllers.actuation.index import Index
from inferno_operator.controllers.actuation.plan import ACTUATED
from inferno_operator.controllers.actuation.ports import SERVER, Objects, Place
from inferno_operator.controllers.actuation.reconcile import Context, reconcile, reference_of
from inferno_operator.controllers.boosters.controller import LOOKING
from inferno_operator.resources import Server
from inferno_operator.resources.dialects import DIALECTS
from inferno_operator.resources.objects import Key, Kind, Manifest, Now
from inferno_operator.resources.observation import observe
from inferno_operator.runtime.ports import Cluster
from inferno_operator.runtime.watches import changes_since
from inferno_operator.runtime.work_queue import WorkQueue
from inferno_optimizer.errors import InfernoError

Seen = Callable[[Kind, Key, Manifest | None], None]
"""Is told of an object of a kind; without a manifest it is gone."""

logger = logging.getLogger(__name__)


class Follower:
    """Tells of every object of a kind: those that are there, and what happens to them.

    Parameters
    ----------
    objects, kind, namespace
        What it follows, and where ("": everywhere).
    seen
        Is told of objects.
    listed
        Is told when it begins to follow, also anew.
    """

    def __init__(
        self, objects: Objects, kind: Kind, namespace: str, seen: Seen, listed: Callable[[], None]
    ) -> None:
        self._objects = objects
        self._kind = kind
        self._namespace = namespace
        self._seen = seen
        self._listed = listed
        self._known: set[Key] = set()

    async def run(self) -> None:
        """Follow, until cancelled."""
        failures = 0
        while True:
            try:
                version = await self._list()
                failures = 0
                await self._keep_up(version)
            except InfernoError as error:
                logger.debug("%s; listing anew", error)
            failures += 1
            await asyncio.sleep(LOOKING.seconds(failures))

    async def _list(self) -> int:
        listed = await self._objects.listed(self._kind, self._namespace)
        manifests = {Key.of(manifest): manifest for manifest in listed.manifests}
        for key in self._known - manifests.keys():
            self._tell(key, None)
        for key, manifest in manifests.items():
            self._tell(key, manifest)
        self._listed()
        return listed.version

    async def _keep_up(self, version: int) -> None:
        watch = partial(self._objects.changes, self._kind, self._namespace)
        async with aclosing(changes_since(version, watch)) as changes:
            async for change in changes:
                if change.manifest is not None:
                    key = Key.of(change.manifest)
                    self._tell(key, None if change.gone else change.manifest)

    def _tell(self, key: Key, manifest: Manifest | None) -> None:
        if manifest is None:
            self._known.discard(key)
        else:
            self._known.add(key)
        self._seen(self._kind, key, manifest)


class Actuation:
    """Reconciles every Server that refers to a ModelBooster, whenever one of both changes.

    Parameters
    ----------
    cluster, objects
        What is worked on.
    namespaces
        Where; none: everywhere.
    now
        The time of day.
    """

    def __init__(
        self, cluster: Cluster, objects: Objects, namespaces: Sequence[str], now: Now
    ) -> None:
        self._objects = objects
        self._namespaces = namespaces or ("",)
        self._index = Index()
        self._rounds = count()
        self._followed: dict[str, asyncio.Task[None]] = {}
        context = Context(cluster, objects, now, self._index)
        self._queue: WorkQueue[Key] = WorkQueue(partial(reconcile, context=context))

    async def run(self) -> None:
        """Work until cancelled."""
        try:
            await self._follow(SERVER, seen=self._server_seen, listed=self._adjust)
        finally:
            await self.end()

    async def end(self) -> None:
        """End all work; nothing is written any more."""
        await self._queue.close()
        for task in self._followed.values():
            task.cancel()
        await asyncio.gather(*self._followed.values(), return_exceptions=True)

    async def _follow(self, *kinds: Kind, seen: Seen, listed: Callable[[], None]) -> None:
        async with asyncio.TaskGroup() as group:
            for kind in kinds:
                for namespace in self._namespaces:
                    follower = Follower(self._objects, kind, namespace, seen, listed)
                    group.create_task(follower.run())

    def _server_seen(self, kind: Kind, key: Key, manifest: Manifest | None) -> None:
        del kind
        before = self._index.reference(key)
        if manifest is None or not _matters(manifest):
            concerned = self._index.remove(key)
            if before is None:
                return
        else:
            concerned = self._indexed(key, manifest)
            self._ask(key)
        for other in concerned:
            self._ask(other)
        if before is not None and self._index.reference(key) != before:
            self._ask(Key(key.namespace, ""))
        self._adjust()

    def _indexed(self, key: Key, manifest: Manifest) -> frozenset[Key]:
        """Take a Server into the index; one that nobody can read stays as it was."""
        observation = observe(Server, manifest)
        reference, resource = reference_of(observation), observation.resource
        if resource is None:
            return frozenset()
        if reference is None:
            return self._index.remove(key)
        return self._index.put(key, resource.age, reference)

    def _booster_seen(self, kind: Kind, key: Key, manifest: Manifest | None) -> None:
        del manifest
        for server in self._index.servers(Place(kind, key)):
            self._ask(server)

    def _ask(self, key: Key) -> None:
        self._queue.add(key, next(self._rounds))

    def _adjust(self) -> None:
        """Follow the dialects that are referred to, and no others."""
        wanted = self._index.dialects()
        for name in wanted - self._followed.keys():
            dialect = DIALECTS[name]
            following = self._follow(
                *(dialect.booster, dialect.serving, dialect.binding),
                seen=self._booster_seen,
                listed=partial(self._appeared, name),
            )
            self._followed[name] = asyncio.create_task(following)
        for name in self._followed.keys() - wanted:
            self._followed.pop(name).cancel()

    def _appeared(self, dialect: str) -> None:
        """A kind is served, perhaps again."""
        for key in self._index.of_dialects([dialect]):
            self._ask(key)


def _matters(manifest: Manifest) -> bool:
    """Whether a Server refers to a ModelBooster, or is still said to be actuated."""
    if manifest.get("spec", {}).get("modelBooster"):
        return True
    conditions = manifest.get("status", {}).get("conditions", ())
    return any(c["type"] == ACTUATED and c["reason"] != "Released" for c in conditions)
