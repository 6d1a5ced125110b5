"""Types of cards: those of the accelerators, those that the capacity names, and where they differ.

A count of 0 is a decision that somebody wrote; a type that is missing may be a mistake.
"""

from collections.abc import Mapping

from inferno_optimizer.suggestions import cut, list_known, nearest_of_each
from inferno_optimizer.system import System


def unnamed_types(system: System) -> frozenset[str]:
    """Types of accelerators that the capacity does not name; none if the capacity is ignored."""
    if system.options.unlimited:
        return frozenset()
    return frozenset(a.type for a in system.accelerators) - system.capacity.keys()


def strange_types(system: System) -> Mapping[str, str]:
    """Message for each type in the capacity that no accelerator has, with those like it.

    There are none if the capacity is ignored.
    """
    types = {accelerator.type for accelerator in system.accelerators}
    counted, known = () if system.options.unlimited else system.capacity, sorted(types)
    near = nearest_of_each((name for name in counted if name not in types), known)
    return {
        name: f"no accelerator has type {cut(name)!r}{advice}{list_known(known)}"
        for name, advice in near.items()
    }


def without_count(system: System) -> Mapping[str, str]:
    """Message for each type that the capacity does not name, with those like it."""
    named = sorted(system.capacity)
    near = nearest_of_each(sorted(unnamed_types(system)), named)
    return {
        name: f"no Capacity lists card type {cut(name)!r}{advice}{list_known(named)}"
        for name, advice in near.items()
    }
