"""Writes happen only while this operator leads, and every write that has begun is finished."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from math import inf
from typing import Any, TypeVar

from inferno_operator.resources.objects import Event, Key, Kind, Manifest, Reference
from inferno_operator.runtime.leader_election import Clock, LeadershipLostError
from inferno_operator.runtime.observer import Observer
from inferno_operator.runtime.ports import Change, Cluster, Listing
from inferno_optimizer.errors import InfernoError, UnavailableError

T = TypeVar("T")

DRAIN_TIMEOUT = 10.0
"""Seconds that writes get to end when the operator does."""


class GuardedCluster:
    """A `Cluster` that refuses to write when another operator may lead.

    A write takes at most as long as this operator may still write, and goes on when the work
    that asked for it is cancelled.

    Parameters
    ----------
    cluster
        What it guards.
    remaining
        Seconds for which this operator may write.
    observer
        Gets a call for every write.
    clock
        For the time of the last answer.
    """

    def __init__(
        self, cluster: Cluster, remaining: Callable[[], float], observer: Observer, clock: Clock
    ) -> None:
        self._cluster = cluster
        self._remaining = remaining
        self._observer = observer
        self._clock = clock
        self._in_flight: set[asyncio.Task[object]] = set()
        self.answered_at = clock()

    async def serves(self, kind: Kind) -> bool:
        """Whether the API server knows a kind now."""
        return await self._answered(self._cluster.serves(kind))

    async def get(self, kind: Kind, key: Key) -> Manifest:
        """One object."""
        return await self._answered(self._cluster.get(kind, key))

    async def list(self, kind: Kind, namespace: str) -> Listing:
        """All objects of a kind in a namespace, or in all ("")."""
        return await self._answered(self._cluster.list(kind, namespace))

    def watch(self, kind: Kind, namespace: str, since: int) -> AsyncGenerator[Change, None]:
        """What changed since a version, in order, for some minutes."""
        return self._cluster.watch(kind, namespace, since)

    async def apply(
        self, kind: Kind, manifest: Manifest, manager: str, *, force: bool = True
    ) -> Manifest:
        """Own exactly the fields of a manifest."""
        part = "status" if "status" in manifest else "spec"
        return await self._write(
            lambda: self._cluster.apply(kind, manifest, manager, force=force),
            (kind, f"{kind.kind} {Key.of(manifest)}", part),
        )

    async def merge(self, kind: Kind, manifest: Manifest, manager: str) -> None:
        """Set the fields of a manifest."""
        part = "spec" if "spec" in manifest else "metadata"
        await self._write(
            lambda: self._cluster.merge(kind, manifest, manager),
            (kind, f"{kind.kind} {Key.of(manifest)}", part),
        )

    async def set_managers(self, reference: Reference, entries: Sequence[Any]) -> None:
        """Replace who owns which fields of an object."""
        await self._write(
            lambda: self._cluster.set_managers(reference, entries),
            (reference.kind, str(reference), "metadata"),
        )

    async def delete(self, reference: Reference) -> None:
        """Delete this object."""
        await self._write(
            lambda: self._cluster.delete(reference), (reference.kind, str(reference), "deletion")
        )

    async def publish(self, event: Event) -> None:
        """Create an event."""
        await self._write(
            lambda: self._cluster.publish(event), (event.about.kind, str(event.about), "event")
        )

    async def drain(self) -> None:
        """Let the writes that have begun end, if we lead and it does not take too long."""
        if self._in_flight:
            patience = min(self._remaining(), DRAIN_TIMEOUT)
            await asyncio.wait(self._in_flight, timeout=patience)
        for task in self._in_flight:
            task.cancel()

    async def _write(self, call: Callable[[], Awaitable[T]], written: tuple[Kind, str, str]) -> T:
        """Write a part of an object of a kind, and count it."""
        kind, about, part = written
        try:
            answer = await self._guarded(call, about)
        except LeadershipLostError:
            raise  # nothing was tried
        except InfernoError:
            self._observer.wrote(kind, part, succeeded=False)
            raise
        self._observer.wrote(kind, part, succeeded=True)
        return answer

    async def _guarded(self, call: Callable[[], Awaitable[T]], about: str) -> T:
        until = asyncio.get_running_loop().time() + self._while_leading(about)
        task = asyncio.create_task(self._bounded(call, until, about))
        self._in_flight.add(task)
        task.add_done_callback(self._ended)
        return await asyncio.shield(task)

    def _ended(self, task: asyncio.Task[object]) -> None:
        self._in_flight.discard(task)
        if not task.cancelled():
            task.exception()  # whoever asked for the write may not be there any more

    def _while_leading(self, about: str) -> float:
        """Seconds for which we may write."""
        remaining = self._remaining()
        if remaining <= 0:
            raise LeadershipLostError(f"{about}: not written, for another operator may lead")
        return remaining

    async def _bounded(self, call: Callable[[], Awaitable[T]], until: float, about: str) -> T:
        self._while_leading(about)  # still: we may have been paused before we came to it
        try:
            async with asyncio.timeout_at(None if until == inf else until):
                return await self._answered(call())
        except TimeoutError as error:
            raise UnavailableError(f"{about}: not written before the lease ran out") from error

    async def _answered(self, call: Awaitable[T]) -> T:
        """What a call gives; that it ended at all is a sign of life."""
        try:
            return await call
        finally:
            self.answered_at = self._clock()
