"""Mixes: replicas of several candidate rows that serve a case together.

A mix carries the load where the shares of it that its replicas carry sum up to 1; it has at
least as many replicas as the server's floor, and none that can be done without, but for the
last one of an accelerator that runs now. Its value is its cost less that of what runs now,
and a share of the cost of what has to be started and of what has to be stopped: of
accelerators of which there are replicas then and not now, or now and not then. A single row
has the value that it has in the candidate table.
"""

from dataclasses import dataclass, fields, replace
from functools import cached_property

import numpy as np

from inferno_optimizer.sizing.candidates import NO_PAIR, Candidates
from inferno_optimizer.sizing.demands import ROUNDING
from inferno_optimizer.sizing.moves import PENALTY_SHARE
from inferno_optimizer.sizing.queueing import BoolArray, FloatArray, IntArray
from inferno_optimizer.solvers.assignment import NO_ROW, Mix
from inferno_optimizer.solvers.loads import weight_of


@dataclass(frozen=True)
class MixTable:
    """The cases that need replicas, and the items that each may be given.

    Arrays are of shape (cases, items), or (cases,) where that is said. Items of which there
    are 0 `most` are none.

    Attributes
    ----------
    case
        Positions in the candidate table's cases; shape (cases,).
    rows
        Row of each item in the candidate table, -1 for none.
    share
        Part of what the case needs that a replica carries.
    most
        Replicas of an item in a mix: those that it would take alone, if there are cards.
    type, cards
        Type of an item's cards, and how many a replica takes.
    running
        Items of which there are replicas now.
    unit, stop
        Value of each replica; what it adds to have none of an item that runs now.
    stay
        What it adds to have `alone` replicas of an item, which is then to stay as it is: the
        value of that is 0, whatever the cost of the replicas is said to be now.
    alone
        Replicas that an item takes alone.
    base
        Value of a mix of nothing; shape (cases,).
    need, floor
        What shares and replicas have to sum up to; shape (cases,).
    level, weight
        As in `program.Program`; shape (cases,).
    """

    case: IntArray
    rows: IntArray
    share: FloatArray
    most: IntArray
    type: IntArray
    cards: IntArray
    running: BoolArray
    unit: FloatArray
    stop: FloatArray
    stay: FloatArray
    alone: IntArray
    base: FloatArray
    need: FloatArray
    floor: IntArray
    level: IntArray
    weight: FloatArray

    @classmethod
    def of(cls, candidates: Candidates, capacity: IntArray) -> "MixTable":
        """The cases with a usable row that takes cards, and the rows of which a replica fits."""
        pairs = candidates.pairs
        usable = candidates.usable & (candidates.replicas > 0)
        usable &= candidates.pair == NO_PAIR
        rows = np.flatnonzero(usable & (pairs.cards <= capacity[pairs.type]))
        cases, place, width = np.unique(pairs.case[rows], return_inverse=True, return_counts=True)
        items = np.full((len(cases), int(width.max(initial=0))), NO_ROW)
        items[place, np.arange(len(rows)) - (np.cumsum(width) - width)[place]] = rows
        table = cls._of_items(candidates, cases, items, capacity)
        return replace(table, most=np.where(table.superfluous, 0, table.most))

    @classmethod
    def _of_items(
        cls, candidates: Candidates, cases: IntArray, rows: IntArray, capacity: IntArray
    ) -> "MixTable":
        chosen, pairs = [candidates.cases[case] for case in cases.tolist()], candidates.pairs
        there, demand = rows != NO_ROW, pairs.demand[rows]
        busy = there & (demand > 0)
        share = candidates.sizing.max_rate[rows] / np.where(busy, demand, 1.0)
        now = _Now.of(candidates, cases, rows)
        unit = candidates.unit_cost[rows] * np.where(now.running, 1.0, 1.0 + PENALTY_SHARE)
        stop, alone = PENALTY_SHARE * now.cost, candidates.replicas[rows]
        old_cost = np.array([c.server.current.cost for c in chosen], dtype=np.float64)
        base = PENALTY_SHARE * now.lost + stop.sum(axis=1) - old_cost
        moved = base[:, None] - stop + unit * alone
        stays = now.single & (alone == now.replicas)
        priority = np.array([c.priority for c in chosen], dtype=np.int64)
        return cls(
            case=cases,
            rows=rows,
            share=np.where(busy, share, 0.0),
            most=np.where(
                there,
                np.minimum(alone, capacity[pairs.type[rows]] // np.maximum(pairs.cards[rows], 1)),
                0,
            ),
            type=pairs.type[rows],
            cards=pairs.cards[rows],
            running=now.running,
            unit=unit,
            stop=stop,
            stay=np.where(stays & (np.abs(moved) > ROUNDING), -moved, 0.0),
            alone=alone,
            base=base,
            need=np.where(busy.any(axis=1), 1.0 - ROUNDING, 0.0),
            floor=np.array([c.server.min_replicas for c in chosen], dtype=np.int64),
            level=np.unique(priority, return_inverse=True)[1],
            weight=np.array([weight_of(c) for c in chosen], dtype=np.float64),
        )

    def take(self, which: IntArray | BoolArray) -> "MixTable":
        """Some of the cases, in their order."""
        return MixTable(*(getattr(self, field.name)[which] for field in fields(self)))

    def priced(self, cards: FloatArray, *, valued: bool) -> "MixTable":
        """The table with the prices of cards, shape (types,), in its values.

        If it is not `valued`, the cards are all that a mix costs: a load is maximized.
        """
        paid = cards[self.type] * self.cards
        if valued:
            return replace(self, unit=self.unit + paid)
        nothing = np.zeros(self.rows.shape)
        return replace(self, unit=paid, stop=nothing, stay=nothing, base=np.zeros(len(self.case)))

    @cached_property
    def effective_share(self) -> FloatArray:
        """Shares, of which no more counts than is needed."""
        return np.where(self.most > 0, np.minimum(self.share, self.need[:, None]), 0.0)

    @cached_property
    def superfluous(self) -> BoolArray:
        """Items that do no more than replicas of another one at no more cost, in no more cards.

        Accelerators of a type often differ in nothing but how its cards are counted. What runs
        now is never superfluous.
        """
        there = self.most > 0
        this, other = np.s_[:, :, None], np.s_[:, None, :]
        times = self.cards[this] // np.maximum(self.cards[other], 1)
        worse = (self.type[this] == self.type[other]) & (times >= 1)
        worse &= there[this] & there[other] & ~self.running[this]
        worse &= times * self.share[other] >= self.share[this]
        worse &= times * self.unit[other] <= self.unit[this]
        # Of items that are equal the first one stays.
        first = np.tri(there.shape[1], k=-1, dtype=np.bool_)
        worse &= first | ~worse.transpose(0, 2, 1)
        result: BoolArray = worse.any(axis=2)
        return result

    def covered(self, counts: IntArray) -> BoolArray:
        """Whether counts of items serve their case; shape (cases,)."""
        carried = np.sum(counts * self.share, axis=1) >= self.need - ROUNDING
        result: BoolArray = carried & (counts.sum(axis=1) >= np.maximum(self.floor, 1))
        return result

    def value(self, counts: IntArray) -> FloatArray:
        """Value of the mixes; shape (cases,)."""
        value: FloatArray = self.base + np.sum(counts * self.unit, axis=1)
        value -= np.sum(np.where(counts > 0, self.stop, 0.0), axis=1)
        value += np.sum(np.where(counts == self.alone, self.stay, 0.0), axis=1)
        return value

    def loads(self, counts: IntArray, levels: int) -> FloatArray:
        """Load that a plan serves of each of the first levels; shape (levels,)."""
        served = self.covered(counts) & (self.level < levels)
        loads: FloatArray = np.zeros(levels)
        np.add.at(loads, self.level[served], self.weight[served])
        return loads

    def used(self, counts: IntArray, types: int) -> IntArray:
        """Cards in use of each type; shape (types,)."""
        used: IntArray = self.used_by_each(counts, types).sum(axis=0)
        return used

    def used_by_each(self, counts: IntArray, types: int) -> IntArray:
        """The same for each case; shape (cases, types)."""
        cards = np.zeros((len(counts), types), dtype=np.int64)
        np.add.at(cards, (np.arange(len(counts))[:, None], self.type), counts * self.cards)
        return cards

    def filled(self, counts: IntArray, capacity: IntArray) -> IntArray:
        """The same, and of each case unserved the cheapest row that still fits.

        The most important cases come first, then those with the largest load.
        """
        counts, left = counts.copy(), capacity - self.used(counts, len(capacity))
        wanted = np.where(self.most == self.alone, self.alone, 0)
        cost = np.where(wanted > 0, wanted * self.unit, np.inf)
        order = np.lexsort((-self.weight, self.level))
        for place in order[~self.covered(counts)[order]].tolist():
            fits = wanted[place] * self.cards[place] <= left[self.type[place]]
            fits &= wanted[place] > 0
            if fits.any():
                item = int(np.argmin(np.where(fits, cost[place], np.inf)))
                counts[place, item] = wanted[place, item]
                left[self.type[place, item]] -= (wanted * self.cards)[place, item]
        return counts

    def given(self, counts: IntArray) -> tuple[IntArray, list[Mix]]:
        """Rows of the cases that are served by a single one, and the mixes of the others."""
        alone = np.count_nonzero(counts, axis=1) == 1
        place, item = np.nonzero(np.where(alone[:, None], counts, 0))
        value = self.value(counts)
        mixes = [
            Mix(
                tuple(self.rows[place][counts[place] > 0].tolist()),
                tuple(counts[place][counts[place] > 0].tolist()),
                float(value[place]),
            )
            for place in np.flatnonzero(np.count_nonzero(counts, axis=1) > 1)
        ]
        return self.rows[place, item], mixes

    def trimmed(self, counts: IntArray) -> IntArray:
        """The same without replicas that can be done without; and nothing for cases unserved."""
        counts = np.where(self.covered(counts)[:, None], counts, 0)
        order = np.argsort(-self.unit, axis=1, kind="stable")
        for item in order.T:
            while True:
                fewer = counts.copy()
                fewer[np.arange(len(counts)), item] -= 1
                better = self.covered(fewer) & (fewer >= 0).all(axis=1)
                better &= self.value(fewer) <= self.value(counts)
                if not better.any():
                    break
                counts = np.where(better[:, None], fewer, counts)
        return counts


@dataclass(frozen=True, slots=True)
class _Now:
    """What runs now, by item: whether, replicas, their cost, and whether it is all there is.

    `lost` is the cost of what is no item; shape (cases,).
    """

    running: BoolArray
    replicas: IntArray
    cost: FloatArray
    single: BoolArray
    lost: FloatArray

    @classmethod
    def of(cls, candidates: Candidates, cases: IntArray, rows: IntArray) -> "_Now":
        names = np.array([a.name for a in candidates.system.accelerators], dtype=object)
        # The last row, which stands in for none, may be of two accelerators, which have no name.
        names = names[np.where(rows != NO_ROW, candidates.pairs.accelerator[rows], 0)]
        now = cls(
            np.zeros(rows.shape, dtype=np.bool_),
            np.zeros(rows.shape, dtype=np.int64),
            np.zeros(rows.shape),
            np.zeros(rows.shape, dtype=np.bool_),
            np.zeros(len(cases)),
        )
        for place, case in enumerate(cases.tolist()):
            parts = candidates.cases[case].server.current.parts
            for part in parts:
                item = (names[place] == part.accelerator) & (rows[place] != NO_ROW)
                now.running[place] |= item
                now.replicas[place] += np.where(item, part.replicas, 0)
                now.cost[place] += np.where(item, part.cost, 0.0)
                now.single[place] |= item & (len(parts) == 1)
                now.lost[place] += 0.0 if item.any() else part.cost
        return now
