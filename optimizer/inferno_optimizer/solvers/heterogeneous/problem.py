"""What is minimized over mixes, and subject to what."""

from dataclasses import dataclass

import numpy as np

from inferno_optimizer.sizing.queueing import BoolArray, FloatArray, IntArray
from inferno_optimizer.solvers.heterogeneous.mixes import MixTable


@dataclass(frozen=True, slots=True)
class MixGoal:
    """What to minimize: loads of a level not served, or the value where there is no level.

    `floors` are loads that the first levels keep; of these the first `whole` are served
    entirely.
    """

    level: int | None
    floors: FloatArray
    whole: int


@dataclass(frozen=True, slots=True)
class MixProblem:
    """Mixes for the cases of a table, within the capacity, towards a goal.

    `capacity` is that of each type of card, shape (types,).
    """

    table: MixTable
    capacity: IntArray
    goal: MixGoal

    @property
    def optional(self) -> BoolArray:
        """Which cases may be left out; shape (cases,)."""
        result: BoolArray = self.table.level >= self.goal.whole
        return result

    def priced(self, cards: FloatArray) -> MixTable:
        """The table with a price for the cards of each type in it."""
        return self.table.priced(cards, valued=self.goal.level is None)

    def rewards(self, loads: FloatArray) -> FloatArray:
        """What it is worth to serve each case at prices of the loads of levels with a floor."""
        worth = np.zeros(int(self.table.level.max()) + 1)
        worth[: len(loads)] = loads
        if self.goal.level is not None:
            worth[self.goal.level] += 1.0
        return worth[self.table.level] * self.table.weight
