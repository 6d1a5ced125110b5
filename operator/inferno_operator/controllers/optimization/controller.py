"""Watch Optimizers and, in stateful mode, all our kinds."""

import asyncio
import logging
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from itertools import count
from typing import Any

from inferno_operator.controllers.optimization.reconcile import Context, reconcile_optimizer
from inferno_operator.controllers.optimization.source import Mirror
from inferno_operator.controllers.optimization.synchronization import (
    StatefulOptimizer,
    Synchronization,
)
from inferno_operator.resources import SYSTEM_RESOURCES, Optimizer, Server
from inferno_operator.resources.objects import Key, Manifest, kind_of
from inferno_operator.runtime.cache import Difference
from inferno_operator.runtime.finalizers import clean_up, release
from inferno_operator.runtime.work_queue import WorkQueue
from inferno_optimizer.errors import InfernoError

CHECK_SECONDS = 30.0
"""Seconds between two comparisons of the contents of a stateful optimizer with the mirror."""

RELEASE_SECONDS = 15.0
"""Seconds that the removal of finalizers may take when the operator stops."""

OPTIMIZER, SERVER = kind_of(Optimizer), kind_of(Server)

logger = logging.getLogger(__name__)


class OptimizationController:
    """Reconciles Optimizers, and keeps the contents of a stateful optimizer up to date.

    Parameters
    ----------
    context
        The context of reconciles; in stateful mode its source is replaced by a mirror.
    namespaces
        The namespaces to watch; if empty, all.
    stateful
        Whether objects of all kinds are mirrored instead of read on demand.
    store
        The optimizer, if it stores the objects that it is sent; requires stateful mode.
    """

    def __init__(
        self,
        context: Context,
        namespaces: Sequence[str],
        *,
        stateful: bool = False,
        store: StatefulOptimizer | None = None,
    ) -> None:
        self._cluster = context.cluster
        self._namespaces = namespaces
        kinds = SYSTEM_RESOURCES if stateful else (Optimizer,)
        self._mirror = Mirror(
            context.cluster, kinds, namespaces, self._object_changed, self._all_known
        )
        if stateful:
            context = replace(context, source=self._mirror)
        self._urgent = context.urgent
        self.queue: WorkQueue[Key] = WorkQueue(partial(reconcile_optimizer, context=context))
        self._rounds = count()
        self._synchronization: Synchronization | None = None
        if store is not None:
            self._synchronization = Synchronization(
                self._mirror, store, context.loads, context.cluster, context.now
            )

    def unready(self) -> str:
        """Return what is missing until Optimizers can be reconciled; "" if nothing is."""
        return "" if self._mirror.is_complete else f"not watching yet: {self._mirror.missing()}"

    def plan_now(self, namespace: str) -> None:
        """Optimize a namespace that is optimized regularly, without waiting for the interval."""
        for observation in self._mirror.all(namespace):
            resource, key = observation.resource, observation.reference.key
            if isinstance(resource, Optimizer) and resource.spec.interval is not None:
                self._urgent.add(key)
                self.queue.add(key, next(self._rounds))

    async def run(self) -> None:
        """Watch objects until cancelled."""
        foreign = SYSTEM_RESOURCES if self._synchronization is None else (Optimizer,)
        async with asyncio.TaskGroup() as group:
            group.create_task(clean_up(foreign, self._namespaces, self._cluster))
            group.create_task(self._mirror.run())
            if self._synchronization is not None:
                group.create_task(self._check())

    async def stop(self) -> None:
        """Stop reconciling, and remove the finalizers of this operator from all objects."""
        await self.queue.close()
        if self._synchronization is None:
            return
        await self._synchronization.close()
        objects = [o for ns in self._mirror.namespaces() for o in self._mirror.all(ns)]
        try:
            async with asyncio.timeout(RELEASE_SECONDS):
                await release(objects, self._cluster)
        except (InfernoError, TimeoutError) as error:
            logger.warning("some objects keep their finalizer until the next start: %s", error)

    def _object_changed(self, difference: Difference) -> None:
        if difference.place.kind == OPTIMIZER:
            self._optimizer_changed(difference)
        elif self._mirror.is_complete and _is_input(difference):
            self._synchronize(difference.place.key.namespace)

    def _optimizer_changed(self, difference: Difference) -> None:
        """Request a reconcile of this generation; the operator's writes do not change it."""
        metadata: dict[str, Any] = (difference.after or difference.before or {})["metadata"]
        version = metadata["uid"], metadata["generation"], difference.after is None
        self.queue.add(difference.place.key, version)

    def _all_known(self) -> None:
        logger.info("operator ready; watching %s", ", ".join(self._namespaces) or "all namespaces")
        for namespace in self._mirror.namespaces():
            self._synchronize(namespace)

    def _synchronize(self, namespace: str) -> None:
        if self._synchronization is not None:
            self._synchronization.add(namespace, next(self._rounds))

    async def _check(self) -> None:
        """Compare the contents of a stateful optimizer regularly: it may have been restarted."""
        while True:
            await asyncio.sleep(CHECK_SECONDS)
            for namespace in self._mirror.namespaces():
                self._synchronize(namespace)


def _is_input(difference: Difference) -> bool:
    """Whether an input of optimizations changed, not only a decision or a report."""
    before, after = difference.before, difference.after
    if before is None or after is None:
        return True
    is_server = difference.place.kind == SERVER
    return _input(before, is_server=is_server) != _input(after, is_server=is_server)


def _input(manifest: Manifest, *, is_server: bool) -> tuple[object, ...]:
    metadata, spec = manifest["metadata"], manifest.get("spec")
    if is_server and spec:
        spec = {key: value for key, value in spec.items() if key != "desiredAlloc"}
    names = "uid", "finalizers", "deletionTimestamp"
    counted = manifest.get("status", {}).get("counted")  # of a Capacity
    return (spec, counted, *(metadata.get(name) for name in names))
