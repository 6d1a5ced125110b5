"""Whether an object still has what we wrote; pure."""

from collections.abc import Mapping
from typing import Any


def holds(wanted: object, current: object) -> bool:
    """Whether an object has all that is wanted; what others or the API added does not count.

    Lists are compared item by item: what is added to them is a difference.
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
    """Whether an object is as a manifest wants it.

    A field that is not wanted any more does not show here, but in the label of the revision.
    """
    ours, metadata = wanted["metadata"], current["metadata"]
    owners = metadata.get("ownerReferences") or ()
    return (
        holds(ours["labels"], metadata.get("labels"))
        and any(holds(ours["ownerReferences"][0], owner) for owner in owners)
        and holds(wanted["spec"], current.get("spec"))
    )
