"""The controller's writes happen only while we lead, as all others."""

from collections.abc import AsyncGenerator, Awaitable, Callable
from typing import Protocol, TypeVar

from inferno_operator.controllers.boosters.ports import BoosterCluster, Listed, Notice
from inferno_operator.resources.objects import Key, Kind, Manifest
from inferno_operator.runtime.ports import Change

T = TypeVar("T")


class Guard(Protocol):
    """Who knows whether we lead."""

    async def guarded(self, call: Callable[[], Awaitable[T]], about: str) -> T:
        """Write, if we may, and bring it to its end; `LeadershipLostError` if we may not."""


class GuardedBoosters:
    """A `BoosterCluster` whose writes a guard lets through."""

    def __init__(self, cluster: BoosterCluster, guard: Guard) -> None:
        self._cluster = cluster
        self._guard = guard

    async def listed(self, kind: Kind, namespace: str) -> Listed:
        """All objects of a kind in a namespace, or in all ("")."""
        return await self._cluster.listed(kind, namespace)

    def changes(self, kind: Kind, namespace: str, since: int) -> AsyncGenerator[Change, None]:
        """What changed since a version, in order, for some minutes."""
        return self._cluster.changes(kind, namespace, since)

    async def apply(self, kind: Kind, manifest: Manifest) -> Manifest:
        """Own exactly these fields of an object, made if need be."""
        about = _about(kind, manifest)
        return await self._guard.guarded(lambda: self._cluster.apply(kind, manifest), about)

    async def delete(self, kind: Kind, key: Key, uid: str) -> None:
        """Delete this object."""
        about = f"{kind.kind} {key}"
        await self._guard.guarded(lambda: self._cluster.delete(kind, key, uid), about)

    async def apply_status(self, kind: Kind, manifest: Manifest) -> Manifest:
        """Own exactly these fields of the status."""
        about = _about(kind, manifest)
        return await self._guard.guarded(lambda: self._cluster.apply_status(kind, manifest), about)

    async def publish(self, kind: Kind, about: Manifest, notice: Notice) -> None:
        """Make an event known."""
        await self._guard.guarded(
            lambda: self._cluster.publish(kind, about, notice), _about(kind, about)
        )


def _about(kind: Kind, manifest: Manifest) -> str:
    return f"{kind.kind} {Key.of(manifest)}"
