"""Watch Servers, and report at once on those that name what does not exist."""

import asyncio
import logging
from collections import defaultdict

from inferno_operator.controllers.optimization.names import check_names
from inferno_operator.controllers.optimization.source import ObjectSource
from inferno_operator.resources import Server
from inferno_operator.resources.conditions import ALLOCATED
from inferno_operator.resources.objects import Manifest, Now, kind_of
from inferno_operator.runtime.cache import ObjectDifference
from inferno_operator.runtime.informers import Informers
from inferno_operator.runtime.ports import Cluster, FieldManager
from inferno_operator.runtime.updates import Writer
from inferno_operator.runtime.work_queue import ReconcileResult, WorkQueue
from inferno_optimizer.errors import InfernoError

SETTLE_SECONDS = 1.0
"""How long other changes are awaited [s]: Servers are often applied together with their classes."""

SERVER = kind_of(Server)
NAMES = "name", "class", "model"

logger = logging.getLogger(__name__)


class NameCheck:
    """Checks the names of Servers that are new or name something else than before.

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
        self._servers = informers.subscribe([SERVER], self._changed)
        self.queue: WorkQueue[str] = WorkQueue(self._check, settle=SETTLE_SECONDS)

    async def run(self) -> None:
        """Watch Servers until cancelled."""
        await self._servers.run()

    async def stop(self) -> None:
        """Stop checking."""
        await self.queue.close()

    def _changed(self, difference: ObjectDifference) -> None:
        """Ask for a check if a Server has other names than before, or has no condition yet."""
        server = difference.after
        if server is None or not difference.concerns(_names):
            return
        if difference.before is not None or not _is_reported(server):
            self.queue.add(difference.place.key.namespace)

    async def _check(self, namespace: str) -> ReconcileResult:
        try:
            async with self._locks[namespace]:
                observations = await self._source.objects(namespace)
                await self._writer.write_all(check_names(observations))
        except InfernoError as error:
            logger.warning("namespace %s: names of Servers are not checked: %s", namespace, error)
            return ReconcileResult.FAILED
        return ReconcileResult.SETTLED


def _names(server: Manifest) -> tuple[object, ...]:
    """Return what a Server names, and which one it is."""
    spec = server.get("spec") or {}
    return server["metadata"].get("uid"), *(spec.get(name) for name in NAMES)


def _is_reported(server: Manifest) -> bool:
    """Whether a Server has the condition Allocated."""
    conditions = server.get("status", {}).get("conditions", ())
    return any(condition["type"] == ALLOCATED for condition in conditions)
