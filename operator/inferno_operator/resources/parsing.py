"""From a manifest to a Resource, or to an error that names the object and the field."""

import reprlib
from collections.abc import Mapping, Sequence

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from inferno_operator.resources.accelerator import Accelerator
from inferno_operator.resources.base import API_VERSION, Resource
from inferno_operator.resources.capacity import Capacity
from inferno_operator.resources.model import Model
from inferno_operator.resources.optimizer import Optimizer
from inferno_operator.resources.server import Server
from inferno_operator.resources.service_class import ServiceClass
from inferno_optimizer.errors import InputError

RESOURCES: tuple[type[Resource], ...] = (
    Accelerator,
    Model,
    ServiceClass,
    Server,
    Capacity,
    Optimizer,
)

_WANTED = {
    "dict_type": "must be an object",
    "model_type": "must be an object",
    "too_short": "must not be empty",
    "tuple_type": "must be a list",
}
"""Where pydantic's own words are those of a Python programmer."""


class ManifestError(InputError):
    """A manifest that is no valid custom resource of ours.

    Attributes
    ----------
    kind, namespace, name
        The object, as far as the manifest tells; empty where it does not.
    path
        The field, as its user writes it: `spec.data[0].slo-itl`.
    problem
        What is wrong with the field.
    """

    def __init__(self, manifest: Mapping[str, object], path: str, problem: str) -> None:
        metadata = manifest.get("metadata")
        names = metadata if isinstance(metadata, Mapping) else {}
        self.kind = _text(manifest.get("kind"))
        self.namespace = _text(names.get("namespace"))
        self.name = _text(names.get("name"))
        self.path = path
        self.problem = problem
        name = "/".join(filter(None, (self.namespace, self.name))) or "without a name"
        super().__init__(f"{self.kind or 'object'} {name}: {path} {problem}")


def parse(manifest: Mapping[str, object]) -> Resource:
    """Return the resource that a manifest describes.

    Parameters
    ----------
    manifest
        An object as the API server or a YAML file has it.

    Raises
    ------
    ManifestError
        The object is of no kind of ours, or a field is missing or has a bad value.
    """
    resource = _resource_of(manifest)
    try:
        return resource.model_validate(manifest, by_alias=True, by_name=False)
    except ValidationError as invalid:
        raise bad_manifest(manifest, invalid) from invalid


def bad_manifest(manifest: Mapping[str, object], invalid: ValidationError) -> ManifestError:
    """What is wrong with a manifest, that did not fit its model."""
    first, *others = invalid.errors(include_url=False)
    more = f" (and {len(others)} more)" if others else ""
    return ManifestError(manifest, _path(first["loc"]), _problem(first) + more)


def _resource_of(manifest: Mapping[str, object]) -> type[Resource]:
    version, kind = manifest.get("apiVersion"), manifest.get("kind")
    if version != API_VERSION:
        raise ManifestError(
            manifest, "apiVersion", f"must be {API_VERSION}, not {reprlib.repr(version)}"
        )
    for resource in RESOURCES:
        if resource.kind == kind:
            return resource
    kinds = ", ".join(resource.kind for resource in RESOURCES)
    raise ManifestError(manifest, "kind", f"must be one of {kinds}, not {reprlib.repr(kind)}")


def _path(location: Sequence[int | str]) -> str:
    steps = (f"[{step}]" if isinstance(step, int) else f".{step}" for step in location)
    return "".join(steps).removeprefix(".")


def _problem(error: ErrorDetails) -> str:
    if error["type"] == "missing":
        return "is missing"
    if error["type"] == "value_error":  # a rule's; its message is whole
        return f"is inconsistent: {error['msg'].removeprefix('Value error, ')}"
    _, _, wanted = error["msg"].partition(" should ")
    problem = _WANTED.get(error["type"], f"must {wanted}")
    return f"{problem}, not {reprlib.repr(error['input'])}"


def _text(value: object) -> str:
    """Return a value of unknown type as text that fits into a line."""
    if value is None:
        return ""
    return value if isinstance(value, str) and value.isprintable() else reprlib.repr(value)
