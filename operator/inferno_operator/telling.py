"""Keep a stateful optimizer told of what there is, and hold objects until it was."""

import logging
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import timedelta
from typing import Protocol

from inferno_operator.observation import Observation, readable
from inferno_operator.ports import Cluster, Now
from inferno_operator.resources import Optimizer
from inferno_operator.runtime.finalizers import FINALIZER, hold, release
from inferno_operator.runtime.mirror import Mirror
from inferno_operator.runtime.work_queue import Outcome
from inferno_operator.snapshot import build_system
from inferno_optimizer.errors import InfernoError
from inferno_optimizer.system import System

PATIENCE = timedelta(seconds=10)
"""How long a deletion waits for an optimizer that does not answer.

What it missed it is told when it answers again, as it is told whatever differs; and where it
never does, objects must go all the same.
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


async def reconcile_namespace(namespace: str, telling: Telling) -> Outcome:
    """Let the optimizer have what is in a namespace, then let go what is to go."""
    try:
        objects = telling.mirror.all(namespace)
        told = [o for o in objects if o.reference.resource is not Optimizer]
        await hold(told, telling.cluster)
        leaving = [o for o in told if o.deleted is not None and FINALIZER in o.finalizers]
        if not leaving and telling.mirror.namespaces() != {namespace}:
            return Outcome.SETTLED  # it holds one namespace; this one when its turn comes
        failure = await _tell(objects, telling)
        await release(_overdue(leaving, telling) if failure else leaving, telling.cluster)
    except InfernoError as error:
        failure = error
    if failure is None:
        return Outcome.SETTLED
    logger.warning("namespace %s: not all is told or released yet: %s", namespace, failure)
    return Outcome.FAILED


async def _tell(objects: Iterable[Observation], telling: Telling) -> InfernoError | None:
    """Tell the optimizer what is to stay; what went wrong, if anything did."""
    present = readable(o for o in objects if o.deleted is None)
    try:
        await telling.optimizer.tell(build_system(present).system)
    except InfernoError as error:
        return error
    return None


def _overdue(leaving: Iterable[Observation], telling: Telling) -> list[Observation]:
    limit = telling.now() - PATIENCE
    return [o for o in leaving if o.deleted is not None and o.deleted <= limit]
