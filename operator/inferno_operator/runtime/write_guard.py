"""Allow writes only while this operator leads, and finish every write that has begun."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from math import inf
from typing import Any, TypeVar

from inferno_operator.resources.objects import Event, Key, Kind, Manifest, Reference
from inferno_operator.runtime.leader_election import Clock, LeadershipLostError
from inferno_operator.runtime.observer import Observer
from inferno_operator.runtime.ports import Cluster, Listing, ObjectChange, Scale, Served
from inferno_optimizer.errors import InfernoError, UnavailableError

T = TypeVar("T")

DRAIN_TIMEOUT = 10.0
"""Seconds that running writes get to finish when the operator stops."""


class GuardedCluster:
    """A `Cluster` that does not write if another operator may lead.

    A write is limited to the time for which this operator may still write, and continues if
    the reconcile that requested it is cancelled.

    Parameters
    ----------
    cluster
        The guarded cluster.
    remaining
        Returns the seconds for which this operator may write.
    observer
        Receives a call for every write.
    clock
        The clock of `answered_at`.

    Attributes
    ----------
    answered_at
        Time at which the last call ended, successful or not [s].
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

    async def verbs(self, group: str, version: str) -> Mapping[str, frozenset[str]]:
        """Return what the API server offers to do with each kind of a group, in the plural."""
        return await self._note_answer(self._cluster.verbs(group, version))

    async def find(self, api_version: str, kind: str) -> Served | None:
        """Return the namespaced kind of this name; None if the API server does not serve it."""
        return await self._note_answer(self._cluster.find(api_version, kind))

    async def get(self, kind: Kind, key: Key) -> Manifest:
        """Return one object."""
        return await self._note_answer(self._cluster.get(kind, key))

    async def scale(self, kind: Kind, key: Key) -> Scale:
        """Return the scale subresource of one object."""
        return await self._note_answer(self._cluster.scale(kind, key))

    async def list(self, kind: Kind, namespace: str) -> Listing:
        """List all objects of a kind in a namespace, or in all namespaces ("")."""
        return await self._note_answer(self._cluster.list(kind, namespace))

    def watch(self, kind: Kind, namespace: str, since: int) -> AsyncGenerator[ObjectChange, None]:
        """Yield the changes since a version, in order, for some minutes."""
        return self._cluster.watch(kind, namespace, since)

    async def apply(
        self, kind: Kind, manifest: Manifest, manager: str, *, force: bool = True
    ) -> Manifest:
        """Set and own exactly the fields of a manifest."""
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

    async def set_scale(self, scale: Scale, replicas: int, manager: str) -> Scale:
        """Set the number of replicas of an object."""
        reference = scale.reference
        return await self._write(
            lambda: self._cluster.set_scale(scale, replicas, manager),
            (reference.kind, str(reference), "scale"),
        )

    async def set_managers(self, reference: Reference, entries: Sequence[Any]) -> None:
        """Replace the `managedFields` of an object."""
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
        """Wait for the running writes while this operator leads, at most `DRAIN_TIMEOUT`."""
        if self._in_flight:
            patience = min(self._remaining(), DRAIN_TIMEOUT)
            await asyncio.wait(self._in_flight, timeout=patience)
        for task in self._in_flight:
            task.cancel()

    async def _write(self, call: Callable[[], Awaitable[T]], written: tuple[Kind, str, str]) -> T:
        """Write a part of an object, and report it to the observer."""
        kind, about, part = written
        try:
            answer = await self._run_guarded(call, about)
        except LeadershipLostError:
            raise  # nothing was sent
        except InfernoError:
            self._observer.wrote(kind, part, succeeded=False)
            raise
        self._observer.wrote(kind, part, succeeded=True)
        return answer

    async def _run_guarded(self, call: Callable[[], Awaitable[T]], about: str) -> T:
        until = asyncio.get_running_loop().time() + self._require_leadership(about)
        task = asyncio.create_task(self._run_bounded(call, until, about))
        self._in_flight.add(task)
        task.add_done_callback(self._note_end)
        return await asyncio.shield(task)

    def _note_end(self, task: asyncio.Task[object]) -> None:
        self._in_flight.discard(task)
        if not task.cancelled():
            task.exception()  # retrieved here, since the caller may be cancelled

    def _require_leadership(self, about: str) -> float:
        """Return the seconds for which this operator may write; raises if there are none."""
        remaining = self._remaining()
        if remaining <= 0:
            raise LeadershipLostError(f"{about}: not written: another operator may lead")
        return remaining

    async def _run_bounded(self, call: Callable[[], Awaitable[T]], until: float, about: str) -> T:
        self._require_leadership(about)  # checked again: the process may have been suspended
        try:
            async with asyncio.timeout_at(None if until == inf else until):
                return await self._note_answer(call())
        except TimeoutError as error:
            raise UnavailableError(f"{about}: not written before the lease expired") from error

    async def _note_answer(self, call: Awaitable[T]) -> T:
        """Return the answer to a call, and note the time: also a failure shows progress."""
        try:
            return await call
        finally:
            self.answered_at = self._clock()
