"""The linear relaxation of a goal: columns with amounts from 0 to 1, by column generation.

HiGHS gets the columns of the last goal and of the known plan. Those of all others that would
improve the solution, at the multipliers that it finds, follow, until there are none. The
multipliers prove a bound at any time: that of a Lagrangian relaxation.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

import highspy
import numpy as np

from inferno_optimizer.sizing.demands import ROUNDING
from inferno_optimizer.sizing.queueing import FloatArray, IntArray
from inferno_optimizer.solvers.exact.program import BoolArray
from inferno_optimizer.solvers.partial.goals import (
    Floor,
    Goal,
    GoalKind,
    least_of,
    least_shares,
    levels_of,
    with_sum,
)
from inferno_optimizer.solvers.partial.problem import ReplicaProblem
from inferno_optimizer.solvers.sparse import Entries, SparseMatrix

IMPROVES = 1e-7
"""Reduced cost, relative to the largest of the objective, below which a column improves."""

PER_CASE = 3
"""Columns of a case that are added at a time: the ones that improve the most."""

MISSING = 1e6
"""What a share that is missing costs, where the largest part of the objective is 1."""

ROUNDS = 60
"""How often columns are added at most; the bound holds whenever it ends."""


@dataclass(frozen=True, slots=True)
class Vertex:
    """A best solution of the relaxation.

    Attributes
    ----------
    amounts
        Share of its case that each column serves, shape (columns,).
    bound
        No plan that keeps the floors has more of the goal; a value with its sign changed.
    lost
        What a whole share of each column loses of the goal, at the multipliers; (columns,).
    share
        What a whole share of each case is worth, shape (cases,).
    prices
        What a card of each type is worth, shape (types,).
    floor_prices
        What a unit of load of each floor costs of the goal, where the floor is a sum.
    missing
        What least shares and floors cannot have: no plan keeps them unless this is 0.
    """

    amounts: FloatArray
    bound: float
    lost: FloatArray
    share: FloatArray
    prices: FloatArray
    floor_prices: Mapping[Goal, float]
    missing: float


BASIC = 1
"""What HiGHS calls a row or a column of the basis."""

_KINDS = [*GoalKind]


@dataclass(frozen=True, slots=True)
class Basis:
    """Where a relaxation ended, as HiGHS tells it of all rows and columns that there could be."""

    rows: IntArray
    columns: IntArray
    cases: int
    count: int

    @classmethod
    def empty(cls, problem: ReplicaProblem) -> "Basis":
        """All columns at 0."""
        cases, floors = len(problem.cases), len(_KINDS) * problem.levels
        rows = np.full(3 * cases + len(problem.capacity) + floors, BASIC)
        columns = np.zeros(2 * cases + len(problem.case) + floors, dtype=np.int64)
        return cls(rows, columns, cases, len(problem.case))

    @property
    def moved(self) -> BoolArray:
        """Columns that are not at 0, shape (columns,)."""
        first = 2 * self.cases
        moved: BoolArray = self.columns[first : first + self.count] != 0
        return moved


@dataclass(frozen=True, slots=True)
class Start:
    """Columns to begin with, shape (columns,), and a basis."""

    known: BoolArray
    basis: Basis


@dataclass(frozen=True, slots=True)
class _Rows:
    """Where the constraints are: one for each case, least shares, what is held, types, floors."""

    cases: IntArray
    least: IntArray
    holding: IntArray
    first_held: int
    first_type: int
    first_floor: int
    count: int


class Relaxation:
    """The relaxation of a goal that keeps floors.

    Parameters
    ----------
    problem, goal, floors
        What is maximized, and what is kept.
    """

    def __init__(
        self,
        problem: ReplicaProblem,
        goal: Goal,
        floors: tuple[Floor, ...],
        start: Start,
    ) -> None:
        self._problem, self._goal, self._floors = problem, goal, floors
        self._held = with_sum(floors, GoalKind.HELD)
        self._served = with_sum(floors, GoalKind.SERVED) + with_sum(floors, GoalKind.ENTIRE)
        matter = levels_of(goal, problem)
        for floor in floors:
            matter |= problem.level == floor.goal.level
        self._sums = (*self._held, *self._served)
        self._matter = matter
        self._open = problem.columns_of(matter) & self._allowed()
        self._least = least_of(problem, floors)
        self._rows = self._place_rows()
        self._limit = problem.most / problem.full
        self._scale = self._scaled_by()
        self._cost, self._holding_cost = self._objective()
        self._matrix = self._all_columns()
        self._active = (start.known | self._first_of_each_case()) & self._open
        self._order = np.flatnonzero(self._active)
        self._forbidden = np.zeros_like(self._open)
        self._lower, self._upper = np.zeros_like(self._limit), self._limit
        self._before = len(self._rows.holding) + len(self._rows.least) + len(self._sums)
        self._solver = self._new_solver()
        self._begin_at(start.basis)

    def solve(
        self,
        seconds_left: Callable[[], float],
        forbidden: BoolArray | None = None,
        fixed: Mapping[int, float] = MappingProxyType({}),
        least: float = -np.inf,
    ) -> Vertex | None:
        """Solve it; None where there is no time or no solution.

        Parameters
        ----------
        seconds_left
            Time that remains.
        forbidden
            Columns that nobody has, shape (columns,).
        fixed
            Amounts of some columns.
        least
            A solution with less of the goal is none; but not each such solution is recognized.
        """
        self._solver.setOptionValue("objective_bound", -least / self._scale)
        self._bound(np.zeros_like(self._open) if forbidden is None else forbidden, fixed)
        best, vertex = np.inf, None
        for _ in range(ROUNDS):
            if seconds_left() <= 0 or not self._run(seconds_left()):
                break
            solution = self._solver.getSolution()
            duals = np.asarray(solution.row_dual)
            reduced = self._cost - self._transposed_times(duals)
            outside = self._open & ~self._active & ~self._forbidden & (reduced < -IMPROVES)
            objective = self._solver.getInfo().objective_function_value
            best = min(best, -(objective + self._still_possible(reduced, outside)))
            vertex = self._vertex(solution, best, reduced, duals)
            new = self._most_promising(reduced, outside)
            if not len(new):
                break
            self._activate(new)
        return vertex

    def _run(self, seconds: float) -> bool:
        """Run the solver; return whether it finds the best solution."""
        self._solver.setOptionValue("time_limit", self._solver.getRunTime() + max(seconds, 0.0))
        self._solver.run()
        optimal: bool = self._solver.getModelStatus() == highspy.HighsModelStatus.kOptimal
        return optimal

    def _bound(self, forbidden: BoolArray, fixed: Mapping[int, float]) -> None:
        """Give each column its least and its largest amount."""
        lower, upper = np.zeros_like(self._limit), np.where(forbidden, 0.0, self._limit)
        columns = np.array([*fixed], dtype=np.int64)
        lower[columns] = upper[columns] = [*fixed.values()]
        differs = (lower != self._lower) | (upper != self._upper)
        mine = np.flatnonzero(differs[self._order])
        places, columns = (self._before + mine).astype(np.int32), self._order[mine]
        self._solver.changeColsBounds(len(mine), places, lower[columns], upper[columns])
        self._forbidden, self._lower, self._upper = forbidden, lower, upper

    def _activate(self, columns: IntArray) -> None:
        """Add columns to the program."""
        _add(self._solver, self._by_column(columns), self._cost[columns], self._upper[columns])
        self._active[columns] = True
        self._order = np.append(self._order, columns)

    def keep(self, floors: tuple[Floor, ...]) -> None:
        """Change the loads of the floors, which are the same else."""
        kinds = (GoalKind.HELD, GoalKind.SERVED, GoalKind.ENTIRE)
        sums = [floor for kind in kinds for floor in with_sum(floors, kind)]
        for place, floor in enumerate(sums):
            least = floor.load / _unit(self._problem, floor)
            self._solver.changeRowBounds(self._rows.first_floor + place, least, np.inf)

    def basis(self) -> Basis:
        """Where the solver stands."""
        known = self._solver.getBasis()
        basis = Basis.empty(self._problem)
        basis.rows[self._row_keys()] = [int(status) for status in known.row_status]
        basis.columns[self._column_keys()] = [int(status) for status in known.col_status]
        return basis

    def _begin_at(self, basis: Basis) -> None:
        """Begin where another relaxation ended, if that is possible."""
        rows, columns = basis.rows[self._row_keys()], basis.columns[self._column_keys()]
        if np.count_nonzero(rows == BASIC) + np.count_nonzero(columns == BASIC) != len(rows):
            return
        start = highspy.HighsBasis()
        start.valid = True
        start.row_status = [highspy.HighsBasisStatus(status) for status in rows.tolist()]
        start.col_status = [highspy.HighsBasisStatus(status) for status in columns.tolist()]
        self._solver.setBasis(start)

    def _row_keys(self) -> IntArray:
        """Places of the rows in a basis."""
        problem, rows = self._problem, self._rows
        cases, types = len(problem.cases), len(problem.capacity)
        first = 3 * cases + types
        parts = (rows.cases, cases + rows.least, 2 * cases + rows.holding)
        return np.concatenate((*parts, 3 * cases + np.arange(types), first + self._floor_keys()))

    def _column_keys(self) -> IntArray:
        """Places of the columns in a basis."""
        cases, rows = len(self._problem.cases), self._rows
        first = 2 * cases + len(self._problem.case)
        floors = first + self._floor_keys()
        return np.concatenate((rows.holding, cases + rows.least, floors, 2 * cases + self._order))

    def _floor_keys(self) -> IntArray:
        levels = self._problem.levels
        places = [_KINDS.index(floor.goal.kind) * levels + floor.goal.level for floor in self._sums]
        return np.array(places, dtype=np.int64)

    def _first_of_each_case(self) -> BoolArray:
        """The column of each case that takes the smallest part of the cards that there are."""
        problem = self._problem
        capacity = np.maximum(problem.capacity, 1)[problem.cards.type]
        part = np.zeros(len(problem.case))
        full = problem.full[problem.cards.owner]
        np.maximum.at(part, problem.cards.owner, problem.cards.count * full / capacity)
        columns = np.flatnonzero(self._open)
        columns = columns[np.lexsort((part[columns], problem.case[columns]))]
        first = np.zeros(len(problem.case), dtype=np.bool_)
        first[columns[np.flatnonzero(np.diff(problem.case[columns], prepend=-1))]] = True
        return first

    def _still_possible(self, reduced: FloatArray, outside: BoolArray) -> float:
        """What columns that are not in the program could still improve, at most one a case."""
        columns = np.flatnonzero(outside)
        least = np.zeros(len(self._problem.cases))
        np.minimum.at(least, self._problem.case[columns], reduced[columns])
        return float(least.sum())

    def _most_promising(self, reduced: FloatArray, outside: BoolArray) -> IntArray:
        """The columns that improve the most, a few of each case."""
        columns = np.flatnonzero(outside)
        case = self._problem.case[columns]
        order = np.lexsort((reduced[columns], case))
        columns, case = columns[order], case[order]
        first = np.flatnonzero(np.diff(case, prepend=-1))
        rank = np.arange(len(case)) - np.repeat(first, np.diff(first, append=len(case)))
        return columns[rank < PER_CASE]

    def _vertex(
        self,
        solution: highspy.HighsSolution,
        bound: float,
        reduced: FloatArray,
        duals: FloatArray,
    ) -> Vertex:
        problem, scale = self._problem, self._scale
        amounts = np.zeros(len(problem.case))
        values = np.asarray(solution.col_value)
        short, first = len(self._rows.holding), self._before
        amounts[self._order] = values[first:]
        share = np.zeros(len(problem.cases))
        share[self._rows.cases] = -duals[: len(self._rows.cases)] * scale
        types = duals[self._rows.first_type : self._rows.first_floor]
        lost = np.where(self._open, reduced, np.inf)
        missing = float(values[short:first].sum())
        floors = duals[self._rows.first_floor :].tolist()
        floor_prices = {
            floor.goal: price * scale / _unit(problem, floor)
            for floor, price in zip(self._sums, floors, strict=True)
        }
        return Vertex(
            amounts, bound * scale, lost * scale, share, -types * scale, floor_prices, missing
        )

    def _allowed(self) -> BoolArray:
        """Columns of which a replica fits; what is kept as it is not where all is served."""
        problem = self._problem
        least = np.maximum(
            least_shares(problem, self._floors, GoalKind.SERVED),
            least_shares(problem, self._floors, GoalKind.ENTIRE),
        )
        allowed: BoolArray = (problem.most > 0) & (problem.serves | (least[problem.case] == 0))
        return allowed

    def _place_rows(self) -> _Rows:
        problem, goal = self._problem, self._goal
        cases = np.flatnonzero(self._matter)
        levels = [floor.goal.level for floor in self._held]
        if goal.kind is GoalKind.HELD:
            levels.append(goal.level)
        holding = np.flatnonzero(np.isin(problem.level, levels) & (problem.held > 0))
        least = np.flatnonzero(self._matter & (self._least > 0))
        first_held = len(cases) + len(least)
        first_type = first_held + len(holding)
        first_floor = first_type + len(problem.capacity)
        count = first_floor + len(self._held) + len(self._served)
        return _Rows(cases, least, holding, first_held, first_type, first_floor, count)

    def _scaled_by(self) -> float:
        """What brings the largest part of the objective to about 1."""
        problem = self._problem
        if self._goal.kind is GoalKind.VALUE:
            costs = np.abs(problem.least_value * problem.full)[self._open]
        else:
            costs = problem.weight[problem.level == self._goal.level]
        return float(costs.max(initial=0.0)) or 1.0

    def _objective(self) -> tuple[FloatArray, FloatArray]:
        """What is minimized: of the columns, and of what is held."""
        problem, goal, holding = self._problem, self._goal, self._rows.holding
        nothing = np.zeros(len(problem.case))
        if goal.kind is GoalKind.VALUE:
            return problem.least_value * problem.full / self._scale, np.zeros(len(holding))
        if goal.kind is GoalKind.HELD:
            mine = problem.level[holding] == goal.level
            return nothing, np.where(mine, -problem.weight[holding] / self._scale, 0.0)
        mine = problem.serves & (problem.level[problem.case] == goal.level)
        weight = problem.weight[problem.case] / self._scale
        return np.where(mine, -weight, 0.0), np.zeros(len(holding))

    def _all_columns(self) -> SparseMatrix:
        """The constraints as rows of a matrix with all columns."""
        problem, rows = self._problem, self._rows
        place = np.full(len(problem.cases), -1)
        place[rows.cases] = np.arange(len(rows.cases))
        held = np.full(len(problem.cases), -1)
        held[rows.holding] = rows.first_held + np.arange(len(rows.holding))
        must = np.full(len(problem.cases), -1)
        must[rows.least] = len(rows.cases) + np.arange(len(rows.least))
        columns = np.flatnonzero(self._open)
        holds = columns[held[problem.case[columns]] >= 0]
        bound = columns[must[problem.case[columns]] >= 0]
        mine = self._open[problem.cards.owner]
        # Of one column a case has at most its limit. A mixture of columns, each below its own
        # limit, is therefore no plan beyond the sum of amounts / limits = 1, the convex hull.
        entries: list[Entries] = [
            (place[problem.case[columns]], columns, 1.0 / self._limit[columns]),
            (must[problem.case[bound]], bound, self._towards_least(bound)),
            (held[problem.case[holds]], holds, np.ones(len(holds))),
            (
                rows.first_type + problem.cards.type[mine],
                problem.cards.owner[mine],
                (problem.cards.count * problem.full[problem.cards.owner])[mine],
            ),
        ]
        for position, floor in enumerate(self._served):
            of_level = problem.level[problem.case] == floor.goal.level
            serving = np.flatnonzero(self._open & problem.serves & of_level)
            row = rows.first_floor + len(self._held) + position
            weight = problem.weight[problem.case[serving]] / _unit(problem, floor)
            entries.append((np.full(len(serving), row), serving, weight))
        return SparseMatrix.of((rows.count, len(problem.case)), entries)

    def _towards_least(self, columns: IntArray) -> FloatArray:
        """What an amount of a column counts where its case must have a share.

        Whole replicas of one column that suffice are often more than this share, so that a part of
        them counts less.
        """
        problem = self._problem
        least, full = self._least[problem.case[columns]], problem.full[columns]
        whole = np.ceil(least * full * (1 - ROUNDING)) / full
        counts: FloatArray = np.minimum(least / whole, 1.0)
        return counts

    def _transposed_times(self, duals: FloatArray) -> FloatArray:
        return self._matrix.combined(duals)

    def _holding_columns(self) -> SparseMatrix:
        """One row for each amount that is held."""
        problem, rows = self._problem, self._rows
        count = len(rows.holding)
        entries: list[Entries] = [
            (np.arange(count), rows.first_held + np.arange(count), np.full(count, -1.0))
        ]
        for position, floor in enumerate(self._held):
            mine = np.flatnonzero(problem.level[rows.holding] == floor.goal.level)
            weight = problem.weight[rows.holding[mine]] / _unit(problem, floor)
            entries.append((mine, np.full(len(mine), rows.first_floor + position), weight))
        return SparseMatrix.of((count, rows.count), entries)

    def _new_solver(self) -> highspy.Highs:
        """HiGHS with the constraints, what is held, and the active columns."""
        problem, rows, floors = self._problem, self._rows, self._sums
        solver = highspy.Highs()
        solver.setOptionValue("output_flag", False)
        solver.setOptionValue("threads", 1)
        floors_at = np.array([floor.load / _unit(problem, floor) for floor in floors])
        lower = np.concatenate(
            (
                np.zeros(len(rows.cases)),
                self._least[rows.least],
                np.zeros(len(rows.holding)),
                np.full(len(problem.capacity), -np.inf),
                floors_at,
            )
        )
        upper = np.concatenate(
            (
                np.ones(len(rows.cases)),
                np.full(len(rows.least) + len(rows.holding), np.inf),
                problem.capacity.astype(np.float64),
                np.full(len(floors), np.inf),
            )
        )
        empty = np.zeros(0, dtype=np.int32)
        solver.addRows(
            rows.count, lower, upper, 0, np.zeros(rows.count, np.int32), empty, np.zeros(0)
        )
        held = self._holding_columns()
        _add(solver, held, self._holding_cost, problem.held[rows.holding])
        count = len(rows.least)
        one = (np.arange(count), len(rows.cases) + np.arange(count), np.ones(count))
        missing = SparseMatrix.of((count, rows.count), [one])
        _add(solver, missing, np.full(count, MISSING), self._least[rows.least])
        count = len(floors)
        one = (np.arange(count), rows.first_floor + np.arange(count), np.ones(count))
        missing = SparseMatrix.of((count, rows.count), [one])
        _add(solver, missing, np.full(count, MISSING), np.full(count, np.inf))
        columns = self._order
        _add(solver, self._by_column(columns), self._cost[columns], self._limit[columns])
        return solver

    def _by_column(self, columns: IntArray) -> SparseMatrix:
        """Some columns, each as a row."""
        place = np.full(self._matrix.shape[1], -1)
        place[columns] = np.arange(len(columns))
        rows, mine = self._matrix.rows, place[self._matrix.columns] >= 0
        entry = (place[self._matrix.columns[mine]], rows[mine], self._matrix.values[mine])
        return SparseMatrix.of((len(columns), self._matrix.shape[0]), [entry])


def _unit(problem: ReplicaProblem, floor: Floor) -> float:
    """What brings the weights of a floor to about 1."""
    return float(problem.weight[problem.level == floor.goal.level].max())


def _add(solver: highspy.Highs, rows: SparseMatrix, cost: FloatArray, limit: FloatArray) -> None:
    """Add each row of a matrix as a column."""
    solver.addCols(
        len(cost),
        cost,
        np.zeros(len(cost)),
        limit,
        len(rows.values),
        rows.starts[:-1].astype(np.int32),
        rows.columns.astype(np.int32),
        rows.values,
    )
