"""The linear relaxation of an assignment problem, kept by HiGHS from one change to the next.

A load floor may be missed at a price, so that a decision which costs a little load does not
leave the relaxation without any solution. Cuts bring it closer to what whole rows can do.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import highspy
import numpy as np

from inferno_optimizer.sizing.queueing import FloatArray, IntArray
from inferno_optimizer.solvers.exact.branch_and_bound import FEASIBLE_POINT, SearchLimits
from inferno_optimizer.solvers.exact.cuts import Cut, Inequalities, find_cuts
from inferno_optimizer.solvers.exact.program import BoolArray, Program
from inferno_optimizer.solvers.exact.settings import DEFAULTS, RelaxationSettings
from inferno_optimizer.solvers.sparse import SparseMatrix

NOTHING = -1
"""Decision to choose no row of a case."""

ROUNDING = 1e-10
"""A weight up to this is 0."""

HALF = 0.5


@dataclass(frozen=True, slots=True)
class RowVertex:
    """A best solution of the relaxation.

    `amounts` of the rows, shape (rows,); `objective` with what missed floors cost. `cards` and
    `loads` are multipliers of the cards of each type, and of the load of each level with a floor.
    """

    amounts: FloatArray
    objective: float
    cards: FloatArray
    loads: FloatArray

    def reduced_costs(self, program: Program, objective: FloatArray) -> FloatArray:
        """Objective of each row of a program, its cards paid for, its load rewarded.

        The program may have rows, and levels, that the relaxation has not.
        """
        with_floor = np.minimum(program.level, len(self.loads))
        rewards = np.append(self.loads, 0.0)[with_floor] * program.weight
        costs: FloatArray = objective + self.cards[program.type] * program.cards - rewards
        return costs


class RowRelaxation:
    """Rows with amounts from 0 to 1, of which more and more are decided.

    Parameters
    ----------
    program
        The rows.
    objective
        To be minimized, shape (rows,).
    floors
        Load that each of the first levels is to keep; shape (levels,).
    shortfall
        What a unit of load below a floor costs, inf where none may be missed; shape (levels,).
    whole
        The first so many levels are served entirely, whatever it costs.
    settings
        When cuts are added.
    """

    def __init__(
        self,
        program: Program,
        objective: FloatArray,
        floors: FloatArray,
        shortfall: FloatArray,
        whole: int,
        settings: RelaxationSettings = DEFAULTS.relaxation,
    ) -> None:
        self._program, self._levels = program, np.arange(whole, len(floors))
        self._settings = settings
        self._all_levels = len(floors)
        self._solver = highspy.Highs()
        self._solver.setOptionValue("output_flag", False)
        self._solver.setOptionValue("threads", 1)
        self._floors, self._matrix = floors[self._levels], self._rows()
        self._solver.passModel(self._model(objective, shortfall[self._levels], whole))

    def solve(self, seconds: float = np.inf) -> RowVertex | None:
        """A best vertex; None where what was decided, or the time, leaves none."""
        if not self._run(seconds):
            return None
        solution = self._solver.getSolution()
        amounts = np.asarray(solution.col_value)[: len(self._program.case)]
        dual = np.asarray(solution.row_dual)[len(self._program.starts) :]
        types = len(self._program.capacity)
        loads = np.zeros(self._all_levels)
        loads[self._levels] = dual[types : types + len(self._levels)]
        return RowVertex(amounts, self._objective, -dual[:types], loads)

    def tighten(self, rounds: int, seconds_left: Callable[[], float]) -> float:
        """Add cuts, so many times at most, until they hardly improve the objective.

        Returns the objective before the last ones; no choice of rows has a lower one. It is -inf
        where the time ends before anything is proven.
        """
        settings, inequalities = self._settings, self._inequalities()
        objective, failures = -np.inf, 0
        for _ in range(rounds):
            if failures == settings.patience or not self._run(seconds_left()):
                break
            before, objective = objective, self._objective
            improves = objective - before > settings.hardly * abs(objective)
            failures = 0 if improves else failures + 1
            amounts = np.asarray(self._solver.getSolution().col_value)
            cuts = find_cuts(inequalities, amounts, self._sums(amounts), settings.cuts)
            if not cuts:
                break
            self._add(cuts)
        return objective

    def branch(self, rows: IntArray, limits: SearchLimits) -> FloatArray | None:
        """Amounts of a good solution in which these rows have 0 or 1; None where none is found."""
        self._declare(rows, highspy.HighsVarType.kInteger)
        self._solver.setOptionValue("mip_rel_gap", 0.0)
        self._solver.setOptionValue("mip_abs_gap", limits.gap)
        self._run(limits.seconds)
        known = self._solver.getInfo().primal_solution_status == FEASIBLE_POINT
        amounts = np.asarray(self._solver.getSolution().col_value)[: len(self._program.case)]
        self._declare(rows, highspy.HighsVarType.kContinuous)
        return amounts if known else None

    def solve_with_one_more(self, card_type: int, seconds: float = np.inf) -> RowVertex | None:
        """The same with one more card of a type."""
        row, cards = len(self._program.starts) + card_type, self._program.capacity[card_type]
        self._solver.changeRowBounds(row, -np.inf, float(cards + 1))
        vertex = self.solve(seconds)
        self._solver.changeRowBounds(row, -np.inf, float(cards))
        return vertex

    def decide(self, case: int, row: int) -> None:
        """Choose a row of a case (its place in the program), or `NOTHING`."""
        first = self._program.starts[case]
        rows = np.arange(first, first + self._program.lengths[case])
        self._fix(rows, rows == row)

    def settle(self, rows: IntArray, chosen: BoolArray) -> None:
        """Decide many rows at once."""
        self._fix(rows, chosen)

    @property
    def _objective(self) -> float:
        return float(self._solver.getInfo().objective_function_value)

    def _run(self, seconds: float) -> bool:
        """Run the solver; return whether it finds the best solution."""
        self._solver.setOptionValue("time_limit", self._solver.getRunTime() + max(seconds, 0.0))
        self._solver.run()
        optimal: bool = self._solver.getModelStatus() == highspy.HighsModelStatus.kOptimal
        return optimal

    def _add(self, cuts: list[Cut]) -> None:
        for cut in cuts:
            columns = cut.columns.astype(np.int32)
            self._solver.addRow(-np.inf, cut.room, len(columns), columns, cut.factors)

    def _sums(self, amounts: FloatArray) -> Iterator[FloatArray]:
        """Weights of sums that may become cuts: of a type or a level alone, and of the tableau."""
        rows, signs = self._matrix.shape[0], self._signs
        for row in range(len(self._program.starts), rows):
            yield (np.arange(rows) == row).astype(np.float64)
        for row in self._fractional(amounts):
            weights = np.asarray(self._solver.getBasisInverseRow(row)[1])
            # A cut of cuts has many factors, and adds little.
            if np.all(np.abs(weights[rows:]) <= ROUNDING):
                weights = np.where(np.abs(weights) > ROUNDING, weights, 0.0)[:rows] * signs
                yield weights
                yield -weights

    def _fractional(self, amounts: FloatArray) -> list[int]:
        """Rows of the simplex tableau in which an amount is the most fractional."""
        basic = np.asarray(self._solver.getBasicVariables()[1])
        rows = np.flatnonzero((basic >= 0) & (basic < len(self._program.case)))
        off = np.abs(amounts[basic[rows]] - HALF)
        order = np.argsort(off, kind="stable")
        fractional = order[off[order] < HALF - self._settings.between]
        few: list[int] = rows[fractional][: self._settings.tableau_rows].tolist()
        return few

    def _declare(self, rows: IntArray, kind: highspy.HighsVarType) -> None:
        kinds = np.full(len(rows), kind)
        self._solver.changeColsIntegrality(len(rows), rows.astype(np.int32), kinds)

    def _fix(self, rows: IntArray, chosen: BoolArray) -> None:
        amounts = chosen.astype(np.float64)
        self._solver.changeColsBounds(len(rows), rows.astype(np.int32), amounts, amounts)

    def _model(self, objective: FloatArray, shortfall: FloatArray, whole: int) -> highspy.HighsLp:
        program, missed = self._program, len(self._floors)
        missable = np.isfinite(shortfall)
        model = highspy.HighsLp()
        self._matrix.put_into(model)
        must = program.level[program.starts] < whole
        below = np.full(len(program.capacity), -np.inf)
        model.col_cost_ = np.append(objective, np.where(missable, shortfall, 0.0))
        model.col_lower_ = np.zeros(len(objective) + missed)
        model.col_upper_ = np.append(np.ones(len(objective)), np.where(missable, np.inf, 0.0))
        model.row_lower_ = np.concatenate((must.astype(np.float64), below, self._floors))
        model.row_upper_ = np.concatenate(
            (np.ones(len(must)), program.capacity, np.full(missed, np.inf))
        )
        return model

    @property
    def _signs(self) -> FloatArray:
        """What turns each row into one with an upper limit: floors have a lower one."""
        first = self._matrix.shape[0] - len(self._floors)
        return np.where(np.arange(self._matrix.shape[0]) < first, 1.0, -1.0)

    def _inequalities(self) -> Inequalities:
        """The rows as upper limits, those of cases that must be served, too."""
        program, missed = self._program, len(self._floors)
        upper = np.append(np.ones(len(program.case)), np.full(missed, np.inf))
        return Inequalities(
            matrix=self._matrix.scaled(self._signs),
            room=np.concatenate((np.ones(len(program.starts)), program.capacity, -self._floors)),
            upper=upper,
            integral=np.isfinite(upper),
        )

    def _rows(self) -> SparseMatrix:
        """One row for each case, each type and each level with a floor that can be missed."""
        program, levels = self._program, self._levels
        place, missed = np.arange(len(program.case)), np.arange(len(levels))
        types, loads = len(program.starts), len(program.starts) + len(program.capacity)
        soft = np.flatnonzero(np.isin(program.level, levels))
        entries = (
            (program.place, place, np.ones(len(place))),
            (types + program.type, place, program.cards),
            (loads + np.searchsorted(levels, program.level[soft]), soft, program.weight[soft]),
            (loads + missed, len(place) + missed, np.ones(len(missed))),
        )
        return SparseMatrix.of((loads + len(missed), len(place) + len(missed)), entries)
