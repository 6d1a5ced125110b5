"""An object as it was read: parsed, or with the problem of its spec."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Annotated, Generic, TypeGuard, cast

from pydantic import AfterValidator, Field, ValidationError
from typing_extensions import TypeVar

from inferno_operator.resources import (
    ManifestError,
    Metadata,
    Resource,
    Server,
    Status,
    parse,
)
from inferno_operator.resources.objects import Key, Manifest, Reference, kind_of
from inferno_operator.resources.schema import (
    MAX_NAME,
    Amount,
    Items,
    NonNegativeInteger,
    Part,
    Quantity,
    ShortText,
)

_CutText = Annotated[str, Field(min_length=1), AfterValidator(lambda text: text[:MAX_NAME])]
"""A name that may be too long: what runs is counted nevertheless."""


class _Running(Part):
    """The part of an allocation that cards and their cost follow from."""

    accelerator: ShortText
    num_replicas: Amount
    starting_replicas: NonNegativeInteger | None = None
    cost: Quantity | None = None


class _AllRunning(_Running):
    """All of a server."""

    mix: Items[_Running] = ()


class _RemainingSpec(Part):
    """The part of a spec that names what runs."""

    name: _CutText
    service_class: Annotated[_CutText, Field(alias="class")]
    model: _CutText
    current_alloc: _AllRunning


class _Remains(Part):
    """The part of a Server that is read."""

    metadata: Metadata
    spec: _RemainingSpec


def _read_remains(manifest: Manifest) -> Server | None:
    """Return a Server with its names and what runs alone; None if not even that can be read."""
    try:
        remains = _Remains.model_validate(manifest, by_alias=True, by_name=False)
    except ValidationError:
        return None
    return Server.model_validate(remains.to_json(), by_alias=True, by_name=False)


Observed_co = TypeVar("Observed_co", bound=Resource, covariant=True, default=Resource)
Kind = TypeVar("Kind", bound=Resource)


@dataclass(frozen=True, slots=True, weakref_slot=True)
class Observation(Generic[Observed_co]):
    """An object; if its spec is invalid, `resource` is None, and `problem` has the reason.

    `deleted` is the time at which its deletion was requested; `remains` is what runs of a Server
    whose spec is invalid, if that can be read.
    """

    kind: type[Observed_co]
    reference: Reference
    generation: int
    status: Status
    resource: Observed_co | None
    problem: str = ""
    finalizers: tuple[str, ...] = ()
    deleted: datetime | None = None
    remains: Server | None = None


def observe(kind: type[Kind], manifest: Manifest) -> Observation[Kind]:
    """Parse an object; an invalid spec is not raised, but stored in the observation."""
    resource: Kind | None
    status: Status
    remains = None
    try:
        resource = cast("Kind", parse(manifest))  # `kind` names what it says itself
    except ManifestError as error:
        metadata = Metadata.model_validate(manifest["metadata"])
        status = _read_status(kind, manifest.get("status", {}))
        problem = f"{error.path} {error.problem}"
        resource, remains = None, _read_remains(manifest) if kind is Server else None
    else:
        metadata, status, problem = resource.metadata, resource.status, ""
    key = Key(metadata.namespace, metadata.name)
    reference = Reference(kind_of(kind), key, metadata.uid, metadata.resource_version)
    return Observation(
        kind,
        reference,
        metadata.generation,
        status,
        resource,
        problem,
        metadata.finalizers,
        metadata.deletion_timestamp,
        remains,
    )


def _read_status(kind: type[Resource], fields: Manifest) -> Status:
    """Return a status without the fields that cannot be read."""
    status = kind.type_of_status()
    try:
        return status.model_validate(fields)
    except ValidationError as invalid:
        wrong = {error["loc"][0] for error in invalid.errors() if error["loc"]}
    try:
        return status.model_validate({k: v for k, v in fields.items() if k not in wrong})
    except ValidationError:
        return status()


def is_of(observation: Observation, kind: type[Kind]) -> TypeGuard[Observation[Kind]]:
    """Whether an object is of a kind."""
    return observation.kind is kind


def of_kind(observations: Iterable[Observation], kind: type[Kind]) -> Iterator[Observation[Kind]]:
    """Yield the objects of a kind."""
    return (o for o in observations if is_of(o, kind))


def only(kind: type[Kind], resources: Iterable[Resource]) -> Iterator[Kind]:
    """Yield the resources of one kind."""
    return (resource for resource in resources if isinstance(resource, kind))


def readable(observations: Iterable[Observation]) -> list[Resource]:
    """Return the resources of the observations whose spec is valid."""
    return [o.resource for o in observations if o.resource is not None]


def still_running(observations: Iterable[Observation]) -> list[Server]:
    """Return what runs of the Servers whose spec is invalid: no decision is made for them."""
    return [o.remains for o in observations if o.remains is not None]
