"""Watch Optimizers and, in stateful mode, all our kinds."""

import asyncio
import logging
from dataclasses import dataclass, replace
from typing import Any

from inferno_operator.controllers.optimization.optimizer_sync import (
    KINDS,
    StatefulOptimizer,
    Synchronization,
)
from inferno_operator.controllers.optimization.reconcile import Context, reconcile
from inferno_operator.controllers.optimization.source import Mirrored
from inferno_operator.controllers.optimization.wake import wake
from inferno_operator.resources import DESIRED_ALLOC, SYSTEM_RESOURCES, Optimizer
from inferno_operator.resources.objects import Key, Manifest, kind_of
from inferno_operator.runtime.cache import ObjectDifference
from inferno_operator.runtime.finalizers import clean_up, release
from inferno_operator.runtime.informer import Area
from inferno_operator.runtime.informers import Informers
from inferno_operator.runtime.work_queue import ReconcileResult, WorkQueue
from inferno_optimizer.errors import InfernoError

CHECK_SECONDS = 30.0
"""Seconds between two comparisons of the contents of a stateful optimizer with the mirror."""

RELEASE_SECONDS = 15.0
"""Seconds that the removal of finalizers may take when the operator stops."""

OPTIMIZER = kind_of(Optimizer)

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Work:
    """What is to be done for an Optimizer: to reconcile it, or to wake Servers beside that."""

    key: Key
    wakes: bool = False


class OptimizationController:
    """Reconciles Optimizers, and keeps the contents of a stateful optimizer up to date.

    Parameters
    ----------
    context
        The context of reconciles; in stateful mode its source is replaced by a mirror.
    informers
        What watches.
    stateful
        Whether objects of all kinds are mirrored instead of read on demand.
    store
        The optimizer, if it stores the objects that it is sent; requires stateful mode.
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
        for observation in self._objects.observations(OPTIMIZER, namespace):
            resource, key = observation.resource, observation.reference.key
            if isinstance(resource, Optimizer) and resource.spec.interval is not None:
                self._context.memories[namespace].urgent.add(key.name)
                self.queue.add(Work(key))

    def wake(self, namespace: str) -> None:
        """Give Servers that are wanted a replica, beside the optimization that runs; then plan."""
        for observation in self._objects.observations(OPTIMIZER, namespace):
            resource = observation.resource
            if isinstance(resource, Optimizer) and resource.spec.interval is not None:
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
                await release(objects, self._cluster)
        except (InfernoError, TimeoutError) as error:
            logger.warning("some objects keep their finalizer until the next start: %s", error)

    async def _do(self, work: Work) -> ReconcileResult:
        return await (wake if work.wakes else reconcile)(work.key, self._context)

    def _object_changed(self, difference: ObjectDifference) -> None:
        if difference.place.kind == OPTIMIZER:
            self._optimizer_changed(difference)
        elif self._objects.is_complete and _is_input(difference):
            self._synchronize(difference.place.key.namespace)

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
        self._synchronize_all()

    def _synchronize_all(self) -> None:
        for namespace in self._objects.namespaces():
            self._synchronize(namespace)

    def _synchronize(self, namespace: str) -> None:
        if self._synchronization is not None:
            self._synchronization.add(namespace)

    async def _check(self) -> None:
        """Compare the contents of a stateful optimizer regularly: it may have been restarted."""
        while True:
            await asyncio.sleep(CHECK_SECONDS)
            self._synchronize_all()


def _is_input(difference: ObjectDifference) -> bool:
    """Whether an input of optimizations changed, not only a decision or a report."""
    return difference.concerns(_input)


def _input(manifest: Manifest) -> tuple[object, ...]:
    metadata = manifest["metadata"]
    spec = {k: v for k, v in (manifest.get("spec") or {}).items() if k != DESIRED_ALLOC}
    names = "uid", "finalizers", "deletionTimestamp"
    counted = manifest.get("status", {}).get("counted")  # of a Capacity
    return (spec, counted, *(metadata.get(name) for name in names))
