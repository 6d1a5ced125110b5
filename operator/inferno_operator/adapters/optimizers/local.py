"""Runs the embedded optimizer in a worker process."""

import asyncio
import logging

from anyio import BrokenWorkerProcess

from inferno_optimizer.errors import SolverError
from inferno_optimizer.optimize import optimize
from inferno_optimizer.solution import Solution
from inferno_optimizer.system import System
from inferno_optimizer.workers import call_in_worker

WORKERS = 2
"""Largest number of worker processes; each uses about 150 MB of memory."""

logger = logging.getLogger(__name__)


class LocalOptimizer:
    """The embedded optimizer.

    It runs in a process, because a process can be killed. A thread would continue until the time
    limit after its task is cancelled, and would delay the exit of the operator. A process takes
    about a second to start, and is reused for the next optimization.
    """

    def __init__(self) -> None:
        self._free = asyncio.Semaphore(WORKERS)
        self._is_warm = asyncio.Event()
        self._is_warm.set()

    async def warm_up(self) -> None:
        """Start a worker process, so that the first request does not wait for it.

        Requests meanwhile wait for this process: another one would not start sooner.
        """
        self._is_warm.clear()
        try:
            await self._solve(System(capacity={}))
        except SolverError as error:
            logger.warning("not ready to solve yet: %s", error)
        finally:
            self._is_warm.set()

    async def optimize(self, system: System) -> Solution:
        """Optimize in a process that is killed when the task is cancelled."""
        await self._is_warm.wait()
        return await self._solve(system)

    async def _solve(self, system: System) -> Solution:
        await self._free.acquire()
        try:
            return await call_in_worker(self._free, optimize, system)
        except BrokenWorkerProcess as error:
            raise SolverError(
                "the process that solves ended before it had an answer; is there enough memory?"
            ) from error
