"""The choice of mixes as a mixed integer linear program.

Its columns are the replicas of each item, whether a case is served, whether an item that runs
now is kept, whether all stays as it is, and which of the mixes that are listed a case has; in
this order. Every row is a sum that is at least a limit.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import highspy
import numpy as np
import pulp

from inferno_optimizer.errors import SolverError
from inferno_optimizer.sizing.queueing import FloatArray, IntArray
from inferno_optimizer.solvers.branch_and_bound import (
    ENGINES,
    SearchLimits,
    Start,
    Watch,
    branch_and_bound,
    watched,
)
from inferno_optimizer.solvers.heterogeneous.cheapest import Mixes
from inferno_optimizer.solvers.heterogeneous.column_generation import MixPrices
from inferno_optimizer.solvers.heterogeneous.covering import CoverInequalities
from inferno_optimizer.solvers.heterogeneous.mixes import MixTable
from inferno_optimizer.solvers.heterogeneous.problem import MixProblem
from inferno_optimizer.solvers.sparse import Entries, SparseMatrix

HALF = 0.5
"""A column that is 0 or 1 and larger than this is 1."""

ROUNDED = 1e-9
"""By how much, relative, a valid inequality is weakened against rounding."""

SCALE = 1e3
"""Needs count in thousandths: HiGHS lets a row be short by more than we do."""


@dataclass(frozen=True, slots=True)
class Relaxed:
    """A best plan with replicas in parts: amounts of items, how far cases are served.

    `cards` and `loads` are what the plan would pay for one more card of each type, and for one
    less of the load that each level keeps.
    """

    counts: FloatArray
    served: FloatArray
    objective: float
    cards: FloatArray
    loads: FloatArray


@dataclass(frozen=True)
class MixProgram:
    """The program of a problem.

    Attributes
    ----------
    problem
        What is minimized, and subject to what.
    inequalities
        Valid inequalities that sharpen it.
    prices
        Prices of cards, if there are any: that mixes cost no less than the cheapest one of their
        case is a valid inequality, too.
    listed
        Mixes that cases may have, which then have no items in the table of the problem.
    """

    problem: MixProblem
    inequalities: CoverInequalities
    prices: MixPrices | None = None
    listed: Mixes | None = None

    @property
    def table(self) -> MixTable:
        """The cases."""
        return self.problem.table

    def relax(self, seconds: float = np.inf) -> Relaxed | None:
        """The best plan with replicas in parts; None where the time ends before.

        Raises
        ------
        SolverError
            When HiGHS fails.
        """
        solver = self._relaxation(seconds)
        if solver is None:
            return None
        solution = solver.getSolution()
        dual = np.asarray(solution.row_dual)
        types, floors = len(self.problem.capacity), len(self.problem.goal.floors)
        items, cases = len(self._place), len(self.table.case)
        amounts = np.asarray(solution.col_value)
        counts = np.zeros(self.table.rows.shape)
        counts[self._place, self._item] = amounts[:items]
        return Relaxed(
            counts=counts,
            served=amounts[items : items + cases],
            objective=float(solver.getInfo().objective_function_value),
            cards=np.maximum(dual[:types], 0.0),
            loads=np.maximum(dual[types : types + floors], 0.0),
        )

    def savings(self, seconds_left: Callable[[], float]) -> FloatArray | None:
        """How much lower the relaxed objective gets with one more card of each type.

        Shape (types,); None where the time ends before.

        Raises
        ------
        SolverError
            When HiGHS fails.
        """
        if seconds_left() <= 0:
            return None
        solver = self._relaxation(seconds_left())
        if solver is None:
            return None
        before, saved = (
            solver.getInfo().objective_function_value,
            np.zeros(len(self.problem.capacity)),
        )
        for card_type, cards in enumerate(self.problem.capacity.tolist()):
            solver.changeRowBounds(card_type, float(-cards - 1), np.inf)
            solver.setOptionValue("time_limit", solver.getRunTime() + max(seconds_left(), 0.0))
            solver.run()
            if solver.getModelStatus() != highspy.HighsModelStatus.kOptimal:
                return None
            saved[card_type] = max(0.0, before - solver.getInfo().objective_function_value)
            solver.changeRowBounds(card_type, float(-cards), np.inf)
        return saved

    def _relaxation(self, seconds: float) -> highspy.Highs | None:
        """The relaxation, solved; None where the time ends before."""
        solver = highspy.Highs()
        solver.setOptionValue("output_flag", False)
        solver.setOptionValue("threads", 1)
        solver.setOptionValue("time_limit", seconds)
        solver.passModel(self._model())
        solver.run()
        if solver.getModelStatus() == highspy.HighsModelStatus.kTimeLimit:
            return None
        if solver.getModelStatus() != highspy.HighsModelStatus.kOptimal:
            raise SolverError(f"HiGHS finds a relaxation {solver.getModelStatus().name}")
        return solver

    def model(self) -> highspy.HighsLp:
        """The program in arrays."""
        model = self._model()
        model.integrality_ = [highspy.HighsVarType.kInteger] * model.num_col_
        return model

    def _model(self) -> highspy.HighsLp:
        """The relaxation in arrays."""
        (matrix, least), model = self._rows, highspy.HighsLp()
        matrix.put_into(model)
        model.col_cost_ = self.objective
        model.col_lower_, model.col_upper_ = self._bounds
        model.row_lower_ = least
        model.row_upper_ = np.full(len(least), np.inf)
        return model

    def solve(
        self, known: IntArray | None, limits: SearchLimits, watch: Watch | None = None
    ) -> tuple[IntArray | None, float]:
        """Counts of a best plan, None if there is no time for any, and a proven bound.

        The search begins with a known plan, if there is one, and can be watched.

        Raises
        ------
        SolverError
            When no solver works.
        """
        problem = pulp.LpProblem("mixes", pulp.LpMinimize)
        lower, upper = self._bounds
        columns = [
            problem.add_variable(f"x{i}", low, high, "Integer")
            for i, (low, high) in enumerate(zip(lower.tolist(), upper.tolist(), strict=True))
        ]
        costly = np.flatnonzero(self.objective)
        terms = zip(costly.tolist(), self.objective[costly].tolist(), strict=True)
        problem.setObjective(pulp.LpAffineExpression([(columns[i], cost) for i, cost in terms]))
        matrix, least = self._rows
        for row, limit in enumerate(least.tolist()):
            entries = slice(matrix.starts[row], matrix.starts[row + 1])
            terms = zip(
                matrix.columns[entries].tolist(), matrix.values[entries].tolist(), strict=True
            )
            problem += pulp.LpAffineExpression([(columns[i], a) for i, a in terms]) >= limit
        start = {} if known is None else self._start(columns, known)
        engines = ENGINES if watch is None else watched(watch, columns)
        found = branch_and_bound(problem, start, limits, engines)
        if not found.solution:
            return None, found.bound
        return self.counts(np.array([column.varValue or 0.0 for column in columns])), found.bound

    def counts(self, values: FloatArray) -> IntArray:
        """Replicas of each item, of values of all columns."""
        counts = np.zeros(self.table.rows.shape, dtype=np.int64)
        counts[self._place, self._item] = np.rint(values[: len(self._place)])
        mixes = self._listed.take(values[len(values) - len(self._listed.place) :] > HALF)
        counts[mixes.place] = mixes.counts
        return counts

    @cached_property
    def objective(self) -> FloatArray:
        """What each column costs."""
        table, level = self.table, self.problem.goal.level
        replicas, served = table.unit[self._place, self._item], table.base
        if level is not None:
            replicas = np.zeros(len(replicas))
            served = np.where(table.level == level, -table.weight, 0.0)
            return np.concatenate((replicas, served, np.zeros(sum(map(len, self._others)))))
        kept = -table.stop[self._items][self._kept]
        stay = table.stay[self._items][self._stay]
        return np.concatenate((replicas, served, kept, stay, self._worth(table)))

    def _worth(self, table: MixTable) -> FloatArray:
        """What the mixes that are listed add to the value of nothing; shape (mixes,)."""
        place, counts = self._listed.place, self._listed.counts
        worth: FloatArray = table.take(place).value(counts) - table.base[place]
        return worth

    @cached_property
    def _items(self) -> tuple[IntArray, IntArray]:
        place, item = np.nonzero(self.table.most > 0)
        return place, item

    @property
    def _place(self) -> IntArray:
        """Place of the case of each item."""
        return self._items[0]

    @property
    def _item(self) -> IntArray:
        """Position of each item in its case."""
        return self._items[1]

    @cached_property
    def _kept(self) -> IntArray:
        """Which items run now."""
        return np.flatnonzero(self.table.running[self._items])

    @cached_property
    def _stay(self) -> IntArray:
        """Which items may stay as they are."""
        fits = self.table.most[self._items] == self.table.alone[self._items]
        return np.flatnonzero((self.table.stay[self._items] != 0) & fits)

    @cached_property
    def _listed(self) -> Mixes:
        return self.listed or Mixes.none(self.table.rows.shape[1])

    @property
    def _others(self) -> tuple[IntArray, IntArray, IntArray]:
        """What the columns behind those that tell whether cases are served are of."""
        return self._kept, self._stay, self._listed.place

    @property
    def _bounds(self) -> tuple[FloatArray, FloatArray]:
        """Least and most of each column."""
        upper = np.ones(sum(map(len, self._columns)))
        upper[: len(self._place)] = self.table.most[self._items]
        lower = np.zeros(len(upper))
        first = len(self._place)
        lower[first : first + len(self.table.case)] = self.table.level < self.problem.goal.whole
        return lower, upper

    def _start(self, columns: list[pulp.LpVariable], counts: IntArray) -> Start:
        """Values of all columns of a plan, for PuLP."""
        return dict(zip(columns, self.values(counts).tolist(), strict=True))

    def values(self, counts: IntArray) -> FloatArray:
        """Values of all columns, of replicas of each item."""
        replicas = counts[self._items]
        stays = replicas[self._stay] == self.table.alone[self._items][self._stay]
        served = self.table.covered(counts)
        mixes = self._listed
        has = np.all(counts[mixes.place] == mixes.counts, axis=1)
        parts = (replicas, served, replicas[self._kept] > 0, stays, has)
        return np.concatenate([part.astype(np.float64) for part in parts])

    @cached_property
    def _columns(self) -> tuple[IntArray, ...]:
        """Which columns are replicas, served, kept, stay, and listed."""
        sizes = np.array([len(self._place), len(self.table.case), *map(len, self._others)])
        return tuple(np.split(np.arange(sizes.sum()), np.cumsum(sizes)[:-1]))

    @cached_property
    def _rows(self) -> tuple[SparseMatrix, FloatArray]:
        """The rows and their limits: of the capacity, of the floors, and then of the cases."""
        rows = _Rows(sum(map(len, self._columns)))
        self._add_capacity(rows)
        self._add_floors(rows)
        self._add_cover(rows)
        self._add_kept(rows)
        self._add_stay(rows)
        self._add_inequalities(rows)
        if self.prices is not None:
            self._add_prices(rows, self.prices)
        return rows.matrix, rows.least

    def _add_capacity(self, rows: "_Rows") -> None:
        """There are so many cards of each type."""
        table, mixes, capacity = self.table, self._listed, self.problem.capacity
        items, _, _, _, listed = self._columns
        used = table.take(mixes.place).used_by_each(mixes.counts, len(capacity))
        mix, card_type = np.nonzero(used)
        rows.add(
            -capacity,
            (table.type[self._items], items, -table.cards[self._items]),
            (card_type, listed[mix], -used[mix, card_type]),
        )

    def _add_floors(self, rows: "_Rows") -> None:
        """The first levels keep their loads."""
        table, goal = self.table, self.problem.goal
        floors, served = goal.floors, self._columns[1]
        case = np.flatnonzero((table.level >= goal.whole) & (table.level < len(floors)))
        least = np.where(np.arange(len(floors)) < goal.whole, 0.0, floors)
        rows.add(least, (table.level[case], served[case], table.weight[case]))

    def _add_cover(self, rows: "_Rows") -> None:
        """A case that is served has the replicas that it needs, or one of the mixes."""
        table, place = self.table, self._listed.place
        items, served, _, _, listed = self._columns
        cases, zero = np.arange(len(served)), np.zeros(len(served))
        share = SCALE * table.effective_share[self._items]
        need, floor = SCALE * table.need, np.maximum(table.floor, 1)
        for each, all_of_it in ((share, need), (np.ones(len(items)), floor)):
            rows.add(
                zero,
                (self._place, items, each),
                (place, listed, all_of_it[place]),
                (cases, served, -all_of_it),
            )
        rows.add(zero, (place, listed, -1.0), (cases, served, 1.0))

    def _add_kept(self, rows: "_Rows") -> None:
        """An item is kept where there are replicas of it, and the case is served."""
        which, zero = np.arange(len(self._kept)), np.zeros(len(self._kept))
        items, served, kept, _, _ = self._columns
        rows.add(zero, (which, items[self._kept], 1.0), (which, kept, -1.0))
        rows.add(zero, (which, served[self._place[self._kept]], 1.0), (which, kept, -1.0))

    def _add_stay(self, rows: "_Rows") -> None:
        """An item stays as it is where there are as many replicas of it as alone."""
        which, alone = np.arange(len(self._stay)), self.table.alone[self._items][self._stay]
        items, _, _, stay, _ = self._columns
        rows.add(np.zeros(len(stay)), (which, items[self._stay], 1.0), (which, stay, -alone))
        rows.add(1 - alone, (which, items[self._stay], -1.0), (which, stay, 1.0))

    def _add_prices(self, rows: "_Rows", prices: MixPrices) -> None:
        """What items cost, their cards paid for, is no less than the cheapest mix costs."""
        table = self.problem.priced(prices.cards)
        items, served, kept, stay, _ = self._columns
        least = np.where(np.isfinite(prices.least), prices.least, table.base) - table.base
        least -= ROUNDED * (1.0 + np.abs(least))
        of = self._place
        rows.add(
            np.zeros(len(served)),
            (of, items, table.unit[self._items]),
            (np.arange(len(served)), served, -least),
            (of[self._kept], kept, -table.stop[self._items][self._kept]),
            (of[self._stay], stay, table.stay[self._items][self._stay]),
        )

    def _add_inequalities(self, rows: "_Rows") -> None:
        known = self.inequalities
        position = np.zeros(self.table.rows.shape, dtype=np.int64)
        position[self._items] = np.arange(len(self._place))
        which, item = np.nonzero(known.weight)
        number = np.arange(len(known.place))
        rows.add(
            np.zeros(len(number)),
            (which, position[known.place[which], item], known.weight[which, item]),
            (number, len(self._place) + known.place, -known.least),
        )


class _Rows:
    """Rows of a matrix, block by block."""

    def __init__(self, columns: int) -> None:
        self.columns = columns
        self._entries: list[Entries] = []
        self._least: list[FloatArray] = []

    def add(
        self,
        least: FloatArray | IntArray,
        *entries: tuple[IntArray, IntArray, FloatArray | IntArray | float],
    ) -> None:
        """Add rows with these limits; entries are rows of the block, columns, values."""
        first = sum(map(len, self._least))
        for row, column, value in entries:
            values = np.broadcast_to(value, row.shape).astype(np.float64)
            self._entries.append((first + row, column, values))
        self._least.append(least.astype(np.float64))

    @property
    def matrix(self) -> SparseMatrix:
        """All rows."""
        return SparseMatrix.of((len(self.least), self.columns), self._entries)

    @property
    def least(self) -> FloatArray:
        """Their limits."""
        return np.concatenate(self._least)
