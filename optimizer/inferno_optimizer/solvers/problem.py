"""The problem in arrays: each case takes replicas of a column, cards within the capacity.

See `assignment.md`, section "Exact: one problem, one search". A column is a usable row of the
candidate table; or, with the policy `Hold`, what runs now on accelerators without a usable row.
Levels are the priorities in use, the most important first. It is a generalized assignment problem
[S. Martello, P. Toth, *Knapsack Problems*, 1990, chapter 7].
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import Any

import numpy as np

from inferno_optimizer.sizing.candidates import Candidates
from inferno_optimizer.sizing.cards import Cards
from inferno_optimizer.sizing.cases import Catalogue
from inferno_optimizer.sizing.demands import ROUNDING
from inferno_optimizer.sizing.moves import penalty_shares
from inferno_optimizer.sizing.queueing import BoolArray, FloatArray, IntArray
from inferno_optimizer.solvers.assignment import (
    NO_ROW,
    Assignment,
    KeptReplicas,
    cost_kept,
    share_kept,
)
from inferno_optimizer.solvers.loads import weight_of
from inferno_optimizer.solvers.params import DEFAULTS, SolveParams
from inferno_optimizer.solvers.running import Lot, Running, lots_of
from inferno_optimizer.system import SaturationPolicy

NOBODY = np.zeros(0, dtype=np.int64)

FIRST_MIX = NO_ROW - 1
"""The row of the first mix; those that follow have lower numbers."""


@dataclass(frozen=True)
class Columns:
    """What cases may have; arrays of shape (columns,), but for `cards`.

    Attributes
    ----------
    case
        Position of the case of a column among the cases of the problem.
    row
        Row of the candidate table; -1 for what is kept as it is, and lower numbers for mixes.
    most
        Replicas of a column at most: as many as the targets take, and as there are cards for.
    full
        Replicas that carry all that the case needs; a fraction where several columns may share.
    unit, fixed
        Value of each replica, and what the first one adds.
    runs
        Replicas that run already, of those that the targets take.
    stands, standing
        Replicas with which all stays as it is, 0 for none, and what they cost now.
    lot
        Which of the lots of what is kept as it is a replica stands for; 0 for a row.
    cards
        What a replica takes.
    """

    case: IntArray
    row: IntArray
    lot: IntArray
    most: IntArray
    full: FloatArray
    unit: FloatArray
    fixed: FloatArray
    runs: IntArray
    stands: IntArray
    standing: FloatArray
    cards: Cards

    def followed_by(self, other: "Columns") -> "Columns":
        """These columns, then others."""
        cards = Cards(
            np.append(self.cards.owner, other.cards.owner + len(self.case)),
            np.append(self.cards.type, other.cards.type),
            np.append(self.cards.count, other.cards.count),
        )
        own, others = self.arrays(), other.arrays()
        return Columns(
            **{name: np.append(array, others[name]) for name, array in own.items()}, cards=cards
        )

    def by_case(self) -> "Columns":
        """The same, sorted by case, mixes last."""
        number = np.where(self.mixed, -self.row, self.row)
        order = np.lexsort((self.lot, number, self.mixed, self.case))
        place = np.argsort(order)
        cards = Cards(place[self.cards.owner], self.cards.type, self.cards.count)
        return Columns(**{name: array[order] for name, array in self.arrays().items()}, cards=cards)

    @property
    def mixed(self) -> BoolArray:
        """Columns that are mixes."""
        mixed: BoolArray = self.row <= FIRST_MIX
        return mixed

    def arrays(self) -> dict[str, Any]:
        """The arrays by name."""
        return {f.name: getattr(self, f.name) for f in fields(Columns) if f.name != "cards"}


@dataclass(frozen=True)
class ReplicaProblem(Columns):
    """Columns, sorted by case, and cases; a value is the cost of replicas and the moves.

    Attributes
    ----------
    cases
        Positions in the cases of the candidate table; shape (cases,), as the next three.
    level, weight
        Place of the priority among those in use, and the load that counts as served.
    held
        Share of what the case needs that its present replicas carry, at most 1.
    capacity
        Cards of each type; shape (types,).
    params
        Of the search.
    all_or_nothing
        Whether a replica of a column stands for all those of its row.
    """

    cases: IntArray
    level: IntArray
    weight: FloatArray
    held: FloatArray
    capacity: IntArray
    params: SolveParams = DEFAULTS
    all_or_nothing: bool = False

    @classmethod
    def of(
        cls,
        candidates: Candidates,
        capacity: IntArray,
        running: Running,
        params: SolveParams = DEFAULTS,
        others: IntArray = NOBODY,
    ) -> "ReplicaProblem":
        """The problem of the cases that need replicas: with the policy `None`, of whole rows.

        There may be other cases then, of which no row fits alone.
        """
        policy = candidates.system.options.saturation_policy
        if policy is SaturationPolicy.NONE:
            return cls.whole(candidates, capacity, params, others)
        pairs = candidates.pairs
        rows = np.flatnonzero(candidates.usable & (candidates.replicas > 0))
        free = pairs.case[np.flatnonzero(candidates.usable & (candidates.replicas == 0))]
        rows = rows[~np.isin(pairs.case[rows], free)]
        cases = np.unique(pairs.case[rows])
        chosen = [candidates.cases[case] for case in cases.tolist()]
        priority = np.array([case.priority for case in chosen], dtype=np.int64)
        columns = _rows(candidates, capacity, running, rows, cases)
        if policy is SaturationPolicy.HOLD:
            columns = columns.followed_by(_kept(capacity, running, cases, params))
        columns = columns.by_case()
        return cls(
            **columns.arrays(),
            cards=columns.cards,
            cases=cases,
            level=np.unique(priority, return_inverse=True)[1].astype(np.int64),
            weight=np.array([weight_of(case) for case in chosen], dtype=np.float64),
            held=running.held(policy)[cases],
            capacity=capacity,
            params=params,
        )

    @classmethod
    def whole(
        cls,
        candidates: Candidates,
        capacity: IntArray,
        params: SolveParams = DEFAULTS,
        others: IntArray = NOBODY,
    ) -> "ReplicaProblem":
        """The problem where a case gets all that a row takes or nothing, at the value of the row.

        A column has one replica, which stands for all those of its row. There may be other cases,
        of which no row fits alone.
        """
        case = candidates.pairs.case
        needed = candidates.usable & (candidates.replicas > 0)
        free = np.unique(case[candidates.usable & (candidates.replicas == 0)])
        needed &= ~np.isin(case, free) & (candidates.replicas <= candidates.fitting(capacity))
        rows = np.flatnonzero(needed)
        cases = np.union1d(case[rows], np.setdiff1d(others, free))
        chosen = [candidates.cases[case] for case in cases.tolist()]
        priority = np.array([case.priority for case in chosen], dtype=np.int64)
        nothing, once = np.zeros(len(rows)), np.ones(len(rows), dtype=np.int64)
        cards = candidates.needs.of(rows)
        return cls(
            case=np.searchsorted(cases, case[rows]),
            row=rows,
            lot=once * 0,
            most=once,
            full=once.astype(np.float64),
            unit=candidates.value[rows],
            fixed=nothing,
            runs=candidates.stays[rows].astype(np.int64),
            stands=once * 0,
            standing=nothing,
            cards=replace(cards, count=cards.count * candidates.replicas[rows][cards.owner]),
            cases=cases,
            level=np.unique(priority, return_inverse=True)[1].astype(np.int64),
            weight=np.array([weight_of(case) for case in chosen], dtype=np.float64),
            held=np.zeros(len(cases)),
            capacity=capacity,
            params=params,
            all_or_nothing=True,
        )

    def serve_all_or_nothing(self, cases: BoolArray) -> "ReplicaProblem":
        """The same where some cases, shape (cases,), get all that a column takes or nothing.

        A replica of their columns stands for all that the targets take, at the value of all.
        """
        of_cases = cases[self.case]
        whole = of_cases & self.serves & (self.most >= self.full)
        all_of_it = np.where(whole, self.full, 0.0).astype(np.int64)
        cards = self.cards
        lots = np.where(of_cases, np.maximum(all_of_it, 1), 1)
        nothing = np.zeros_like(self.most)
        return replace(
            self,
            most=np.where(of_cases, whole, self.most),
            full=np.where(of_cases, 1.0, self.full),
            unit=np.where(of_cases, self.values(all_of_it), self.unit),
            fixed=np.where(of_cases, 0.0, self.fixed),
            runs=np.where(of_cases, nothing, self.runs),
            stands=np.where(of_cases, nothing, self.stands),
            standing=np.where(of_cases, 0.0, self.standing),
            cards=replace(cards, count=cards.count * lots[cards.owner]),
        )

    def counts_of(self, plan: Assignment) -> IntArray:
        """Replicas of each column that a plan has of a row; shape (columns,)."""
        case = self.cases[self.case]
        chosen = self.serves & (plan.rows[case] == self.row)
        return np.where(chosen, np.minimum(plan.replicas[case], self.most), 0)

    def of_cases(self, cases: BoolArray, capacity: IntArray) -> "ReplicaProblem":
        """The problem of some cases, shape (cases,), alone with these cards of each type."""
        columns = self.columns_of(cases)
        arrays = {name: array[columns] for name, array in self.arrays().items()}
        arrays["case"] = (np.cumsum(cases) - 1)[arrays["case"]]
        entries, place = columns[self.cards.owner], np.cumsum(columns) - 1
        return ReplicaProblem(
            **arrays,
            cards=Cards(
                place[self.cards.owner[entries]],
                self.cards.type[entries],
                self.cards.count[entries],
            ),
            cases=self.cases[cases],
            level=self.level[cases],
            weight=self.weight[cases],
            held=self.held[cases],
            capacity=capacity,
            params=self.params,
            all_or_nothing=self.all_or_nothing,
        )

    def add_columns(self, more: Columns) -> tuple["ReplicaProblem", IntArray]:
        """The problem with more columns, and where those that it had are in it."""
        columns = Columns(**self.arrays(), cards=self.cards).followed_by(more)
        place = np.argsort(np.lexsort((columns.mixed, columns.case)))
        columns = columns.by_case()
        return replace(self, **columns.arrays(), cards=columns.cards), place[: len(self.case)]

    @property
    def levels(self) -> int:
        """How many levels there are."""
        return int(self.level.max(initial=-1)) + 1

    @cached_property
    def serves(self) -> BoolArray:
        """Columns whose replicas count as served; what is kept as it is does not."""
        serves: BoolArray = self.row != NO_ROW
        return serves

    @cached_property
    def served_share(self) -> FloatArray:
        """Share of its case that a replica of a column serves."""
        return np.where(self.serves, 1.0 / self.full, 0.0)

    def served(self, counts: IntArray) -> FloatArray:
        """Share of each case that replicas, shape (columns,), serve; shape (cases,)."""
        return self._sums(self.served_share * counts)

    def holding(self, counts: IntArray) -> FloatArray:
        """Share of each case that is held: served, or kept as it is, up to what runs."""
        return np.minimum(self._sums(counts / self.full), self.held)

    def _sums(self, shares: FloatArray) -> FloatArray:
        total = np.bincount(self.case, shares, len(self.cases))
        return np.where(total >= 1 - ROUNDING, 1.0, total)

    def load(self, shares: FloatArray) -> FloatArray:
        """Load of each level that shares of the cases stand for; shape (levels,)."""
        return np.bincount(self.level, self.weight * shares, self.levels).astype(np.float64)

    def values(self, counts: IntArray) -> FloatArray:
        """Value of each column; what stands as it is costs what it costs now."""
        some = counts > 0
        value = np.where(some, self.fixed + self.unit * counts, 0.0)
        return np.where(some & (counts == self.stands), self.standing, value)

    @cached_property
    def least_value(self) -> FloatArray:
        """The least that a replica of each column adds to the value, if not alone."""
        least = self.unit + self.fixed / np.maximum(self.most, 1)
        stays = self.standing / np.maximum(self.stands, 1)
        return np.where(self.stands > 0, np.minimum(least, stays), least)

    def used(self, counts: IntArray) -> IntArray:
        """Cards of each type that replicas take."""
        cards = self.cards.count * counts[self.cards.owner]
        return np.bincount(self.cards.type, cards, len(self.capacity)).astype(np.int64)

    @cached_property
    def part(self) -> FloatArray:
        """Part of the cards of its types that a replica of each column takes; summed over types."""
        part = self.cards.count / np.maximum(self.capacity, 1)[self.cards.type]
        return np.bincount(self.cards.owner, part, len(self.case)).astype(np.float64)

    def parts_of(self, amounts: FloatArray | IntArray) -> FloatArray:
        """The same of all that each case has, by replicas of each column; shape (cases,)."""
        taken = np.bincount(self.case, amounts * self.part, len(self.cases))
        return taken.astype(np.float64)

    @cached_property
    def scarcest_part(self) -> FloatArray:
        """Largest part of the cards of a type that a whole share of each column takes."""
        part = np.zeros(len(self.case))
        full, capacity = self.full[self.cards.owner], np.maximum(self.capacity, 1)[self.cards.type]
        np.maximum.at(part, self.cards.owner, self.cards.count * full / capacity)
        return part

    @cached_property
    def by_type(self) -> list[tuple[IntArray, IntArray]]:
        """Columns that take cards of each type, and how many a replica takes."""
        by_type = [self.cards.type == card_type for card_type in range(len(self.capacity))]
        return [(self.cards.owner[some], self.cards.count[some]) for some in by_type]

    @cached_property
    def needs(self) -> list[list[tuple[int, int]]]:
        """Type and count of the cards that a replica of each column takes."""
        needs: list[list[tuple[int, int]]] = [[] for _ in self.case]
        entries = self.cards
        for column, card_type, count in zip(
            entries.owner.tolist(), entries.type.tolist(), entries.count.tolist(), strict=True
        ):
            needs[column].append((card_type, count))
        return needs

    def columns_of(self, cases: BoolArray) -> BoolArray:
        """Columns of some cases."""
        of_cases: BoolArray = cases[self.case]
        return of_cases


def _rows(
    candidates: Candidates, capacity: IntArray, running: Running, rows: IntArray, cases: IntArray
) -> Columns:
    """The columns of usable rows of which a replica fits."""
    pairs = candidates.pairs
    room = candidates.fitting(capacity)[rows]
    rows, room = rows[room > 0], room[room > 0]
    replicas, unit = candidates.replicas[rows], candidates.unit_cost[rows]
    stays, moves = _stays(candidates, rows)
    share = penalty_shares(candidates.cases)[pairs.case[rows]]
    unit = unit * np.where(moves, 1.0 + share, 1.0)
    cost = np.array([case.server.current.cost for case in candidates.cases], dtype=np.float64)
    old = cost[pairs.case[rows]]
    now = candidates.running()[rows]
    # A row that stays as it is has the value 0: the candidate table does not tell the rest.
    as_it_is = candidates.stays[rows]
    fixed = np.where(as_it_is, 0.0, candidates.value[rows] + old - unit * replicas)
    return Columns(
        case=np.searchsorted(cases, pairs.case[rows]),
        row=rows,
        lot=np.zeros_like(rows),
        most=np.minimum(replicas, room),
        full=replicas.astype(np.float64),
        unit=unit,
        fixed=fixed,
        runs=np.where(
            running.rows[pairs.case[rows]] == rows, running.replicas[pairs.case[rows]], 0
        ),
        stands=np.where(stays & (now <= replicas), now, 0),
        standing=old,
        cards=candidates.needs.of(rows),
    )


def _stays(candidates: Candidates, rows: IntArray) -> tuple[BoolArray, BoolArray]:
    """Rows on whose accelerator alone a case runs; and rows on which nothing of it runs."""
    catalogue = Catalogue(candidates.system)
    runs = np.zeros((len(candidates.cases), len(catalogue.places)), dtype=np.bool_)
    mixed = np.array([bool(case.server.current.mix) for case in candidates.cases], dtype=np.bool_)
    for row, what in enumerate(candidates.cases):
        current = what.server.current
        on = (catalogue.place(part) for part in current.mix or (current,))
        runs[row, [place for place in on if place >= 0]] = True
    case = candidates.pairs.case[rows]
    nothing = ~runs[case, candidates.pairs.accelerator[rows]]
    alone = ~nothing & ~mixed[case]
    return alone, nothing


def _kept(capacity: IntArray, running: Running, cases: IntArray, params: SolveParams) -> Columns:
    """A column for each lot of what is kept as it is."""
    numbered = [
        (place, number, lot)
        for place, case in enumerate(cases.tolist())
        if case in running.parts
        for number, lot in enumerate(lots_of(running.parts[case], params))
    ]
    places, numbers, lots = zip(*numbered, strict=True) if numbered else ((), (), ())
    cards = _cards(lots)
    most = np.array([lot.most for lot in lots], dtype=np.int64)
    room = most.copy()
    np.minimum.at(room, cards.owner, capacity[cards.type] // cards.count)
    number, nothing = np.array(numbers, dtype=np.int64), np.zeros(len(lots))
    return Columns(
        case=np.array(places, dtype=np.int64),
        row=np.full(len(lots), NO_ROW),
        lot=number,
        most=room,
        full=1.0 / np.array([share_kept(lot.parts) for lot in lots], dtype=np.float64),
        unit=np.array([cost_kept(lot.parts) for lot in lots], dtype=np.float64),
        fixed=nothing,
        runs=np.where(number == 0, most, 0),
        stands=nothing.astype(np.int64),
        standing=nothing,
        cards=cards,
    )


def _cards(lots: Iterable[Lot]) -> Cards:
    """The cards of each lot."""
    needs = enumerate(_needs(lot.parts) for lot in lots)
    entries = [(owner, *need) for owner, each in needs for need in sorted(each.items())]
    return Cards(*np.array(entries, dtype=np.int64).reshape(-1, 3).T)


def _needs(parts: Iterable[KeptReplicas]) -> Mapping[int, int]:
    """Cards by type."""
    needs = Counter[int]()
    for part in parts:
        needs[part.type] += part.cards * part.replicas
    return +needs


def rank_in_group(group: IntArray) -> IntArray:
    """Position of each entry among those of its group, which stand together."""
    first = np.flatnonzero(np.diff(group, prepend=-1))
    return np.arange(len(group)) - np.repeat(first, np.diff(first, append=len(group)))
