"""A pool of worker processes: an optimization holds up no request, and can be broken off."""

import asyncio
import contextlib
import os
import signal
import socket
import sys
from http import HTTPStatus

from inferno_optimizer.api.limits import MEBIBYTE, ServerLimits
from inferno_optimizer.api.messages import Refusal

Reply = tuple[int, bytes]
"""Status and JSON."""

ENDED = (asyncio.IncompleteReadError, ConnectionError)
"""Errors of reading from a process that has ended, and of writing to it."""


class WorkerProcess:
    """A process that answers one question after the other."""

    def __init__(
        self, pid: int, answers: asyncio.StreamReader, questions: asyncio.StreamWriter
    ) -> None:
        self._pid = pid
        self._answers = answers
        self._questions = questions

    @property
    def alive(self) -> bool:
        """Whether it still runs."""
        return not self._answers.at_eof()

    async def ask(self, body: bytes) -> Reply:
        """Return the answer to a body of optimizeOne.

        Raises
        ------
        Refusal
            The process ended without an answer.
        """
        try:
            self._questions.write(b"%d\n" % len(body))
            self._questions.write(body)
            await self._questions.drain()
            status, length = map(int, (await self._answers.readuntil()).split())
            return status, await self._answers.readexactly(length)
        except ENDED as error:
            raise _broken_off() from error

    def end(self) -> None:
        """End it and the solvers that it started, whatever they are doing."""
        with contextlib.suppress(ProcessLookupError):
            if self.alive:
                os.killpg(self._pid, signal.SIGKILL)
        self._questions.close()


class ForkServer:
    """A process that has the solvers loaded and forks workers.

    A new process takes a second to load them, a forked one starts within milliseconds.
    """

    def __init__(self, time_limit: float) -> None:
        self._time_limit = time_limit
        self._lock = asyncio.Lock()
        self._process: asyncio.subprocess.Process | None = None
        self._control: socket.socket | None = None

    async def fork(self) -> WorkerProcess:
        """Start a worker; it ends with us, as its connection ends then.

        Raises
        ------
        Refusal
            The process cannot load the solvers, or has ended.
        """
        async with self._lock:
            control = await self._started()
            try:
                return await _forked(control)
            except ENDED as error:
                raise _broken_off() from error

    async def _started(self) -> socket.socket:
        """Start the process, unless it runs, and give the socket that it reads."""
        if self._control and self._process and self._process.returncode is None:
            return self._control
        await self.end()
        self._control, theirs = socket.socketpair()
        with theirs:
            self._process = await asyncio.create_subprocess_exec(
                sys.executable,
                "-m",
                "inferno_optimizer.api.worker",
                str(self._time_limit),
                stdin=theirs.fileno(),
                env={**os.environ, "OPENBLAS_NUM_THREADS": "1"},  # as threads do not survive a fork
                start_new_session=True,  # Ctrl-C is not for it
            )
        return self._control

    async def end(self) -> None:
        """End the process; its workers stay."""
        if self._control:
            self._control.close()
        if self._process:
            with contextlib.suppress(ProcessLookupError):
                self._process.kill()
            await self._process.wait()


async def _forked(control: socket.socket) -> WorkerProcess:
    """Send a fork server the connection of a new worker."""
    ours, theirs = socket.socketpair()
    with theirs:
        socket.send_fds(control, [b"\n"], [theirs.fileno()])
    answers, questions = await asyncio.open_unix_connection(sock=ours, limit=MEBIBYTE)
    with contextlib.ExitStack() as unless_forked:
        unless_forked.callback(questions.close)
        pid = int(await answers.readuntil())
        unless_forked.pop_all()
    return WorkerProcess(pid, answers, questions)


class WorkerPool:
    """Optimizes on a bounded number of workers, which are started when they are needed."""

    def __init__(self, limits: ServerLimits) -> None:
        self._limits = limits
        self._free = asyncio.Semaphore(limits.workers)
        self._idle: list[WorkerProcess] = []
        self._fork_server = ForkServer(limits.time_limit)
        self.running = 0
        self.waiting = 0

    async def start(self) -> None:
        """Start the first worker and see that it works, so that nobody has to wait for it."""
        await self.solve(b"null")

    async def close(self) -> None:
        """End all workers; nobody may be waiting for an answer."""
        for worker in self._idle:
            worker.end()
        await self._fork_server.end()

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

    async def _answered(self, body: bytes) -> Reply:
        limits = self._limits
        worker = await self._worker()
        try:
            async with asyncio.timeout(limits.solve_seconds):
                answer = await worker.ask(body)
        except TimeoutError as error:
            worker.end()
            message = f"the optimization took longer than {limits.solve_seconds:g} s; send less"
            raise Refusal.because(HTTPStatus.GATEWAY_TIMEOUT, message) from error
        except (Refusal, asyncio.CancelledError):
            worker.end()
            raise
        self._idle.append(worker)
        return answer

    async def _worker(self) -> WorkerProcess:
        """An idle worker, unless something else ended it, or a new one."""
        while self._idle:
            worker = self._idle.pop()
            if worker.alive:
                return worker
            worker.end()
        return await self._fork_server.fork()


def _busy(why: str) -> Refusal:
    return Refusal.because(HTTPStatus.SERVICE_UNAVAILABLE, f"busy: {why}; try again later")


def _broken_off() -> Refusal:
    message = "the optimization broke off; the server's log may tell why"
    return Refusal.because(HTTPStatus.INTERNAL_SERVER_ERROR, message)
