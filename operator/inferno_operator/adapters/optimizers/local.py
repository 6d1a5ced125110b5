"""Solve on this machine, in a process of its own."""

import logging

from anyio import BrokenWorkerProcess, CapacityLimiter, to_process

from inferno_optimizer.errors import SolverError
from inferno_optimizer.optimize import optimize
from inferno_optimizer.system import Solution, System

WORKERS = 2
"""Solves at a time; each process takes some 150 MB."""

logger = logging.getLogger(__name__)


class LocalOptimizer:
    """The embedded optimizer.

    A thread would go on solving for as long as the time limit lets it when nobody wants the
    answer any more, and the operator could not end before. A process can be killed. It takes
    about a second to start, and waits for the next solve.
    """

    def __init__(self) -> None:
        self._limiter = CapacityLimiter(WORKERS)

    async def warm_up(self) -> None:
        """Start the process, so that the first request does not wait for it."""
        try:
            await self.optimize(System(capacity={}))
        except SolverError as error:
            logger.warning("not ready to solve yet: %s", error)

    async def optimize(self, system: System) -> Solution:
        """Solve in a process that is killed when the task is cancelled."""
        try:
            return await to_process.run_sync(
                optimize, system, cancellable=True, limiter=self._limiter
            )
        except BrokenWorkerProcess as error:
            raise SolverError(
                "the process that solves ended before it had an answer; is there enough memory?"
            ) from error
