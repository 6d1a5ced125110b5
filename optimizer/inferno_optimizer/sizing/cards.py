"""The cards that something takes, of one type or of several."""

from dataclasses import dataclass

import numpy as np

from inferno_optimizer.sizing.queueing import ArrayTable, IntArray


@dataclass(frozen=True, slots=True)
class Cards(ArrayTable):
    """Cards of a type that each of an owner takes; an entry for each owner and type of it."""

    owner: IntArray
    type: IntArray
    count: IntArray

    def room(self, capacity: IntArray, owners: int) -> IntArray:
        """How many of each owner fit into the capacity, shape (types,), if alone."""
        most = np.full(owners, np.iinfo(np.int64).max)
        np.minimum.at(most, self.owner, capacity[self.type] // np.maximum(self.count, 1))
        return most

    def used(self, amounts: IntArray, types: int) -> IntArray:
        """Cards of each type that amounts of the owners take."""
        taken = self.count * amounts[self.owner]
        return np.bincount(self.type, taken, types).astype(np.int64)

    def of(self, owners: IntArray) -> "Cards":
        """The cards of some distinct owners, which are numbered anew by their positions."""
        place = np.full(int(self.owner.max(initial=-1)) + 1, -1)
        place[owners] = np.arange(len(owners))
        kept = self.take(np.flatnonzero(place[self.owner] >= 0))
        return Cards(place[kept.owner], kept.type, kept.count)

    def totals(self, owners: int) -> IntArray:
        """Cards of each owner, of whatever type."""
        return np.bincount(self.owner, self.count, owners).astype(np.int64)
