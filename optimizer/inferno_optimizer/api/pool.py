"""A pool of worker processes: an optimization holds up no request, and can be broken off."""

import asyncio
from http import HTTPStatus

from anyio import BrokenWorkerProcess

from inferno_optimizer.api.limits import ServerLimits
from inferno_optimizer.api.messages import Refusal
from inferno_optimizer.api.worker import answer
from inferno_optimizer.workers import call_in_worker

Reply = tuple[int, bytes]
"""Status and JSON."""


class WorkerPool:
    """Optimizes on a bounded number of workers, which are started when they are needed.

    A process can be killed when it takes too long, or when nobody waits for its answer any more;
    another one takes about a second to start.
    """

    def __init__(self, limits: ServerLimits) -> None:
        self._limits = limits
        self._free = asyncio.Semaphore(limits.workers)
        self.running = 0
        self.waiting = 0

    async def start(self) -> None:
        """Start the first worker and see that it works, so that nobody has to wait for it."""
        await self._free.acquire()
        await self._run(b"null")

    async def solve(self, body: bytes) -> Reply:
        """Optimize what a body of optimizeOne describes; when cancelled that ends too.

        Raises
        ------
        Refusal
            Too many optimizations wait, or this one took too long, or its process ended.
        """
        await self._enter()
        self.running += 1
        try:
            return await self._answer(body)
        finally:
            self.running -= 1

    async def _enter(self) -> None:
        if self._free.locked() and self.waiting >= self._limits.waiting:
            raise _busy(f"{self.waiting} optimizations are waiting already")
        self.waiting += 1
        try:
            async with asyncio.timeout(self._limits.queue_seconds):
                await self._free.acquire()
        except TimeoutError as error:
            raise _busy(f"others took all of {self._limits.queue_seconds:g} s") from error
        finally:
            self.waiting -= 1

    async def _answer(self, body: bytes) -> Reply:
        most_s = self._limits.solve_seconds
        try:
            async with asyncio.timeout(most_s):
                return await self._run(body)
        except TimeoutError as error:
            message = f"the optimization took longer than {most_s:g} s; send less"
            raise Refusal.because(HTTPStatus.GATEWAY_TIMEOUT, message) from error
        except BrokenWorkerProcess as error:
            message = "the optimization broke off; is there enough memory?"
            raise Refusal.because(HTTPStatus.INTERNAL_SERVER_ERROR, message) from error

    async def _run(self, body: bytes) -> Reply:
        return await call_in_worker(self._free, answer, body, self._limits.time_limit)


def _busy(why: str) -> Refusal:
    return Refusal.because(HTTPStatus.SERVICE_UNAVAILABLE, f"busy: {why}; try again later")
