"""What planning needs of others: objects, loads, nodes, an optimizer, and permission."""

import asyncio
from collections import defaultdict
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from inferno_operator.controllers.planning.memory import Memory
from inferno_operator.controllers.planning.snapshot import Snapshot
from inferno_operator.controllers.planning.updates import Update
from inferno_operator.resources import SYSTEM_RESOURCES, Optimizer, Plan, Server
from inferno_operator.resources.objects import Now, kind_of
from inferno_operator.resources.observation import Observation, observe
from inferno_operator.runtime.informers import Subscription
from inferno_operator.runtime.observer import Observer
from inferno_operator.runtime.ports import Cluster, FieldManager, Reader
from inferno_operator.runtime.updates import Writer
from inferno_operator.runtime.work_queue import Locks
from inferno_optimizer.placement import Node
from inferno_optimizer.solution import Solution
from inferno_optimizer.system import System

OPTIMIZER, PLAN, SERVER = kind_of(Optimizer), kind_of(Plan), kind_of(Server)


class SystemOptimizer(Protocol):
    """Solves systems, in this process or remotely."""

    async def optimize(self, system: System) -> Solution:
        """Solve a system; see `inferno_optimizer.optimize`."""


class Loads(Protocol):
    """Knows the newest loads of Servers."""

    async def with_loads(self, observations: Sequence[Observation]) -> Sequence[Observation]:
        """Return objects in which Servers that are measured have their newest load.

        Servers that were never measured are waited for.
        """

    def with_known_loads(self, observations: Sequence[Observation]) -> Sequence[Observation]:
        """Return the same without any wait: Servers that were never measured stay as they are."""


class Machines(Protocol):
    """Knows the nodes whose cards the Servers of a namespace may use."""

    async def nodes(self, namespace: str) -> Sequence[Node]:
        """Return the nodes; none if they are not counted."""


READ = tuple(kind for kind in SYSTEM_RESOURCES if kind is not Optimizer)
"""The kinds that an optimization reads."""


class ObjectSource(Protocol):
    """Gives an optimization its objects."""

    async def objects(self, namespace: str) -> Sequence[Observation]:
        """Return the objects of the kinds in `READ` that are not being deleted, in any order.

        Raises `UnavailableError` while some kinds cannot be read.
        """


class OnDemand:
    """Reads the objects from the API server for each optimization."""

    def __init__(self, reader: Reader) -> None:
        self._reader = reader

    async def objects(self, namespace: str) -> Sequence[Observation]:
        """Return the objects as they are now."""
        lists = await asyncio.gather(*(self._reader.list(kind_of(k), namespace) for k in READ))
        observations = (
            observe(kind, manifest)
            for kind, listing in zip(READ, lists, strict=True)
            for manifest in listing.manifests
        )
        return [observation for observation in observations if observation.deleted is None]


class Mirrored:
    """Takes the objects from memory, where watches keep them up to date, within some seconds."""

    def __init__(self, objects: Subscription, patience: float = 10.0) -> None:
        self._objects = objects
        self._patience = patience

    async def objects(self, namespace: str) -> Sequence[Observation]:
        """Return the objects as they are known."""
        await self._objects.complete(self._patience)
        return [
            observation
            for kind in READ
            for observation in self._objects.observations(kind_of(kind), namespace)
            if observation.deleted is None
        ]


@dataclass(frozen=True, slots=True)
class Optimization:
    """An optimization and its result: the update of each object that was read, in their order.

    `is_requested` says whether `spec.optimize` requested it, not an interval.
    """

    optimizer: Optimizer
    observations: Sequence[Observation]
    updates: Sequence[Update]
    snapshot: Snapshot
    solution: Solution
    is_requested: bool


@dataclass(frozen=True, slots=True)
class Permission:
    """The updates that may be written; `message` says why others may not, or is "".

    `plan` is the Plan that is carried out by writing them, if there is one, and `afterwards` its
    status when they are written.
    """

    updates: Sequence[Update]
    message: str = ""
    plan: Observation[Plan] | None = None
    afterwards: Update | None = None


class Approver(Protocol):
    """Records what optimizations decide, and says what may be written."""

    async def permit(self, optimization: Optimization) -> Permission:
        """Record an optimization, of which nothing is written yet."""

    async def permit_additions(self, optimization: Optimization) -> Permission:
        """Return the updates of Servers that only get replicas, and need no approval for them.

        Nothing is recorded, so that a Plan that waits goes on waiting.
        """

    async def written(self, permission: Permission) -> None:
        """Note that everything that was permitted is written."""


KeySource = Callable[[], Awaitable[bytes]]
"""Gives the key with which the operator signs its Plans; raises `InfernoError` without one."""


@dataclass(frozen=True, slots=True)
class Context:
    """What reconciles need.

    `now` is the time of day, `steady` the one for what is remembered of the last minutes, which
    never jumps; `time_limit` that of the exact solver [s]. Of each namespace `locks` are held
    during an optimization, `writes` while updates are decided from the newest objects and written,
    which is short; `memories` have what is known from earlier plans.
    """

    cluster: Cluster
    source: ObjectSource
    optimizer: SystemOptimizer
    now: Now
    steady: Now
    loads: Loads
    machines: Machines
    approver: Approver
    time_limit: float = 30.0
    observer: Observer = field(default_factory=Observer)
    locks: Locks = field(default_factory=Locks)
    writes: Locks = field(default_factory=Locks)
    memories: defaultdict[str, Memory] = field(default_factory=lambda: defaultdict(Memory))

    @property
    def writer(self) -> Writer:
        """The writer of updates."""
        return Writer(self.cluster, FieldManager.DECISIONS, self.now)
