"""What the controller needs from outside: a cluster with the kinds of a dialect."""

from collections.abc import AsyncGenerator
from dataclasses import dataclass
from typing import Literal, Protocol

from inferno_operator.resources.objects import Key, Kind, Manifest
from inferno_operator.runtime.ports import Change


@dataclass(frozen=True, slots=True)
class Listed:
    """All objects of a kind, in a namespace or in all (""), at a version."""

    version: int
    manifests: tuple[Manifest, ...]


@dataclass(frozen=True, slots=True)
class Notice:
    """Something worth telling the people who look at a booster."""

    type: Literal["Normal", "Warning"]
    reason: str
    message: str


class BoosterCluster(Protocol):
    """The API server, for any kind.

    Every method raises `UnavailableError` when a later try may succeed, `GoneError` when
    the object or its kind is not there, `StaleError` when the object changed since it was
    seen, `RejectedError` when the API server refuses.
    """

    async def listed(self, kind: Kind, namespace: str) -> Listed:
        """All objects of a kind in a namespace, or in all ("")."""

    def changes(self, kind: Kind, namespace: str, since: int) -> AsyncGenerator[Change, None]:
        """What changed since a version, in order, for some minutes."""

    async def apply(self, kind: Kind, manifest: Manifest) -> Manifest:
        """Own exactly these fields of an object, made if need be; returns the object then."""

    async def delete(self, kind: Kind, key: Key, uid: str) -> None:
        """Delete this object; what belongs to it goes too, later."""

    async def apply_status(self, kind: Kind, manifest: Manifest) -> Manifest:
        """Own exactly these fields of the status; returns the object then."""

    async def publish(self, kind: Kind, about: Manifest, notice: Notice) -> None:
        """Make an event known; one that cannot be is dropped and logged."""
