"""What controllers need from the API server, for objects of any kind; its fake is in `fakes`."""

from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from inferno_operator.resources.objects import Event, Key, Kind, Manifest, Reference
from inferno_optimizer.errors import InfernoError

FIELD_MANAGER = "inferno-operator"
"""The field manager of decisions, conditions and finalizers on our own kinds."""


class GoneError(InfernoError):
    """The object or its kind is not there, or the object is another one of the same name."""

    reason = "Gone"


class RejectedError(InfernoError):
    """The API server refuses a request: by its schema, an admission policy or RBAC."""

    reason = "Rejected"


class StaleError(InfernoError):
    """The object changed since it was read: what was decided may not hold any more."""

    reason = "Conflict"


class ConflictError(InfernoError):
    """Another field manager owns a field that is to be set, with another value."""

    reason = "Conflict"


@dataclass(frozen=True, slots=True)
class Listing:
    """All objects of a kind, in a namespace or in all (""), at a version."""

    kind: Kind
    namespace: str
    version: int
    manifests: tuple[Manifest, ...]


@dataclass(frozen=True, slots=True)
class Change:
    """An object at a version, or that it is gone since; without a manifest only the version."""

    version: int
    manifest: Manifest | None = None
    gone: bool = False


class Reader(Protocol):
    """Reads from the API server.

    Every method raises `UnavailableError` when a later try may succeed, `GoneError` when
    the object or its kind is not there, `RejectedError` when the API server refuses.
    """

    async def serves(self, kind: Kind) -> bool:
        """Whether the API server knows a kind now."""

    async def get(self, kind: Kind, key: Key) -> Manifest:
        """One object."""

    async def list(self, kind: Kind, namespace: str) -> Listing:
        """All objects of a kind in a namespace, or in all ("")."""

    def watch(self, kind: Kind, namespace: str, since: int) -> AsyncGenerator[Change, None]:
        """What changed since a version, in order, for some minutes.

        Raises
        ------
        InfernoError
            The version is not known any more, or the API server does not answer: list again.
        """


class Cluster(Reader, Protocol):
    """Reads from the API server, and writes to it.

    A write raises `StaleError` when the object changed since it was seen.
    """

    async def apply(
        self, kind: Kind, manifest: Manifest, manager: str, *, force: bool = True
    ) -> Manifest:
        """Own exactly the fields of a manifest, by server-side apply; returns the object then.

        If the manifest has a status, the fields are those of the status, else all others; an
        object that is not there is made. The uid and the version in its metadata, if any,
        must be those of the object. Unless forced, it raises `ConflictError` if another
        manager owns one of the fields with another value.
        """

    async def merge(self, kind: Kind, manifest: Manifest, manager: str) -> None:
        """Set the fields of a manifest, by a merge patch."""

    async def set_managers(self, reference: Reference, entries: Sequence[Any]) -> None:
        """Replace who owns which fields of an object; its values stay as they are."""

    async def delete(self, reference: Reference) -> None:
        """Delete this object; what it owns goes too, later."""

    async def publish(self, event: Event) -> None:
        """Create an event; if that fails, log it."""
