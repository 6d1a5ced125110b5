"""An event loop in which waiting takes no time."""

import asyncio
import selectors


class _Impatient(selectors.DefaultSelector):
    """Does not wait, and counts the seconds that it would have waited."""

    waited = 0.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        ready = super().select(0 if timeout else timeout)
        if timeout and not ready:
            self.waited += timeout
        return ready


class VirtualTimeLoop(asyncio.SelectorEventLoop):
    """Goes on to the next moment for which something is planned, when nothing is left to do.

    Only for what waits for this loop alone: not for sockets, threads or other processes.
    """

    def __init__(self) -> None:
        self._impatient = _Impatient()
        super().__init__(self._impatient)

    def time(self) -> float:
        """Seconds since the loop was made."""
        return self._impatient.waited
