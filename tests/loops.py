"""An event loop that lets its connections close before it does."""

import asyncio
import selectors

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
