"""What of a new decision is worth a write; pure.

A person and an autoscaler act on the accelerator, the replicas, the batch size and the reason:
these are written at once. The other numbers follow the measured load, which never stands still:
they are written when they differ by more than a share, and not twice within a minute.
"""

import re
from collections.abc import Mapping
from datetime import timedelta
from operator import itemgetter
from typing import Any

from inferno_operator.resources.allocation import ORIGIN_FIELDS, placement_of
from inferno_operator.resources.objects import Manifest

SHARE = 0.05
"""Largest relative difference of a number that is not written."""

QUIET = timedelta(minutes=1)
"""How long numbers stay as they are written."""

_NUMBER = re.compile(r"\d+(?:\.\d+)?(?:e[-+]?\d+)?")


def is_same_placement(before: Manifest, after: Manifest) -> bool:
    """Whether two desired allocations have the same accelerators, replicas and batch sizes."""
    return placement_of(before) == placement_of(after)


def is_close(before: Manifest, after: Manifest) -> bool:
    """Whether each number of an allocation is there before, and differs by at most `SHARE`."""
    return all((name in before) == (name in after) for name in ORIGIN_FIELDS) and all(
        name in before and _is_close_value(before[name], value) for name, value in after.items()
    )


def is_rewording(before: str, after: str) -> bool:
    """Whether two messages differ in more than their numbers."""
    return _NUMBER.sub("#", before) != _NUMBER.sub("#", after)


def is_close_message(before: str, after: str) -> bool:
    """Whether two messages say the same, with numbers that differ by at most `SHARE`."""
    numbers = [map(float, _NUMBER.findall(message)) for message in (before, after)]
    return not is_rewording(before, after) and all(map(_is_close_number, *numbers))


def _is_close_value(before: Any, after: Any) -> bool:  # noqa: ANN401 - JSON of any shape
    if isinstance(after, Mapping):
        return isinstance(before, Mapping) and is_close(before, after)
    if isinstance(after, list):
        in_order = (sorted(parts, key=itemgetter("accelerator")) for parts in (before, after))
        return len(before) == len(after) and all(map(is_close, *in_order))
    if isinstance(after, str):
        return bool(before == after)
    return _is_close_number(before, after)


def _is_close_number(before: float, after: float) -> bool:
    return abs(after - before) <= SHARE * max(abs(before), abs(after))
