"""From a manifest to a Resource, or to an error that names the object and the fields."""

import re
import reprlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TypeVar, get_args, get_origin

from pydantic import ValidationError
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails

from inferno_operator.resources.accelerator import Accelerator
from inferno_operator.resources.base import API_VERSION, Resource
from inferno_operator.resources.capacity import Capacity
from inferno_operator.resources.model import Model
from inferno_operator.resources.optimizer import Optimizer
from inferno_operator.resources.plan import Plan
from inferno_operator.resources.schema import Part
from inferno_operator.resources.server import Server
from inferno_operator.resources.service_class import ServiceClass
from inferno_optimizer.errors import InputError
from inferno_optimizer.suggestions import cut, list_known, nearest

Form = TypeVar("Form", bound=Part)

SYSTEM_RESOURCES: tuple[type[Resource], ...] = (
    Accelerator,
    Model,
    ServiceClass,
    Server,
    Capacity,
    Optimizer,
)
"""The kinds that people write, and that an optimization is about."""

RESOURCES: tuple[type[Resource], ...] = (*SYSTEM_RESOURCES, Plan)
"""All our kinds."""

PROBLEMS_SHOWN = 8
"""How many of the problems of one object a message tells."""

_NOT_OURS = frozenset({"apiVersion", "kind", "metadata", "status"})
"""Parts of an object that others write, or that are looked at elsewhere."""

_WANTED = {
    "dict_type": "must be an object",
    "model_type": "must be an object",
    "too_short": "must not be empty",
    "tuple_type": "must be a list",
}
"""Where pydantic's own words are those of a Python programmer."""


_NUMBER = re.compile(r"-?\d+(\.\d+)?")
_QUOTED = {
    "bool_type": re.compile("true|false"),
    "float_type": _NUMBER,
    "int_type": _NUMBER,
}
"""Texts that are right without quotes, by what pydantic says of them."""


class ManifestError(InputError):
    """A manifest that is no valid custom resource of ours.

    Attributes
    ----------
    kind, namespace, name
        The object, as far as the manifest tells; empty where it does not.
    path
        The first field that is wrong, as its user writes it: `spec.data[0].slo-itl`.
    steps
        The keys and the places in lists that lead to it.
    problem
        What is wrong with it, and then the other fields with what is wrong with them.
    """

    def __init__(
        self, manifest: Mapping[str, object], steps: Sequence[int | str], problem: str
    ) -> None:
        metadata = manifest.get("metadata")
        names = metadata if isinstance(metadata, Mapping) else {}
        self.kind = _text(manifest.get("kind"))
        self.namespace = _text(names.get("namespace"))
        self.name = _text(names.get("name"))
        self.steps = steps
        self.path = _path(steps)
        self.problem = problem
        name = "/".join(filter(None, (self.namespace, self.name))) or "without a name"
        super().__init__(f"{self.kind or 'object'} {name}: {self.path} {problem}")


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


def unknown_fields(manifest: Mapping[str, object]) -> tuple[ManifestError, ...]:
    """Fields that mean nothing: the API server drops them, and `parse` ignores them.

    Parameters
    ----------
    manifest
        An object of a kind of ours; its metadata and status are not looked at.

    Returns
    -------
    tuple[ManifestError, ...]
        An error for each, which names the known fields that are like it.
    """
    resource = _resource_of(manifest)
    if "spec" not in manifest:  # `parse` says so; its fields may stand beside metadata
        return ()
    paths = (path for path in _unknown(resource, manifest) if path[0] not in _NOT_OURS)
    return tuple(_unknown_error(resource, manifest, path) for path in paths)


def empty_fields(manifest: Mapping[str, object]) -> tuple[ManifestError, ...]:
    """Fields that are there without a value, and count as absent.

    Parameters
    ----------
    manifest
        An object of a kind of ours that `parse` takes; its metadata and status are not looked at.
    """
    paths = _find_empty(_resource_of(manifest), manifest)
    message = "is empty, and counts as absent; give a value or remove it"
    return tuple(ManifestError(manifest, path, message) for path in paths if path[0] == "spec")


def _find_empty(part: type[Part], content: Mapping[str, object]) -> Iterator[tuple[int | str, ...]]:
    """Yield the places of the fields of a part that are null."""
    for field in _fields(part):
        name = str(field.alias)
        value = content.get(name, field)
        if value is None:
            yield (name,)
        elif isinstance(value, Mapping) and _has_part(field.annotation):
            yield from ((name, *path) for path in _find_empty(_part_of(field.annotation), value))
        elif isinstance(value, list) and _has_part(field.annotation):
            for place, item in enumerate(value):
                if isinstance(item, Mapping):
                    found = _find_empty(_part_of(field.annotation), item)
                    yield from ((name, place, *path) for path in found)


def _has_part(annotation: object) -> bool:
    """Whether the type of a field is a Part, or has one inside."""
    if isinstance(annotation, type) and issubclass(annotation, Part):
        return True
    return any(map(_has_part, get_args(annotation)))


def read_part(part: type[Form], content: object) -> Form:
    """Return an object that is no custom resource, with all of its fields.

    Raises
    ------
    ManifestError
        It is no object, or a field is missing, unknown or has a bad value; the error is about an
        object without a kind and a name.
    """
    if not isinstance(content, Mapping):
        raise ManifestError({}, ["it"], "must be an object")
    for path in _unknown(part, content):
        raise _unknown_error(part, content, path)
    try:
        return part.model_validate(content, by_alias=True, by_name=False)
    except ValidationError as invalid:
        raise bad_manifest(content, invalid) from invalid


def _unknown(part: type[Part], content: Mapping[str, object]) -> Iterator[tuple[int | str, ...]]:
    """Yield the places of the fields that a part does not have."""
    try:
        part.model_validate(content, by_alias=True, by_name=False, extra="forbid")
    except ValidationError as invalid:
        for error in invalid.errors(include_url=False, include_input=False):
            *above, key = error["loc"]
            if error["type"] in ("extra_forbidden", "invalid_key"):
                yield *above, str(key)  # a key of YAML may be a number


def _unknown_error(
    part: type[Part], content: Mapping[str, object], path: Sequence[int | str]
) -> ManifestError:
    """What to say of a field that a part does not have."""
    advice = _alternatives(part, path)
    if str(path[-1]).isdecimal():
        advice = ": a comma ends a value; write a number without one, such as 1200 for 1,200"
    return ManifestError(content, path, f"is unknown{advice}")


def _alternatives(part: type[Part], path: Sequence[int | str]) -> str:
    """The fields that may stand where the last of a path does, those like it first."""
    *above, unknown = path
    for step in above:
        if isinstance(step, str):  # a number is the place in a list
            part = next(_part_of(f.annotation) for f in _fields(part) if f.alias == step)
    known = [str(field.alias) for field in _fields(part)]
    deeper = _deeper(part, str(unknown))
    near = f"; did you mean {deeper}?" if deeper else nearest(str(unknown), known)
    return near + list_known(known)


def _deeper(part: type[Part], name: str) -> str:
    """The path to a field of this name further inside, the nearest one; "" if there is none."""
    parts = [("", part)]
    while parts:
        inside = [
            (f"{path}.{field.alias}".removeprefix("."), field)
            for path, found in parts
            for field in _fields(found)
        ]
        if place := next((path for path, field in inside if field.alias == name), ""):
            return place
        parts = [(path, found) for path, field in inside if (found := _inner(field.annotation))]
    return ""


def _inner(annotation: object) -> type[Part] | None:
    """The Part in the type of a field, not in a list, whose items have places of their own."""
    if isinstance(annotation, type):
        return annotation if issubclass(annotation, Part) else None
    if get_origin(annotation) is tuple:
        return None
    return next((part for of in get_args(annotation) if (part := _inner(of))), None)


def _fields(part: type[Part]) -> Iterable[FieldInfo]:
    return part.model_fields.values()


def _part_of(annotation: object) -> type[Part]:
    """The Part in the type of a field: itself, or one that is optional or in a list."""
    if isinstance(annotation, type) and issubclass(annotation, Part):
        return annotation
    return _part_of(next(filter(_has_part, get_args(annotation))))


def bad_manifest(manifest: Mapping[str, object], invalid: ValidationError) -> ManifestError:
    """What is wrong with a manifest, that did not fit its model."""
    errors = invalid.errors(include_url=False)
    first, *others = (error for error in errors if not _follows(error))
    shown = [f"{_path(error['loc'])} {_problem(error)}" for error in others[: PROBLEMS_SHOWN - 1]]
    left_out = len(others) - len(shown)
    more = f" (and {left_out} more)" if left_out else ""
    problem = "; ".join((_problem(first), *shown)) + more
    return ManifestError(manifest, first["loc"], problem)


def _follows(error: ErrorDetails) -> bool:
    """Whether an error follows from others: a list is too short without its wrong items."""
    return error["type"] == "too_short" and bool(error["input"])


def _resource_of(manifest: Mapping[str, object]) -> type[Resource]:
    version, kind = manifest.get("apiVersion"), manifest.get("kind")
    if version is None:
        raise ManifestError(manifest, ["apiVersion"], f"is missing: write {API_VERSION}")
    if version != API_VERSION:
        raise ManifestError(
            manifest, ["apiVersion"], f"must be {API_VERSION}, not {reprlib.repr(version)}"
        )
    for resource in RESOURCES:
        if resource.kind == kind:
            return resource
    kinds = ", ".join(resource.kind for resource in RESOURCES)
    raise ManifestError(manifest, ["kind"], f"must be one of {kinds}, not {reprlib.repr(kind)}")


def _path(location: Sequence[int | str]) -> str:
    steps = (f"[{step}]" if isinstance(step, int) else f".{_text(step)}" for step in location)
    return "".join(steps).removeprefix(".")


def _problem(error: ErrorDetails) -> str:
    if error["type"] == "missing":
        return "is missing"
    if error["type"] == "value_error":  # a rule's; its message is whole
        return f"is inconsistent: {error['msg'].removeprefix('Value error, ')}"
    _, _, wanted = error["msg"].partition(" should ")
    problem = _WANTED.get(error["type"], f"must {wanted}")
    return f"{problem}, not {reprlib.repr(error['input'])}{_advice(error)}"


def _advice(error: ErrorDetails) -> str:
    """What to write in place of a text: a word that is like it, or itself without quotes.

    In place of a share, where percent are wanted, that many.
    """
    text = error["input"]
    if isinstance(text, float) and "percent" in str(error["loc"][-1]).lower() and 0 < text < 1:
        return f"; write {100 * text:g}"
    if not isinstance(text, str):
        return ""
    if error["type"] in ("literal_error", "enum"):
        return nearest(text, re.findall(r"'([^']*)'", error["ctx"]["expected"]))
    if "{{" in text:
        return ": it is a template of Helm; render it first"
    quoted = _QUOTED.get(error["type"])
    return "; write it without quotes" if quoted and quoted.fullmatch(text) else ""


def _text(value: object) -> str:
    """Return a value of unknown type as text that fits into a line."""
    if value is None:
        return ""
    is_plain = isinstance(value, str) and value.isprintable()
    return cut(str(value) if is_plain else reprlib.repr(value))
