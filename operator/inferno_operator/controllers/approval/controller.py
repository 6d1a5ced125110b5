"""Watch Plans, their Optimizers and Servers; reconcile per namespace."""

import asyncio
from collections import defaultdict
from functools import partial

from inferno_operator.controllers.approval.approver import PlanApprover
from inferno_operator.controllers.approval.ports import KeySource
from inferno_operator.controllers.approval.reconcile import Context, reconcile
from inferno_operator.controllers.approval.store import FOLLOWED, OPTIMIZER, PLAN, PlanStore
from inferno_operator.controllers.optimization.ports import Loads
from inferno_operator.controllers.optimization.source import ObjectSource
from inferno_operator.resources.objects import Now
from inferno_operator.runtime.cache import ObjectDifference, generation_of
from inferno_operator.runtime.informers import Informers
from inferno_operator.runtime.ports import Cluster
from inferno_operator.runtime.work_queue import WorkQueue


class PlansController:
    """Drives Plans to their end.

    Parameters
    ----------
    cluster, informers
        The API server, and what watches it.
    source, loads
        Give what optimizations decide from.
    now
        The time of day.
    key
        Gives the key with which the operator signs its Plans.

    Attributes
    ----------
    approver
        Where optimizations ask what they may write.
    locks
        Allow one writer of decisions per namespace at a time.
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
        self.locks: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)
        self.writes: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)
        context = Context(cluster, store, source, loads, now, self.locks, self.writes)
        self.queue: WorkQueue[str] = WorkQueue(partial(reconcile, context=context))

    async def run(self) -> None:
        """Watch objects until cancelled."""
        await self._objects.run()

    async def stop(self) -> None:
        """Stop reconciling."""
        await self.queue.close()

    def _changed(self, difference: ObjectDifference) -> None:
        """Ask for a reconcile; Servers are looked at when a Plan asks for it.

        The status of an Optimizer changes nothing for Plans.
        """
        kind = difference.place.kind
        if kind == PLAN or (kind == OPTIMIZER and difference.concerns(generation_of)):
            self.queue.add(difference.place.key.namespace)
