"""What controllers need from the API server: small protocols; their fakes are in `fakes`."""

from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass
from typing import Protocol

from inferno_operator.resources import Resource
from inferno_operator.resources.objects import Event, Key, Manifest, Reference
from inferno_optimizer.errors import InfernoError


class GoneError(InfernoError):
    """The object is not there any more, or is another one of the same name."""

    reason = "Gone"


class RejectedError(InfernoError):
    """The API server refuses a write: by its schema, an admission policy or RBAC."""

    reason = "Rejected"


class StaleError(InfernoError):
    """The object changed since it was read: what was decided may not hold any more."""

    reason = "Conflict"


class Cluster(Protocol):
    """The API server.

    Every method raises `UnavailableError` when a later try may succeed, `GoneError` when
    the object is not there, `RejectedError` when the API server refuses what is written.
    """

    async def served(self) -> frozenset[str]:
        """Kinds of ours that the API server knows now, in the plural."""

    async def get(self, resource: type[Resource], key: Key) -> Manifest:
        """One object."""

    async def list(self, resource: type[Resource], namespace: str) -> Sequence[Manifest]:
        """All objects of a kind in a namespace, or in all ("")."""

    async def apply_spec(self, reference: Reference, spec: Manifest) -> Manifest:
        """Own exactly these fields of the spec; returns the object then."""

    async def apply_status(self, reference: Reference, status: Manifest) -> Manifest:
        """Own exactly these fields of the status; returns the object then.

        It may have changed since it was seen, but must be the same object still.
        """

    async def clear_request(self, reference: Reference) -> None:
        """Set `optimize` of an Optimizer to false; `StaleError` if it changed since it was seen."""

    async def set_finalizers(self, reference: Reference, finalizers: Sequence[str]) -> None:
        """Replace the finalizers; `StaleError` if the object changed since it was seen."""

    async def publish(self, event: Event) -> None:
        """Make an event known; one that cannot be is dropped and logged."""


@dataclass(frozen=True, slots=True)
class Listing:
    """All objects of a kind, in a namespace or in all (""), at a version."""

    resource: type[Resource]
    namespace: str
    version: int
    manifests: tuple[Manifest, ...]


@dataclass(frozen=True, slots=True)
class Change:
    """An object at a version, or that it is gone since; without a manifest only the version."""

    version: int
    manifest: Manifest | None = None
    gone: bool = False


class Watch(Protocol):
    """What happens to objects."""

    async def listing(self, resource: type[Resource], namespace: str) -> Listing:
        """All objects of a kind in a namespace, or in all ("")."""

    def changes(self, listing: Listing, since: int) -> AsyncGenerator[Change, None]:
        """What changed since a version, in order, for some minutes.

        Raises
        ------
        InfernoError
            It is not known any more, or the API server does not answer: list again.
        """
