"""Count regularly what Servers cost, beside what other policies would have cost."""

from itertools import count

from inferno_operator.controllers.savings.reconcile import (
    KINDS,
    Context,
    MeasuredLoads,
    SystemOf,
    reconcile,
)
from inferno_operator.resources.objects import Now
from inferno_operator.runtime.cycles import Cycles
from inferno_operator.runtime.informers import Informers
from inferno_operator.runtime.observer import Observer
from inferno_operator.runtime.ports import Cluster
from inferno_operator.runtime.work_queue import ReconcileResult

STEP = "count a step"
"""The name of the cycle."""


class SavingsController:
    """Keeps an account of each measured Server.

    Parameters
    ----------
    cluster, informers
        The API server, and what watches it.
    measurements
        Knows what was measured.
    system_of
        Builds the system that the objects of a namespace describe.
    step_s
        Time between two steps [s].
    now
        The time of day.
    observer
        Receives a call for each namespace and each step.
    """

    def __init__(
        self,
        cluster: Cluster,
        informers: Informers,
        measurements: MeasuredLoads,
        system_of: SystemOf,
        step_s: float,
        now: Now,
        observer: Observer,
    ) -> None:
        self._steps = count()
        self._objects = informers.subscribe(KINDS)  # all objects are read in each step
        self._context = Context(
            cluster, self._objects, measurements, system_of, now, step_s, observer
        )
        self.queue = Cycles({STEP: self._step})

    async def run(self) -> None:
        """Count until cancelled."""
        self.queue.start()
        await self._objects.run()

    async def stop(self) -> None:
        """Stop counting."""
        await self.queue.close()

    async def _step(self) -> ReconcileResult:
        await self._objects.complete()
        await reconcile(self._context, next(self._steps))
        return ReconcileResult.due_after(self._context.step_s)
