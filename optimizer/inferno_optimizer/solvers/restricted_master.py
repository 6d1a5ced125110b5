"""The restricted master: rows and columns of the linear relaxation of a goal, as HiGHS gets them.

A column has an amount from 0 to its limit, a share of its case. There is a row for each case, for
what a case must have, for what is held of it, for each type of card, and for each floor with a sum.
HiGHS has some of the columns at first [G. Desaulniers, J. Desrosiers, M. M. Solomon, *Column
Generation*, 2005, chapter 1]; `relaxation.py` finds the others.
"""

from dataclasses import dataclass

import highspy
import numpy as np

from inferno_optimizer.sizing.demands import ROUNDING
from inferno_optimizer.sizing.queueing import BoolArray, FloatArray, IntArray
from inferno_optimizer.solvers.goals import (
    Floor,
    Goal,
    GoalKind,
    least_of,
    levels_of,
    served_entirely,
    with_sum,
)
from inferno_optimizer.solvers.problem import ReplicaProblem
from inferno_optimizer.solvers.sparse import Entries, SparseMatrix

KINDS = [*GoalKind]
"""The order of the floors in a basis."""


@dataclass(frozen=True, slots=True)
class _Rows:
    """Where the constraints are: of cases, least shares, what is held, types, floors.

    `must` are the cases that must have a share: those of `least`, and those that are served
    entirely, whose sum of amounts is 1 in the row of `cases`. `must_at` is where that is said.
    """

    cases: IntArray
    least: IntArray
    must: IntArray
    must_at: IntArray
    holding: IntArray
    first_held: int
    first_type: int
    first_floor: int
    count: int


class RestrictedMaster:
    """The program of a goal that keeps floors.

    Parameters
    ----------
    problem, goal, floors
        What is maximized, and what is kept.

    Attributes
    ----------
    open, limit, cost
        Columns that there may be, the largest amount of each, and what a whole share of it costs;
        shape (columns,).
    scale
        What the costs were divided by.
    rows, matrix
        Where the constraints are, and their coefficients.
    least
        Share that each case must have, shape (cases,).
    sums
        The floors that have a row.
    before
        Variables before the columns: what is held, and what is missing.
    """

    def __init__(self, problem: ReplicaProblem, goal: Goal, floors: tuple[Floor, ...]) -> None:
        self._problem, self._goal, self._floors = problem, goal, floors
        self._held = with_sum(floors, GoalKind.HELD)
        self._served = with_sum(floors, GoalKind.SERVED) + with_sum(floors, GoalKind.ENTIRE)
        matter = levels_of(goal, problem)
        for floor in floors:
            matter |= problem.level == floor.goal.level
        self.sums = (*self._held, *self._served)
        self._matter = matter
        self._entirely = served_entirely(problem, floors)
        self.open = problem.columns_of(matter) & self._allowed()
        self.least = least_of(problem, floors)
        self.rows = self._place_rows()
        self.limit = problem.most / problem.full
        self.scale = self._scaled_by()
        self.cost, self._holding_cost = self._objective()
        self.matrix = self._all_columns()
        self.before = len(self.rows.holding) + len(self.rows.must) + len(self.sums)

    def row_keys(self) -> IntArray:
        """Places of the rows in a basis."""
        problem, rows = self._problem, self.rows
        cases, types = len(problem.cases), len(problem.capacity)
        floors = 3 * cases + types + self._floor_keys()
        parts = (rows.cases, cases + rows.least, 2 * cases + rows.holding)
        return np.concatenate((*parts, 3 * cases + np.arange(types), floors))

    def column_keys(self, order: IntArray) -> IntArray:
        """Places of the columns in a basis."""
        cases, rows = len(self._problem.cases), self.rows
        first = 2 * cases + len(self._problem.case)
        floors = first + self._floor_keys()
        return np.concatenate((rows.holding, cases + rows.must, floors, 2 * cases + order))

    def _floor_keys(self) -> IntArray:
        levels = self._problem.levels
        places = [KINDS.index(floor.goal.kind) * levels + floor.goal.level for floor in self.sums]
        return np.array(places, dtype=np.int64)

    def _allowed(self) -> BoolArray:
        """Columns of which a replica fits; all replicas where a case is served entirely."""
        problem = self._problem
        suffices = problem.serves & (problem.most >= problem.full * (1 - ROUNDING))
        allowed: BoolArray = (problem.most > 0) & (suffices | ~problem.columns_of(self._entirely))
        return allowed

    def _place_rows(self) -> _Rows:
        problem, goal = self._problem, self._goal
        cases = np.flatnonzero(self._matter)
        levels = [floor.goal.level for floor in self._held]
        if goal.kind is GoalKind.HELD:
            levels.append(goal.level)
        holding = np.flatnonzero(np.isin(problem.level, levels) & (problem.held > 0))
        must = np.flatnonzero(self._matter & (self.least > 0))
        least = must[~self._entirely[must]]
        must_at = np.searchsorted(cases, must)
        must_at[~self._entirely[must]] = len(cases) + np.arange(len(least))
        first_held = len(cases) + len(least)
        first_type = first_held + len(holding)
        first_floor = first_type + len(problem.capacity)
        count = first_floor + len(self._held) + len(self._served)
        return _Rows(
            cases,
            least,
            must,
            must_at,
            holding,
            first_held,
            first_type,
            first_floor,
            count,
        )

    def _scaled_by(self) -> float:
        """What brings the largest part of the objective to about 1."""
        problem = self._problem
        if self._goal.kind is GoalKind.VALUE:
            costs = np.abs(problem.least_value * problem.full)[self.open]
        else:
            costs = problem.weight[problem.level == self._goal.level]
        return float(costs.max(initial=0.0)) or 1.0

    def _objective(self) -> tuple[FloatArray, FloatArray]:
        """What is minimized: of the columns, and of what is held."""
        problem, goal, holding = self._problem, self._goal, self.rows.holding
        nothing = np.zeros(len(problem.case))
        if goal.kind is GoalKind.VALUE:
            return problem.least_value * problem.full / self.scale, np.zeros(len(holding))
        if goal.kind is GoalKind.HELD:
            of_goal = problem.level[holding] == goal.level
            return nothing, np.where(of_goal, -problem.weight[holding] / self.scale, 0.0)
        of_goal = problem.serves & (problem.level[problem.case] == goal.level)
        weight = problem.weight[problem.case] / self.scale
        return np.where(of_goal, -weight, 0.0), np.zeros(len(holding))

    def _all_columns(self) -> SparseMatrix:
        """The constraints as rows of a matrix with all columns."""
        problem, rows = self._problem, self.rows
        place = np.full(len(problem.cases), -1)
        place[rows.cases] = np.arange(len(rows.cases))
        held = np.full(len(problem.cases), -1)
        held[rows.holding] = rows.first_held + np.arange(len(rows.holding))
        must = np.full(len(problem.cases), -1)
        must[rows.least] = len(rows.cases) + np.arange(len(rows.least))
        columns = np.flatnonzero(self.open)
        holds = columns[held[problem.case[columns]] >= 0]
        bound = columns[must[problem.case[columns]] >= 0]
        open_cards = self.open[problem.cards.owner]
        # Of one column a case has at most its limit. A mixture of columns, each below its own
        # limit, is therefore no plan beyond the sum of amounts / limits = 1, the convex hull.
        entries: list[Entries] = [
            (place[problem.case[columns]], columns, 1.0 / self.limit[columns]),
            (must[problem.case[bound]], bound, self.towards_least(bound)),
            (held[problem.case[holds]], holds, self._towards_held(holds)),
            (
                rows.first_type + problem.cards.type[open_cards],
                problem.cards.owner[open_cards],
                (problem.cards.count * problem.full[problem.cards.owner])[open_cards],
            ),
        ]
        for position, floor in enumerate(self._served):
            of_level = problem.level[problem.case] == floor.goal.level
            serving = np.flatnonzero(self.open & problem.serves & of_level)
            row = rows.first_floor + len(self._held) + position
            weight = problem.weight[problem.case[serving]] / unit_of(problem, floor)
            entries.append((np.full(len(serving), row), serving, weight))
        return SparseMatrix.of((rows.count, len(problem.case)), entries)

    def towards_least(self, columns: IntArray) -> FloatArray:
        """What an amount of a column counts where its case must have a share.

        Whole replicas of one column that suffice are often more than this share, so that a part of
        them counts less.
        """
        problem = self._problem
        least, full = self.least[problem.case[columns]], problem.full[columns]
        whole = np.ceil(least * full * (1 - ROUNDING)) / full
        counts: FloatArray = np.minimum(least / whole, 1.0)
        return counts

    def gain_of_all(self, duals: FloatArray) -> FloatArray:
        """What a column gains that serves all of a case, at multipliers of the rows; (cases,).

        Without its value and its cards; minus infinity where the case does not matter.
        """
        problem, rows, goal = self._problem, self.rows, self._goal
        gain = np.where(self._matter, 0.0, -np.inf)
        if goal.kind in (GoalKind.SERVED, GoalKind.ENTIRE):
            of_goal = problem.level == goal.level
            gain[of_goal] += problem.weight[of_goal] / self.scale
        count = len(rows.cases)
        gain[rows.cases] += duals[:count]
        gain[rows.least] += duals[count : rows.first_held] * self.least[rows.least]
        gain[rows.holding] += duals[rows.first_held : rows.first_type] * problem.held[rows.holding]
        served = duals[rows.first_floor + len(self._held) :].tolist()
        for floor, dual in zip(self._served, served, strict=True):
            of_level = problem.level == floor.goal.level
            gain[of_level] += dual * problem.weight[of_level] / unit_of(problem, floor)
        return gain

    def _towards_held(self, columns: IntArray) -> FloatArray:
        """What an amount of a column counts towards what is held.

        Where one replica suffices, a part of it holds no more than that part of what runs.
        """
        problem = self._problem
        replicas = problem.held[problem.case[columns]] * problem.full[columns]
        counts: FloatArray = np.minimum(replicas, 1.0)
        return counts

    def _holding_columns(self) -> SparseMatrix:
        """One row for each amount that is held."""
        problem, rows = self._problem, self.rows
        count = len(rows.holding)
        entries: list[Entries] = [
            (np.arange(count), rows.first_held + np.arange(count), np.full(count, -1.0))
        ]
        for position, floor in enumerate(self._held):
            of_level = np.flatnonzero(problem.level[rows.holding] == floor.goal.level)
            weight = problem.weight[rows.holding[of_level]] / unit_of(problem, floor)
            entries.append((of_level, np.full(len(of_level), rows.first_floor + position), weight))
        return SparseMatrix.of((count, rows.count), entries)

    def solver(self, columns: IntArray) -> highspy.Highs:
        """HiGHS with the constraints, what is held, and some columns."""
        problem, rows, floors = self._problem, self.rows, self.sums
        solver = highspy.Highs()
        solver.setOptionValue("output_flag", False)
        solver.setOptionValue("threads", 1)
        # The costs of all but one level are 0, and HiGHS would perturb them: of a hundred solutions
        # in turn it then makes 14,600 steps instead of 1,100.
        solver.setOptionValue("dual_simplex_cost_perturbation_multiplier", 0.0)
        floors_at = np.array([floor.load / unit_of(problem, floor) for floor in floors])
        lower = np.concatenate(
            (
                self._entirely[rows.cases],
                self.least[rows.least],
                np.zeros(len(rows.holding)),
                np.full(rows.first_floor - rows.first_type, -np.inf),
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
        count = len(rows.must)
        one = (np.arange(count), rows.must_at, np.ones(count))
        missing = SparseMatrix.of((count, rows.count), [one])
        _add(solver, missing, np.full(count, problem.params.missing_cost), self.least[rows.must])
        count = len(floors)
        one = (np.arange(count), rows.first_floor + np.arange(count), np.ones(count))
        missing = SparseMatrix.of((count, rows.count), [one])
        _add(solver, missing, np.full(count, problem.params.missing_cost), np.full(count, np.inf))
        self.activate(solver, columns, self.limit)
        return solver

    def activate(self, solver: highspy.Highs, columns: IntArray, upper: FloatArray) -> None:
        """Add columns with their largest amounts, shape (all columns,)."""
        _add(solver, self._by_column(columns), self.cost[columns], upper[columns])

    def _by_column(self, columns: IntArray) -> SparseMatrix:
        """Some columns, each as a row."""
        place = np.full(self.matrix.shape[1], -1)
        place[columns] = np.arange(len(columns))
        rows, placed = self.matrix.rows, place[self.matrix.columns] >= 0
        entry = (place[self.matrix.columns[placed]], rows[placed], self.matrix.values[placed])
        return SparseMatrix.of((len(columns), self.matrix.shape[0]), [entry])


def unit_of(problem: ReplicaProblem, floor: Floor) -> float:
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
