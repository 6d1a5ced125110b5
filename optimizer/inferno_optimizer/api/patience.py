"""Connections on which no request begins in time are closed: headers may trickle for ever."""

import asyncio
from asyncio import Transport

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

TOO_LATE = (
    b"HTTP/1.1 408 Request Timeout\r\nConnection: close\r\n"
    b"Content-Type: application/json; charset=utf-8\r\nContent-Length: %d\r\n\r\n%s"
)


def patient(seconds: float) -> type[asyncio.Protocol]:
    """A protocol that gives the headers of a request so many seconds to arrive.

    The server itself knows only how long a connection may be silent after an answer.
    """
    message = b'{"message":"the headers did not arrive within %g s"}' % seconds

    class Patient(H11Protocol):
        _deadline: asyncio.TimerHandle | None = None

        def connection_made(self, transport: Transport) -> None:  # type: ignore[override]  # as the base
            super().connection_made(transport)
            self._wait_for_headers()

        def data_received(self, data: bytes) -> None:
            super().data_received(data)
            if self.conn.their_state is h11.IDLE:
                self._wait_for_headers()
            else:
                self._stop_waiting()

        def connection_lost(self, exc: Exception | None) -> None:
            super().connection_lost(exc)
            self._stop_waiting()

        def _wait_for_headers(self) -> None:
            if self._deadline is None:
                self._deadline = self.loop.call_later(seconds, self._give_up)

        def _stop_waiting(self) -> None:
            if self._deadline is not None:
                self._deadline.cancel()
                self._deadline = None

        def _give_up(self) -> None:
            self.transport.write(TOO_LATE % (len(message), message))
            self.transport.close()

    return Patient
