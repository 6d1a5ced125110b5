"""An object as it was read: parsed, or with the problem of its spec."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime

from inferno_operator.resources import (
    ManifestError,
    Metadata,
    Resource,
    Status,
    parse,
)
from inferno_operator.resources.objects import Key, Manifest, Reference, kind_of


@dataclass(frozen=True, slots=True)
class Observation:
    """An object; if its spec is invalid, `resource` is None, and `problem` has the reason.

    `deleted` is the time at which its deletion was requested.
    """

    kind: type[Resource]
    reference: Reference
    generation: int
    status: Status
    resource: Resource | None
    problem: str = ""
    finalizers: tuple[str, ...] = ()
    deleted: datetime | None = None


def observe(kind: type[Resource], manifest: Manifest) -> Observation:
    """Parse an object; an invalid spec is not raised, but stored in the observation."""
    metadata = Metadata.model_validate(manifest["metadata"])
    key = Key(metadata.namespace, metadata.name)
    reference = Reference(kind_of(kind), key, metadata.uid, metadata.resource_version)
    resource: Resource | None
    status: Status
    try:
        resource = parse(manifest)
    except ManifestError as error:
        status = kind.type_of_status().model_validate(manifest.get("status", {}))
        problem = f"{error.path} {error.problem}"
        resource = None
    else:
        status, problem = resource.status, ""
    return Observation(
        kind,
        reference,
        metadata.generation,
        status,
        resource,
        problem,
        metadata.finalizers,
        metadata.deletion_timestamp,
    )


def readable(observations: Iterable[Observation]) -> list[Resource]:
    """Return the resources of the observations whose spec is valid."""
    return [o.resource for o in observations if o.resource is not None]
