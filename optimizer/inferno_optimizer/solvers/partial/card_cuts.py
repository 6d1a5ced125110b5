"""Cuts of the capacity: what is left of a type beyond whole replicas is of no use to these.

Of 255 cards 63 replicas that take four each can run, and not 63.75. That is the capacity divided by
the size of a replica, where the remainders are rounded away by mixed-integer rounding [Marchand and
Wolsey, Oper. Res. 49 (2001) 363-371]. Each plan keeps these cuts; the linear relaxation does not.
"""

from dataclasses import dataclass

import numpy as np

from inferno_optimizer.sizing.cards import Cards
from inferno_optimizer.sizing.queueing import FloatArray, IntArray

SIZES = 8
"""Sizes of replicas by which the cards of a type are divided: the most frequent ones."""


@dataclass(frozen=True, slots=True)
class CardCuts:
    """Inequalities: the sum of factors times replicas is at most the room.

    Attributes
    ----------
    type, size, room
        Type of the cards that are divided, by what, and what is left of them; shape (cuts,).
    place
        Place of each among `SIZES` cuts of each type, which there are at most; shape (cuts,).
    cut, column, factor
        The entries that are not 0; shape (entries,).
    """

    type: IntArray
    size: IntArray
    room: FloatArray
    place: IntArray
    cut: IntArray
    column: IntArray
    factor: FloatArray

    @classmethod
    def of(cls, cards: Cards, capacity: IntArray) -> "CardCuts":
        """The cuts of each type of which there are not whole multiples of the usual sizes."""
        sizes = [
            (card_type, size, card_type * SIZES + place)
            for card_type, room in enumerate(capacity.tolist())
            for place, size in enumerate(_usual_sizes(cards.count[cards.type == card_type]))
            if room % size
        ]
        types, divisors, places = np.array(sizes, dtype=np.int64).reshape(-1, 3).T
        cuts, columns, factors = [np.zeros(0, np.int64)], [np.zeros(0, np.int64)], [np.zeros(0)]
        for cut, (card_type, size, _) in enumerate(sizes):
            of_type = cards.type == card_type
            factor = _rounded(cards.count[of_type], size, int(capacity[card_type]))
            some = factor > 0
            cuts.append(np.full(np.count_nonzero(some), cut))
            columns.append(cards.owner[of_type][some])
            factors.append(factor[some])
        return cls(
            types,
            divisors,
            (capacity[types] // divisors).astype(np.float64),
            places,
            np.concatenate(cuts),
            np.concatenate(columns),
            np.concatenate(factors),
        )

    def per_card(self, prices: FloatArray, types: int) -> FloatArray:
        """What prices of the cuts are for a card of each type; shape (types,)."""
        return np.bincount(self.type, prices / self.size, types).astype(np.float64)


def _usual_sizes(counts: IntArray) -> list[int]:
    """The most frequent numbers of cards above 1, in their order."""
    sizes, often = np.unique(counts[counts > 1], return_counts=True)
    return sorted(sizes[np.argsort(-often, kind="stable")][:SIZES].tolist())


def _rounded(counts: IntArray, size: int, room: int) -> FloatArray:
    """Factors of replicas with these numbers of cards, after the division by a size."""
    rest = (room % size) / size
    above = np.maximum((counts % size) / size - rest, 0.0)
    factors: FloatArray = counts // size + above / (1 - rest)
    return factors
