"""Every field of the custom resources, from their CustomResourceDefinitions."""

import json
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any

from inferno_operator.resources import RESOURCES, Resource
from inferno_operator.resources.definitions import crd
from tests.reference.markdown import code, table

Schema = dict[str, Any]

FEWEST_ALIKE = 3
"""Fields of a part that are not repeated where another part has the same."""

MOST = 2**31 - 1
"""Of counts: nobody gets there, so the tables leave it out."""

LIMITS = {
    "minimum": "at least {}",
    "maximum": "at most {}",
    "minLength": "not empty",
    "minItems": "not empty",
    "maxItems": "at most {} items",
}
"""Keys of a schema that a user may run into, in words."""


def index_of_kinds() -> str:
    lines = [
        (f"[{resource.kind}](crds/{resource.kind.lower()}.md)", _schema(resource)["description"])
        for resource in RESOURCES
    ]
    return table(("kind", "what it is"), lines)


Field = tuple[str, Schema, bool, str]
"""Path, schema, whether it is required, and the path of a part that has the same fields."""


def fields(resource: type[Resource]) -> Iterator[Field]:
    """Every field of spec and status; fields of parts that are alike only the first time."""
    schema = _schema(resource)
    seen: dict[str, str] = {}
    for part in ("spec", "status"):
        yield from _fields(part, schema["properties"][part], seen)


def _schema(resource: type[Resource]) -> Schema:
    schema: Schema = crd(resource)["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    return schema


def _fields(path: str, schema: Schema, seen: dict[str, str]) -> Iterator[Field]:
    required = schema.get("required", ())
    for name, field in schema.get("properties", {}).items():
        is_list = "items" in field
        inner, part = f"{path}.{name}" + "[]" * is_list, field["items"] if is_list else field
        properties = part.get("properties", {})
        alike = seen.get(json.dumps(properties), "") if len(properties) >= FEWEST_ALIKE else ""
        yield f"{path}.{name}", field, name in required, alike
        if not alike:
            seen[json.dumps(properties)] = inner
            yield from _fields(inner, part, seen)


def kind(resource: type[Resource]) -> str:
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
            table(
                ("field", "type", "required", "default", "meaning"),
                [_line(*field) for field in fields(resource)],
            ),
            *_rules(schema),
        ]
    )


def _line(path: str, schema: Schema, required: bool, alike: str) -> list[str]:
    default = schema.get("default", "")
    shown = str(default).lower() if isinstance(default, bool) else str(default)
    same = f"Its fields are those of {code(alike)}." if alike else ""
    return [
        code(path),
        _type(schema),
        "yes" if required else "",
        code(shown),
        " ".join(filter(None, (schema.get("description", ""), _limits(schema), same))),
    ]


def _type(schema: Schema) -> str:
    if schema["type"] == "array":
        return f"list of {_type(schema['items'])}"
    return str(schema["type"])


def _limits(schema: Schema) -> str:
    if "enum" in schema:
        return f"One of {', '.join(map(code, schema['enum']))}."
    told = [
        text.format(f"{schema[key]:g}")
        for key, text in LIMITS.items()
        if key in schema and schema[key] != MOST
    ]
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
