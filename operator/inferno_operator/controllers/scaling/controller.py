"""Watch Servers, what runs them, and pods; reconcile per namespace."""

from functools import partial

from inferno_operator.controllers.scaling.reconcile import Context, SystemOf, reconcile
from inferno_operator.controllers.scaling.world import WorkloadObjects
from inferno_operator.resources.objects import Now
from inferno_operator.runtime.informers import Informers
from inferno_operator.runtime.ports import Cluster
from inferno_operator.runtime.work_queue import WorkQueue

SETTLE_SECONDS = 0.2
"""How long further changes are awaited: a plan changes many Servers, and each change costs all."""


class ScalingController:
    """Scales what runs the Servers of a namespace, all of them together.

    `system_of` builds the system that the objects of a namespace describe.
    """

    def __init__(
        self, cluster: Cluster, informers: Informers, system_of: SystemOf, now: Now
    ) -> None:
        self._world = WorkloadObjects(cluster, informers, self._changed)
        context = Context(cluster, self._world, system_of, now)
        self.queue: WorkQueue[str] = WorkQueue(
            partial(reconcile, context=context), settle=SETTLE_SECONDS
        )

    async def run(self) -> None:
        """Watch objects until cancelled."""
        await self._world.run()

    async def stop(self) -> None:
        """Stop reconciling and watching."""
        await self.queue.close()
        await self._world.stop()

    def recheck(self, namespace: str) -> None:
        """Ask for a reconcile of a namespace whose cards changed."""
        if self._world.has_scaled(namespace):
            self._changed(namespace)

    def _changed(self, namespace: str) -> None:
        self.queue.add(namespace)
