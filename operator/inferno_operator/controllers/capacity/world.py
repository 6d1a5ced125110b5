"""The newest nodes, pods with cards, Servers and Capacities, from watches."""

import asyncio
from collections.abc import Callable, Mapping, Sequence

from inferno_operator.controllers.capacity.machines import (
    Machine,
    Pod,
    machine_of,
    pod_of,
    trimmed_node,
    trimmed_pod,
)
from inferno_operator.resources import Server
from inferno_operator.resources.objects import NODE, POD, Key, Kind, Manifest, Place, kind_of
from inferno_operator.resources.observation import observe
from inferno_operator.resources.pods import PodIndex
from inferno_operator.runtime.cache import Cache, Difference
from inferno_operator.runtime.informer import Informer
from inferno_operator.runtime.ports import Change, Listing, Reader
from inferno_optimizer.errors import InfernoError

SERVER = kind_of(Server)

TRIMMED: Mapping[Kind, Callable[[Manifest], Manifest]] = {NODE: trimmed_node, POD: trimmed_pod}


class World:
    """Objects in memory; nodes, pods and Servers are watched from the first count on.

    Parameters
    ----------
    reader
        The API server.
    namespaces
        The namespaces of the Servers; if empty, all. Nodes and pods are those of the cluster.
    changed
        Called when something changed that matters to a count.
    """

    def __init__(
        self, reader: Reader, namespaces: Sequence[str], changed: Callable[[], None]
    ) -> None:
        self._changed = changed
        self._cache = Cache()
        self._servers: dict[Key, Server] = {}
        self._informers = (
            Informer(reader, [NODE, POD], (), self),
            Informer(reader, [SERVER], namespaces, self),
        )
        self._tasks: list[asyncio.Task[None]] = []

    def watch(self) -> None:
        """Begin to watch, if that has not begun."""
        if not self._tasks:
            self._tasks = [asyncio.create_task(each.run()) for each in self._informers]

    async def stop(self) -> None:
        """Stop watching."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    @property
    def is_complete(self) -> bool:
        """Whether all objects are known."""
        return not any(informer.missing for informer in self._informers)

    @property
    def trouble(self) -> InfernoError | None:
        """Why objects are not known; None if they are, or the answer is awaited."""
        found = (error for informer in self._informers for error in informer.missing.values())
        return next(filter(None, found), None)

    @property
    def machines(self) -> list[Machine]:
        """All nodes."""
        return [machine_of(manifest) for manifest in self._all(NODE)]

    @property
    def pods(self) -> list[Pod]:
        """All pods that request cards and are not finished."""
        return [pod for pod in map(pod_of, self._all(POD)) if pod is not None]

    @property
    def pods_by_namespace(self) -> dict[str, PodIndex]:
        """The pods that request cards, by their labels."""
        found: dict[str, list[Manifest]] = {}
        for manifest in self._all(POD):
            if "spec" in manifest:
                found.setdefault(manifest["metadata"]["namespace"], []).append(manifest)
        return {namespace: PodIndex(pods) for namespace, pods in found.items()}

    @property
    def servers(self) -> list[tuple[Key, Server]]:
        """All Servers, the oldest first."""
        return sorted(self._servers.items(), key=lambda item: (item[1].age, item[0]))

    def listed(self, listing: Listing) -> None:
        """Take a list of all objects of a kind."""
        trim = TRIMMED.get(listing.kind, dict)
        trimmed = tuple(map(trim, listing.manifests))
        listing = Listing(listing.kind, listing.namespace, listing.version, trimmed)
        for difference in self._cache.replace(listing):
            self._note(difference)
        self._changed()

    def changed(self, kind: Kind, change: Change) -> None:
        """Take the creation, change or deletion of an object."""
        if change.manifest is not None:
            manifest = TRIMMED.get(kind, dict)(change.manifest)
            change = Change(change.version, manifest, gone=change.gone)
        for difference in self._cache.apply(kind, change):
            if self._note(difference):
                self._changed()

    def lost(self, kind: Kind, namespace: str, error: InfernoError) -> None:
        """Report the trouble on the Capacities."""
        del kind, namespace, error
        self._changed()

    def _all(self, kind: Kind) -> list[Manifest]:
        found = (self._cache.get(Place(kind, key)) for key in self._cache.keys(kind))
        return [manifest for manifest in found if manifest is not None]

    def _note(self, difference: Difference) -> bool:
        """Remember a change; returns whether it matters to a count."""
        if difference.place.kind in TRIMMED:
            return _content(difference.before) != _content(difference.after)
        if difference.place.kind != SERVER:
            return _spec(difference.before) != _spec(difference.after)
        before = self._servers.pop(difference.place.key, None)
        if difference.after is not None:
            server = observe(Server, difference.after).resource
            if isinstance(server, Server):
                self._servers[difference.place.key] = server
        after = self._servers.get(difference.place.key)
        return _pods_of(before) != _pods_of(after)


def _content(manifest: Manifest | None) -> object:
    """Return what matters of a trimmed node or pod; a pod without cards does not."""
    if manifest is None or "spec" not in manifest:
        return None
    return manifest["metadata"].get("labels"), manifest["spec"], manifest.get("status")


def _spec(manifest: Manifest | None) -> object:
    """Return the spec of a Capacity."""
    return manifest and manifest.get("spec")


def _pods_of(server: Server | None) -> object:
    """Return what determines the pods of a Server."""
    return server and (server.spec.name, server.spec.workloads, server.spec.model_booster)
