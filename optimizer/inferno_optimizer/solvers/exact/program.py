"""The assignment problem in arrays: at most one row for each case, cards within capacity.

Levels are the priorities in use, the most important first; a server's weight is the load that
counts as served when it has a row. See `assignment.md`, section "The problem".
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from inferno_optimizer.sizing.candidates import Candidates
from inferno_optimizer.sizing.cases import Case
from inferno_optimizer.sizing.queueing import FloatArray, IntArray
from inferno_optimizer.solvers.levels import Floors

BoolArray = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class Program:
    """Rows that may be chosen, sorted by case; arrays of shape (rows,) but for `capacity`.

    `cards` of `type` is what a row takes of `capacity`; `level` and `weight` are those of
    its case. `stays` tells rows that leave a server as it is.
    """

    case: IntArray
    type: IntArray
    cards: FloatArray
    value: FloatArray
    level: IntArray
    weight: FloatArray
    capacity: FloatArray
    stays: BoolArray

    @classmethod
    def of(cls, candidates: Candidates, rows: IntArray, capacity: IntArray) -> "Program":
        """The program of some usable rows of the candidate table."""
        case = candidates.pairs.case[rows]
        priority = np.array([c.priority for c in candidates.cases], dtype=np.int64)[case]
        weight = np.array([weight_of(c) for c in candidates.cases], dtype=np.float64)[case]
        return cls(
            case=case,
            type=candidates.pairs.type[rows],
            cards=candidates.cards[rows].astype(np.float64),
            value=candidates.value[rows],
            level=np.unique(priority, return_inverse=True)[1],
            weight=weight,
            capacity=capacity.astype(np.float64),
            stays=candidates.stays[rows],
        )

    def take(self, rows: IntArray | BoolArray) -> "Program":
        """The program of some of the rows, in their order; levels keep their numbers."""
        return Program(
            self.case[rows],
            self.type[rows],
            self.cards[rows],
            self.value[rows],
            self.level[rows],
            self.weight[rows],
            self.capacity,
            self.stays[rows],
        )

    def undominated(self) -> IntArray:
        """Rows that no other row of their case and type beats in cards and in value."""
        rows = np.arange(len(self.case))
        order = np.lexsort((rows, self.value, self.cards, self.type, self.case))
        group = np.cumsum(
            (np.diff(self.case[order], prepend=-1) != 0)
            | (np.diff(self.type[order], prepend=-1) != 0)
        )
        # In a group, by cards: a row stays if its value is below all those before it.
        rank = np.empty(len(rows))
        rank[np.lexsort((order, self.value[order]))] = rows
        falling = rank - group * float(len(rows))
        least = np.minimum.accumulate(falling)
        kept = np.append(True, least[1:] < least[:-1]) if len(rows) else rows.astype(np.bool_)
        return np.sort(order[kept])

    @cached_property
    def starts(self) -> IntArray:
        """Where the rows of each case begin."""
        return np.flatnonzero(np.diff(self.case, prepend=-1))

    @cached_property
    def lengths(self) -> IntArray:
        """How many rows each case has."""
        return np.diff(self.starts, append=len(self.case))

    @cached_property
    def place(self) -> IntArray:
        """Position of each row's case among the cases that have rows."""
        return np.repeat(np.arange(len(self.starts)), self.lengths)

    def served(self, chosen: BoolArray, levels: int) -> FloatArray:
        """Load that chosen rows serve of each of the first levels."""
        load = np.zeros(max(levels, int(self.level.max(initial=0)) + 1))
        np.add.at(load, self.level[chosen], self.weight[chosen])
        return load[:levels]

    def serves_all_of(self, chosen: BoolArray, levels: int) -> bool:
        """Whether every case of the first levels has a row."""
        return bool(np.all(self.has_row(chosen)[self.level[self.starts] < levels]))

    def keeps(self, chosen: BoolArray, floors: Floors) -> bool:
        """Whether chosen rows keep the floors."""
        served = self.served(chosen, len(floors.loads))
        return bool(np.all(served >= floors.loads)) and self.serves_all_of(chosen, floors.whole)

    def has_row(self, chosen: BoolArray) -> BoolArray:
        """Cases of which a row is chosen; shape (cases,)."""
        served = np.zeros(len(self.starts), dtype=np.bool_)
        served[self.place[chosen]] = True
        return served

    def used(self, chosen: BoolArray) -> FloatArray:
        """Cards of each type that chosen rows take."""
        cards = np.zeros(len(self.capacity))
        np.add.at(cards, self.type[chosen], self.cards[chosen])
        return cards


def first_cases(order: IntArray, rows: IntArray, most: int) -> BoolArray:
    """Tell which cases are the first ones of an order that have up to so many rows together.

    Parameters
    ----------
    order
        Cases, all or some.
    rows
        How many rows each case has; shape (cases,).
    most
        Rows of the first ones together, at most.
    """
    first = np.zeros(len(rows), dtype=np.bool_)
    first[order[np.cumsum(rows[order]) <= most]] = True
    return first


def weight_of(case: Case) -> float:
    """Load that counts as served [requests/min]; 1 for a floor without arrivals."""
    return case.server.load.arrival_rate or 1.0
