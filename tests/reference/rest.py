"""Every call of the REST optimizer, from its own description, and the fields of its bodies."""

from collections.abc import Iterator
from typing import Any

from inferno_optimizer.api.openapi import describe
from tests.reference.markdown import code, table

Schema = dict[str, Any]

UNITS = (
    "Fields that are absent or null count as 0, false or empty. Units are those of the"
    " [custom resources](crds.md)."
)


def rest() -> str:
    """The calls, then the body of an optimization."""
    stateless = describe(stateful=False, guarded=True)["paths"]
    everything = describe(stateful=True, guarded=True)["paths"]
    body = everything["/optimizeOne"]["post"]["requestBody"]["content"]["application/json"]
    return "\n\n".join(
        [
            "## Calls",
            table(
                ("call", "server", "what it does"),
                [
                    (
                        code(f"{method.upper()} {path}"),
                        "both" if path in stateless else "stateful",
                        operation["summary"],
                    )
                    for path, operations in everything.items()
                    for method, operation in operations.items()
                ],
            ),
            "## Body of `POST /optimizeOne`",
            UNITS,
            table(("object", "fields"), list(_objects("", body["schema"]))),
        ]
    )


def _objects(path: str, schema: Schema) -> Iterator[tuple[str, str]]:
    """Path of each object, and its fields with their types, but those that are objects."""
    fields = schema.get("properties", {})
    parts = {name: field.get("items", field) for name, field in fields.items()}
    plain = [f"{code(n)} {_type(f)}" for n, f in fields.items() if "properties" not in parts[n]]
    if plain:
        yield code(path), ", ".join(plain)
    for name, part in parts.items():
        inner = f"{path}.{name}".removeprefix(".")
        yield from _objects(inner + "[]" * ("items" in fields[name]), part)


def _type(schema: Schema) -> str:
    if "enum" in schema:
        return "one of " + ", ".join(code(value) for value in schema["enum"] if value is not None)
    kinds = schema.get("type", "any")
    names = [kinds] if isinstance(kinds, str) else [kind for kind in kinds if kind != "null"]
    if names == ["array"]:
        return f"list of {_type(schema['items'])}"
    return " or ".join(names)
