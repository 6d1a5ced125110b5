"""Every call of the REST optimizer, from its own description, and the fields of its bodies."""

import json
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
    kept = {path: operations for path, operations in everything.items() if path not in stateless}
    return "\n\n".join(
        [
            "## Calls",
            _calls(stateless),
            "With `--stateful` also:",
            _calls(kept),
            "## Body of `POST /optimizeOne`",
            UNITS,
            table(("object", "fields"), list(_objects("", body["schema"], {}))),
        ]
    )


def _calls(paths: Schema) -> str:
    return table(
        ("call", "what it does"),
        [
            (code(f"{method.upper()} {path}"), operation["summary"])
            for path, operations in paths.items()
            for method, operation in operations.items()
        ],
    )


def _objects(path: str, schema: Schema, seen: dict[str, str]) -> Iterator[tuple[str, str]]:
    """Path of each object, and its fields by type; of equal objects, and all in them, the first."""
    fields = schema.get("properties", {})
    if (known := seen.setdefault(json.dumps(fields), path)) != path:
        yield code(path), f"as {code(known)}"
        return
    parts = {name: field.get("items", field) for name, field in fields.items()}
    by_type: dict[str, list[str]] = {}
    for name, field in fields.items():
        if "properties" not in parts[name]:
            by_type.setdefault(_type(field), []).append(code(name))
    if by_type:
        yield code(path), "; ".join(f"{kind}: {', '.join(by_type[kind])}" for kind in by_type)
    for name, part in parts.items():
        if "properties" in part:
            inner = f"{path}.{name}".removeprefix(".")
            yield from _objects(inner + "[]" * ("items" in fields[name]), part, seen)


def _type(schema: Schema) -> str:
    if "enum" in schema:
        return "one of " + ", ".join(code(value) for value in schema["enum"] if value is not None)
    kinds = schema.get("type", "any")
    names = [kinds] if isinstance(kinds, str) else [kind for kind in kinds if kind != "null"]
    if names == ["array"]:
        return f"list of {_type(schema['items'])}"
    return " or ".join(names)
