"""Types of cards: those of the accelerators, those that the capacity names, and where they differ.

A count of 0 is a decision that somebody wrote; a type that is missing may be a mistake.
"""

from collections.abc import Iterator, Mapping, Sequence

from inferno_optimizer.suggestions import MOST_ADVISED, alternatives, cut, listed
from inferno_optimizer.system import System


def unnamed_types(system: System) -> frozenset[str]:
    """Types of accelerators that the capacity does not name; none if the capacity is ignored."""
    if system.options.unlimited:
        return frozenset()
    return frozenset(a.type for a in system.accelerators) - system.capacity.keys()


def strange_types(system: System) -> Iterator[str]:
    """Types in the capacity that no accelerator has; none if the capacity is ignored."""
    types = {accelerator.type for accelerator in system.accelerators}
    if not system.options.unlimited:
        yield from (card_type for card_type in system.capacity if card_type not in types)


def without_count(system: System) -> Mapping[str, str]:
    """Message for each type that the capacity does not name, with those like it."""
    named = sorted(system.capacity)
    return {
        name: f"no Capacity lists card type {cut(name)!r}"
        f"{_advice(name, named, place < MOST_ADVISED)}"
        for place, name in enumerate(sorted(unnamed_types(system)))
    }


def no_accelerator(card_type: str, system: System, *, is_advised: bool = True) -> str:
    """Message for a type in the capacity that no accelerator has, with those like it."""
    types = sorted({accelerator.type for accelerator in system.accelerators})
    return f"no accelerator has type {cut(card_type)!r}{_advice(card_type, types, is_advised)}"


def _advice(name: str, known: Sequence[str], is_advised: bool) -> str:
    return alternatives(name, known) if is_advised else listed(known)
