"""The newest Servers, workloads and pods, from watches and the operator's own writes."""

import asyncio
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from operator import attrgetter

from inferno_operator.controllers.actuation.release import SERVER
from inferno_operator.controllers.actuation.workloads.pods import trimmed
from inferno_operator.resources import Server
from inferno_operator.resources.objects import POD, Key, Kind, Manifest, Place
from inferno_operator.resources.observation import Observation, observe
from inferno_operator.resources.pods import PodIndex
from inferno_operator.runtime.cache import Cache, Difference, version_of
from inferno_operator.runtime.informer import Informer
from inferno_operator.runtime.ports import Change, Cluster, GoneError, Listing, Scale
from inferno_optimizer.errors import InfernoError

CONCURRENT_READS = 16


class World:
    """Objects in memory; kinds are watched as soon as somebody asks for them.

    Parameters
    ----------
    cluster
        The API server.
    namespaces
        The namespaces to watch; if empty, all.
    changed
        Called with each namespace in which something changed, if its Servers name workloads.
    """

    def __init__(
        self, cluster: Cluster, namespaces: Sequence[str], changed: Callable[[str], None]
    ) -> None:
        self._cluster = cluster
        self._namespaces = namespaces
        self._report = changed
        self._cache = Cache()
        self._naming: defaultdict[str, set[Key]] = defaultdict(set)
        """Servers that name workloads, by namespace."""
        self._observations: dict[Place, Observation] = {}
        self._scales: dict[Place, Scale] = {}
        self._written: set[Place] = set()
        """Places whose scale subresource is known from a write of this operator."""
        self._informers: dict[Kind, tuple[Informer, asyncio.Task[None]]] = {}

    def watch(self, kinds: Iterable[Kind]) -> None:
        """Watch more kinds."""
        for kind in kinds:
            if kind not in self._informers:
                informer = Informer(self._cluster, [kind], self._namespaces, self)
                self._informers[kind] = informer, asyncio.create_task(informer.run())

    async def stop(self) -> None:
        """Stop watching."""
        tasks = [task for _, task in self._informers.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def is_complete(self, kind: Kind) -> bool:
        """Whether all objects of a kind are known."""
        return kind in self._informers and not self._informers[kind][0].missing

    def trouble(self, kind: Kind) -> InfernoError | None:
        """Return why the objects of a kind are not known; None if the answer is awaited."""
        if kind not in self._informers:
            return None
        return next(filter(None, self._informers[kind][0].missing.values()), None)

    def get(self, place: Place) -> Manifest | None:
        """Return an object, or None if it does not exist."""
        return self._cache.get(place)

    def servers(self, namespace: str) -> list[Observation]:
        """Return the Servers of a namespace that are not being deleted."""
        observations = map(self._observe, self._places(SERVER, namespace))
        return [observation for observation in observations if observation.deleted is None]

    def pods(self, namespace: str) -> PodIndex:
        """Return the pods of a namespace."""
        found = map(self._cache.get, self._places(POD, namespace))
        return PodIndex(pod for pod in found if pod is not None)

    def names_workloads(self, namespace: str) -> bool:
        """Whether a Server of a namespace names workloads."""
        return bool(self._naming.get(namespace))

    async def read_scales(self, places: Iterable[Place]) -> None:
        """Read the scale subresources of the objects that changed, several at once."""
        limit = asyncio.Semaphore(CONCURRENT_READS)

        async def read(place: Place) -> None:
            async with limit:
                self.forget(place)
                with suppress(GoneError):
                    self._scales[place] = await self._cluster.scale(place.kind, place.key)

        await asyncio.gather(*map(read, filter(self._is_outdated, places)))

    def scale(self, place: Place) -> Scale | None:
        """Return the scale subresource as it was read or written; None if there is none."""
        return self._scales.get(place)

    def _is_outdated(self, place: Place) -> bool:
        """Whether an object is newer than its scale subresource."""
        manifest, known = self._cache.get(place), self._scales.get(place)
        if manifest is None or known is None:
            return manifest is not None
        return version_of(manifest) > int(known.reference.version)

    def is_behind(self, place: Place) -> bool:
        """Whether the watch has not shown yet who has written what the scale subresource says."""
        manifest, known = self._cache.get(place), self._scales.get(place)
        if manifest is None or known is None or place in self._written:
            return False
        return version_of(manifest) < int(known.reference.version)

    def scaled(self, scale: Scale) -> None:
        """Take the scale subresource as the API server returned it to a write."""
        self._scales[scale.reference.place] = scale
        self._written.add(scale.reference.place)

    def written(self, kind: Kind, manifest: Manifest) -> None:
        """Take an object as the API server returned it to a write."""
        self._note(self._cache.written(kind, manifest))

    def forget(self, place: Place) -> None:
        """Read a scale subresource again before it is used."""
        self._scales.pop(place, None)
        self._written.discard(place)

    def listed(self, listing: Listing) -> None:
        """Take a list of all objects of a kind."""
        if listing.kind == POD:
            pods = tuple(map(trimmed, listing.manifests))
            listing = Listing(POD, listing.namespace, listing.version, pods)
        self._note(self._cache.replace(listing))
        self._changed(listing.namespace)

    def changed(self, kind: Kind, change: Change) -> None:
        """Take the creation, change or deletion of an object."""
        if kind == POD and change.manifest is not None:
            change = Change(change.version, trimmed(change.manifest), gone=change.gone)
        for difference in self._note(self._cache.apply(kind, change)):
            self._changed(difference.place.key.namespace)

    def lost(self, kind: Kind, namespace: str, error: InfernoError) -> None:
        """Report the trouble on the Servers."""
        del kind, error
        self._changed(namespace)

    def _changed(self, namespace: str) -> None:
        """Report a change in a namespace, or in all (""): it concerns Servers with workloads."""
        for name in [namespace] if namespace else list(self._naming):
            if self.names_workloads(name):
                self._report(name)

    def _note(self, differences: tuple[Difference, ...]) -> tuple[Difference, ...]:
        for difference in differences:
            self._observations.pop(difference.place, None)
            if difference.place.kind == SERVER:
                self._index(difference)
            if difference.after is None:
                self.forget(difference.place)
        return differences

    def _places(self, kind: Kind, namespace: str) -> list[Place]:
        """Return the objects of a kind in a namespace, in order."""
        keys = self._cache.keys(kind, namespace)
        return [Place(kind, key) for key in sorted(keys, key=attrgetter("name"))]

    def _index(self, difference: Difference) -> None:
        """Note whether a Server names workloads."""
        key, spec = difference.place.key, (difference.after or {}).get("spec", {})
        if spec.get("workloads"):
            self._naming[key.namespace].add(key)
        else:
            self._naming[key.namespace].discard(key)

    def _observe(self, place: Place) -> Observation:
        if place not in self._observations:
            self._observations[place] = observe(Server, self._cache.get(place) or {})
        return self._observations[place]
