"""Compare objects with the manifests that the operator applies; pure."""

from collections.abc import Mapping
from typing import Any


def holds(wanted: object, current: object) -> bool:
    """Whether a value has all wanted fields; fields added by others or the API are ignored.

    Lists are compared item by item, so an added item is a difference.
    """
    if isinstance(wanted, Mapping):
        return isinstance(current, Mapping) and all(
            key in current and holds(value, current[key]) for key, value in wanted.items()
        )
    if isinstance(wanted, list | tuple):
        return (
            isinstance(current, list | tuple)
            and len(wanted) == len(current)
            and all(map(holds, wanted, current))
        )
    return wanted == current


def is_applied(wanted: Mapping[str, Any], current: Mapping[str, Any]) -> bool:
    """Whether an object has the labels, the owner and the spec of a manifest.

    A field that was removed from the manifest changes its revision label.
    """
    wanted_metadata, metadata = wanted["metadata"], current["metadata"]
    owners = metadata.get("ownerReferences") or ()
    return (
        holds(wanted_metadata["labels"], metadata.get("labels"))
        and any(holds(wanted_metadata["ownerReferences"][0], owner) for owner in owners)
        and holds(wanted["spec"], current.get("spec"))
    )
