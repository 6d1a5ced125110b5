"""Which pods belong to which Server."""

import asyncio
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from inferno_operator.controllers.capacity.inventory import PodOwner
from inferno_operator.resources import Server, Workload
from inferno_operator.resources.dialects import DIALECTS
from inferno_operator.resources.objects import Key
from inferno_operator.resources.pods import PodIndex
from inferno_operator.resources.serving_roles import (
    SERVINGS,
    role_selector,
    serving_role,
    serving_selector,
)
from inferno_operator.resources.workload_kinds import LEADER_LABELS
from inferno_operator.runtime.ports import GoneError, Reader

CONCURRENT_READS = 16

WorkloadPlace = tuple[str, Workload]
"""A namespace and a workload in it."""


@dataclass(slots=True)
class Selectors:
    """Selectors of the pods of workloads.

    They are read once, as they do not change; and again if there are new pods that no selector
    selects: then a workload may have been created anew with another selector.

    Parameters
    ----------
    reader
        The API server.
    """

    reader: Reader
    known: dict[WorkloadPlace, str] = field(default_factory=dict)
    """Selectors by workload."""
    _strangers: dict[str, frozenset[Key]] = field(default_factory=dict)
    """Pods by namespace that no selector selected at the last time."""

    async def read(self, namespace: str, places: Iterable[WorkloadPlace], pods: PodIndex) -> None:
        """Read the selectors of the workloads of a namespace; those that do not exist have none.

        Parameters
        ----------
        namespace, places
            The namespace, and its workloads.
        pods
            The pods of the namespace.

        Raises
        ------
        InfernoError
            A workload cannot be read.
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
            return whole_replicas(role_selector(served.kind, workload.name, role))
        if served.kind in SERVINGS:  # also what a booster left: no right to its scale is needed
            return whole_replicas(serving_selector(served.kind, workload.name))
        if not served.is_scalable:
            return ""
        try:
            scale = await self.reader.scale(served.kind, Key(namespace, workload.name))
        except GoneError:
            return ""
        return whole_replicas(scale.selector)


def whole_replicas(selector: str) -> str:
    """Return a selector without the terms that select only the first pod of each replica."""
    terms = selector.split(",") if selector else []
    return ",".join(t for t in terms if t.partition("=")[0].strip() not in LEADER_LABELS)


def workloads_of(servers: Iterable[tuple[Key, Server]]) -> Iterator[WorkloadPlace]:
    """Yield the workloads whose replicas run for Servers."""
    for key, server in servers:
        yield from ((key.namespace, workload) for workload in server.counted_workloads)


def owners_of(
    servers: Iterable[tuple[Key, Server]],
    selectors: Mapping[WorkloadPlace, str],
    pods: Mapping[str, PodIndex],
) -> dict[Key, PodOwner]:
    """Return the Servers by their pods; of several that select a pod, the first one has it.

    Parameters
    ----------
    servers
        The Servers, the oldest first.
    selectors
        Selectors of the pods of workloads.
    pods
        The pods of each namespace.
    """
    owners: dict[Key, PodOwner] = {}
    for key, server in servers:
        index = pods.get(key.namespace)
        if index is None:
            continue
        for accelerator, selector in _selectors(key.namespace, server, selectors):
            owner = PodOwner(key.namespace, server.spec.name, accelerator)
            for pod in index.selected(selector):
                owners.setdefault(Key.of(pod), owner)
    return owners


def _selectors(
    namespace: str, server: Server, selectors: Mapping[WorkloadPlace, str]
) -> Iterator[tuple[str, str]]:
    """Yield the accelerators of a Server with the selectors of its pods."""
    for workload in server.counted_workloads:
        yield workload.accelerator, selectors.get((namespace, workload), "")
    booster = server.spec.model_booster
    if booster is not None:
        dialect = DIALECTS[booster.dialect]
        for backend in booster.backends:
            role = f",{dialect.pod_label('role')}={backend.worker}" if backend.worker else ""
            serving = f"{dialect.pod_label('name')}={booster.serving_of(backend)}"
            yield backend.accelerator, serving + role
