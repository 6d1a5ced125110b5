"""Watch Servers and, if any Server refers to them, ModelBoosters and their children."""

import asyncio
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from itertools import count

from inferno_operator.controllers.actuation.index import Index
from inferno_operator.controllers.actuation.recommendation import RecommendationWatch
from inferno_operator.controllers.actuation.reconcile import Context, reconcile
from inferno_operator.controllers.actuation.release import SERVER, reference_of
from inferno_operator.controllers.actuation.status import ACTUATED, RELEASED
from inferno_operator.controllers.actuation.targets import scaled_places
from inferno_operator.resources import Server
from inferno_operator.resources.dialects import DIALECTS
from inferno_operator.resources.objects import Key, Kind, Manifest, Now, Place
from inferno_operator.resources.observation import observe
from inferno_operator.runtime.informer import Informer
from inferno_operator.runtime.ports import Change, Cluster, Listing
from inferno_operator.runtime.work_queue import WorkQueue
from inferno_optimizer.errors import InfernoError


class ActuationController:
    """Reconciles Servers that refer to a ModelBooster, whenever one of the two changes.

    Parameters
    ----------
    cluster
        The API server.
    namespaces
        The namespaces to watch; if empty, all.
    now
        The time of day.
    """

    def __init__(self, cluster: Cluster, namespaces: Sequence[str], now: Now) -> None:
        self._cluster = cluster
        self._namespaces = namespaces
        self._index = Index()
        self._rounds = count()
        self._watched: dict[str, asyncio.Task[None]] = {}
        """Running informers of ModelBoosters and their children, by name of the dialect."""
        self._swept: set[str] = set()
        """Namespaces, or all of them (""), in which fields without a Server were released."""
        context = Context(cluster, now, self._index)
        self.queue: WorkQueue[Key] = WorkQueue(partial(reconcile, context=context))

    async def run(self) -> None:
        """Watch objects until cancelled."""
        modes = RecommendationWatch(self._cluster, self._namespaces, self._mode_changed)
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(Informer(self._cluster, [SERVER], self._namespaces, self).run())
                group.create_task(modes.run())
        finally:
            await self.stop()

    async def stop(self) -> None:
        """Stop reconciling and watching."""
        await self.queue.close()
        for task in self._watched.values():
            task.cancel()
        await asyncio.gather(*self._watched.values(), return_exceptions=True)

    def listed(self, listing: Listing) -> None:
        """Take a list of all Servers; the first one starts a sweep.

        The sweep releases what Servers owned that were deleted while no operator ran.
        """
        if listing.namespace not in self._swept:
            self._swept.add(listing.namespace)
            self._ask([Key(listing.namespace, "")])
        manifests = {Key.of(manifest): manifest for manifest in listing.manifests}
        for key in self._index.keys(listing.namespace) - manifests.keys():
            self._server_changed(key, None)
        for key, manifest in manifests.items():
            self._server_changed(key, manifest)

    def changed(self, kind: Kind, change: Change) -> None:
        """Take the creation, change or deletion of a Server."""
        del kind
        if change.manifest is not None:
            manifest = None if change.gone else change.manifest
            self._server_changed(Key.of(change.manifest), manifest)

    def lost(self, kind: Kind, namespace: str, error: InfernoError) -> None:
        """Do nothing: the index stays valid until the next list."""

    def _server_changed(self, key: Key, manifest: Manifest | None) -> None:
        before = self._index.reference(key)
        if manifest is None or not _matters(manifest):
            if before is None:
                return
            concerned = self._index.remove(key)
        else:
            concerned = self._indexed(key, manifest) | {key}
        self._ask(concerned)
        if before is not None and self._index.reference(key) != before:
            self._ask([Key(key.namespace, "")])
        self._watch_dialects()

    def _indexed(self, key: Key, manifest: Manifest) -> frozenset[Key]:
        """Index a Server and return the other Servers to reconcile.

        A Server that cannot be read keeps its entry.
        """
        observation = observe(Server, manifest)
        reference, resource = reference_of(observation), observation.resource
        if resource is None:
            return frozenset()
        if reference is None:
            return self._index.remove(key)
        return self._index.put(key, resource.age, reference)

    def _mode_changed(self, namespace: str) -> None:
        self._ask(self._index.keys(namespace))

    def _ask(self, keys: Iterable[Key]) -> None:
        for key in keys:
            self.queue.add(key, next(self._rounds))

    def _watch_dialects(self) -> None:
        """Watch the kinds of the dialects that Servers refer to, and no others."""
        wanted = self._index.dialects()
        for name in wanted - self._watched.keys():
            dialect = DIALECTS[name]
            kinds = (dialect.booster, dialect.serving, *dialect.scalers)
            handler = _References(self._index, name, self._ask)
            informer = Informer(self._cluster, kinds, self._namespaces, handler)
            self._watched[name] = asyncio.create_task(informer.run())
        for name in self._watched.keys() - wanted:
            self._watched.pop(name).cancel()


class _References:
    """Requests reconciles of the Servers that refer to an object of a dialect."""

    def __init__(self, index: Index, dialect: str, ask: Callable[[Iterable[Key]], None]) -> None:
        self._index = index
        self._dialect = dialect
        self._ask = ask
        self._scalers: dict[Place, tuple[int, frozenset[Place]]] = {}
        """Generation and scaled servings of the bindings and policies that changed."""

    def listed(self, listing: Listing) -> None:
        """Take a list of a kind: any of its objects may have changed."""
        del listing
        self._ask(self._index.of_dialects([self._dialect]))

    def changed(self, kind: Kind, change: Change) -> None:
        """Take the creation, change or deletion of an object."""
        if change.manifest is None:
            return
        place = Place(kind, Key.of(change.manifest))
        is_scaler = kind in DIALECTS[self._dialect].scalers
        for concerned in self._scaled(place, change) if is_scaler else (place,):
            self._ask(self._index.servers(concerned))

    def _scaled(self, place: Place, change: Change) -> frozenset[Place]:
        """Return the servings that a scaler scales, or did; none if only its status changed."""
        manifest = change.manifest or {}
        generation = manifest["metadata"]["generation"]
        places = scaled_places(place.kind, manifest)
        known, before = self._scalers.get(place, (0, frozenset[Place]()))
        if change.gone:
            self._scalers.pop(place, None)
        elif known == generation:
            return frozenset()
        else:
            self._scalers[place] = generation, places
        return places | before

    def lost(self, kind: Kind, namespace: str, error: InfernoError) -> None:
        """Do nothing: a reconcile reads the objects itself."""


def _matters(manifest: Manifest) -> bool:
    """Whether a Server refers to a ModelBooster, or its status still has that of one."""
    if manifest.get("spec", {}).get("modelBooster"):
        return True
    if manifest.get("spec", {}).get("workloads"):
        return False
    conditions = manifest.get("status", {}).get("conditions", ())
    return any(c["type"] == ACTUATED and c["reason"] != RELEASED for c in conditions)
