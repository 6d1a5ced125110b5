"""Keys to reconcile: requests for the same key are merged, failures are retried later.

Work that repeats is a queue too, whose keys are the names of its cycles.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Hashable, Mapping
from dataclasses import dataclass
from typing import ClassVar, Generic, TypeVar
from weakref import WeakValueDictionary

K = TypeVar("K", bound=Hashable)

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class ReconcileResult:
    """The result of a reconcile, and the seconds until the next one is due, if any."""

    SETTLED: ClassVar["ReconcileResult"]
    FAILED: ClassVar["ReconcileResult"]

    failed: bool = False
    again_after: float | None = None

    @classmethod
    def due_after(cls, seconds: float | None) -> "ReconcileResult":
        """Return a success; None: no reconcile is due until the object changes."""
        return cls.SETTLED if seconds is None else cls(again_after=seconds)


ReconcileResult.SETTLED = ReconcileResult()
ReconcileResult.FAILED = ReconcileResult(failed=True)


@dataclass(frozen=True, slots=True)
class Backoff:
    """Exponential backoff: the wait [s] doubles with each failure in a row, up to a limit."""

    first: float = 0.5
    limit: float = 30.0

    def seconds(self, failures: int) -> float:
        """Return the wait [s] after a number of failures in a row, at least 1."""
        return min(self.limit, self.first * 2.0 ** min(failures - 1, 30))


@dataclass(slots=True)
class _Entry:
    """One key that is being reconciled or waits for its next reconcile."""

    version: Hashable
    task: asyncio.Task[None]
    wake: asyncio.Event
    again: bool = False
    running_since: float | None = None


class WorkQueue(Generic[K]):
    """Runs one reconcile per key at a time; a key added during its reconcile runs again.

    Parameters
    ----------
    reconcile
        Called with each key.
    backoff
        The wait after failures.
    settle
        Seconds between a request and its reconcile, in which further requests join it.
    """

    def __init__(
        self,
        reconcile: Callable[[K], Awaitable[ReconcileResult]],
        backoff: Backoff = Backoff(),
        *,
        settle: float = 0.0,
    ) -> None:
        self._reconcile = reconcile
        self._backoff = backoff
        self._settle = settle
        self._entries: dict[K, _Entry] = {}
        self._closed = False

    @property
    def depth(self) -> int:
        """Number of keys that are being reconciled or wait for their next reconcile."""
        return len(self._entries)

    @property
    def longest_run(self) -> float:
        """Age of the oldest running reconcile [s]; 0 if none runs."""
        now = asyncio.get_running_loop().time()
        running = (entry.running_since for entry in self._entries.values())
        return max((now - since for since in running if since is not None), default=0.0)

    def add(self, key: K, version: Hashable = None) -> None:
        """Request a reconcile, of a version of an object if one is given.

        While a version is being reconciled or waits for its next reconcile, another request
        for it changes nothing: the operator's own writes come back as events. A closed queue
        ignores requests.
        """
        if self._closed:
            return
        entry = self._entries.get(key)
        if entry is None:
            task = asyncio.get_running_loop().create_task(self._work(key))
            self._entries[key] = _Entry(version, task, asyncio.Event())
        elif version is None or entry.version != version:
            entry.version, entry.again = version, True
            entry.wake.set()

    async def close(self) -> None:
        """Cancel all reconciles, and wait until they have ended."""
        self._closed = True
        tasks = [entry.task for entry in self._entries.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _work(self, key: K) -> None:
        failures, requested = 0, True
        try:
            while True:
                if requested and self._settle:
                    await asyncio.sleep(self._settle)
                entry = self._entries[key]
                entry.again = False
                entry.wake.clear()
                entry.running_since = asyncio.get_running_loop().time()
                outcome = await self._outcome(key)
                entry.running_since = None
                if entry.again:
                    requested = True
                elif outcome.failed:
                    failures += 1
                    requested = await self._pause(entry, self._backoff.seconds(failures))
                elif outcome.again_after is None:
                    return
                else:
                    failures = 0
                    requested = await self._pause(entry, outcome.again_after)
                if requested:
                    failures = 0
        finally:
            del self._entries[key]

    async def _outcome(self, key: K) -> ReconcileResult:
        """Reconcile; an unexpected exception is logged and retried, so that no key is lost."""
        try:
            return await self._reconcile(key)
        except Exception:
            logger.exception("%s: unexpected error while reconciling; trying again", key)
            return ReconcileResult.FAILED

    async def _pause(self, entry: _Entry, seconds: float) -> bool:
        """Wait; returns True as soon as a newer version is requested, else False."""
        try:
            async with asyncio.timeout(seconds):  # wait_for would lose a cancellation meanwhile
                return await entry.wake.wait()
        except TimeoutError:
            return False


Cycle = Callable[[], Awaitable[ReconcileResult]]
"""Does the work once, and says when it is due again."""


class Cycles(WorkQueue[str]):
    """Repeats cycles side by side; each of them runs once at a time.

    Parameters
    ----------
    cycles
        The work, by its name in logs.
    """

    def __init__(self, cycles: Mapping[str, Cycle]) -> None:
        super().__init__(lambda name: cycles[name]())
        self._names = tuple(cycles)

    def start(self) -> None:
        """Run all cycles now."""
        for name in self._names:
            self.request(name)

    def request(self, name: str) -> None:
        """Run a cycle now; one that is running already runs again, once."""
        self.add(name)


class Locks:
    """A lock for each name, kept only while somebody holds it or waits for it."""

    def __init__(self) -> None:
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    def __getitem__(self, name: str) -> asyncio.Lock:
        """Return the lock of a name."""
        return self._locks.setdefault(name, asyncio.Lock())

    def __len__(self) -> int:
        """Return how many are held or waited for."""
        return len(self._locks)
