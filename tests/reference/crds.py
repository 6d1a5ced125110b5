"""Every field of the custom resources, from their CustomResourceDefinitions."""

from collections.abc import Callable, Iterator, Mapping
from functools import cache, partial
from typing import Any, NamedTuple

from inferno_operator.resources import RESOURCES, Resource
from inferno_operator.resources.definitions import crd
from tests.reference.markdown import code, table

Schema = dict[str, Any]

FEWEST_ALIKE = 2
"""Fields of a part that are not repeated where another part has the same."""

MOST_MISSING = 8
"""Fields that one of two such parts may lack."""

MOST = 2**31 - 1
"""Of counts: nobody gets there, so the tables leave it out."""

LIMITS = {
    "minimum": "≥ {}",
    "maximum": "≤ {}",
    "minLength": "not empty",
    "minItems": "not empty",
    "maxItems": "at most {} items",
}
"""Keys of a schema that a user may run into, in words."""


HEADINGS = ("field", "type", "meaning")


def index_of_kinds() -> str:
    """What each kind is, its page, and the fields that the status of every kind has."""
    lines = [
        (f"[{resource.kind}](crds/{resource.kind.lower()}.md)", _schema(resource)["description"])
        for resource in RESOURCES
    ]
    status = {"properties": common_fields()}
    common = [_line(*field) for field in _fields("status", status, {})]
    return "\n\n".join(
        [
            table(("kind", "what it is"), lines),
            "### Status of every kind",
            table(HEADINGS, common),
        ]
    )


@cache
def common_fields() -> Schema:
    """The fields of the status that all kinds have alike."""
    first, *others = (_schema(resource)["properties"]["status"] for resource in RESOURCES)
    return {
        name: field
        for name, field in first["properties"].items()
        if all(other["properties"].get(name) == field for other in others)
    }


class Alike(NamedTuple):
    """Another part that has the same fields, or all but some, or some of them."""

    path: str
    without: tuple[str, ...] = ()
    more: bool = False

    def __str__(self) -> str:
        but = f", but {', '.join(map(code, self.without))}" if self.without else ""
        return f"Its fields are those of {code(self.path)}{but}{', and:' if self.more else '.'}"


Field = tuple[str, Schema, bool, Alike | None]
"""Path, schema, whether it is required, and a part that has the same fields."""


def fields(resource: type[Resource]) -> Iterator[Field]:
    """Every field of spec and status; fields of parts that are alike only the first time."""
    properties = _schema(resource)["properties"]
    seen: dict[str, Schema] = {}
    yield from _fields("spec", properties["spec"], seen)
    own = {k: v for k, v in properties["status"]["properties"].items() if k not in common_fields()}
    yield from _fields("status", {**properties["status"], "properties": own}, seen)


def _schema(resource: type[Resource]) -> Schema:
    schema: Schema = crd(resource)["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    return schema


def _fields(path: str, schema: Schema, seen: dict[str, Schema]) -> Iterator[Field]:
    required = schema.get("required", ())
    for name, field in schema.get("properties", {}).items():
        is_list = "items" in field
        inner, part = f"{path}.{name}" + "[]" * is_list, field["items"] if is_list else field
        alike = _find_alike(part, seen)
        yield f"{path}.{name}", field, name in required, alike
        known = seen[alike.path]["properties"] if alike else {}
        seen[inner] = part
        new = {k: v for k, v in part.get("properties", {}).items() if k not in known}
        yield from _fields(inner, {**part, "properties": new}, seen)


def _find_alike(part: Schema, seen: Mapping[str, Schema]) -> Alike | None:
    """Find the part whose fields are these, or else all but a few or some of these."""
    own = _marked(part)
    found = []
    for path, other in seen.items():
        theirs = _marked(other)
        shared = own.keys() & theirs.keys()
        if len(shared) < FEWEST_ALIKE or any(own[name] != theirs[name] for name in shared):
            continue
        alike = Alike(
            path, tuple(name for name in theirs if name not in shared), more=len(own) > len(shared)
        )
        if len(alike.without) <= MOST_MISSING and not (alike.without and alike.more):
            found.append(alike)
    return min(found, key=lambda alike: (alike.more, len(alike.without)), default=None)


def _marked(part: Schema) -> dict[str, tuple[bool, Schema]]:
    required = part.get("required", ())
    return {name: (name in required, field) for name, field in part.get("properties", {}).items()}


def kind(resource: type[Resource]) -> str:
    """What a kind is, and its fields."""
    definition = crd(resource)["spec"]
    names, version = definition["names"], definition["versions"][0]
    schema = version["schema"]["openAPIV3Schema"]
    columns = ", ".join(
        code(column["name"]) + (" (wide)" if column.get("priority") else "")
        for column in version["additionalPrinterColumns"]
    )
    short = ", ".join(map(code, names["shortNames"]))
    printed = f"`kubectl get {names['plural']}`, for short {short}, prints {columns}."
    return "\n\n".join(
        [
            f"{schema['description']} {printed}",
            table(HEADINGS, [_line(*field) for field in fields(resource)]),
            *_rules(schema),
        ]
    )


def _line(path: str, schema: Schema, required: bool, alike: Alike | None) -> list[str]:
    meaning = schema.get("description", "")
    told = [
        "**Required.**" if required else "",
        meaning,
        _limits(schema),
        str(alike) if alike else "",
    ]
    return [code(path), _type(schema), " ".join(filter(None, told))]


def _type(schema: Schema) -> str:
    if schema["type"] == "array":
        return f"list of {_type(schema['items'])}"
    return str(schema["type"])


def _limits(schema: Schema) -> str:
    """What else a value has to be, and what it is by default."""
    told = [f"one of {', '.join(map(code, schema['enum']))}"] if "enum" in schema else []
    told += [
        text.format(f"{schema[key]:g}")
        for key, text in LIMITS.items()
        if key in schema and schema[key] != MOST
    ]
    if schema.get("default", "") != "":
        default = schema["default"]
        shown = str(default).lower() if isinstance(default, bool) else default
        told.append(f"default {code(shown)}")
    return f"({', '.join(told)})" if told else ""


PARTS: Mapping[str, Callable[[], str]] = {
    "crds": index_of_kinds,
    **{f"crds/{resource.kind.lower()}": partial(kind, resource) for resource in RESOURCES},
}
"""What is generated, by page."""


def _rules(schema: Schema) -> Iterator[str]:
    rules = sorted(set(_messages(schema)))
    if rules:
        yield "The API server also checks: " + "; ".join(rules) + "."


def _messages(schema: Schema) -> Iterator[str]:
    for rule in schema.get("x-kubernetes-validations", ()):
        yield rule["message"]
    for field in (*schema.get("properties", {}).values(), schema.get("items")):
        if field:
            yield from _messages(field)
