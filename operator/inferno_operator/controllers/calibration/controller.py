"""Calibrate Models every minute."""

import asyncio
from collections.abc import Sequence

from inferno_operator.controllers.calibration.ports import WindowSource
from inferno_operator.controllers.calibration.reconcile import Context, reconcile
from inferno_operator.resources.objects import Now
from inferno_operator.runtime.ports import Cluster
from inferno_operator.runtime.work_queue import Cycles, ReconcileResult

CYCLE = "calibrate all Models"
"""The name of the cycle."""

INTERVAL_SECONDS = 60.0
"""Seconds between two cycles, and the length of a window."""


class CalibrationController:
    """Finds the parameters of Models from what their replicas do.

    Parameters
    ----------
    cluster
        The API server.
    windows
        What replicas do.
    namespaces
        The namespaces of the Models; if empty, all.
    now
        The time of day.
    """

    def __init__(
        self, cluster: Cluster, windows: WindowSource, namespaces: Sequence[str], now: Now
    ) -> None:
        self._context = Context(cluster, windows, namespaces, now)
        self.queue = Cycles({CYCLE: self._cycle})

    async def run(self) -> None:
        """Calibrate until cancelled."""
        self.queue.start()
        await asyncio.Event().wait()

    async def stop(self) -> None:
        """Stop calibrating."""
        await self.queue.close()

    async def _cycle(self) -> ReconcileResult:
        await reconcile(self._context)
        return ReconcileResult.due_after(INTERVAL_SECONDS)
