"""Divide a pool of cards among namespaces, so that no card is handed out twice; pure."""

from collections.abc import Mapping

WHOLE = 100
"""Sum of the parts up to which nobody's part is reduced [%]."""


def divide(cards: int, percents: Mapping[str, int]) -> dict[str, int]:
    """Return the cards of each namespace; their sum is at most the pool.

    Parameters
    ----------
    cards
        Cards of the pool.
    percents
        Part of each namespace [%]; if they exceed 100 together, each is reduced in proportion.

    Notes
    -----
    Largest remainders: each gets the whole cards of its part; cards that are left over from
    fractions go to the largest fractions, and among equal ones to the first names.
    """
    whole = max(sum(percents.values()), WHOLE)
    parts = {name: divmod(max(cards, 0) * percent, whole) for name, percent in percents.items()}
    left = max(cards, 0) * sum(percents.values()) // whole - sum(n for n, _ in parts.values())
    first = sorted(parts, key=lambda name: (-parts[name][1], name))[:left]
    return {name: count + (name in first) for name, (count, _) in parts.items()}


def granted(cards: int, parts: Mapping[str, int], held: Mapping[str, int], namespace: str) -> int:
    """Return the cards that a namespace may use now.

    Parameters
    ----------
    cards
        Cards of the pool.
    parts
        Cards of each namespace by its part.
    held
        Cards that each namespace has been told that it may use, or uses, whichever is more.
    namespace
        The namespace: it gets its part as soon as the others have given up what exceeds theirs.
    """
    others = sum(count for name, count in held.items() if name != namespace)
    return max(min(parts[namespace], cards - others), 0)
