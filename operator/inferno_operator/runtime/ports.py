"""The interface of controllers to the API server, for objects of any kind."""

from collections.abc import AsyncGenerator, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Protocol

from inferno_operator.resources.objects import Event, Key, Kind, Manifest, Place, Reference
from inferno_operator.resources.serving_roles import (
    SERVINGS,
    build_serving_selector,
    find_role,
    groups_of,
    role_selector,
)
from inferno_optimizer.errors import InfernoError, UnavailableError


class FieldManager(StrEnum):
    """Who sets and owns fields of objects, by the names that the API server keeps.

    ===========  =====================================================================
    DECISIONS    decisions, their conditions and Plans; finalizers
    ACTUATION    replicas of workloads and ModelBoosters; what runs, on Servers
    MEASUREMENT  measured loads and the condition Measured of Servers
    CALIBRATION  calibrations and the condition Calibrated of Models
    CAPACITY     counts and the condition Counted of Capacities
    BOOSTERS     the children of ModelBoosters, and their status
    KUBECTL      what a person changes with `kubectl inferno`
    ===========  =====================================================================
    """

    DECISIONS = "inferno-operator"
    ACTUATION = "inferno-actuation"
    MEASUREMENT = "inferno-measure"
    CALIBRATION = "inferno-calibrate"
    CAPACITY = "inferno-capacity"
    BOOSTERS = "inferno-model-booster"
    KUBECTL = "kubectl-inferno"


class UnauthenticatedError(UnavailableError):
    """The API server does not take the token: it has expired, was revoked, or never was one."""


class GoneError(InfernoError):
    """The object or its kind does not exist, or an object of the same name has another uid."""

    reason = "Gone"


class UnscaledError(GoneError):
    """The object has no number of replicas yet: what there is stays until somebody sets one."""


class RejectedError(InfernoError):
    """The API server rejects a request: by its schema, an admission policy or RBAC."""

    reason = "Rejected"


class UnknownFieldError(RejectedError):
    """The definition of a kind lacks a field of an apply: it is that of another release."""


class StaleError(InfernoError):
    """The object changed since it was read: a decision about it may be out of date."""

    reason = "Changed"


class ConflictError(InfernoError):
    """Another field manager owns a field of an apply, with another value.

    `causes` names the manager and the path of each such field, as the API server does.
    """

    reason = "Conflict"

    def __init__(self, message: str, causes: Iterable[str] = ()) -> None:
        super().__init__(message)
        self.causes = tuple(causes)


@dataclass(frozen=True, slots=True)
class Served:
    """A kind that the API server serves, and whether it has a scale subresource."""

    kind: Kind
    is_scalable: bool


WITH_SCALE = frozenset({("apps", kind) for kind in ("Deployment", "ReplicaSet", "StatefulSet")})
"""Groups and kinds of which the scale subresource says nothing that the object does not."""


@dataclass(frozen=True, slots=True)
class Scale:
    """The scale subresource of an object, at a version of the object; or a role of a serving.

    Parameters
    ----------
    reference
        The object.
    replicas
        The number of replicas that the object asks for.
    selector
        The selector of its pods, as text; "" if the object has not published it yet.
    is_unset
        Whether the object has no number yet: what there is stays.
    role, index
        The role of which this is the number, and its place in the list of roles; the role is ""
        if the number is that of the scale subresource.
    """

    reference: Reference
    replicas: int
    selector: str
    is_unset: bool = False
    role: str = ""
    index: int = 0

    @classmethod
    def of_role(cls, kind: Kind, serving: Manifest, role: str) -> "Scale | None":
        """Return the number of a role of a serving; None if it has no such role."""
        numbered = find_role(serving, role)
        if numbered is None:
            return None
        index, replicas = numbered
        selector = role_selector(kind, Key.of(serving).name, role)
        return cls(Reference.of(kind, serving), replicas, selector, role=role, index=index)

    @classmethod
    def of_watched(cls, kind: Kind, manifest: Manifest) -> "Scale | None":
        """Return the scale subresource of an object as it was watched; None if it must be read.

        The API server makes that of the kinds in `WITH_SCALE` from the spec. That of a serving says
        no more than the object, early releases have none, and the manifests grant no right to it.
        """
        spec = manifest.get("spec", {})
        if kind in SERVINGS:
            selector = build_serving_selector(kind, Key.of(manifest).name)
            return cls(Reference.of(kind, manifest), groups_of(manifest), selector)
        labels, replicas = spec.get("selector", {}).get("matchLabels"), spec.get("replicas")
        is_plain = labels and not spec["selector"].get("matchExpressions")
        if (kind.group, kind.kind) not in WITH_SCALE or not is_plain or replicas is None:
            return None
        selector = ",".join(f"{label}={value}" for label, value in sorted(labels.items()))
        return cls(Reference.of(kind, manifest), replicas, selector)

    @property
    def place(self) -> Place:
        """The place of the object, and the role."""
        return Place(self.reference.kind, self.reference.key, self.role)


@dataclass(frozen=True, slots=True)
class Listing:
    """All objects of a kind, in a namespace or in all namespaces (""), at a version."""

    kind: Kind
    namespace: str
    version: int
    manifests: tuple[Manifest, ...]


@dataclass(frozen=True, slots=True)
class ObjectChange:
    """An object at a version; `gone` if it was deleted; without a manifest, only a version."""

    version: int
    manifest: Manifest | None = None
    gone: bool = False


class Reader(Protocol):
    """Reads from the API server.

    Every method raises `UnavailableError` if a later call may succeed, `GoneError` if the
    object or its kind does not exist, and `RejectedError` if the API server rejects the call.
    """

    async def verbs(self, group: str, version: str) -> Mapping[str, frozenset[str]]:
        """Return what the API server offers to do with each kind of a group, in the plural."""

    async def find(self, api_version: str, kind: str) -> Served | None:
        """Return the namespaced kind of this name; None if the API server does not serve it."""

    async def get(self, kind: Kind, key: Key) -> Manifest:
        """Return one object."""

    async def scale(self, kind: Kind, key: Key) -> Scale:
        """Return the scale subresource of one object; `UnscaledError` if it has no number yet."""

    async def list(self, kind: Kind, namespace: str) -> Listing:
        """List all objects of a kind in a namespace, or in all namespaces ("")."""

    def watch(self, kind: Kind, namespace: str, since: int) -> AsyncGenerator[ObjectChange, None]:
        """Yield the changes since a version, in order, for some minutes.

        Raises
        ------
        InfernoError
            The version is too old, or the API server does not answer: list again.
        """


class Cluster(Reader, Protocol):
    """Reads from the API server, and writes to it.

    A write raises `StaleError` if the object changed since it was read.
    """

    async def apply(
        self, kind: Kind, manifest: Manifest, manager: str, *, force: bool = True
    ) -> Manifest:
        """Set and own exactly the fields of a manifest, by server-side apply.

        If the manifest has a status, only the status is applied, else all other fields. An
        object that does not exist is created. The uid and the resourceVersion in the metadata,
        if given, must be those of the object. Returns the object after the write. Without
        `force` it raises `ConflictError` if another manager owns a field with another value.
        """

    async def merge(self, kind: Kind, manifest: Manifest, manager: str) -> None:
        """Set the fields of a manifest, by a merge patch."""

    async def set_scale(self, scale: Scale, replicas: int, manager: str) -> Scale:
        """Set the number of replicas, by a patch of the scale subresource or role that was read.

        Returns it after the write. It raises `StaleError` if the object changed since the scale
        subresource was read, or the number of the role.
        """

    async def set_managers(self, reference: Reference, entries: Sequence[Any]) -> None:
        """Replace the `managedFields` of an object; the values of its fields do not change."""

    async def delete(self, reference: Reference) -> None:
        """Delete this object; the garbage collector deletes what it owns later."""

    async def publish(self, event: Event) -> None:
        """Create an event; if that fails, log it."""
