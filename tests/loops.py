"""Event loops: one whose connections close before it does, one in which waiting takes no time."""

import asyncio
import fcntl
import selectors
import socket
import sys
import termios
from collections.abc import Iterator
from contextlib import contextmanager

PATIENCE_S = 40.0
"""More than the 30 s that asyncio gives a TLS connection to close."""

INTERVAL_S = 0.001


class PatientLoop(asyncio.SelectorEventLoop):
    """Waits at its end until no socket is watched any more.

    TLS connections close in the background, after an exchange with the other side. A loop that
    ended meanwhile would leave the socket open. Python reports that when it collects the garbage,
    as an error of whichever test runs then.
    """

    def __init__(self) -> None:
        self._sockets = selectors.DefaultSelector()
        super().__init__(self._sockets)
        self._own = len(self._sockets.get_map())

    def close(self) -> None:
        """Close the loop.

        Raises
        ------
        TimeoutError
            Something is still open: nothing closes it.
        """
        try:
            if not self.is_closed():
                self.run_until_complete(self._until_closed())
        finally:
            super().close()

    async def _until_closed(self) -> None:
        async with asyncio.timeout(PATIENCE_S):
            while len(self._sockets.get_map()) > self._own:  # noqa: ASYNC110 - no event for it
                await asyncio.sleep(INTERVAL_S)


class _Impatient(selectors.DefaultSelector):
    """Waits for bytes that are under way only, and counts the seconds that it would have waited."""

    waited = 0.0
    own: frozenset[int] = frozenset()
    """Descriptors by which the loop is woken, which send nothing."""

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        ready = super().select(0 if timeout else timeout)
        while timeout and not ready and self._some_under_way():
            ready = super().select(INTERVAL_S)
        if timeout and not ready:
            self.waited += timeout
        return ready

    def _some_under_way(self) -> bool:
        """Whether a socket connects, or has sent what has not arrived yet."""
        sockets = [key for key in self.get_map().values() if key.fd not in self.own]
        for key in sockets:
            _acknowledge(key.fd)
        return any(
            key.events & selectors.EVENT_WRITE or _bytes_under_way(key.fd) for key in sockets
        )


class VirtualTimeLoop(asyncio.SelectorEventLoop):
    """Goes on to the next moment for which something is planned, when nothing is left to do.

    Only for what waits for this loop alone: not for threads or other processes, nor for sockets
    whose other end is there.
    """

    def __init__(self) -> None:
        self._impatient = _Impatient()
        super().__init__(self._impatient)
        self._impatient.own = frozenset(key.fd for key in self._impatient.get_map().values())

    def time(self) -> float:
        """Seconds since the loop was made."""
        return self._impatient.waited


def _acknowledge(descriptor: int) -> None:
    """Let a connection tell now what it has received, not up to 40 ms later (tcp(7))."""
    with _socket(descriptor) as end:
        if end.family == socket.AF_INET:
            end.setsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK, 1)


def _bytes_under_way(descriptor: int) -> int:
    """Bytes that a socket has sent and the other end has not acknowledged."""
    with _socket(descriptor) as end:
        if end.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN):
            return 0
        answer = fcntl.ioctl(end, termios.TIOCOUTQ, bytes(4))
        return int.from_bytes(answer, sys.byteorder)


@contextmanager
def _socket(descriptor: int) -> Iterator[socket.socket]:
    """The socket of a descriptor, which stays open."""
    opened = socket.socket(fileno=descriptor)
    try:
        yield opened
    finally:
        opened.detach()
