"""Inequalities that sharpen "the replicas of a mix carry the load" for whole replicas.

Whoever needs 1.2 replicas of one accelerator needs 2, and half of it on another counts as
half at most. Measured in replicas of any item, or in a part of one, everything is rounded up,
but for what is small against what rounding adds: mixed integer rounding [Nemhauser and Wolsey,
Math. Programming 46 (1990) 379-390]. Of a single row the linear relaxation then knows the
number of replicas.
"""

from dataclasses import dataclass

import numpy as np

from inferno_optimizer.sizing.queueing import BoolArray, FloatArray, IntArray
from inferno_optimizer.solvers.groups import rank_in_group
from inferno_optimizer.solvers.heterogeneous.mixes import MixTable
from inferno_optimizer.solvers.heterogeneous.settings import DEFAULTS, CoverSettings

ROUNDING = 1e-9
"""A number this close to an integer is that integer."""


@dataclass(frozen=True, slots=True)
class CoverInequalities:
    """Sums of replicas, weighted, of a case that is served are at least `least`.

    `place` is that of the case, shape (inequalities,); `weight` is by item besides.
    """

    place: IntArray
    weight: FloatArray
    least: FloatArray

    @classmethod
    def of(cls, table: MixTable, settings: CoverSettings = DEFAULTS.covers) -> "CoverInequalities":
        """All that are looked at."""
        share = table.effective_share
        measure = np.concatenate([share / parts for parts in settings.parts], axis=1)
        place, which = np.nonzero(measure > 0)
        measure = measure[place, which]
        amount = table.need[place] / measure
        place, measure, amount = (a[amount <= settings.most] for a in (place, measure, amount))
        least = np.ceil(amount - ROUNDING)
        added = amount - np.floor(amount - ROUNDING)
        added = np.where(added <= ROUNDING, 1.0, added)
        ratio = share[place] / measure[:, None]
        whole = np.floor(ratio + ROUNDING)
        weight = whole + np.minimum(np.maximum(ratio - whole, 0.0) / added[:, None], 1.0)
        return cls(place, weight, least)

    def take(self, which: IntArray | BoolArray) -> "CoverInequalities":
        """Some of them."""
        return CoverInequalities(self.place[which], self.weight[which], self.least[which])

    def among(self, places: IntArray) -> "CoverInequalities":
        """Those of cases at some places, where they are among these."""
        order = np.full(int(max(self.place.max(initial=-1), places.max(initial=-1))) + 1, -1)
        order[places] = np.arange(len(places))
        kept = self.take(order[self.place] >= 0)
        return CoverInequalities(order[kept.place], kept.weight, kept.least)

    def violated(
        self,
        amounts: FloatArray,
        served: FloatArray,
        settings: CoverSettings = DEFAULTS.covers,
    ) -> IntArray:
        """Those that amounts of items, shape (cases, items), miss most, a few of each case."""
        missing = self.least * served[self.place]
        missing -= np.sum(self.weight * amounts[self.place], axis=1)
        order = np.lexsort((-missing, self.place))
        first = rank_in_group(self.place[order]) < settings.each
        return order[first & (missing[order] > settings.violated)]
