"""Send every change to an optimizer that stores systems, and hold deleted objects until then."""

import asyncio
import logging
from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Protocol

from inferno_operator.controllers.optimization.ports import Loads
from inferno_operator.controllers.optimization.snapshot import build_system
from inferno_operator.resources import SYSTEM_RESOURCES, Optimizer
from inferno_operator.resources.objects import Now, kind_of
from inferno_operator.resources.observation import Observation, readable
from inferno_operator.runtime.finalizers import FINALIZER, hold, release
from inferno_operator.runtime.informers import Subscription
from inferno_operator.runtime.ports import Cluster
from inferno_operator.runtime.work_queue import ReconcileResult, WorkQueue
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

    Parameters
    ----------
    mirrored
        The objects of the kinds in `KINDS`.
    optimizer
        What stores them.
    loads
        Knows measured loads.
    cluster, now
        Where finalizers are written, and the time of day.
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
            await hold(objects, self._cluster)
            deleted = [o for o, _ in _held_back(objects)]
            if not deleted and self._mirrored.namespaces() != {namespace}:
                return (
                    ReconcileResult.SETTLED
                )  # it stores one namespace; each is sent with its request
            present = await self._loads.with_loads([o for o in objects if o.deleted is None])
            await self._optimizer.replace(build_system(readable(present)).system)
            await release(deleted, self._cluster)
        except InfernoError as error:
            logger.warning("namespace %s: the optimizer is not up to date: %s", namespace, error)
            return ReconcileResult.FAILED
        return ReconcileResult.SETTLED

    async def release_overdue(self, namespace: str) -> ReconcileResult:
        """Release the objects that have waited for the optimizer long enough."""
        now, objects = self._now(), self.objects(namespace)
        due = [(o, since + PATIENCE - now) for o, since in _held_back(objects)]
        try:
            await release((o for o, wait in due if wait <= timedelta(0)), self._cluster)
        except InfernoError as error:
            logger.warning("namespace %s: objects keep the finalizer: %s", namespace, error)
            return ReconcileResult.FAILED
        waits = [wait.total_seconds() for _, wait in due if wait > timedelta(0)]
        return ReconcileResult.due_after(min(waits, default=None))


def _held_back(objects: Iterable[Observation]) -> list[tuple[Observation, datetime]]:
    """Deleted objects that only the finalizer keeps, with the time of their deletion."""
    return [(o, o.deleted) for o in objects if o.deleted is not None and FINALIZER in o.finalizers]
