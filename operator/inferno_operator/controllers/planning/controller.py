"""Watch Optimizers, Plans and what they are decided from, and ask for reconciles."""

import asyncio
import logging
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import partial
from typing import Any, Protocol

from inferno_operator.controllers.planning.mistakes import find_unplanned, find_wrong_names
from inferno_operator.controllers.planning.plans import (
    FOLLOWED,
    PlanApprover,
    PlanContext,
    PlanStore,
    reconcile_plans,
)
from inferno_operator.controllers.planning.ports import (
    OPTIMIZER,
    PLAN,
    SERVER,
    Context,
    KeySource,
    Loads,
    Mirrored,
    ObjectSource,
)
from inferno_operator.controllers.planning.reconcile import find_rival, reconcile
from inferno_operator.controllers.planning.snapshot import build_system
from inferno_operator.controllers.planning.updates import (
    Update,
)
from inferno_operator.controllers.planning.waking import wake
from inferno_operator.resources import (
    DESIRED_ALLOC,
    SYSTEM_RESOURCES,
    Optimizer,
    Server,
)
from inferno_operator.resources.conditions import ALLOCATED
from inferno_operator.resources.objects import Key, Manifest, Now, kind_of
from inferno_operator.resources.observation import Observation, of_kind, readable
from inferno_operator.runtime.cache import ObjectDifference, generation_of
from inferno_operator.runtime.finalizers import FINALIZER, add_finalizer, clean_up, remove_finalizer
from inferno_operator.runtime.informers import Area, Informers, Subscription
from inferno_operator.runtime.ports import Cluster, FieldManager
from inferno_operator.runtime.updates import Writer
from inferno_operator.runtime.work_queue import Locks, ReconcileResult, WorkQueue
from inferno_optimizer.errors import InfernoError
from inferno_optimizer.system import System

KINDS = tuple(map(kind_of, SYSTEM_RESOURCES))
"""The kinds of objects that are held until the optimizer has their deletion."""

PATIENCE = timedelta(seconds=10)
"""How long a deleted object waits until the optimizer has the change.

The optimizer may not answer, or work on a longer request. It gets what it missed later, with
everything else that differs; and if it never answers, the object must go nevertheless.
"""

logger = logging.getLogger(__name__)


class StatefulOptimizer(Protocol):
    """An optimizer that stores the system it is sent."""

    async def replace(self, system: System) -> None:
        """Make this system the only content of the optimizer."""


class Synchronization:
    """Sends namespaces that change to the optimizer, and releases deleted objects in time.

    It has a queue for each of the two, so a request that hangs does not delay a release.
    """

    def __init__(
        self,
        mirrored: Subscription,
        optimizer: StatefulOptimizer,
        loads: Loads,
        cluster: Cluster,
        now: Now,
    ) -> None:
        self._mirrored = mirrored
        self._optimizer = optimizer
        self._loads = loads
        self._cluster = cluster
        self._now = now
        self._queues: tuple[WorkQueue[str], ...] = (
            WorkQueue(self.synchronize),
            WorkQueue(self.release_overdue),
        )

    def add(self, namespace: str) -> None:
        """Ask for a namespace to be sent, and for what is overdue to be released."""
        for queue in self._queues:
            queue.add(namespace)

    async def close(self) -> None:
        """End all work."""
        await asyncio.gather(*(queue.close() for queue in self._queues))

    def objects(self, namespace: str) -> list[Observation]:
        """Return all objects of a namespace, including those that are being deleted."""
        return [o for kind in KINDS for o in self._mirrored.observations(kind, namespace)]

    async def synchronize(self, namespace: str) -> ReconcileResult:
        """Send the objects of a namespace, then release those that are deleted."""
        try:
            objects = [o for o in self.objects(namespace) if o.kind is not Optimizer]
            await add_finalizer(objects, self._cluster)
            deleted = [o for o, _ in _find_held_back(objects)]
            if not deleted and self._mirrored.namespaces() != {namespace}:
                return (
                    ReconcileResult.SETTLED
                )  # it stores one namespace; each is sent with its request
            present = await self._loads.with_loads([o for o in objects if o.deleted is None])
            await self._optimizer.replace(build_system(readable(present)).system)
            await remove_finalizer(deleted, self._cluster)
        except InfernoError as error:
            logger.warning("namespace %s: the optimizer is not up to date: %s", namespace, error)
            return ReconcileResult.FAILED
        return ReconcileResult.SETTLED

    async def release_overdue(self, namespace: str) -> ReconcileResult:
        """Release the objects that have waited for the optimizer long enough."""
        now, objects = self._now(), self.objects(namespace)
        due = [(o, since + PATIENCE - now) for o, since in _find_held_back(objects)]
        try:
            await remove_finalizer((o for o, wait in due if wait <= timedelta(0)), self._cluster)
        except InfernoError as error:
            logger.warning("namespace %s: objects keep the finalizer: %s", namespace, error)
            return ReconcileResult.FAILED
        waits = [wait.total_seconds() for _, wait in due if wait > timedelta(0)]
        return ReconcileResult.due_after(min(waits, default=None))


def _find_held_back(objects: Iterable[Observation]) -> list[tuple[Observation, datetime]]:
    """Deleted objects that only the finalizer keeps, with the time of their deletion."""
    return [(o, o.deleted) for o in objects if o.deleted is not None and FINALIZER in o.finalizers]


CHECK_SECONDS = 30.0
"""Seconds between two comparisons of the contents of a stateful optimizer with the mirror."""

RELEASE_SECONDS = 15.0
"""Seconds that the removal of finalizers may take when the operator stops."""


@dataclass(frozen=True, slots=True)
class Work:
    """What is to be done for an Optimizer: to reconcile it, or to wake Servers beside that."""

    key: Key
    wakes: bool = False


class OptimizationController:
    """Reconciles Optimizers, and keeps the contents of a stateful optimizer up to date.

    In stateful mode objects of all kinds are mirrored instead of read on demand. It is required by
    a `store`: an optimizer that stores the objects that it is sent.
    """

    def __init__(
        self,
        context: Context,
        informers: Informers,
        *,
        stateful: bool = False,
        store: StatefulOptimizer | None = None,
    ) -> None:
        self._cluster = context.cluster
        self._namespaces = informers.namespaces
        kinds = KINDS if stateful else (OPTIMIZER,)
        self._objects = informers.subscribe(kinds, self._object_changed, listed=self._listed)
        if stateful:
            context = replace(context, source=Mirrored(self._objects))
        self._context = context
        self.queue: WorkQueue[Work] = WorkQueue(self._do)
        self._synchronization: Synchronization | None = None
        if store is not None:
            self._synchronization = Synchronization(
                self._objects, store, context.loads, context.cluster, context.now
            )

    def unready(self) -> str:
        """Return what is missing until Optimizers can be reconciled; "" if nothing is."""
        unready = self._objects.unready()
        return unready and f"not watching yet: {unready}"

    def plan_now(self, namespace: str) -> None:
        """Optimize a namespace that is optimized regularly, without waiting for the interval."""
        for observation in self._find_regular(namespace):
            key = observation.reference.key
            self._context.memories[namespace].urgent_optimizers.add(key.name)
            self.queue.add(Work(key))

    def wake(self, namespace: str) -> None:
        """Give Servers that are wanted a replica, beside the optimization that runs; then plan."""
        optimizers = self._find_regular(namespace)
        for observation in optimizers:
            if find_rival(observation, optimizers) is None:
                self.queue.add(Work(observation.reference.key, wakes=True))
        self.plan_now(namespace)

    async def run(self) -> None:
        """Watch objects until cancelled."""
        foreign = SYSTEM_RESOURCES if self._synchronization is None else (Optimizer,)
        async with asyncio.TaskGroup() as group:
            group.create_task(clean_up(foreign, self._namespaces, self._cluster))
            group.create_task(self._objects.run())
            if self._synchronization is not None:
                group.create_task(self._check())

    async def stop(self) -> None:
        """Stop reconciling, and remove the finalizers of this operator from all objects."""
        await self.queue.close()
        if self._synchronization is None:
            return
        await self._synchronization.close()
        objects = self._synchronization.objects("")
        try:
            async with asyncio.timeout(RELEASE_SECONDS):
                await remove_finalizer(objects, self._cluster)
        except (InfernoError, TimeoutError) as error:
            logger.warning("some objects keep their finalizer until the next start: %s", error)

    def _find_regular(self, namespace: str) -> list[Observation[Optimizer]]:
        observations = of_kind(self._objects.observations(OPTIMIZER, namespace), Optimizer)
        return [o for o in observations if o.resource and o.resource.spec.interval is not None]

    async def _do(self, work: Work) -> ReconcileResult:
        return await (wake if work.wakes else reconcile)(work.key, self._context)

    def _object_changed(self, difference: ObjectDifference) -> None:
        if difference.place.kind == OPTIMIZER:
            self._optimizer_changed(difference)
        elif self._objects.is_complete and difference.concerns(_read_input):
            self._queue(difference.place.key.namespace)

    def _optimizer_changed(self, difference: ObjectDifference) -> None:
        """Request a reconcile of this generation; the operator's writes do not change it."""
        metadata: dict[str, Any] = (difference.after or difference.before or {})["metadata"]
        version = metadata["uid"], metadata["generation"], difference.after is None
        self.queue.add(Work(difference.place.key), version)

    def _listed(self, area: Area) -> None:
        del area
        if not self._objects.is_complete:
            return
        logger.info("operator ready; watching %s", ", ".join(self._namespaces) or "all namespaces")
        self._queue_all_namespaces()

    def _queue_all_namespaces(self) -> None:
        for namespace in self._objects.namespaces():
            self._queue(namespace)

    def _queue(self, namespace: str) -> None:
        if self._synchronization is not None:
            self._synchronization.add(namespace)

    async def _check(self) -> None:
        """Compare the contents of a stateful optimizer regularly: it may have been restarted."""
        while True:
            await asyncio.sleep(CHECK_SECONDS)
            self._queue_all_namespaces()


def _read_input(manifest: Manifest) -> tuple[object, ...]:
    """Return what optimizations are made from, without decisions and reports."""
    metadata = manifest["metadata"]
    spec = {k: v for k, v in (manifest.get("spec") or {}).items() if k != DESIRED_ALLOC}
    names = "uid", "finalizers", "deletionTimestamp"
    counted = manifest.get("status", {}).get("counted")  # of a Capacity
    return (spec, counted, *(metadata.get(name) for name in names))


SETTLE_SECONDS = 1.0
"""How long other changes are awaited [s]: Servers are often applied together with their classes."""

NAMES = "name", "class", "model", "modelBooster", "workloads"


class ServerCheck:
    """Checks the names of Servers when one is new, is gone, or names something else than before.

    Servers are also checked when their namespace gets its first Optimizer or loses its last one.
    `locks` allow one writer of conditions per namespace at a time.
    """

    def __init__(
        self,
        cluster: Cluster,
        informers: Informers,
        source: ObjectSource,
        now: Now,
        locks: Locks,
    ) -> None:
        self._source = source
        self._writer = Writer(cluster, FieldManager.DECISIONS, now)
        self._locks = locks
        self._objects = informers.subscribe([SERVER, OPTIMIZER], self._changed, listed=self._listed)
        self.queue: WorkQueue[str] = WorkQueue(self._check, settle=SETTLE_SECONDS)

    async def run(self) -> None:
        """Watch objects until cancelled."""
        await self._objects.run()

    async def stop(self) -> None:
        """Stop checking."""
        await self.queue.close()

    def _changed(self, difference: ObjectDifference) -> None:
        namespace = difference.place.key.namespace
        if difference.place.kind == SERVER:
            if _is_due(difference):
                self.queue.add(namespace)
        elif self._objects.is_complete and difference.concerns(_read_identity):
            self.queue.add(namespace)

    def _listed(self, area: Area) -> None:
        """Ask for a check of the namespaces that have lost their Optimizer meanwhile."""
        del area
        if self._objects.is_complete:
            for namespace in self._objects.namespaces():
                if not self._has_optimizer(namespace):
                    self.queue.add(namespace)

    def _has_optimizer(self, namespace: str) -> bool:
        optimizers = self._objects.observations(OPTIMIZER, namespace)
        return any(optimizer.deleted is None for optimizer in optimizers)

    async def _check(self, namespace: str) -> ReconcileResult:
        try:
            async with self._locks[namespace]:
                observations = await self._source.objects(namespace)
                await self._writer.write_all(self._updates(namespace, observations))
        except InfernoError as error:
            logger.warning("namespace %s: Servers are not checked: %s", namespace, error)
            return ReconcileResult.FAILED
        return ReconcileResult.SETTLED

    def _updates(self, namespace: str, observations: Sequence[Observation]) -> list[Update]:
        """Return what to write; of a Server with wrong names nothing else is said."""
        servers = [observation for observation in observations if observation.kind is Server]
        planned = find_unplanned(servers, has_optimizer=self._has_optimizer(namespace))
        updates = {
            update.reference: update for update in (*planned, *find_wrong_names(observations))
        }
        return list(updates.values())


def _is_due(difference: ObjectDifference) -> bool:
    """Whether a Server has other names than before, is gone, or has no condition yet."""
    if not difference.concerns(_read_names):
        return False
    server = difference.after
    return difference.before is not None or server is None or not _is_reported(server)


def _read_identity(optimizer: Manifest) -> tuple[object, ...]:
    return optimizer["metadata"].get("uid"), optimizer["metadata"].get("deletionTimestamp")


def _read_names(server: Manifest) -> tuple[object, ...]:
    spec = server.get("spec") or {}
    return server["metadata"].get("uid"), *(spec.get(name) for name in NAMES)


def _is_reported(server: Manifest) -> bool:
    conditions = server.get("status", {}).get("conditions", ())
    return any(condition["type"] == ALLOCATED for condition in conditions)


class PlansController:
    """Drives Plans to their end; `key` gives the key with which the operator signs them.

    `approver` is where optimizations ask what they may write; `locks` allow one writer of decisions
    per namespace at a time.
    """

    def __init__(
        self,
        cluster: Cluster,
        informers: Informers,
        source: ObjectSource,
        loads: Loads,
        now: Now,
        key: KeySource,
    ) -> None:
        self._objects = informers.subscribe(FOLLOWED, self._changed)
        store = PlanStore(self._objects, cluster, now, key)
        self.approver = PlanApprover(store, now)
        self.locks, self.writes = Locks(), Locks()
        context = PlanContext(cluster, store, source, loads, now, self.locks, self.writes)
        self.queue: WorkQueue[str] = WorkQueue(partial(reconcile_plans, context=context))

    async def run(self) -> None:
        """Watch objects until cancelled."""
        await self._objects.run()

    async def stop(self) -> None:
        """Stop reconciling."""
        await self.queue.close()

    def _changed(self, difference: ObjectDifference) -> None:
        """Ask for a reconcile; Servers are looked at when a Plan asks for it."""
        kind = difference.place.kind
        if kind == PLAN or (kind == OPTIMIZER and difference.concerns(generation_of)):
            self.queue.add(difference.place.key.namespace)
