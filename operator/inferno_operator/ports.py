"""What reconciling needs from outside: small protocols; their fakes are in `fakes`."""

from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal, Protocol

from inferno_operator.resources import Resource
from inferno_optimizer.errors import InfernoError
from inferno_optimizer.system import Solution, System

Manifest = Mapping[str, Any]
"""An object as the API server has it."""

Now = Callable[[], datetime]
"""The time of day, with its zone."""


@dataclass(frozen=True, slots=True, order=True)
class Key:
    """Namespace and name of an object."""

    namespace: str
    name: str

    @classmethod
    def of(cls, manifest: Manifest) -> "Key":
        """Those of an object in a namespace."""
        metadata: Mapping[str, str] = manifest["metadata"]
        return cls(metadata["namespace"], metadata["name"])

    def __str__(self) -> str:
        """As kubectl users write it."""
        return f"{self.namespace}/{self.name}"


@dataclass(frozen=True, slots=True)
class Reference:
    """One object of a kind of ours, and the version of it that was seen last."""

    resource: type[Resource]
    key: Key
    uid: str
    version: str

    def __str__(self) -> str:
        """Kind, namespace and name."""
        return f"{self.resource.kind} {self.key}"


@dataclass(frozen=True, slots=True)
class Event:
    """Something worth telling the people who look at an object."""

    about: Reference
    type: Literal["Normal", "Warning"]
    reason: str
    message: str


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

    async def terminating(self) -> frozenset[str]:
        """Those of them whose definitions are being deleted, and with them all objects."""

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


class Optimizer(Protocol):
    """Where systems are solved."""

    async def optimize(self, system: System) -> Solution:
        """Solve; see `inferno_optimizer.optimize`."""
