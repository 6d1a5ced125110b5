"""Watch Plans and their Optimizers; reconcile per namespace."""

import asyncio
from collections import defaultdict
from collections.abc import Sequence
from functools import partial
from itertools import count

from inferno_operator.controllers.optimization.ports import Loads
from inferno_operator.controllers.optimization.source import Mirror, Source
from inferno_operator.controllers.plans.book import OPTIMIZER, Book
from inferno_operator.controllers.plans.gate import Gate
from inferno_operator.controllers.plans.ports import KeySource
from inferno_operator.controllers.plans.reconcile import Context, reconcile_plans
from inferno_operator.resources import Optimizer, Plan
from inferno_operator.resources.objects import Now
from inferno_operator.runtime.cache import Difference
from inferno_operator.runtime.ports import Cluster
from inferno_operator.runtime.work_queue import WorkQueue


class PlansController:
    """Drives Plans to their end.

    Parameters
    ----------
    cluster
        The API server.
    source, loads
        Give what optimizations decide from.
    namespaces
        The namespaces to watch; if empty, all.
    now
        The time of day.
    key
        Gives the key with which the operator signs its Plans.

    Attributes
    ----------
    gate
        Where optimizations ask what they may write.
    locks
        Allow one writer of decisions per namespace at a time.
    """

    def __init__(
        self,
        cluster: Cluster,
        source: Source,
        loads: Loads,
        namespaces: Sequence[str],
        now: Now,
        key: KeySource,
    ) -> None:
        self._rounds = count()
        self._mirror = Mirror(cluster, (Plan, Optimizer), namespaces, self._changed)
        book = Book(self._mirror, cluster, now, key)
        self.gate = Gate(book, now)
        self.locks: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)
        context = Context(cluster, book, source, loads, now, self.locks)
        self.queue: WorkQueue[str] = WorkQueue(partial(reconcile_plans, context=context))

    async def run(self) -> None:
        """Watch objects until cancelled."""
        try:
            await self._mirror.run()
        finally:
            await self.stop()

    async def stop(self) -> None:
        """Stop reconciling."""
        await self.queue.close()

    def _changed(self, difference: Difference) -> None:
        """Ask for a reconcile; the status of an Optimizer changes nothing for Plans."""
        before, after = difference.before, difference.after
        is_status_only = (
            difference.place.kind == OPTIMIZER
            and before is not None
            and after is not None
            and before["metadata"]["generation"] == after["metadata"]["generation"]
        )
        if not is_status_only:
            self.queue.add(difference.place.key.namespace, next(self._rounds))
