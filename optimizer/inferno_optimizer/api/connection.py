"""The connection of a client: how long it may take."""

import asyncio
from asyncio import Transport

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

TOO_LATE = (
    b"HTTP/1.1 408 Request Timeout\r\nConnection: close\r\n"
    b"Content-Type: application/json; charset=utf-8\r\nContent-Length: %d\r\n\r\n%s"
)


def connection_class(head_seconds: float) -> type["Connection"]:
    """Connections that wait so long for the headers of a request."""

    class Limited(Connection):
        seconds = head_seconds

    return Limited


class Connection(H11Protocol):
    """A connection that is closed when the headers of a request do not arrive in time.

    The base knows only how long a connection may be silent after an answer; headers could
    trickle for ever.
    """

    seconds: float
    _deadline: asyncio.TimerHandle | None = None

    def connection_made(self, transport: Transport) -> None:  # type: ignore[override]  # as the base
        """Begin to wait for headers."""
        super().connection_made(transport)
        self._wait_for_headers()

    def data_received(self, data: bytes) -> None:
        """Stop waiting when the headers are there; begin anew after a request."""
        super().data_received(data)
        if self.conn.their_state is h11.IDLE:
            self._wait_for_headers()
        else:
            self._stop_waiting()

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop waiting."""
        super().connection_lost(exc)
        self._stop_waiting()

    def _wait_for_headers(self) -> None:
        if self._deadline is None:
            self._deadline = self.loop.call_later(self.seconds, self._give_up)

    def _stop_waiting(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _give_up(self) -> None:
        message = b'{"message":"the headers did not arrive within %g s"}' % self.seconds
        self.transport.write(TOO_LATE % (len(message), message))
        self.transport.close()
