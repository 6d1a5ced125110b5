"""What actuation writes happens only while we lead, as all other writes."""

from collections.abc import AsyncGenerator, Sequence

from inferno_operator.controllers.actuation.ports import Objects, Place, Write
from inferno_operator.controllers.boosters.guard import Guard
from inferno_operator.controllers.boosters.ports import Listed
from inferno_operator.resources.objects import Kind, Manifest
from inferno_operator.runtime.ports import Change


class GuardedObjects:
    """`Objects` whose writes a guard lets through."""

    def __init__(self, objects: Objects, guard: Guard) -> None:
        self._objects = objects
        self._guard = guard

    async def serves(self, kind: Kind) -> bool:
        """Whether the API server knows a kind."""
        return await self._objects.serves(kind)

    async def get(self, place: Place) -> Manifest:
        """One object."""
        return await self._objects.get(place)

    async def listed(self, kind: Kind, namespace: str) -> Listed:
        """All objects of a kind in a namespace, or in all ("")."""
        return await self._objects.listed(kind, namespace)

    def changes(self, kind: Kind, namespace: str, since: int) -> AsyncGenerator[Change, None]:
        """What changed since a version, in order, for some minutes."""
        return self._objects.changes(kind, namespace, since)

    async def apply(self, write: Write, *, force: bool) -> Manifest:
        """Own exactly these fields."""
        return await self._guard.guarded(
            lambda: self._objects.apply(write, force=force), str(write.place)
        )

    async def apply_conditions(
        self, place: Place, seen: Manifest, conditions: Sequence[Manifest]
    ) -> Manifest:
        """Own exactly these conditions."""
        return await self._guard.guarded(
            lambda: self._objects.apply_conditions(place, seen, conditions), str(place)
        )

    async def disown(self, place: Place, seen: Manifest) -> Manifest:
        """Own nothing of the spec any more."""
        return await self._guard.guarded(lambda: self._objects.disown(place, seen), str(place))
