"""Count the cards of nodes when nodes or pods change, for Capacities that ask for it."""

import asyncio
import logging
from collections.abc import Callable, Sequence

from inferno_operator.controllers.capacity.pod_owners import Selectors
from inferno_operator.controllers.capacity.reconcile import Context, reconcile
from inferno_operator.controllers.capacity.world import CapacityObjects
from inferno_operator.resources.objects import Now
from inferno_operator.runtime.informers import Informers
from inferno_operator.runtime.ports import Cluster
from inferno_operator.runtime.work_queue import Cycles, ReconcileResult
from inferno_optimizer.errors import InfernoError
from inferno_optimizer.placement import Node

CYCLE = "count all cards"
"""The name of the cycle."""

INTERVAL_SECONDS = 30.0
"""Seconds until what is not watched is read again: accelerators, quotas, pools and queues."""

DEBOUNCE_SECONDS = 1.0
"""Seconds that a count waits for further changes."""

PATIENCE_SECONDS = 10.0
"""Seconds that an optimization waits for the first count."""

logger = logging.getLogger(__name__)


class CapacityController:
    """Counts the cards of nodes for Capacities with `spec.fromNodes`.

    Parameters
    ----------
    cluster
        The API server.
    informers
        What watches; their namespaces are those to count for.
    now
        The time of day.
    changed
        Called with each namespace whose counts changed.
    """

    def __init__(
        self,
        cluster: Cluster,
        informers: Informers,
        now: Now,
        changed: Callable[[str], None],
    ) -> None:
        self._world = CapacityObjects(informers, self._something_changed)
        namespaces = informers.namespaces
        self._context = Context(cluster, self._world, Selectors(cluster), namespaces, now, changed)
        self._counted = asyncio.Event()
        self.queue = Cycles({CYCLE: self._cycle})

    async def run(self) -> None:
        """Count until cancelled."""
        await self._world.run()

    async def stop(self) -> None:
        """Stop counting and watching."""
        await self.queue.close()
        await self._world.stop()

    async def nodes(self, namespace: str) -> Sequence[Node]:
        """Return the nodes whose cards a namespace may use; none if they are not counted.

        Waits for the first count, for a limited time.
        """
        try:
            async with asyncio.timeout(PATIENCE_SECONDS):
                await self._counted.wait()
        except TimeoutError:
            return ()
        count = self._context.counts.get(namespace)
        return [] if count is None else [node.for_placement(namespace) for node in count.view.nodes]

    def _something_changed(self) -> None:
        self.queue.request(CYCLE)

    async def _cycle(self) -> ReconcileResult:
        if self._counted.is_set():
            await asyncio.sleep(DEBOUNCE_SECONDS)
        try:
            result = await reconcile(self._context)
        except InfernoError as error:
            logger.warning("no count of the cards of nodes: %s", error)
            return ReconcileResult.FAILED
        if result.is_done:
            self._counted.set()
        return ReconcileResult.due_after(0.0 if result.has_written else INTERVAL_SECONDS)
