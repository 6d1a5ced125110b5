"""What actuation needs from outside."""

from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass
from typing import Protocol

from inferno_operator.controllers.boosters.ports import Listed
from inferno_operator.resources import Server
from inferno_operator.resources.objects import Key, Kind, Manifest, kind_of
from inferno_operator.runtime.ports import Change
from inferno_optimizer.errors import InfernoError

FIELD_MANAGER = "inferno-actuation"
"""Under this name we own fields of others' objects; what decides has another one."""

SERVER = kind_of(Server)


class ConflictError(InfernoError):
    """Somebody else owns a field that we are to set, and set it to another value."""

    reason = "Conflict"


@dataclass(frozen=True, slots=True)
class Place:
    """Where an object is."""

    kind: Kind
    key: Key

    def __str__(self) -> str:
        """Kind and name."""
        return f"{self.kind.kind} {self.key.name}"


@dataclass(frozen=True, slots=True)
class Write:
    """All fields of an object's spec that we own from now on, with their values."""

    place: Place
    uid: str
    spec: Manifest


class Objects(Protocol):
    """Objects of any kind on the API server, and our fields on them.

    Every method raises `UnavailableError` when a later try may succeed, `GoneError` when the
    object or its whole kind is not there, `RejectedError` when a write is refused.
    """

    async def serves(self, kind: Kind) -> bool:
        """Whether the API server knows a kind."""

    async def get(self, place: Place) -> Manifest:
        """One object."""

    async def listed(self, kind: Kind, namespace: str) -> Listed:
        """All objects of a kind in a namespace, or in all ("")."""

    def changes(self, kind: Kind, namespace: str, since: int) -> AsyncGenerator[Change, None]:
        """What changed since a version, in order, for some minutes."""

    async def apply(self, write: Write, *, force: bool) -> Manifest:
        """Own exactly these fields; unless forced, `ConflictError` if others hold them."""

    async def apply_conditions(
        self, place: Place, seen: Manifest, conditions: Sequence[Manifest]
    ) -> Manifest:
        """Own exactly these conditions; `StaleError` if the object changed since it was seen."""

    async def disown(self, place: Place, seen: Manifest) -> Manifest:
        """Own nothing of the spec any more; every value stays.

        Raises
        ------
        StaleError
            The object changed since it was seen.
        """
