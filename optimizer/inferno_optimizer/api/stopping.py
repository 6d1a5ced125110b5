"""A server that ends on a signal, and how the requests end that it serves then."""

import asyncio
import signal
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import uvicorn
from starlette.types import ASGIApp, Message, Receive, Scope, Send


class RunningRequests:
    """Serves each request in a task; one whose task is cancelled gets the refusal.

    An answer of unknown length that has begun, such as a stream of events, ends where it is.

    Parameters
    ----------
    app
        Serves the requests.
    refusal
        Answers the requests that are cancelled before they are answered.
    """

    def __init__(self, app: ASGIApp, refusal: ASGIApp) -> None:
        self._app, self._refusal = app, refusal
        self._tasks: set[asyncio.Task[None]] = set()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a request, or refuse it because the server is stopping."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        begun = streams = False

        async def watch(message: Message) -> None:
            nonlocal begun, streams
            if message["type"] == "http.response.start":
                begun = True
                streams = all(name.lower() != b"content-length" for name, _ in message["headers"])
            await send(message)

        task = asyncio.create_task(self._serve(scope, receive, watch))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        await asyncio.wait([task])
        if not task.cancelled():
            task.result()
        elif not begun:
            await self._refusal(scope, receive, send)
        elif streams:
            await send({"type": "http.response.body", "body": b""})

    async def _serve(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._app(scope, receive, send)

    async def end_after(self, seconds: float) -> None:
        """Let requests finish for a while, then end those that are still there."""
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=seconds)
        for task in self._tasks:
            task.cancel()


class StoppingServer(uvicorn.Server):
    """A server that lets requests end for some seconds when it stops, and logs nothing then.

    The base has a limit of its own (`timeout_graceful_shutdown`), of whole seconds: it logs an
    error, and answers 500 in text; and it raises the signal again, so that the process is killed.

    Parameters
    ----------
    config
        Serves `requests`.
    requests
        Those that run.
    stop_seconds
        How long they may run when the server stops.
    ready
        Called when it listens.
    """

    def __init__(
        self,
        config: uvicorn.Config,
        requests: RunningRequests,
        stop_seconds: float,
        ready: Callable[[], None] = lambda: None,
    ) -> None:
        super().__init__(config)
        self._requests, self._stop_seconds, self._ready = requests, stop_seconds, ready

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start, and tell that it listens."""
        await super().startup(sockets)
        self._ready()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Stop; requests that take longer than they may are cancelled."""
        ending = asyncio.create_task(self._requests.end_after(self._stop_seconds))
        await super().shutdown(sockets)
        await ending

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Stop on signals; unlike the base, which raises them again when all is done."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._stop)
        yield

    def _stop(self) -> None:
        self.should_exit = True
