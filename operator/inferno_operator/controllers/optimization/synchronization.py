"""Keep a stateful optimizer told of what there is, and hold objects until it was."""

import asyncio
import logging
from collections.abc import Hashable, Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from typing import Protocol

from inferno_operator.controllers.optimization.snapshot import build_system
from inferno_operator.controllers.optimization.source import Mirror
from inferno_operator.resources import Optimizer
from inferno_operator.resources.objects import Now
from inferno_operator.resources.observation import Observation, readable
from inferno_operator.runtime.finalizers import FINALIZER, hold, release
from inferno_operator.runtime.ports import Cluster
from inferno_operator.runtime.work_queue import Outcome, WorkQueue
from inferno_optimizer.errors import InfernoError
from inferno_optimizer.system import System

PATIENCE = timedelta(seconds=10)
"""How long a deletion waits until the optimizer was told.

It may not answer, or be at work on a request that takes longer. What it missed it is told
later, as it is told whatever differs; and where it never answers, objects must go all the same.
"""

logger = logging.getLogger(__name__)


class Keeper(Protocol):
    """An optimizer that keeps what it is told."""

    async def tell(self, system: System) -> None:
        """Let it have this system and nothing else."""


@dataclass(frozen=True, slots=True)
class Telling:
    """What telling works with."""

    mirror: Mirror
    optimizer: Keeper
    cluster: Cluster
    now: Now


class Synchronization:
    """Tells the optimizer of namespaces that change, and ends the wait of deletions in time.

    These are two queues, so that a request that hangs does not hold up the second.
    """

    def __init__(self, telling: Telling) -> None:
        self._queues: tuple[WorkQueue[str], ...] = (
            WorkQueue(partial(reconcile_namespace, telling=telling)),
            WorkQueue(partial(release_overdue, telling=telling)),
        )

    def add(self, namespace: str, version: Hashable) -> None:
        """Ask for a version of a namespace."""
        for queue in self._queues:
            queue.add(namespace, version)

    async def close(self) -> None:
        """End all work."""
        await asyncio.gather(*(queue.close() for queue in self._queues))


async def reconcile_namespace(namespace: str, telling: Telling) -> Outcome:
    """Let the optimizer have what is in a namespace, then let go what is to go."""
    try:
        objects = telling.mirror.all(namespace)
        told = [o for o in objects if o.kind is not Optimizer]
        await hold(told, telling.cluster)
        leaving = [o for o, _ in _leaving(told)]
        if not leaving and telling.mirror.namespaces() != {namespace}:
            return Outcome.SETTLED  # it holds one namespace; this one when its turn comes
        present = readable(o for o in objects if o.deleted is None)
        await telling.optimizer.tell(build_system(present).system)
        await release(leaving, telling.cluster)
    except InfernoError as error:
        logger.warning("namespace %s: the optimizer is not up to date: %s", namespace, error)
        return Outcome.FAILED
    return Outcome.SETTLED


async def release_overdue(namespace: str, telling: Telling) -> Outcome:
    """Let go what has waited for the optimizer for long enough."""
    now = telling.now()
    due = [(o, since + PATIENCE - now) for o, since in _leaving(telling.mirror.all(namespace))]
    try:
        await release((o for o, wait in due if wait <= timedelta(0)), telling.cluster)
    except InfernoError as error:
        logger.warning("namespace %s: objects keep the finalizer: %s", namespace, error)
        return Outcome.FAILED
    waits = [wait.total_seconds() for _, wait in due if wait > timedelta(0)]
    return Outcome.due_after(min(waits, default=None))


def _leaving(objects: Iterable[Observation]) -> list[tuple[Observation, datetime]]:
    """Objects that we keep from going, and since when."""
    return [(o, o.deleted) for o in objects if o.deleted is not None and FINALIZER in o.finalizers]
