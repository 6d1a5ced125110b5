"""Watch Servers and Optimizers, and report what cannot wait for the next optimization.

Servers that name what does not exist are reported at once, and so are those for which nobody
plans any more.
"""

import asyncio
import logging
from collections import defaultdict
from collections.abc import Sequence

from inferno_operator.controllers.optimization.changes import Update
from inferno_operator.controllers.optimization.names import check_names
from inferno_operator.controllers.optimization.source import ObjectSource
from inferno_operator.controllers.optimization.unplanned import check_planned
from inferno_operator.resources import Optimizer, Server
from inferno_operator.resources.conditions import ALLOCATED
from inferno_operator.resources.objects import Manifest, Now, kind_of
from inferno_operator.resources.observation import Observation
from inferno_operator.runtime.cache import ObjectDifference
from inferno_operator.runtime.informer import Area
from inferno_operator.runtime.informers import Informers
from inferno_operator.runtime.ports import Cluster, FieldManager
from inferno_operator.runtime.updates import Writer
from inferno_operator.runtime.work_queue import ReconcileResult, WorkQueue
from inferno_optimizer.errors import InfernoError

SETTLE_SECONDS = 1.0
"""How long other changes are awaited [s]: Servers are often applied together with their classes."""

SERVER, OPTIMIZER = kind_of(Server), kind_of(Optimizer)
NAMES = "name", "class", "model", "modelBooster", "workloads"

logger = logging.getLogger(__name__)


class ServerCheck:
    """Checks the names of Servers when one is new, is gone, or names something else than before.

    Servers are also checked when their namespace gets its first Optimizer or loses its last one.

    Parameters
    ----------
    cluster, informers, source
        Where Servers are written and watched, and where all objects are read.
    now
        The time of day.
    locks
        Allow one writer of conditions per namespace at a time.
    """

    def __init__(
        self,
        cluster: Cluster,
        informers: Informers,
        source: ObjectSource,
        now: Now,
        locks: defaultdict[str, asyncio.Lock],
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
        """Ask for a check if a Server or an Optimizer changed in a way that matters."""
        namespace = difference.place.key.namespace
        if difference.place.kind == SERVER:
            if _is_due(difference):
                self.queue.add(namespace)
        elif self._objects.is_complete and difference.concerns(_is_there):
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
        planned = check_planned(servers, has_optimizer=self._has_optimizer(namespace))
        updates = {update.reference: update for update in (*planned, *check_names(observations))}
        return list(updates.values())


def _is_due(difference: ObjectDifference) -> bool:
    """Whether a Server has other names than before, is gone, or has no condition yet."""
    if not difference.concerns(_names):
        return False
    server = difference.after
    return difference.before is not None or server is None or not _is_reported(server)


def _is_there(optimizer: Manifest) -> tuple[object, ...]:
    """Return which Optimizer it is, and whether it is deleted."""
    return optimizer["metadata"].get("uid"), optimizer["metadata"].get("deletionTimestamp")


def _names(server: Manifest) -> tuple[object, ...]:
    """Return what a Server names, and which one it is."""
    spec = server.get("spec") or {}
    return server["metadata"].get("uid"), *(spec.get(name) for name in NAMES)


def _is_reported(server: Manifest) -> bool:
    """Whether a Server has the condition Allocated."""
    conditions = server.get("status", {}).get("conditions", ())
    return any(condition["type"] == ALLOCATED for condition in conditions)
