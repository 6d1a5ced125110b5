"""The choice of mixes as a mixed integer linear program.

Its columns are the replicas of each item, whether a case is served, whether an item that runs
now is kept, and whether all stays as it is; in this order. Every row is a sum that is at least
a limit.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import highspy
import numpy as np
import pulp

from inferno_optimizer.errors import SolverError
from inferno_optimizer.sizing.queueing import FloatArray, IntArray
from inferno_optimizer.solvers.exact.branch_and_bound import (
    ENGINES,
    Limits,
    Watch,
    branch_and_bound,
    watched,
)
from inferno_optimizer.solvers.heterogeneous.covering import Inequalities
from inferno_optimizer.solvers.heterogeneous.mixes import MixTable
from inferno_optimizer.solvers.sparse import Entries, SparseMatrix

SCALE = 1e3
"""Needs count in thousandths: HiGHS lets a row be short by more than we do."""


@dataclass(frozen=True, slots=True)
class Goal:
    """What to minimize: loads of a level not served, or the value where there is no level.

    `floors` are loads that the first levels keep; of these the first `whole` are served
    entirely.
    """

    level: int | None
    floors: FloatArray
    whole: int


@dataclass(frozen=True, slots=True)
class Relaxed:
    """A best plan with replicas in parts: amounts of items, how far cases are served."""

    counts: FloatArray
    served: FloatArray
    objective: float


@dataclass(frozen=True)
class MixProgram:
    """The program of a table with a goal, sharpened by inequalities."""

    table: MixTable
    capacity: IntArray
    goal: Goal
    inequalities: Inequalities

    def relax(self) -> Relaxed:
        """The best plan with replicas in parts.

        Raises
        ------
        SolverError
            When HiGHS fails.
        """
        solver = self._relaxation()
        solution = solver.getSolution()
        items, cases = len(self._place), len(self.table.case)
        amounts = np.asarray(solution.col_value)
        counts = np.zeros(self.table.rows.shape)
        counts[self._place, self._item] = amounts[:items]
        return Relaxed(
            counts=counts,
            served=amounts[items : items + cases],
            objective=float(solver.getInfo().objective_function_value),
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
        solver = self._relaxation()
        before, saved = solver.getInfo().objective_function_value, np.zeros(len(self.capacity))
        for card_type, cards in enumerate(self.capacity.tolist()):
            solver.changeRowBounds(card_type, float(-cards - 1), np.inf)
            solver.setOptionValue("time_limit", solver.getRunTime() + max(seconds_left(), 0.0))
            solver.run()
            if solver.getModelStatus() != highspy.HighsModelStatus.kOptimal:
                return None
            saved[card_type] = max(0.0, before - solver.getInfo().objective_function_value)
            solver.changeRowBounds(card_type, float(-cards), np.inf)
        return saved

    def _relaxation(self) -> highspy.Highs:
        """The relaxation, solved."""
        solver = highspy.Highs()
        solver.setOptionValue("output_flag", False)
        solver.setOptionValue("threads", 1)
        solver.passModel(self._model())
        solver.run()
        if solver.getModelStatus() != highspy.HighsModelStatus.kOptimal:
            raise SolverError(f"HiGHS finds a relaxation {solver.getModelStatus().name}")
        return solver

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
        self, known: IntArray, limits: Limits, watch: Watch | None = None
    ) -> tuple[IntArray | None, float]:
        """Counts of a best plan, None if there is no time for any, and a proven bound.

        The search begins with a known plan, and can be watched.

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
            mine = slice(matrix.starts[row], matrix.starts[row + 1])
            terms = zip(matrix.columns[mine].tolist(), matrix.values[mine].tolist(), strict=True)
            problem += pulp.LpAffineExpression([(columns[i], a) for i, a in terms]) >= limit
        start = dict(zip(columns, self._columns_of(known).tolist(), strict=True))
        engines = ENGINES if watch is None else watched(watch, columns)
        found = branch_and_bound(problem, start, limits, engines)
        if not found.solution:
            return None, found.bound
        return self.counts(np.array([column.varValue or 0.0 for column in columns])), found.bound

    def counts(self, values: FloatArray) -> IntArray:
        """Replicas of each item, of values of all columns."""
        counts = np.zeros(self.table.rows.shape, dtype=np.int64)
        counts[self._place, self._item] = np.rint(values[: len(self._place)])
        return counts

    @cached_property
    def objective(self) -> FloatArray:
        """What each column costs."""
        table, level = self.table, self.goal.level
        replicas, served = table.unit[self._place, self._item], table.base
        if level is not None:
            replicas = np.zeros(len(replicas))
            served = np.where(table.level == level, -table.weight, 0.0)
            return np.concatenate((replicas, served, np.zeros(self._extra)))
        kept = -table.stop[self._place, self._item][self._kept]
        stay = table.stay[self._place, self._item][self._stay]
        return np.concatenate((replicas, served, kept, stay))

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

    @property
    def _extra(self) -> int:
        return len(self._kept) + len(self._stay)

    @property
    def _bounds(self) -> tuple[FloatArray, FloatArray]:
        """Least and most of each column."""
        upper = np.ones(len(self._place) + len(self.table.case) + self._extra)
        upper[: len(self._place)] = self.table.most[self._items]
        lower = np.zeros(len(upper))
        first = len(self._place)
        lower[first : first + len(self.table.case)] = self.table.level < self.goal.whole
        return lower, upper

    def _columns_of(self, counts: IntArray) -> FloatArray:
        """Values of all columns of a plan."""
        replicas = counts[self._items]
        stays = replicas[self._stay] == self.table.alone[self._items][self._stay]
        served = self.table.covered(counts)
        parts = (replicas, served, replicas[self._kept] > 0, stays)
        return np.concatenate([part.astype(np.float64) for part in parts])

    @cached_property
    def _rows(self) -> tuple[SparseMatrix, FloatArray]:
        """The rows and their limits; those of the capacity first."""
        table, items = self.table, np.arange(len(self._place))
        served = len(items) + self._place
        cases = np.arange(len(table.case))
        rows = _Rows(len(items) + len(cases) + self._extra)
        cards = table.cards[self._items]
        rows.add(-self.capacity, (table.type[self._items], items, -cards))
        share = SCALE * table.effective_share[self._items]
        need, floor = -SCALE * table.need, -np.maximum(table.floor, 1)
        zero = np.zeros(len(cases))
        rows.add(zero, (self._place, items, share), (cases, len(items) + cases, need))
        rows.add(zero, (self._place, items, 1.0), (cases, len(items) + cases, floor))
        kept, which = self._kept, np.arange(len(self._kept))
        mine = len(items) + len(cases) + which
        rows.add(np.zeros(len(kept)), (which, kept, 1.0), (which, mine, -1.0))
        rows.add(np.zeros(len(kept)), (which, served[kept], 1.0), (which, mine, -1.0))
        self._add_stay(rows)
        self._add_floors(rows)
        self._add_inequalities(rows)
        return rows.matrix, rows.least

    def _add_stay(self, rows: "_Rows") -> None:
        """An item stays as it is where there are as many replicas of it as alone."""
        stay, which = self._stay, np.arange(len(self._stay))
        alone = self.table.alone[self._items][stay]
        mine = rows.columns - len(stay) + which
        rows.add(np.zeros(len(stay)), (which, stay, 1.0), (which, mine, -alone))
        rows.add(1 - alone, (which, stay, -1.0), (which, mine, 1.0))

    def _add_floors(self, rows: "_Rows") -> None:
        """The first levels keep their loads."""
        table, floors = self.table, self.goal.floors
        case = np.flatnonzero((table.level >= self.goal.whole) & (table.level < len(floors)))
        least = np.where(np.arange(len(floors)) < self.goal.whole, 0.0, floors)
        rows.add(least, (table.level[case], len(self._place) + case, table.weight[case]))

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
