"""HTTP connections: their limits, how they end, and where the original differs from the library."""

import asyncio
import logging
import re
import signal
import socket
import ssl
import sys
from asyncio import Transport
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from functools import partial
from http import HTTPStatus
from typing import ClassVar
from urllib.parse import unquote

import h11
import uvicorn
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.server import ServerState

from inferno_optimizer.api.messages import JSON, ServerLimits
from inferno_optimizer.wire.codec import write_json

KEEP_ALIVE = 30
"""Seconds until an idle connection is closed."""

BACKLOG = 100
"""Connections that the system accepts ahead; so many files may be opened at once."""

PROBE_AFTER = 0.25
"""Seconds after the last data of a client that has stopped sending, until it is probed."""

PROBE_AGAIN = 0.05
"""Seconds until it is probed again, then twice as long each time."""

CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"

ORIGIN = re.compile(rb"[A-Za-z][A-Za-z0-9+.-]*://[^/]*")


class OriginForm:
    """Takes a request target like http://host/path, which a proxy is sent, for /path."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a request."""
        if scope["type"] == "http" and (origin := ORIGIN.match(scope["raw_path"])):
            path = scope["raw_path"][origin.end() :]
            scope = {**scope, "raw_path": path, "path": unquote(path.decode())}
        await self._app(scope, receive, send)


def send_at_once(listening: socket.socket) -> None:
    """Let connections that a socket will accept send what they have.

    asyncio does so only for sockets that name their protocol. Without it, the second half of an
    answer waits 40 ms for the acknowledgement of the first.
    """
    listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)


def configure_http(
    app: ASGIApp, limits: ServerLimits, tls: ssl.SSLContext | None, *, lifespan: bool
) -> uvicorn.Config:
    """Configure the HTTP library to serve an application with the limits of a server."""
    return uvicorn.Config(
        app,
        http=limit_connections(limits),
        ws="none",
        lifespan="on" if lifespan else "off",
        ssl_context_factory=None if tls is None else lambda _, __: tls,
        log_config=None,
        log_level=logging.ERROR,  # a log that clients can fill is no log
        access_log=False,
        server_header=False,
        proxy_headers=False,
        backlog=BACKLOG,
        timeout_keep_alive=KEEP_ALIVE,
        timeout_graceful_shutdown=limits.stop_seconds,  # type: ignore[arg-type]  # parts of seconds, too
    )


def limit_connections(server_limits: ServerLimits) -> type["Connection"]:
    """Return the class of the connections of a server with these limits."""

    class Limited(Connection):
        limits = server_limits
        waiting: ClassVar[dict[Connection, None]] = {}

    return Limited


class Connection(H11Protocol):
    """A connection of a client.

    Unlike the base it

    - is closed when the headers of a request, or the rest of a body after its answer, do not
      arrive in time: the base limits only the time in which nothing at all arrives;
    - is closed when there are too many, if it waits longest for its client, so that who sends a
      whole request is answered;
    - refuses in JSON what is not HTTP, with the reason;
    - answers a client that stops sending after its request, as Go's net/http does
      (https://github.com/Kludex/uvicorn/issues/1264).
    """

    limits: ServerLimits
    waiting: ClassVar[dict["Connection", None]]
    """Those of the server that wait for their clients, in the order in which they began to."""

    _last_data = 0.0
    _deadline: asyncio.TimerHandle | None = None
    _next_probe: asyncio.TimerHandle | None = None

    def connection_made(self, transport: Transport) -> None:  # type: ignore[override]  # as the base
        """Begin to wait for headers."""
        super().connection_made(transport)
        self._limit_waiting(self.limits.head_seconds)
        self.waiting[self] = None
        if len(self.connections) > self.limits.connections:
            next(iter(self.waiting)).make_room()

    def data_received(self, data: bytes) -> None:
        """Stop waiting when a request is there; begin anew after it."""
        self._last_data = self.loop.time()
        super().data_received(data)
        if self.conn.their_state is h11.IDLE:
            self._limit_waiting(self.limits.head_seconds)
        elif not self._is_answered_early():
            self._stop_waiting()
        if self.conn.their_state is not h11.IDLE and self.conn.their_state is not h11.SEND_BODY:
            self.waiting.pop(self, None)  # the request is there

    def on_response_complete(self) -> None:
        """Wait for the rest of the request, if any; without a next one close the connection."""
        super().on_response_complete()
        self.waiting[self] = None
        if self._is_answered_early():
            self._limit_waiting(self.limits.body_seconds)
        if self._next_probe is not None and not self._is_answering():
            self.transport.close()

    def eof_received(self) -> bool:  # type: ignore[override]  # the base returns nothing
        """Answer what was asked before the client stopped sending; True keeps the connection.

        The client may as well be gone: only sending it something tells. Over TLS it always is,
        as nothing can be sent any more.
        """
        begun = self.conn.their_state is h11.IDLE and self.conn.trailing_data[0]
        if begun or self.conn.their_state is h11.SEND_BODY:
            self.conn.receive_data(b"")
            self.handle_events()  # which refuses the request, as it will never be complete
        if not self._is_answering() or self.transport.is_closing() or self.scheme == "https":
            return False
        if self._next_probe is None:
            probe = self.loop.call_at(self._last_data + PROBE_AFTER, self._probe, PROBE_AGAIN)
            self._next_probe = probe
        return True

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop waiting."""
        super().connection_lost(exc)
        self.waiting.pop(self, None)
        self._stop_waiting()
        if self._next_probe is not None:
            self._next_probe.cancel()

    def send_400_response(self, msg: str) -> None:
        """Refuse what is not HTTP; the base calls this while it handles the reason."""
        reason = sys.exception()
        if isinstance(reason, h11.RemoteProtocolError):
            why = str(reason).partition(": b")[0]  # without the bytes that follow
            self._refuse(reason.error_status_hint, f"the request is not valid HTTP: {why}")
        else:
            self._refuse(HTTPStatus.BAD_REQUEST, msg)

    def make_room(self) -> None:
        """Close the connection at once, as there are too many."""
        self.waiting.pop(self, None)
        self._refuse(HTTPStatus.SERVICE_UNAVAILABLE, "there are too many connections")
        self.transport.abort()

    def _is_answering(self) -> bool:
        return self.conn.our_state in (h11.SEND_RESPONSE, h11.SEND_BODY)

    def _is_answered_early(self) -> bool:
        """Whether the answer is complete and the body of the request is not."""
        return self.conn.their_state is h11.SEND_BODY and not self._is_answering()

    def _limit_waiting(self, seconds: float) -> None:
        if self._deadline is None:
            self._deadline = self.loop.call_later(seconds, self._give_up)

    def _stop_waiting(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _give_up(self) -> None:
        seconds = self.limits.head_seconds
        self._refuse(HTTPStatus.REQUEST_TIMEOUT, f"the headers did not arrive within {seconds:g} s")

    def _refuse(self, status: int, message: str) -> None:
        """Answer, unless that has begun already, and close the connection."""
        if self.conn.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            body = write_json({"message": message})
            head = (
                f"HTTP/1.1 {status} {HTTPStatus(status).phrase}\r\nConnection: close\r\n"
                f"Content-Type: {JSON}\r\nContent-Length: {len(body)}\r\n\r\n"
            )
            self.transport.write(head.encode() + body)
        self.transport.close()

    def _probe(self, pause: float) -> None:
        """Send a client what it skips; one that is gone resets the connection before the next."""
        if self.conn.our_state is h11.SEND_RESPONSE and self.conn.their_http_version == b"1.1":
            self.transport.write(CONTINUE)
        self._next_probe = self.loop.call_later(pause, self._probe, 2 * pause)


class EndingRequests:
    """Answers requests that end unanswered because the server stops, and ends streams.

    Parameters
    ----------
    app
        Serves the requests; the HTTP library cancels those that take too long to stop.
    refusal
        Answers those that are cancelled before they are answered.
    """

    def __init__(self, app: ASGIApp, refusal: ASGIApp) -> None:
        self._app, self._refusal = app, refusal

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a request, or refuse it because the server is stopping."""
        has_begun = is_stream = has_ended = False

        async def watch(message: Message) -> None:
            nonlocal has_begun, is_stream, has_ended
            if message["type"] == "http.response.start":
                has_begun = True
                names = {name.lower() for name, _ in message["headers"]}
                is_stream = b"content-length" not in names
            elif message["type"] == "http.response.body":
                has_ended = not message.get("more_body", False)
            await send(message)

        try:
            await self._app(scope, receive, watch)
        except asyncio.CancelledError:
            if scope["type"] != "http":
                raise
            if not has_begun:
                await self._refusal(scope, receive, send)
            elif is_stream and not has_ended:
                await send({"type": "http.response.body", "body": b""})


class QuietServer(uvicorn.Server):
    """A server that tells when it listens, and ends without a word and with status 0.

    The base logs an error for requests that it cancels, which get an answer of ours; and it raises
    the signal again, so that the process is killed.

    Parameters
    ----------
    config
        Serves `EndingRequests`; its `timeout_graceful_shutdown` is how long they may take to end.
    tell_ready
        Called when it listens.
    """

    def __init__(
        self, config: uvicorn.Config, tell_ready: Callable[[], None] = lambda: None
    ) -> None:
        super().__init__(config)
        self._tell_ready = tell_ready
        logging.getLogger("uvicorn.error").addFilter(_is_no_cancellation)

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start, and tell that it listens."""
        await super().startup(sockets)
        self._tell_ready()

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Stop on signals, which the base raises again when all is done."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, setattr, self, "should_exit", True)
        yield


def _is_no_cancellation(record: logging.LogRecord) -> bool:
    return not str(record.msg).startswith("Cancel %s running task")


@asynccontextmanager
async def serve_in_loop(
    app: ASGIApp, listening: socket.socket, limits: ServerLimits
) -> AsyncIterator[None]:
    """Serve until the context is left.

    Parameters
    ----------
    app
        The application; it gets no lifespan events.
    listening
        Where to accept connections.
    limits
        Sizes, times and counts.
    """
    send_at_once(listening)
    config = configure_http(app, limits, None, lifespan=False)
    config.load()
    state = ServerState()

    connection = partial(limit_connections(limits), config, state, {})
    loop = asyncio.get_running_loop()
    server = await loop.create_server(connection, sock=listening, backlog=config.backlog)
    try:
        yield
    finally:
        server.close()
        for open_one in [*state.connections]:
            open_one.shutdown()
        if state.tasks:
            await asyncio.wait(state.tasks, timeout=limits.stop_seconds)
