"""Mixes of accelerators as columns of the one problem, found by pricing.

A mix is replicas of several rows that serve a case together. It carries the load where the shares
of it that its replicas carry sum up to 1, has at least as many replicas as the server's floor, and
none that can be done without, but for the last one of what runs now. Its value is its cost less
that of what runs, and a share of the cost of what starts and of what stops.

There are too many mixes to list. At the multipliers of a relaxation the cheapest mix of a case is
an integer covering knapsack of a dozen items [Gilmore and Gomory, Oper. Res. 9 (1961) 849-859]. All
cases are searched together, item by item and breadth first: a part of a mix goes on with each
number of replicas of the next item that may be worth it. What it costs at least when it is complete
is the linear relaxation of what it lacks [Martello and Toth, Knapsack Problems, 1990, ch. 3]. The
parts of which this is least go on; those that are dropped leave their bounds behind, so that what
is told is proven however few go on.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from inferno_optimizer.sizing.candidates import NO_PAIR, Candidates
from inferno_optimizer.sizing.cards import Cards
from inferno_optimizer.sizing.demands import ROUNDING
from inferno_optimizer.sizing.moves import UNPAID_SHARE, penalty_shares
from inferno_optimizer.sizing.queueing import ArrayTable, BoolArray, FloatArray, IntArray
from inferno_optimizer.solvers.assignment import NO_ROW, Mix
from inferno_optimizer.solvers.budget import Budget
from inferno_optimizer.solvers.goals import Goal, GoalKind
from inferno_optimizer.solvers.problem import FIRST_MIX, Columns, ReplicaProblem, rank_in_group
from inferno_optimizer.solvers.relaxation import Vertex

TINY = 1e-12
"""Shares as small as this are rounding."""

UNLIMITED = 1e18
"""A value that no mix has."""


@dataclass(frozen=True)
class MixTable(ArrayTable):
    """The cases that need replicas, and the items of which each may have a mix.

    Arrays are of shape (cases, items), or (cases,) where that is said. Items of which there are 0
    `most` are none.

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
    unit, stop
        Value of each replica; what it adds to have none of an item that runs now.
    base, now
        Value of a mix of nothing, and what of it is the cost of what runs; shape (cases,).
    need, floor
        What shares and replicas have to sum up to; shape (cases,).
    """

    case: IntArray
    rows: IntArray
    share: FloatArray
    most: IntArray
    type: IntArray
    cards: IntArray
    unit: FloatArray
    stop: FloatArray
    base: FloatArray
    now: FloatArray
    need: FloatArray
    floor: IntArray

    @classmethod
    def of(cls, candidates: Candidates, capacity: IntArray, *, changes: bool) -> "MixTable":
        """The cases with a usable row that takes cards, and the rows of which a replica fits.

        Values are changes of the cost, or the cost itself with that of moves.
        """
        pairs = candidates.pairs
        usable = candidates.usable & (candidates.replicas > 0) & (candidates.pair == NO_PAIR)
        flat = np.flatnonzero(usable & (pairs.cards <= capacity[pairs.type]))
        cases, place = np.unique(pairs.case[flat], return_inverse=True)
        rank = rank_in_group(place)
        rows = np.full((len(cases), int(rank.max(initial=-1)) + 1), NO_ROW)
        rows[place, rank] = flat
        there, demand, alone = rows != NO_ROW, pairs.demand[rows], candidates.replicas[rows]
        busy = there & (demand > 0)
        fits = capacity[pairs.type[rows]] // np.maximum(pairs.cards[rows], 1)
        runs, cost, lost = _find_running(candidates, cases, rows)
        chosen = [candidates.cases[case].server for case in cases.tolist()]
        unpaid = np.array([bool(server.destination) for server in chosen], dtype=np.bool_)
        charge = np.where(unpaid, UNPAID_SHARE, penalty_shares(candidates.cases)[cases])
        stop = charge[:, None] * cost
        now = np.array([server.current.cost for server in chosen], dtype=np.float64)
        table = cls(
            case=cases,
            rows=rows,
            share=np.where(
                busy, candidates.sizing.max_rate[rows] / np.where(busy, demand, 1.0), 0.0
            ),
            most=np.where(there, np.minimum(alone, fits), 0),
            type=pairs.type[rows],
            cards=pairs.cards[rows],
            unit=candidates.unit_cost[rows] * np.where(runs, 1.0, 1.0 + charge[:, None]),
            stop=np.where(there, stop, 0.0),
            base=charge * lost + stop.sum(axis=1) - (now if changes else 0.0),
            now=np.zeros_like(now) if changes else now,
            need=np.where(busy.any(axis=1), 1.0 - ROUNDING, 0.0),
            floor=np.array([max(server.min_replicas, 1) for server in chosen], dtype=np.int64),
        )
        return replace(table, most=np.where(_find_superfluous(table, runs), 0, table.most))

    def are_enough(self, counts: IntArray) -> BoolArray:
        """Whether counts of items serve their case; shape (cases,)."""
        carried = np.sum(counts * self.share, axis=1) >= self.need - ROUNDING
        covered: BoolArray = carried & (counts.sum(axis=1) >= self.floor)
        return covered

    def value(self, counts: IntArray) -> FloatArray:
        """Value of the mixes; shape (cases,)."""
        value: FloatArray = self.base + np.sum(counts * self.unit, axis=1)
        value -= np.sum(np.where(counts > 0, self.stop, 0.0), axis=1)
        return value

    def trim(self, counts: IntArray) -> IntArray:
        """The same without replicas that can be done without, the dear ones first."""
        counts, every = counts.copy(), np.arange(len(counts))
        beyond = np.sum(counts * self.share, axis=1) - self.need + ROUNDING
        more = counts.sum(axis=1) - self.floor
        for item in np.argsort(-self.unit, axis=1, kind="stable").T:
            share, kept = self.share[every, item], self.stop[every, item] > 0
            spare = np.where(share > 0, beyond / np.where(share > 0, share, 1.0), np.inf)
            fewer = np.minimum(np.minimum(counts[every, item] - kept, spare), more)
            fewer = np.maximum(fewer, 0).astype(np.int64)
            counts[every, item] -= fewer
            beyond, more = beyond - fewer * share, more - fewer
        return counts

    def used(self, counts: IntArray, types: int) -> IntArray:
        """Cards of each type that each takes; shape (cases, types)."""
        used = np.zeros((len(counts), types), dtype=np.int64)
        np.add.at(used, (np.arange(len(counts))[:, None], self.type), counts * self.cards)
        return used

    def add_prices(self, prices: FloatArray, *, valued: bool) -> "MixTable":
        """The table with the prices of cards in its values; they are all if it is not `valued`."""
        paid = prices[self.type] * self.cards
        if valued:
            return replace(self, unit=self.unit + paid)
        return replace(self, unit=paid, stop=self.stop * 0.0, base=self.base * 0.0)


def _find_running(
    candidates: Candidates, cases: IntArray, rows: IntArray
) -> tuple[BoolArray, FloatArray, FloatArray]:
    """Items that run now, what each costs, and what runs of each case that is no item."""
    runs, cost = np.zeros(rows.shape, dtype=np.bool_), np.zeros(rows.shape)
    lost, numbers = np.zeros(len(cases)), candidates.catalogue.accelerators
    on = np.where(rows != NO_ROW, candidates.pairs.accelerator[rows], NO_ROW)
    for place, case in enumerate(cases.tolist()):
        for part in candidates.cases[case].server.current.parts:
            item = on[place] == numbers.get(part.accelerator, NO_ROW - 1)
            runs[place] |= item
            cost[place] += np.where(item, part.cost, 0.0)
            lost[place] += 0.0 if item.any() else part.cost
    return runs, cost, lost


def _find_superfluous(table: MixTable, runs: BoolArray) -> BoolArray:
    """Items that do no more than replicas of another one at no more cost, in no more cards.

    Accelerators of a type often differ in nothing but how its cards are counted. What runs now is
    never superfluous.
    """
    there = table.most > 0
    this, other = np.s_[:, :, None], np.s_[:, None, :]
    times = table.cards[this] // np.maximum(table.cards[other], 1)
    worse = (table.type[this] == table.type[other]) & (times >= 1)
    worse &= there[this] & there[other] & ~runs[this]
    worse &= times * table.share[other] >= table.share[this]
    worse &= times * table.unit[other] <= table.unit[this]
    # Of items that are equal the first one stays.
    worse &= np.tri(there.shape[1], k=-1, dtype=np.bool_) | ~worse.transpose(0, 2, 1)
    superfluous: BoolArray = worse.any(axis=2)
    return superfluous


@dataclass(frozen=True)
class Mixes(ArrayTable):
    """Mixes of cases of a table: its place, replicas of each item, shape (mixes, items), value."""

    place: IntArray
    counts: IntArray
    value: FloatArray


def cheapest_mixes(
    table: MixTable,
    capacity: IntArray,
    limit: FloatArray,
    width: int,
    *,
    alike: bool,
    may_go_on: Callable[[int], bool] = lambda _: True,
) -> tuple[Mixes, FloatArray]:
    """The mixes of less value than a limit; and what one that was not found costs at least.

    Parameters
    ----------
    table
        The cases; the units have prices of cards in them.
    capacity
        Cards of each type; no mix takes more. Shape (types,).
    limit
        Only mixes of a smaller value are looked for; shape (cases,).
    width
        So many parts of mixes of a case go on, at most: those of the least bounds.
    alike
        Look for all mixes up to the limit, and not only for a cheapest one; for none where not all
        parts can go on.
    may_go_on
        Whether there may be so many parts at a time; nothing is found where not.
    """
    items, missed = _Items.of(table), limit.copy()
    nothing = Mixes(table.case[:0], table.most[:0], table.base[:0]), np.full(len(limit), -np.inf)
    count = table.rows.shape[1]
    parts = _Parts(
        place=np.arange(len(table.case)),
        value=table.base.copy(),
        need=np.maximum(table.need - ROUNDING - TINY, 0.0),
        floor=table.floor.copy(),
        left=np.zeros(len(table.case), dtype=np.int64),
        counts=np.zeros(table.rows.shape, dtype=np.int64),
    )
    for item in range(count):
        least, most, left = items.numbers(parts, item, capacity, limit)
        if not may_go_on(int((most - least + 1).sum())):
            return nothing
        parts = items.extend(parts, item, least, most, left)
        bound = items.bound(parts, item + 1)
        worth = np.flatnonzero(bound < limit[parts.place])
        if not alike:
            worth = worth[items.list_undominated(parts.take(worth), item)]
        # Where cards are worth nothing, parts that lack the least come first.
        order = worth[np.lexsort((parts.need[worth], bound[worth], parts.place[worth]))]
        first = rank_in_group(parts.place[order]) < width
        if alike and not first.all():
            return nothing
        np.minimum.at(missed, parts.place[order[~first]], bound[order[~first]])
        parts = parts.take(order[first])
    counts = np.zeros_like(parts.counts)
    np.put_along_axis(counts, items.order[parts.place], parts.counts, axis=1)
    of_parts = table.take(parts.place)
    short = ~of_parts.are_enough(counts)  # by rounding
    counts = of_parts.trim(counts)
    alone = short | (np.count_nonzero(counts, axis=1) <= 1)
    if not alike:  # they may have replaced others
        short = alone
    np.minimum.at(missed, parts.place[short], parts.value[short])
    keys = np.column_stack((parts.place, counts))
    found = np.setdiff1d(np.unique(keys, axis=0, return_index=True)[1], np.flatnonzero(alone))
    place, counts = parts.place[found], counts[found]
    return Mixes(place, counts, table.take(place).value(counts)), missed


@dataclass(frozen=True)
class _Parts(ArrayTable):
    """Parts of mixes: replicas of the first items, in their order; what shares and floor lack.

    `left` are cards of the type of the last item.
    """

    place: IntArray
    value: FloatArray
    need: FloatArray
    floor: IntArray
    left: IntArray
    counts: IntArray


@dataclass(frozen=True)
class _Items:
    """The items of a table in the order of the search, those of a type of card together.

    Types come first whose cheapest item costs the least per share. `ratio` is that cost; `ahead`,
    `cheapest` and `saved` are the least of it and the least unit of an item and those after it, and
    what these do not stop at most. Shapes (cases, items), and with one more of the last three.
    """

    order: IntArray
    unit: FloatArray
    share: FloatArray
    ratio: FloatArray
    most: IntArray
    type: IntArray
    cards: IntArray
    stop: FloatArray
    ahead: FloatArray
    cheapest: FloatArray
    saved: FloatArray

    @classmethod
    def of(cls, table: MixTable) -> "_Items":
        """In the order of the search."""
        there = table.most > 0
        share = np.where(there, np.minimum(table.share, table.need[:, None]), 0.0)
        carries = share > 0
        ratio = np.where(carries, table.unit / np.where(carries, share, 1.0), np.inf)
        best = np.full((len(ratio), int(table.type.max(initial=0)) + 1), np.inf)
        np.minimum.at(best, (np.arange(len(best))[:, None], table.type), ratio)
        best = np.take_along_axis(best, table.type, axis=1)
        order = np.lexsort((ratio, table.type, best), axis=1)
        arrays = (
            np.where(there, table.unit, np.inf),
            share,
            ratio,
            table.most,
            table.type,
            table.cards,
            np.where(there, table.stop, 0.0),
        )
        unit, share, ratio, most, card_type, cards, stop = (
            np.take_along_axis(array, order, axis=1) for array in arrays
        )
        last, nothing = np.full((len(order), 1), np.inf), np.zeros((len(order), 1))
        ahead, cheapest = (
            np.minimum.accumulate(np.append(array, last, axis=1)[:, ::-1], axis=1)[:, ::-1]
            for array in (ratio, unit)
        )
        saved = np.cumsum(np.append(stop, nothing, axis=1)[:, ::-1], axis=1)[:, ::-1]
        return cls(order, unit, share, ratio, most, card_type, cards, stop, ahead, cheapest, saved)

    def numbers(
        self, parts: _Parts, item: int, capacity: IntArray, limit: FloatArray
    ) -> tuple[IntArray, IntArray, IntArray]:
        """The least and the most replicas of an item for each part, and its cards that are left."""
        at = parts.place, item
        share, cards = self.share[at], np.maximum(self.cards[at], 1)
        starts = item == 0 or self.type[at] != self.type[parts.place, item - 1]
        left = np.where(starts, capacity[self.type[at]], parts.left)
        wanted = parts.need / np.where(share > 0, share, np.inf)
        worth = np.maximum(np.maximum(np.ceil(wanted), parts.floor), self.stop[at] > 0)
        most = np.minimum(np.minimum(worth, self.most[at]), left // cards).astype(np.int64)
        # Each replica less is made up for by items that cost more per share.
        with np.errstate(invalid="ignore"):  # infinity less infinity, of items that carry nothing
            dearer = (self.ahead[parts.place, item + 1] - self.ratio[at]) * share
        slack = limit[parts.place] - (parts.value - self.saved[at] + self._for_need(parts, item))
        tight = (dearer > 0) & np.isfinite(slack) & (left >= cards * self.most[at])
        fewer = np.divide(slack, dearer, out=np.full(len(most), np.inf), where=tight)
        least = np.ceil(np.minimum(wanted, self.most[at]) - fewer - ROUNDING)
        least = np.clip(np.where(tight & (parts.need > 0), least, 0.0), 0, most).astype(np.int64)
        return least, most, left

    def extend(
        self, parts: _Parts, item: int, least: IntArray, most: IntArray, left: IntArray
    ) -> _Parts:
        """Every part with each number of replicas of an item."""
        count = most - least + 1
        parent = np.repeat(np.arange(len(count)), count)
        first = np.repeat(np.cumsum(count) - count, count)
        added = least[parent] + np.arange(len(parent)) - first
        old, at = parts.take(parent), (parts.place[parent], item)
        some = added > 0
        old.counts[:, item] = added
        return _Parts(
            place=old.place,
            value=old.value + added * np.where(some, self.unit[at], 0.0) - some * self.stop[at],
            need=np.maximum(old.need - added * self.share[at], 0.0),
            floor=np.maximum(old.floor - added, 0),
            left=left[parent] - added * self.cards[at],
            counts=old.counts,
        )

    def bound(self, parts: _Parts, item: int) -> FloatArray:
        """What parts cost at least when the items from one on complete them."""
        missing = np.where(parts.need > 0, np.maximum(parts.floor, 1), parts.floor)
        cheapest = np.where(missing > 0, self.cheapest[parts.place, item], 0.0)
        added = np.maximum(self._for_need(parts, item), missing * cheapest)
        bound: FloatArray = parts.value + added - self.saved[parts.place, item]
        return bound

    def _for_need(self, parts: _Parts, item: int) -> FloatArray:
        """Least cost of the shares that are lacking, with replicas in parts."""
        result, lacking = np.zeros(len(parts.place)), np.flatnonzero(parts.need > 0)
        if item == self.share.shape[1]:
            result[lacking] = np.inf
            return result
        order = np.argsort(self.ratio[:, item:], axis=1, kind="stable") + item
        ratio, share, most = (
            np.take_along_axis(array, order, axis=1)
            for array in (self.ratio, self.share, self.most)
        )
        ratio = np.where(share > 0, ratio, 0.0)
        shares = np.cumsum(share * most, axis=1)
        costs = np.cumsum(share * most * ratio, axis=1)
        place, need = parts.place[lacking], parts.need[lacking]
        full = np.sum(shares[place] < need[:, None], axis=1)
        last = np.minimum(full, shares.shape[1] - 1)
        cost = costs[place, last] - (shares[place, last] - need) * ratio[place, last]
        result[lacking] = np.where(full > last, np.inf, cost)
        return result

    def list_undominated(self, parts: _Parts, item: int) -> IntArray:
        """Parts that no part of several items replaces: one that lacks no more and costs less.

        A single item replaces none: all replicas of a row are a column already.
        """
        goes_on = np.zeros(len(parts.place), dtype=np.bool_)
        if item + 1 < self.type.shape[1]:
            goes_on = self.type[parts.place, item] == self.type[parts.place, item + 1]
        left = np.where(goes_on, parts.left, 0)
        order = np.lexsort((parts.value, parts.need, left, parts.floor, parts.place))
        keys = np.column_stack((parts.place, parts.floor, left))[order]
        group = np.cumsum(np.any(np.diff(keys, axis=0, prepend=-1) != 0, axis=1))
        rank = np.empty(len(order), dtype=np.int64)
        rank[np.argsort(parts.value[order], kind="stable")] = np.arange(len(order))
        # Groups come one after another, and later ones have lower numbers: the least so far is
        # then that of the group.
        rank -= group * len(order)
        mixed = np.count_nonzero(parts.counts[order], axis=1) > 1
        lowest = np.minimum.accumulate(np.append(1, np.where(mixed, rank, 1)))[:-1]
        undominated: IntArray = order[rank < lowest]
        return undominated


class MixColumns:
    """The mixes that are columns of a problem, and the search for more.

    Attributes
    ----------
    mixes
        In the order of their numbers: the row of a column is `FIRST_MIX` less the number.
    size
        Items of all cases.
    least
        The cases that were priced last, the prices in their units; the base is what any mix costs
        at least.
    """

    def __init__(self, table: MixTable, problem: ReplicaProblem) -> None:
        self._table = table.take(np.flatnonzero(np.isin(table.case, problem.cases)))
        self._place = np.searchsorted(problem.cases, self._table.case)
        self._known = dict[tuple[int, bytes], int]()
        self.mixes: list[Mix] = []
        self.size = self._table.rows.size
        self.least: MixTable | None = None

    def list_all(self, problem: ReplicaProblem, most: int, budget: Budget) -> Columns | None:
        """All mixes as columns; None if there are more, many items, or too little work for it."""
        params = problem.params
        if np.count_nonzero(self._table.most) > params.mix_few_items:
            return None

        def may_go_on(parts: int) -> bool:
            if parts > params.mix_few_parts or budget.is_over:
                return False
            budget.spend(parts * params.mix_part)
            return True

        limit = np.full(len(self._place), UNLIMITED)
        found, missed = cheapest_mixes(
            self._table, problem.capacity, limit, most, alike=True, may_go_on=may_go_on
        )
        if len(found.place) > most or np.any(missed < UNLIMITED):
            return None
        return self._columns(found, len(problem.capacity))

    def price(self, problem: ReplicaProblem, goal: Goal, vertex: Vertex) -> tuple[Columns, float]:
        """The mixes that improve a relaxation most; and what no plan exceeds, whatever its mixes.

        Parameters
        ----------
        problem, goal, vertex
            The problem with the mixes that are columns, and the best vertex of its relaxation.
        """
        params = problem.params
        cases = np.flatnonzero(np.isfinite(vertex.gain[self._place]))
        gain = vertex.gain[self._place[cases]]
        table = self._table.take(cases)
        paid = table.add_prices(vertex.prices, valued=goal.kind is GoalKind.VALUE)
        limit = gain - params.reduced_cost * float(np.abs(gain).max(initial=0.0))
        found, missed = cheapest_mixes(paid, problem.capacity, limit, params.mix_width, alike=False)
        least, lost = np.minimum(missed, limit) - gain, found.value - gain[found.place]
        np.minimum.at(least, found.place, lost)
        bound = vertex.bound - float(np.minimum(least, 0.0).sum())
        single = np.where(paid.most > 0, paid.unit * paid.most - paid.stop, np.inf).min(axis=1)
        self.least = replace(paid, base=np.minimum(least + gain, paid.base + single))
        found = replace(found, place=cases[found.place])
        new = self._are_new(found)
        order = new[np.lexsort((found.place[new], lost[new]))]
        best = found.take(order[: params.columns_per_case * len(cases)])
        return self._columns(best, len(problem.capacity)), bound

    def items(self, cases: BoolArray) -> MixTable:
        """The items of some cases of the problem, shape (cases,), by their positions there."""
        some = np.flatnonzero(cases[self._place])
        return replace(self._table.take(some), case=self._place[some])

    def find_replaced(self, problem: ReplicaProblem) -> BoolArray:
        """Columns that items replace: all of a row or nothing, at the value of so many replicas."""
        table = self._table
        value = table.base[:, None] + table.unit * table.most - table.stop
        value = np.where(table.most > 0, value, -np.inf)  # another item replaces it
        rows = table.rows.ravel()
        order = np.argsort(rows)
        place = order[np.minimum(np.searchsorted(rows, problem.row, sorter=order), len(rows) - 1)]
        is_item = (rows[place] == problem.row) & (problem.row >= 0)
        all_or_nothing = (problem.full == 1) & (problem.most <= 1)
        replaced: BoolArray = is_item & all_or_nothing
        replaced &= (
            problem.unit + problem.fixed >= value.ravel()[place] - problem.params.reduced_cost
        )
        return replaced | problem.mixed

    def columns_of(self, items: MixTable, counts: IntArray, types: int) -> Columns:
        """The columns that are new of mixes of several items."""
        some = np.count_nonzero(counts, axis=1) > 1
        place = np.searchsorted(self._place, items.case[some])
        found = Mixes(place, counts[some], np.zeros(len(place)))
        return self._columns(found.take(self._are_new(found)), types)

    def put(
        self, problem: ReplicaProblem, items: MixTable, counts: IntArray, plan: IntArray
    ) -> None:
        """Let a plan have mixes that are columns, or all replicas of a row."""
        place = np.searchsorted(self._place, items.case)
        for case, known, mix, rows in zip(
            items.case.tolist(), place.tolist(), counts, items.rows, strict=True
        ):
            if not mix.any():
                continue
            row = rows[np.argmax(mix)]
            if np.count_nonzero(mix) > 1:
                row = FIRST_MIX - self._known[known, mix.tobytes()]
            column = np.flatnonzero((problem.row == row) & (problem.case == case))
            plan[column] = problem.full[column].astype(np.int64)

    def _are_new(self, found: Mixes) -> IntArray:
        keys = zip(found.place.tolist(), found.counts, strict=True)
        new = [(place, counts.tobytes()) not in self._known for place, counts in keys]
        return np.flatnonzero(new)

    def _columns(self, found: Mixes, types: int) -> Columns:
        """New columns for mixes."""
        table, first, count = self._table.take(found.place), len(self.mixes), len(found.place)
        found = replace(found, value=table.value(found.counts))
        for place, counts, value, row, now in zip(
            found.place.tolist(),
            found.counts,
            found.value.tolist(),
            table.rows,
            table.now,
            strict=True,
        ):
            some = counts > 0
            self._known[place, counts.tobytes()] = len(self.mixes)
            replicas = tuple(counts[some].tolist())
            self.mixes.append(Mix(tuple(row[some].tolist()), replicas, value - float(now)))
        used = table.used(found.counts, types)
        mix, card_type = np.nonzero(used)
        nothing, none = np.zeros(count), np.zeros(count, dtype=np.int64)
        return Columns(
            case=self._place[found.place],
            row=FIRST_MIX - first - np.arange(count),
            lot=none,
            most=none + 1,
            full=nothing + 1.0,
            unit=found.value,
            fixed=nothing,
            runs=none,
            stands=none,
            standing=nothing,
            cards=Cards(mix, card_type, used[mix, card_type]),
        )
