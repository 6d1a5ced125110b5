"""Keys to reconcile: many requests of one key become one, failures are tried again later."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Hashable
from dataclasses import dataclass
from typing import ClassVar, Generic, TypeVar

K = TypeVar("K", bound=Hashable)

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a reconcile ended, and after how many seconds the next one is due, if one is."""

    SETTLED: ClassVar["Outcome"]
    FAILED: ClassVar["Outcome"]

    failed: bool = False
    again_after: float | None = None

    @classmethod
    def due_after(cls, seconds: float | None) -> "Outcome":
        """It went well; None: nothing is due until something changes."""
        return cls.SETTLED if seconds is None else cls(again_after=seconds)


Outcome.SETTLED = Outcome()
Outcome.FAILED = Outcome(failed=True)


@dataclass(frozen=True, slots=True)
class Backoff:
    """Seconds to wait after a number of failures in a row: doubling, up to a limit."""

    first: float = 0.5
    limit: float = 30.0

    def seconds(self, failures: int) -> float:
        """The wait after so many failures, at least 1."""
        return min(self.limit, self.first * 2.0 ** min(failures - 1, 30))


@dataclass(slots=True)
class _Entry:
    """One key that is worked on, waits for its next try, or both in turn."""

    version: Hashable
    task: asyncio.Task[None]
    wake: asyncio.Event
    again: bool = False
    running_since: float | None = None


class WorkQueue(Generic[K]):
    """One worker for each key at a time; a key that is asked for while it runs runs again.

    Parameters
    ----------
    reconcile
        Called with a key.
    backoff
        When to try again after a failure.
    """

    def __init__(
        self, reconcile: Callable[[K], Awaitable[Outcome]], backoff: Backoff = Backoff()
    ) -> None:
        self._reconcile = reconcile
        self._backoff = backoff
        self._entries: dict[K, _Entry] = {}
        self._closed = False

    @property
    def depth(self) -> int:
        """Keys that are worked on or wait for their next try."""
        return len(self._entries)

    @property
    def longest_run(self) -> float:
        """For how long the oldest of the reconciles that run has done so [s]; 0 if none runs."""
        now = asyncio.get_running_loop().time()
        running = (entry.running_since for entry in self._entries.values())
        return max((now - since for since in running if since is not None), default=0.0)

    def add(self, key: K, version: Hashable) -> None:
        """Ask for a reconcile of a version of an object.

        While that version is worked on, or waits for its next try, asking for it again
        changes nothing: what we write on an object ourselves comes back as an event. A closed
        queue takes nothing any more.
        """
        if self._closed:
            return
        entry = self._entries.get(key)
        if entry is None:
            task = asyncio.get_running_loop().create_task(self._work(key))
            self._entries[key] = _Entry(version, task, asyncio.Event())
        elif entry.version != version:
            entry.version, entry.again = version, True
            entry.wake.set()

    async def close(self) -> None:
        """End all work; what is being written is cancelled at its next wait."""
        self._closed = True
        tasks = [entry.task for entry in self._entries.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _work(self, key: K) -> None:
        failures = 0
        try:
            while True:
                entry = self._entries[key]
                entry.again = False
                entry.wake.clear()
                entry.running_since = asyncio.get_running_loop().time()
                outcome = await self._outcome(key)
                entry.running_since = None
                if entry.again:
                    failures = 0
                elif outcome.failed:
                    failures += 1
                    woken = await self._pause(entry, self._backoff.seconds(failures))
                    failures = 0 if woken else failures
                elif outcome.again_after is None:
                    return
                else:
                    failures = 0
                    await self._pause(entry, outcome.again_after)
        finally:
            del self._entries[key]

    async def _outcome(self, key: K) -> Outcome:
        """A reconcile that breaks is reported and tried again: the key must not be lost."""
        try:
            return await self._reconcile(key)
        except Exception:
            logger.exception("%s: reconciling broke; trying again", key)
            return Outcome.FAILED

    async def _pause(self, entry: _Entry, seconds: float) -> bool:
        """Wait, unless a newer version comes; whether one did."""
        try:
            return await asyncio.wait_for(entry.wake.wait(), seconds)
        except TimeoutError:
            return False
