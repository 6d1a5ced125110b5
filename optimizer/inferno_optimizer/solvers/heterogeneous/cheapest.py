"""The cheapest mixes of each case, when every card has a price.

A mix is an integer covering knapsack of a dozen items. All cases are searched together, item
by item and breadth first: a part of a mix goes on with every number of replicas of the next
item that may be worth it. What a part costs at least, when it is complete, is the linear
relaxation of what it still lacks [Martello and Toth, Knapsack Problems, 1990, ch. 3]. The parts
with the smallest such bounds go on; those that are dropped leave their bounds behind, so that
the least cost that is told is proven however few go on.
"""

from dataclasses import dataclass, fields
from functools import cached_property

import numpy as np

from inferno_optimizer.sizing.demands import ROUNDING
from inferno_optimizer.sizing.queueing import BoolArray, FloatArray, IntArray
from inferno_optimizer.solvers.groups import rank_in_group
from inferno_optimizer.solvers.heterogeneous.mixes import MixTable

TINY = 1e-12
"""Shares as small as this are rounding."""


@dataclass(frozen=True, slots=True)
class Mixes:
    """Mixes of some cases.

    Attributes
    ----------
    place
        Position in the table of the case of each; shape (mixes,).
    counts
        Replicas of each item; shape (mixes, items).
    value
        What each costs; shape (mixes,).
    """

    place: IntArray
    counts: IntArray
    value: FloatArray

    @classmethod
    def none(cls, items: int) -> "Mixes":
        """No mixes."""
        return cls(np.zeros(0, np.int64), np.zeros((0, items), np.int64), np.zeros(0))

    @classmethod
    def of_plan(cls, table: MixTable, counts: IntArray) -> "Mixes":
        """Those of the cases that a plan serves; `counts` is of shape (cases, items)."""
        place = np.flatnonzero(table.covered(counts))
        return cls(place, counts[place], table.take(place).value(counts[place]))

    def take(self, which: IntArray | BoolArray) -> "Mixes":
        """Some of them."""
        return Mixes(self.place[which], self.counts[which], self.value[which])

    def among(self, others: "Mixes") -> BoolArray:
        """Which of these, no two of which are of the same case, are among others."""
        position = np.full(
            (int(max(self.place.max(initial=0), others.place.max(initial=0))) + 1), -1
        )
        position[self.place] = np.arange(len(self.place))
        others = others.take(position[others.place] >= 0)
        mate = position[others.place]
        same = np.all(self.counts[mate] == others.counts, axis=1)
        result = np.zeros(len(self.place), dtype=np.bool_)
        result[mate[same]] = True
        return result

    def extended(self, other: "Mixes") -> "Mixes":
        """These and others."""
        return Mixes(
            np.concatenate((self.place, other.place)),
            np.concatenate((self.counts, other.counts)),
            np.concatenate((self.value, other.value)),
        )


@dataclass(frozen=True, slots=True)
class Cheapest:
    """Mixes that were found.

    `missed` tells what one that was not found costs at least, and `least` what any one does;
    shape (cases,).
    """

    mixes: Mixes
    missed: FloatArray

    @property
    def least(self) -> FloatArray:
        """The least value of a mix of each case; shape (cases,)."""
        least = self.missed.copy()
        np.minimum.at(least, self.mixes.place, self.mixes.value)
        return least


def cheapest_mixes(
    table: MixTable, capacity: IntArray, limit: FloatArray, width: int, *, alike: bool = False
) -> Cheapest:
    """Find mixes of little value.

    Parameters
    ----------
    table
        The cases; the units have prices of cards in them.
    capacity
        Cards of each type; no mix takes more. Shape (types,).
    limit
        Only mixes of a smaller value are looked for; shape (cases,).
    width
        So many parts of mixes of a case go on, at most.
    alike
        Look for all mixes up to the limit, and not only for a cheapest one.
    """
    items = _Items.of(table)
    parts, missed = _Parts.nothing(table), limit.copy()
    for item in range(table.rows.shape[1]):
        parts = items.extended(parts, item, capacity)
        bound = items.bound(parts, item + 1)
        worth = np.flatnonzero(bound < limit[parts.place])
        if not alike:
            worth = worth[items.undominated(parts.take(worth), item)]
        order = worth[np.lexsort((bound[worth], parts.place[worth]))]
        first = rank_in_group(parts.place[order]) < width
        dropped = order[~first]
        np.minimum.at(missed, parts.place[dropped], bound[dropped])
        parts = parts.take(order[first])
    counts = np.zeros(parts.counts.shape, dtype=np.int64)
    np.put_along_axis(counts, items.order[parts.place], parts.counts, axis=1)
    short = ~table.take(parts.place).covered(counts)  # by rounding
    np.minimum.at(missed, parts.place[short], parts.value[short])
    return Cheapest(Mixes(parts.place, counts, parts.value).take(~short), missed)


@dataclass(frozen=True, slots=True)
class _Parts:
    """Parts of mixes: replicas of the first items, in their order.

    Shapes (parts,), but for `counts`, (parts, items). `need` and `floor` is what is lacking
    of shares and of replicas, `left` the cards that are left of the last item's type.
    """

    place: IntArray
    value: FloatArray
    need: FloatArray
    floor: IntArray
    left: IntArray
    counts: IntArray

    @classmethod
    def nothing(cls, table: MixTable) -> "_Parts":
        """A part of each case of which nothing is given yet."""
        cases = len(table.case)
        return cls(
            place=np.arange(cases),
            value=table.base.copy(),
            need=np.maximum(table.need - ROUNDING - TINY, 0.0),
            floor=np.maximum(table.floor, 1),
            left=np.zeros(cases, dtype=np.int64),
            counts=np.zeros((cases, 0), dtype=np.int64),
        )

    def take(self, which: IntArray) -> "_Parts":
        """Some of them."""
        return _Parts(*(getattr(self, field.name)[which] for field in fields(self)))


@dataclass(frozen=True)
class _Items:
    """The items of a table, those of a type of card together, in the order of the search.

    Arrays are of shape (cases, items); `order` tells the place of each in the table.
    """

    order: IntArray
    unit: FloatArray
    share: FloatArray
    most: IntArray
    stop: FloatArray
    stay: FloatArray
    alone: IntArray
    type: IntArray
    cards: IntArray

    @classmethod
    def of(cls, table: MixTable) -> "_Items":
        """What runs now comes first, then types whose cheapest item costs least per share."""
        there = table.most > 0
        share = table.effective_share
        with np.errstate(divide="ignore"):
            ratio = np.where(share > 0, table.unit / np.maximum(share, TINY), np.inf)
        special = there & ((table.stop != 0) | (table.stay != 0))
        rank = np.where(special, -np.inf, np.where(there, ratio, np.inf))
        best = np.full((len(table.case), int(table.type.max(initial=0)) + 1), np.inf)
        np.minimum.at(best, (np.arange(len(best))[:, None], table.type), rank)
        order = np.lexsort(
            (ratio, table.type, np.take_along_axis(best, table.type, axis=1)), axis=1
        )
        fits = there & (table.most == table.alone)
        return cls(
            order,
            *(
                np.take_along_axis(array, order, axis=1)
                for array in (
                    np.where(there, table.unit, np.inf),
                    share,
                    table.most,
                    np.where(there & table.running, table.stop, 0.0),
                    np.where(fits, table.stay, 0.0),
                    table.alone,
                    table.type,
                    table.cards,
                )
            ),
        )

    def extended(self, parts: _Parts, item: int, capacity: IntArray) -> _Parts:
        """Every part with each number of replicas of an item that may be worth it."""
        at = parts.place, item
        started = item == 0 or self.type[at] != self.type[parts.place, item - 1]
        left = np.where(started, capacity[self.type[at]], parts.left)
        most = np.minimum(self._worth(parts, item), left // np.maximum(self.cards[at], 1))
        parent = np.repeat(np.arange(len(most)), most + 1)
        added = np.arange(len(parent)) - np.repeat(np.cumsum(most + 1) - most - 1, most + 1)
        old, at = parts.take(parent), (parts.place[parent], item)
        unit = np.where(added > 0, self.unit[at], 0.0)
        value = old.value + added * unit - np.where(added > 0, self.stop[at], 0.0)
        return _Parts(
            place=old.place,
            value=value + np.where(added == self.alone[at], self.stay[at], 0.0),
            need=np.maximum(old.need - added * self.share[at], 0.0),
            floor=np.maximum(old.floor - added, 0),
            left=left[parent] - added * self.cards[at],
            counts=np.column_stack((old.counts, added)),
        )

    def _worth(self, parts: _Parts, item: int) -> IntArray:
        """Replicas of an item beyond which another one only costs."""
        at = parts.place, item
        share = self.share[at]
        carried = np.where(share > 0, np.ceil(parts.need / np.maximum(share, TINY)), 0)
        worth = np.maximum(carried, parts.floor)
        worth = np.maximum(worth, np.where(self.stop[at] > 0, 1, 0))
        worth = np.maximum(worth, np.where(self.stay[at] != 0, self.alone[at], 0))
        result: IntArray = np.minimum(worth, self.most[at]).astype(np.int64)
        return result

    def bound(self, parts: _Parts, item: int) -> FloatArray:
        """What parts cost at least when the items from one on complete them."""
        missing = np.where(parts.need > 0, np.maximum(parts.floor, 1), parts.floor)
        with np.errstate(invalid="ignore"):  # nothing times infinity
            for_floor = np.where(missing > 0, missing * self._cheapest[parts.place, item], 0.0)
        added = np.maximum(self._for_need(parts, item), for_floor)
        result: FloatArray = parts.value + added - self._saved[parts.place, item]
        return result

    def _for_need(self, parts: _Parts, item: int) -> FloatArray:
        """Least cost of the shares that are lacking, with replicas in parts."""
        result, lacking = np.zeros(len(parts.place)), np.flatnonzero(parts.need > 0)
        if item == self.share.shape[1]:
            result[lacking] = np.inf
            return result
        order = np.argsort(self._ratio[:, item:], axis=1, kind="stable") + item
        ratio, carried = (np.take_along_axis(a, order, 1) for a in (self._ratio, self._carried))
        shares = np.cumsum(carried, axis=1)
        ratio = np.where(carried > 0, ratio, 0.0)
        costs = np.cumsum(carried * ratio, axis=1)
        place, need = parts.place[lacking], parts.need[lacking]
        full = np.sum(shares[place] < need[:, None], axis=1)
        last = np.minimum(full, shares.shape[1] - 1)
        beyond = shares[place, last] - need
        cost = costs[place, last] - beyond * ratio[place, last]
        result[lacking] = np.where(full > last, np.inf, cost)
        return result

    @cached_property
    def _ratio(self) -> FloatArray:
        """Cost of each share."""
        with np.errstate(invalid="ignore"):
            ratio = self.unit / np.maximum(self.share, TINY)
        return np.where((self.share > 0) & (self.most > 0), ratio, np.inf)

    @cached_property
    def _carried(self) -> FloatArray:
        """What all replicas of an item carry."""
        return self.share * self.most

    @cached_property
    def _cheapest(self) -> FloatArray:
        """The least unit from each item on; shape (cases, items + 1)."""
        last = np.full((len(self.unit), 1), np.inf)
        units = np.concatenate((self.unit, last), axis=1)
        return np.minimum.accumulate(units[:, ::-1], axis=1)[:, ::-1]

    @cached_property
    def _saved(self) -> FloatArray:
        """What items from each one on can save at most; shape (cases, items + 1)."""
        saved = self.stop - np.minimum(self.stay, 0.0)
        saved = np.concatenate((saved, np.zeros((len(saved), 1))), axis=1)
        return np.cumsum(saved[:, ::-1], axis=1)[:, ::-1]

    def undominated(self, parts: _Parts, item: int) -> IntArray:
        """Parts that no other one of the case replaces: one that lacks no more and costs less."""
        last = item + 1 == self.type.shape[1]
        card_type = self.type[parts.place, item]
        going_on = (
            np.zeros(len(card_type), np.bool_)
            if last
            else (self.type[parts.place, item + 1] == card_type)
        )
        left = np.where(going_on, parts.left, 0)
        order = np.lexsort((parts.value, parts.need, left, parts.floor, parts.place))
        keys = np.column_stack((parts.place, parts.floor, left))[order]
        first = np.any(np.diff(keys, axis=0, prepend=-1) != 0, axis=1)
        group = np.cumsum(first)
        rank = np.empty(len(order), dtype=np.int64)
        rank[np.argsort(parts.value[order], kind="stable")] = np.arange(len(order))
        # Groups come one after another, and a later one has lower numbers: the least so far
        # is then that of the group.
        lowest = np.minimum.accumulate(rank - group * len(order))
        result: IntArray = order[first | (np.diff(lowest, prepend=0) < 0)]
        return result
