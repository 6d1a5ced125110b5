"""The fields of an object that actuation owns, by its `metadata.managedFields`; pure.

To release fields, only the entry in `managedFields` is removed. An apply without the fields
would remove their values too: a ModelServing would fall back to one replica, and the API server
rejects a ModelBooster without bounds.
"""

from collections.abc import Sequence
from typing import Any

from inferno_operator.resources.objects import Manifest
from inferno_operator.runtime.ports import FieldManager

NOBODY: list[dict[str, Any]] = [{}]
"""The value that clears `managedFields`; the API server ignores an empty list."""


def owns(manifest: Manifest) -> bool:
    """Whether actuation owns fields outside the status."""
    return any(map(_ours, manifest["metadata"].get("managedFields", ())))


def entries_of_others(manifest: Manifest) -> list[Any]:
    """Return the entries of all other managers, and that of actuation for the status."""
    entries = manifest["metadata"].get("managedFields", ())
    return [entry for entry in entries if not _ours(entry)] or NOBODY


def owns_more(manifest: Manifest, spec: Manifest) -> bool:
    """Whether actuation owns fields of the spec whose values an apply of `spec` would remove."""
    own = filter(_ours, manifest["metadata"].get("managedFields", ()))
    return any(_exceeds(entry.get("fieldsV1", {}).get("f:spec", {}), spec) for entry in own)


def _exceeds(fields: Manifest, value: Any) -> bool:  # noqa: ANN401 - JSON
    """Whether a `fieldsV1` set has fields that a value lacks; items of lists have names."""
    own = {key: inner for key, inner in fields.items() if key != "."}
    if not own:
        return False
    if isinstance(value, list):
        parts = {backend_key(item["name"]): item for item in value}
    else:
        parts = {f"f:{name}": part for name, part in value.items()}
    return any(key not in parts or _exceeds(inner, parts[key]) for key, inner in own.items())


def owns_fields(manifest: Manifest, path: Sequence[str], names: Sequence[str]) -> bool:
    """Whether actuation owns all of some fields.

    `path` leads to them, from the top of the object, in the keys of `managedFields`.
    """
    own = filter(_ours, manifest["metadata"].get("managedFields", ()))
    return any(_has(entry.get("fieldsV1", {}), path, names) for entry in own)


def _has(fields: Manifest, path: Sequence[str], names: Sequence[str]) -> bool:
    for key in path:
        fields = fields.get(key, {})
    return all(name in fields for name in names)


def backend_key(name: str) -> str:
    """Return the key of an item of `spec.backends` in `managedFields`."""
    return f'k:{{"name":"{name}"}}'


def _ours(entry: Manifest) -> bool:
    return entry.get("manager") == FieldManager.ACTUATION and not entry.get("subresource")
