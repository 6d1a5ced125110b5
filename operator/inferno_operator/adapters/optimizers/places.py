"""Places at an optimizer: so many requests at a time, and nobody waits for one without an end."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from inferno_optimizer.errors import UnavailableError


class Places:
    """Lets so many requests at a time through, the others in the order in which they came.

    One that waits for longer than its patience is refused with the name of the request that is
    in its way: behind an optimizer that hangs it would wait for all that came before it.

    Parameters
    ----------
    url
        Where the optimizer is.
    count
        Requests at a time.
    patience
        How long a request waits [s].
    """

    def __init__(self, url: str, count: int, patience: float) -> None:
        self._url = url
        self._free = asyncio.Semaphore(count)
        self._patience = patience
        self._taken: list[tuple[float, str]] = []
        """Since when a place is taken, and by which request; the oldest first."""

    @asynccontextmanager
    async def take(self, request: str) -> AsyncIterator[None]:
        """Take a place.

        Parameters
        ----------
        request
            How messages to those who wait call the request.

        Raises
        ------
        UnavailableError
            No place has become free in time.
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
            self._free.release()

    def _occupied(self) -> str:
        """Who is in the way."""
        since, request = self._taken[0]
        seconds = asyncio.get_running_loop().time() - since
        others = f" and on {len(self._taken) - 1} other requests" if self._taken[1:] else ""
        return (
            f"{self._url}: no turn within {self._patience:g} s: the optimizer has been at work for"
            f" {seconds:.0f} s on the request for {request}{others}"
        )
