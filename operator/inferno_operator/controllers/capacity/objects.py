"""The newest nodes, pods with cards, Servers and Capacities, and whose pods these are."""

import asyncio
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from inferno_operator.controllers.capacity.inventory import PodOwner
from inferno_operator.controllers.capacity.machines import Machine, Pod, read_machine, read_pod
from inferno_operator.resources import Capacity, Server, Workload
from inferno_operator.resources.dialects import DIALECTS
from inferno_operator.resources.objects import NODE, POD, Key, Manifest, Place, kind_of
from inferno_operator.resources.pods import PodIndex
from inferno_operator.resources.serving_roles import (
    SERVINGS,
    build_serving_selector,
    role_selector,
    serving_role,
)
from inferno_operator.resources.workload_kinds import LEADER_LABELS
from inferno_operator.runtime.cache import ObjectDifference
from inferno_operator.runtime.informers import Informers
from inferno_operator.runtime.ports import GoneError, Reader
from inferno_optimizer.errors import InfernoError

CONCURRENT_READS = 16

WorkloadPlace = tuple[str, Workload]
"""A namespace and a workload in it."""


@dataclass(slots=True)
class Selectors:
    """Selectors of the pods of workloads.

    They are read once, as they do not change; and again if there are new pods that no selector
    selects: then a workload may have been created anew with another selector.
    """

    reader: Reader
    known: dict[WorkloadPlace, str] = field(default_factory=dict)
    """Selectors by workload."""
    _strangers: dict[str, frozenset[Key]] = field(default_factory=dict)
    """Pods by namespace that no selector selected at the last time."""

    async def read(self, namespace: str, places: Iterable[WorkloadPlace], pods: PodIndex) -> None:
        """Read the selectors of the workloads of a namespace; those that do not exist have none.

        Raises `InfernoError` if a workload cannot be read.
        """
        wanted = set(places)
        for place in [p for p in self.known if p[0] == namespace and p not in wanted]:
            del self.known[place]
        self._forget_outdated(namespace, pods)
        limit = asyncio.Semaphore(CONCURRENT_READS)

        async def read(place: WorkloadPlace) -> None:
            async with limit:
                if selector := await self._selector(*place):
                    self.known[place] = selector

        unknown = sorted(wanted - self.known.keys(), key=lambda place: place[1].name)
        await asyncio.gather(*map(read, unknown))

    def _forget_outdated(self, namespace: str, pods: PodIndex) -> None:
        """Forget the selectors without pods, if there are new pods that no selector selects."""
        selections = {p: pods.selected(text) for p, text in self.known.items() if p[0] == namespace}
        selected = {Key.of(pod) for selection in selections.values() for pod in selection}
        strangers = frozenset(map(Key.of, pods.all)) - selected
        if strangers - self._strangers.get(namespace, frozenset()):
            for place in [place for place, selection in selections.items() if not selection]:
                del self.known[place]
        self._strangers[namespace] = strangers

    async def _selector(self, namespace: str, workload: Workload) -> str:
        served = await self.reader.find(workload.api_version, workload.kind)
        if served is None:
            return ""
        if role := serving_role(workload):
            return select_whole_replicas(role_selector(served.kind, workload.name, role))
        if served.kind in SERVINGS:  # also what a booster left: no right to its scale is needed
            return select_whole_replicas(build_serving_selector(served.kind, workload.name))
        if not served.is_scalable:
            return ""
        try:
            scale = await self.reader.scale(served.kind, Key(namespace, workload.name))
        except GoneError:
            return ""
        return select_whole_replicas(scale.selector)


def select_whole_replicas(selector: str) -> str:
    """Return a selector without the terms that select only the first pod of each replica."""
    terms = selector.split(",") if selector else []
    return ",".join(t for t in terms if t.partition("=")[0].strip() not in LEADER_LABELS)


def find_workloads(servers: Iterable[tuple[Key, Server]]) -> Iterator[WorkloadPlace]:
    """Yield the workloads whose replicas run for Servers."""
    for key, server in servers:
        yield from ((key.namespace, workload) for workload in server.counted_workloads)


def find_owners(
    servers: Iterable[tuple[Key, Server]],
    selectors: Mapping[WorkloadPlace, str],
    pods: Mapping[str, PodIndex],
) -> dict[Key, PodOwner]:
    """Return the Servers by their pods; of several that select a pod, the first one has it.

    Servers come oldest first; one that names a pod's workload comes before those that name it no
    more.
    """
    owners: dict[Key, PodOwner] = {}
    servers = [(key, server) for key, server in servers if key.namespace in pods]
    for find_selectors in (_find_named, _find_left):  # what another Server names is not left
        for key, server in servers:
            for accelerator, selector in find_selectors(key.namespace, server, selectors):
                owner = PodOwner(key.namespace, server.spec.name, accelerator)
                for pod in pods[key.namespace].selected(selector):
                    owners.setdefault(Key.of(pod), owner)
    return owners


def _find_named(
    namespace: str, server: Server, selectors: Mapping[WorkloadPlace, str]
) -> Iterator[tuple[str, str]]:
    for workload in server.spec.workloads:
        yield workload.accelerator, selectors.get((namespace, workload), "")
    booster = server.spec.model_booster
    if booster is not None:
        dialect = DIALECTS[booster.dialect]
        for backend in booster.backends:
            role = f",{dialect.pod_label('role')}={backend.worker}" if backend.worker else ""
            serving = f"{dialect.pod_label('name')}={booster.serving_of(backend)}"
            yield backend.accelerator, serving + role


def _find_left(
    namespace: str, server: Server, selectors: Mapping[WorkloadPlace, str]
) -> Iterator[tuple[str, str]]:
    for workload in server.left_workloads:
        yield workload.accelerator, selectors.get((namespace, workload), "")


CAPACITY, SERVER = kind_of(Capacity), kind_of(Server)

T = TypeVar("T", Machine, Pod)


class CapacityObjects:
    """Objects in memory; nodes, pods and Servers are watched from the first count on.

    `changed` is called when something changed that matters to a count.
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
            is_news = _replace(self._machines, key, read_machine(after) if after else None)
        else:
            is_news = _replace(self._pods, key, read_pod(after) if after else None)
            is_news |= key in self._pods and difference.concerns(_labels)
        if is_news:
            self._changed()

    def _server_changed(self, difference: ObjectDifference) -> None:
        if difference.concerns(_pods):
            self._changed()


def _replace(objects: dict[Key, T], key: Key, after: T | None) -> bool:
    """Replace what is known of an object; returns whether it differs."""
    before = objects.pop(key, None)
    if after is not None:
        objects[key] = after
    return before != after


def _spec(capacity: Manifest) -> object:
    return capacity.get("spec")


def _labels(pod: Manifest) -> object:
    return pod["metadata"].get("labels")


def _pods(server: Manifest) -> object:
    spec = server.get("spec") or {}
    return [spec.get(name) for name in ("name", "workloads", "modelBooster")]
