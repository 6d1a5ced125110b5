"""An object as it was read: parsed, or with what is wrong with it."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime

from inferno_operator.resources import (
    ManifestError,
    Metadata,
    Optimizer,
    OptimizerStatus,
    Resource,
    Status,
    parse,
)
from inferno_operator.resources.objects import Key, Manifest, Reference, kind_of


@dataclass(frozen=True, slots=True)
class Observation:
    """One object; `resource` is None if its spec cannot be read, and `problem` says why.

    `deleted` is when its deletion was requested; it is gone when it has no `finalizers` left.
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
    """Read an object; a spec that cannot be read is a problem of that object only."""
    metadata = Metadata.model_validate(manifest["metadata"])
    key = Key(metadata.namespace, metadata.name)
    reference = Reference(kind_of(kind), key, metadata.uid, metadata.resource_version)
    resource: Resource | None
    status: Status
    try:
        resource = parse(manifest)
    except ManifestError as error:
        kind_of_status = OptimizerStatus if kind is Optimizer else Status
        status = kind_of_status.model_validate(manifest.get("status", {}))
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
    """The resources among them."""
    return [o.resource for o in observations if o.resource is not None]
