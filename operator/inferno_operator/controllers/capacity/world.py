"""The newest nodes, pods with cards, Servers and Capacities, from watches."""

import asyncio
from collections import defaultdict
from collections.abc import Callable, Collection, Sequence
from typing import TypeVar

from inferno_operator.controllers.capacity.machines import Machine, Pod, machine_of, pod_of
from inferno_operator.resources import Capacity, Server
from inferno_operator.resources.objects import NODE, POD, Key, Manifest, Place, kind_of
from inferno_operator.resources.pods import PodIndex
from inferno_operator.runtime.cache import ObjectDifference
from inferno_operator.runtime.informers import Informers
from inferno_optimizer.errors import InfernoError

CAPACITY, SERVER = kind_of(Capacity), kind_of(Server)

T = TypeVar("T", Machine, Pod)


class CapacityObjects:
    """Objects in memory; nodes, pods and Servers are watched from the first count on.

    Parameters
    ----------
    informers
        What watches. Nodes and pods are those of the cluster.
    changed
        Called when something changed that matters to a count.
    """

    def __init__(self, informers: Informers, changed: Callable[[], None]) -> None:
        self._changed = changed
        self._machines: dict[Key, Machine] = {}
        self._pods: dict[Key, Pod] = {}
        self._capacities = informers.subscribe(
            [CAPACITY], self._capacity_changed, listed=self._listed, lost=self._listed
        )
        self._fleet = informers.subscribe(
            [NODE, POD],
            self._fleet_changed,
            listed=self._listed,
            lost=self._listed,
            everywhere=True,
        )
        self._servers = informers.subscribe(
            [SERVER], self._server_changed, listed=self._listed, lost=self._listed
        )
        self._tasks: list[asyncio.Task[None]] = []

    async def run(self) -> None:
        """Watch Capacities until cancelled."""
        await self._capacities.run()

    def watch(self) -> None:
        """Begin to watch the rest, if that has not begun."""
        if not self._tasks:
            parts = self._fleet, self._servers
            self._tasks = [asyncio.create_task(each.run()) for each in parts]

    async def stop(self) -> None:
        """Stop watching."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    @property
    def is_complete(self) -> bool:
        """Whether all objects are known."""
        return self._fleet.is_complete and self._servers.is_complete

    @property
    def trouble(self) -> InfernoError | None:
        """Why objects are not known; None if they are, or the answer is awaited."""
        return self._fleet.trouble or self._servers.trouble

    @property
    def machines(self) -> Collection[Machine]:
        """All nodes."""
        return self._machines.values()

    @property
    def pods(self) -> Sequence[Pod]:
        """All pods that request cards and are not finished."""
        return tuple(self._pods.values())

    @property
    def pods_by_namespace(self) -> dict[str, PodIndex]:
        """The pods that request cards, by their labels."""
        by_namespace: defaultdict[str, list[Manifest]] = defaultdict(list)
        for key in self._pods:
            by_namespace[key.namespace].append(self._fleet.get(Place(POD, key)) or {})
        return {namespace: PodIndex(pods) for namespace, pods in by_namespace.items()}

    @property
    def servers(self) -> list[tuple[Key, Server]]:
        """All Servers, the oldest first."""
        resources = ((o.reference.key, o.resource) for o in self._servers.observations(SERVER))
        servers = [(key, server) for key, server in resources if isinstance(server, Server)]
        return sorted(servers, key=lambda item: (item[1].age, item[0]))

    def _listed(self, *_: object) -> None:
        """Count; or report the trouble on the Capacities."""
        self._changed()

    def _capacity_changed(self, difference: ObjectDifference) -> None:
        if difference.concerns(_spec):
            self._changed()

    def _fleet_changed(self, difference: ObjectDifference) -> None:
        """Take a node, or a pod: one without cards does not matter."""
        key, after = difference.place.key, difference.after
        if difference.place.kind == NODE:
            is_news = _replaced(self._machines, key, machine_of(after) if after else None)
        else:
            is_news = _replaced(self._pods, key, pod_of(after) if after else None)
            is_news |= key in self._pods and difference.concerns(_labels)
        if is_news:
            self._changed()

    def _server_changed(self, difference: ObjectDifference) -> None:
        if difference.concerns(_pods):
            self._changed()


def _replaced(objects: dict[Key, T], key: Key, after: T | None) -> bool:
    """Replace what is known of an object; returns whether it differs."""
    before = objects.pop(key, None)
    if after is not None:
        objects[key] = after
    return before != after


def _spec(capacity: Manifest) -> object:
    """Return what a person writes on a Capacity."""
    return capacity.get("spec")


def _labels(pod: Manifest) -> object:
    """Return what selects a pod."""
    return pod["metadata"].get("labels")


def _pods(server: Manifest) -> object:
    """Return what determines the pods of a Server."""
    spec = server.get("spec") or {}
    return [spec.get(name) for name in ("name", "workloads", "modelBooster")]
