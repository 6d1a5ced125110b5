"""Connections of clients: where the HTTP library does not do as the server of the original."""

import asyncio
import re
import sys
from asyncio import Transport
from http import HTTPStatus
from urllib.parse import unquote

import h11
from starlette.types import ASGIApp, Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol

from inferno_optimizer.api.documents import write_json
from inferno_optimizer.api.limits import Limits
from inferno_optimizer.api.messages import JSON

PROBE_SECONDS = 0.5
"""How often a client that has stopped sending is asked whether it still reads."""

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


def connection_class(server_limits: Limits) -> type["Connection"]:
    """Connections with the limits of a server; the HTTP library makes them."""

    class Limited(Connection):
        limits = server_limits

    return Limited


class Connection(H11Protocol):
    """A connection of a client.

    Unlike the base it

    - is closed when the headers of a request, or the rest of a body after its answer, do not
      arrive in time: the base limits only the time in which nothing at all arrives;
    - refuses in JSON what is not HTTP, with the reason;
    - answers a client that stops sending after its request, as Go's net/http does
      (https://github.com/Kludex/uvicorn/issues/1264).
    """

    limits: Limits
    _deadline: asyncio.TimerHandle | None = None
    _next_probe: asyncio.TimerHandle | None = None

    def connection_made(self, transport: Transport) -> None:  # type: ignore[override]  # as the base
        """Begin to wait for headers."""
        super().connection_made(transport)
        self._wait(self.limits.head_seconds)

    def data_received(self, data: bytes) -> None:
        """Stop waiting when a request is there; begin anew after it."""
        super().data_received(data)
        if self.conn.their_state is h11.IDLE:
            self._wait(self.limits.head_seconds)
        elif not self._answered_early():
            self._stop_waiting()

    def on_response_complete(self) -> None:
        """Wait for the rest of the request, if any; without a next one close the connection."""
        super().on_response_complete()
        if self._answered_early():
            self._wait(self.limits.body_seconds)
        if self._next_probe is not None and not self._answering():
            self.transport.close()

    def eof_received(self) -> bool:  # type: ignore[override]  # the base returns nothing
        """Answer what was asked before the client stopped sending; True keeps the connection.

        The client may as well be gone: only sending it something tells. TLS has no connections
        that are closed on one side.
        """
        begun = self.conn.their_state is h11.IDLE and self.conn.trailing_data[0]
        if begun or self.conn.their_state is h11.SEND_BODY:
            self.conn.receive_data(b"")
            self.handle_events()  # which refuses the request, as it will never be complete
        if not self._answering() or self.transport.is_closing() or self.scheme == "https":
            return False
        self._next_probe = self._next_probe or self.loop.call_later(PROBE_SECONDS, self._probe)
        return True

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop waiting."""
        super().connection_lost(exc)
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

    def _answering(self) -> bool:
        return self.conn.our_state in (h11.SEND_RESPONSE, h11.SEND_BODY)

    def _answered_early(self) -> bool:
        """Whether the answer is complete and the body of the request is not."""
        return self.conn.their_state is h11.SEND_BODY and not self._answering()

    def _wait(self, seconds: float) -> None:
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

    def _probe(self) -> None:
        """Send a client that may be gone what others skip; if it is, the connection ends."""
        if self.conn.our_state is h11.SEND_RESPONSE and self.conn.their_http_version == b"1.1":
            self.transport.write(CONTINUE)
        self._next_probe = self.loop.call_later(PROBE_SECONDS, self._probe)
