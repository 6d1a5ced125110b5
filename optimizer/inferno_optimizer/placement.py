"""Whether replicas fit on nodes, each with all its cards on one node; pure.

Replicas that run stay where they are. The others are placed by size, the largest first, each on
the node with the fewest free cards that suffice. If each size divides the next larger one, such
as 1, 2, 4 and 8 cards, this places all replicas whenever that is possible: a replica then takes
the same room from the smaller ones on every node. With other sizes, it may leave out replicas for
which there is room, but never places too many.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

ServerAccelerator = tuple[str, str]
"""The names of a server and of an accelerator."""


@dataclass(frozen=True, slots=True)
class Node:
    """The cards of one type on a node.

    Parameters
    ----------
    type, cards
        Type and number of the cards that servers may use.
    held
        Cards of these that servers use now.
    """

    type: str
    cards: int
    held: Mapping[ServerAccelerator, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Demand:
    """Replicas of a server on an accelerator; `cards` are those of one replica."""

    key: ServerAccelerator
    type: str
    cards: int
    replicas: int


def unplaced(nodes: Sequence[Node], demands: Sequence[Demand]) -> Mapping[ServerAccelerator, int]:
    """Return how many replicas find no node.

    Parameters
    ----------
    nodes
        The nodes, in any order.
    demands
        What is to run, one item per server and accelerator, the most important first: others
        are left out before them.
    """
    free, missing = _after_staying(nodes, demands)
    wanted: Counter[tuple[str, int]] = Counter()
    for demand in demands:
        wanted[demand.type, demand.cards] += missing[demand.key]
    for (card_type, cards), count in sorted(wanted.items(), key=lambda item: -item[0][1]):
        wanted[card_type, cards] = _place(count, cards, free[card_type])
    left_out: dict[ServerAccelerator, int] = {}
    for demand in reversed(demands):
        count = min(wanted[demand.type, demand.cards], missing[demand.key])
        wanted[demand.type, demand.cards] -= count
        if count:
            left_out[demand.key] = count
    return left_out


def _after_staying(
    nodes: Sequence[Node], demands: Sequence[Demand]
) -> tuple[Mapping[str, Counter[int]], dict[ServerAccelerator, int]]:
    """Return the numbers of nodes by type and free cards, and the replicas that have no node.

    If a server loses replicas, those on the nodes with the fewest cards stay.
    """
    by_key = {demand.key: demand for demand in demands}
    missing = {demand.key: demand.replicas for demand in demands}
    free: defaultdict[str, Counter[int]] = defaultdict(Counter)
    for node in sorted(nodes, key=lambda node: node.cards):
        left = node.cards
        for key in sorted(node.held):
            demand = by_key.get(key)
            if demand is None or demand.type != node.type:
                continue
            staying = min(min(node.held[key], left) // demand.cards, missing[key])
            missing[key] -= staying
            left -= staying * demand.cards
        free[node.type][left] += 1
    return free, missing


def _place(count: int, cards: int, free: Counter[int]) -> int:
    """Place replicas of one size; returns how many find no node."""
    for room in sorted(free):
        each = room // cards
        if not count or not each:
            continue
        full, rest = divmod(count, each)
        full = min(full, free[room])
        _use(free, room, full, each * cards)
        count -= full * each
        if count and free[room]:  # fewer than a whole node takes
            _use(free, room, 1, rest * cards)
            count = 0
    return count


def _use(free: Counter[int], room: int, nodes: int, cards: int) -> None:
    """Take cards from some nodes that have the same room."""
    free[room] -= nodes
    free[room - cards] += nodes


def most_cards(nodes: Iterable[Node]) -> Mapping[str, int]:
    """Return the cards by type of the largest node."""
    largest: dict[str, int] = {}
    for node in nodes:
        largest[node.type] = max(largest.get(node.type, 0), node.cards)
    return largest
