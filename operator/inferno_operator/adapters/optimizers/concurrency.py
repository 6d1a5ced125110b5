"""Limits the concurrent requests to an optimizer, and how long a request waits for its turn."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from inferno_optimizer.errors import UnavailableError


class Places:
    """Limits the number of concurrent requests; waiting requests are served in order of arrival.

    A request that waits longer than `patience` fails with an error that names the oldest running
    request. Otherwise, if the optimizer hangs, it would wait for the timeouts of all requests
    before it.

    Parameters
    ----------
    url
        URL of the optimizer, for messages.
    count
        Largest number of concurrent requests.
    patience
        Longest time that a request waits for a place [s].
    """

    def __init__(self, url: str, count: int, patience: float) -> None:
        self._url = url
        self._free = asyncio.Semaphore(count)
        self._patience = patience
        self._taken: list[tuple[float, str]] = []
        """Start time [s] and name of each running request; the oldest first."""
        self._last = (0.0, "")
        """The request that ended last: it may do so just when others have waited too long."""

    @asynccontextmanager
    async def take(self, request: str) -> AsyncIterator[None]:
        """Wait for a place, and hold it while the context is open.

        Parameters
        ----------
        request
            Name of the request in the error messages of waiting requests.

        Raises
        ------
        UnavailableError
            No place became free in time.
        """
        try:
            async with asyncio.timeout(self._patience):
                await self._free.acquire()
        except TimeoutError:
            raise UnavailableError(self._occupied()) from None
        place = (asyncio.get_running_loop().time(), request)
        self._taken.append(place)
        try:
            yield
        finally:
            self._taken.remove(place)
            self._last = place
            self._free.release()

    def _occupied(self) -> str:
        """The error message that names the oldest running request, or else the last one."""
        since, request = self._taken[0] if self._taken else self._last
        seconds = asyncio.get_running_loop().time() - since
        others = f" and on {len(self._taken) - 1} other requests" if self._taken[1:] else ""
        return (
            f"{self._url}: no turn within {self._patience:g} s: the optimizer has been at work for"
            f" {seconds:.0f} s on the request for {request}{others}"
        )
