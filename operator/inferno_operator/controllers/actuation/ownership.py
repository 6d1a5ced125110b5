"""Which fields of an object are ours, by its `metadata.managedFields`; pure.

Giving fields up by an apply that leaves them out would remove them: a ModelServing would fall
back to one replica, and a ModelBooster without its bounds is refused. So only the entry goes.
"""

from collections.abc import Iterator
from typing import Any

from inferno_operator.resources.objects import Manifest

FIELD_MANAGER = "inferno-actuation"
"""The field manager of what actuation writes; decisions have another one."""

NOBODY: list[dict[str, Any]] = [{}]
"""How to say that nobody owns anything; an empty list would change nothing."""


def owns(manifest: Manifest) -> bool:
    """Whether we own fields outside the status."""
    return any(map(_ours, manifest["metadata"].get("managedFields", ())))


def managed_without_us(manifest: Manifest) -> list[Any]:
    """The entries of everybody else, and ours of the status."""
    entries = manifest["metadata"].get("managedFields", ())
    return [entry for entry in entries if not _ours(entry)] or NOBODY


def owned_backends(manifest: Manifest) -> frozenset[str]:
    """Items of `spec.backends` of which we own something, as the API server writes their keys."""
    return frozenset(
        key
        for entry in manifest["metadata"].get("managedFields", ())
        if _ours(entry)
        for key in _backends(entry)
    )


def backend_key(name: str) -> str:
    """How the API server writes an item of `spec.backends`."""
    return f'k:{{"name":"{name}"}}'


def _backends(entry: Manifest) -> Iterator[str]:
    spec = entry.get("fieldsV1", {}).get("f:spec", {})
    return (key for key in spec.get("f:backends", {}) if key.startswith("k:"))


def _ours(entry: Manifest) -> bool:
    return entry.get("manager") == FIELD_MANAGER and not entry.get("subresource")
