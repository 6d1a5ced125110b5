"""A pool of worker processes: an optimization holds up no request, and can be broken off."""

import asyncio
import contextlib
import os
import signal
import sys
from http import HTTPStatus

from inferno_optimizer.api.limits import MEBIBYTE, Limits
from inferno_optimizer.api.messages import Refusal
from inferno_optimizer.api.worker import ANSWER, QUESTION

Answer = tuple[int, bytes]
"""Status and JSON."""


class Worker:
    """A process that answers one question after the other."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process

    @classmethod
    async def start(cls, time_limit: float) -> "Worker":
        """Start one; it ends with us, as its input ends then."""
        return cls(
            await asyncio.create_subprocess_exec(
                sys.executable,
                "-m",
                "inferno_optimizer.api.worker",
                str(time_limit),
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                limit=MEBIBYTE,
                start_new_session=True,  # Ctrl-C is not for it, and solvers that it starts end too
            )
        )

    @property
    def alive(self) -> bool:
        """Whether it is there still."""
        return self._process.returncode is None

    async def ask(self, body: bytes) -> Answer:
        """Have a body of optimizeOne answered.

        Raises
        ------
        Refusal
            It died over it.
        """
        questions, answers = self._process.stdin, self._process.stdout
        if questions is None or answers is None:
            raise RuntimeError("the worker has no pipes")
        try:
            questions.write(QUESTION.pack(len(body)))
            questions.write(body)
            await questions.drain()
            status, length = ANSWER.unpack(await answers.readexactly(ANSWER.size))
            return status, await answers.readexactly(length)
        except (asyncio.IncompleteReadError, ConnectionError) as error:
            message = "the optimization broke off; the server's log may tell why"
            raise Refusal.because(HTTPStatus.INTERNAL_SERVER_ERROR, message) from error

    async def end(self) -> None:
        """End it, whatever it is doing."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        await self._process.wait()


class WorkerPool:
    """Optimizes on a bounded number of workers, which are started when they are needed."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._free = asyncio.Semaphore(limits.workers)
        self._idle: list[Worker] = []
        self._ending: set[asyncio.Task[None]] = set()
        self.running = 0
        self.waiting = 0

    async def start(self) -> None:
        """Start the first worker and see that it works, so that nobody has to wait for it."""
        await self.solve(b"null")

    async def close(self) -> None:
        """End all workers; nobody may be waiting for an answer."""
        await asyncio.gather(*self._ending, *(worker.end() for worker in self._idle))

    async def solve(self, body: bytes) -> Answer:
        """Optimize what a body of optimizeOne describes; when cancelled that ends too.

        Raises
        ------
        Refusal
            Too many want the same, it took too long, or it broke off.
        """
        await self._enter()
        self.running += 1
        try:
            return await self._answered(body)
        finally:
            self.running -= 1
            self._free.release()

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

    async def _answered(self, body: bytes) -> Answer:
        limits = self._limits
        worker = await self._worker()
        try:
            async with asyncio.timeout(limits.solve_seconds):
                answer = await worker.ask(body)
        except TimeoutError as error:
            self._end(worker)
            message = f"the optimization took longer than {limits.solve_seconds:g} s; send less"
            raise Refusal.because(HTTPStatus.GATEWAY_TIMEOUT, message) from error
        except (Refusal, asyncio.CancelledError):
            self._end(worker)
            raise
        self._idle.append(worker)
        return answer

    async def _worker(self) -> Worker:
        """An idle worker, unless something else ended it, or a new one."""
        while self._idle:
            worker = self._idle.pop()
            if worker.alive:
                return worker
        return await Worker.start(self._limits.time_limit)

    def _end(self, worker: Worker) -> None:
        """End a worker without waiting for that."""
        task = asyncio.create_task(worker.end())
        self._ending.add(task)
        task.add_done_callback(self._ending.discard)


def _busy(why: str) -> Refusal:
    return Refusal.because(HTTPStatus.SERVICE_UNAVAILABLE, f"busy: {why}; try again later")
