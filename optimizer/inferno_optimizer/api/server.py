"""The server of `inferno serve`: it listens, serves, and stops when it is told to."""

import asyncio
import logging
import os
import re
import signal
import socket
import ssl
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http import HTTPStatus

import uvicorn
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from inferno_optimizer.api.app import create_app
from inferno_optimizer.api.connection import OriginForm, configuration, send_at_once
from inferno_optimizer.api.limits import ServerLimits
from inferno_optimizer.api.messages import message_reply
from inferno_optimizer.api.security import Files, TokenGuard, tls_context
from inferno_optimizer.errors import InputError

PORT = re.compile("[0-9]{1,5}")
LARGEST_PORT = 65535


def serve(
    host: str,
    port: int,
    limits: ServerLimits,
    files: Files,
    say: Callable[[str], None],
    *,
    stateful: bool = False,
) -> None:
    """Serve until SIGTERM or SIGINT.

    Parameters
    ----------
    host, port
        Where to listen; port 0 for a free one.
    limits
        Sizes, times and counts.
    files
        Certificates and token.
    say
        Called with the line that tells where it listens.
    stateful
        Whether to keep a system that clients change.

    Raises
    ------
    InputError
        It cannot listen there, or the files cannot be used.
    """
    logging.basicConfig(
        level=logging.INFO,
        stream=sys.stderr,
        format="%(asctime)s %(levelname)-7s %(name)s: %(message)s",
    )
    guarded = files.token is not None
    app: ASGIApp = create_app(limits, stateful=stateful, guarded=guarded)
    if files.token is not None:
        app = TokenGuard(app, files.token)
    app = OriginForm(app)
    tls = tls_context(files)
    with listen(host, port) as listening:
        mode = "stateful" if stateful else "stateless"
        where = url_of(listening, secure=tls is not None)
        server = _Server(_Requests(app), tls, limits, lambda: say(f"listening on {where} ({mode})"))
        server.run([listening])


class _Requests:
    """Serves each request in a task; a request whose task is cancelled is answered with 503."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app
        self._tasks: set[asyncio.Task[None]] = set()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a request, or answer that the server is stopping."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        begun = False

        async def watch(message: Message) -> None:
            nonlocal begun
            begun = True
            await send(message)

        task = asyncio.create_task(self._serve(scope, receive, watch))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        await asyncio.wait([task])
        if not task.cancelled():
            task.result()
        elif not begun:
            stopping = "the server is stopping; send it again"
            await message_reply(HTTPStatus.SERVICE_UNAVAILABLE, stopping)(scope, receive, send)

    async def _serve(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._app(scope, receive, send)

    async def end_after(self, seconds: float) -> None:
        """Let requests finish for a while, then end those that are still there."""
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=seconds)
        for task in self._tasks:
            task.cancel()


class _Server(uvicorn.Server):
    """A server that lets requests end for some seconds when it stops, and logs nothing then."""

    def __init__(
        self,
        requests: _Requests,
        tls: ssl.SSLContext | None,
        limits: ServerLimits,
        ready: Callable[[], None],
    ) -> None:
        super().__init__(configuration(requests, limits, tls, lifespan=True))
        self._requests = requests
        self._stop_seconds = limits.stop_seconds
        self._ready = ready

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start, and tell where it listens."""
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


def port_of(text: str) -> int:
    """Read a port.

    Raises
    ------
    InputError
        It is not a port; the message explains the value that Kubernetes may have put there.
    """
    if "://" in text:
        raise InputError(
            f"INFERNO_PORT: {text!r} is the address of a Service called inferno, which Kubernetes"
            " put into the environment (a service link); set enableServiceLinks: false in the"
            " pod, or INFERNO_PORT or --port to a number"
        )
    if not PORT.fullmatch(text) or int(text) > LARGEST_PORT:
        raise InputError(f"INFERNO_PORT or --port: {text!r} is no port: 0 to {LARGEST_PORT}")
    return int(text)


def listen(host: str, port: int) -> socket.socket:
    """Listen; on port 0 on one that is free.

    Raises
    ------
    InputError
        Nobody can listen there.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        listening = socket.create_server((host, port), family=family)
    except socket.gaierror as error:
        raise InputError(f"cannot listen on {host}: {error.strerror}") from error
    except OSError as error:
        reason = os.strerror(error.errno or 0)  # without the address, which is there already
        raise InputError(f"cannot listen on {host}, port {port}: {reason}") from error
    except UnicodeError as error:
        raise InputError(f"cannot listen on {host}: no name of a host") from error
    send_at_once(listening)
    return listening


def url_of(listening: socket.socket, *, secure: bool) -> str:
    """The address of a server, as people write it."""
    host, port = listening.getsockname()[:2]
    return f"{'https' if secure else 'http'}://{f'[{host}]' if ':' in host else host}:{port}"
