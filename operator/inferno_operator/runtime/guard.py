"""Writes happen only while we lead, and those that have begun are brought to their end."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from math import inf
from typing import TypeVar

from inferno_operator.observer import Observer
from inferno_operator.ports import Cluster, Event, Key, Manifest, Reference
from inferno_operator.resources import Resource
from inferno_operator.runtime.leadership import Clock, LeadershipLostError
from inferno_optimizer.errors import InfernoError, UnavailableError

T = TypeVar("T")

DRAIN_TIMEOUT = 10.0
"""Seconds that writes get to end when the operator does."""


class GuardedCluster:
    """A `Cluster` that refuses to write when somebody else may lead.

    A write has at most as long as we may still write, and goes on when the work that asked
    for it is cancelled.

    Parameters
    ----------
    cluster
        What it guards.
    remaining
        Seconds for which we may write.
    observer
        Is told of every write.
    clock
        Tells when there was an answer last.
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

    async def served(self) -> frozenset[str]:
        """Kinds of ours that the API server knows now, in the plural."""
        return await self._answered(self._cluster.served())

    async def terminating(self) -> frozenset[str]:
        """Those of them whose definitions are being deleted, and with them all objects."""
        return await self._answered(self._cluster.terminating())

    async def get(self, resource: type[Resource], key: Key) -> Manifest:
        """One object."""
        return await self._answered(self._cluster.get(resource, key))

    async def list(self, resource: type[Resource], namespace: str) -> Sequence[Manifest]:
        """All objects of a kind in a namespace."""
        return await self._answered(self._cluster.list(resource, namespace))

    async def apply_spec(self, reference: Reference, spec: Manifest) -> Manifest:
        """Own exactly these fields of the spec."""
        return await self._write(
            lambda: self._cluster.apply_spec(reference, spec), reference, "spec"
        )

    async def apply_status(self, reference: Reference, status: Manifest) -> Manifest:
        """Own exactly these fields of the status."""
        return await self._write(
            lambda: self._cluster.apply_status(reference, status), reference, "status"
        )

    async def clear_request(self, reference: Reference) -> None:
        """Set `optimize` to false, unless the object changed since it was seen."""
        await self._write(lambda: self._cluster.clear_request(reference), reference, "request")

    async def set_finalizers(self, reference: Reference, finalizers: Sequence[str]) -> None:
        """Replace the finalizers, unless the object changed since it was seen."""
        await self._write(
            lambda: self._cluster.set_finalizers(reference, finalizers), reference, "finalizers"
        )

    async def publish(self, event: Event) -> None:
        """Make an event known."""
        await self._write(lambda: self._cluster.publish(event), event.about, "event")

    async def drain(self) -> None:
        """Let the writes that have begun end, if we lead and it does not take too long."""
        if self._in_flight:
            patience = min(self._remaining(), DRAIN_TIMEOUT)
            await asyncio.wait(self._in_flight, timeout=patience)
        for task in self._in_flight:
            task.cancel()

    async def guarded(self, call: Callable[[], Awaitable[T]], about: str) -> T:
        """A write on something else: it too happens only while we lead, and comes to its end."""
        until = asyncio.get_running_loop().time() + self._while_leading(about)
        task = asyncio.create_task(self._bounded(call, until, about))
        self._in_flight.add(task)
        task.add_done_callback(self._ended)
        return await asyncio.shield(task)

    async def _write(self, call: Callable[[], Awaitable[T]], reference: Reference, part: str) -> T:
        try:
            written = await self.guarded(call, str(reference))
        except LeadershipLostError:
            raise  # nothing was tried
        except InfernoError:
            self._observer.wrote(reference, part, succeeded=False)
            raise
        self._observer.wrote(reference, part, succeeded=True)
        return written

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
