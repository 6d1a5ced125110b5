"""Which rows of an assignment problem are left to decide, and their decision by PuLP."""

from collections.abc import Mapping
from dataclasses import dataclass

import highspy
import numpy as np
import pulp

from inferno_optimizer.errors import SolverError
from inferno_optimizer.queueing import FloatArray, IntArray
from inferno_optimizer.solvers.prices import Prices
from inferno_optimizer.solvers.program import BoolArray, Program

FEASIBLE_POINT = 2
"""HiGHS's word for a solution that satisfies every constraint."""

HALF = 0.5
ROUND = 1e-6
"""Binary columns come back as numbers close to 0 or 1."""

NEAR = 1e-3
"""Rows whose excess is within this share of a typical case's objective enter the relaxation."""

MOST_OPEN = 500
"""Cases that are left open besides those that the relaxation splits."""

REACH = 0.3
"""Rows of an open case are left out that cost more than its cards by more than this share."""


@dataclass(frozen=True, slots=True)
class Opening:
    """What is left to decide: `fixed` rows are chosen, `free` ones may be, others are not."""

    fixed: BoolArray
    free: BoolArray


def leave_everything_open(program: Program) -> Opening:
    """Nothing is known beforehand."""
    free = np.ones(len(program.case), dtype=np.bool_)
    return Opening(~free, free)


def leave_open(program: Program, prices: Prices, floors: FloatArray, whole: int) -> Opening:
    """Fix what the linear relaxation decides, but for the cases that could make room best.

    Open are the cases that the relaxation splits, and a number of those that lose the least,
    for their size, by choosing otherwise.
    """
    rows = np.flatnonzero(prices.excess <= NEAR * abs(prices.bound) / len(program.starts))
    amounts = np.zeros(len(program.case))
    relaxed = program.take(rows)
    everything = Columns(relaxed, leave_everything_open(relaxed), floors, whole)
    amounts[rows] = everything.relax(prices.objective[rows])
    split = np.zeros(len(program.starts), dtype=np.bool_)
    split[program.place[(amounts > ROUND) & (amounts < 1 - ROUND)]] = True
    chosen = amounts > HALF
    order = np.argsort(_loss_by_change(program, prices, chosen), kind="stable")
    open_cases = split.copy()
    open_cases[order[:MOST_OPEN]] = True
    return _opening(program, prices, chosen, open_cases, split)


def _opening(
    program: Program,
    prices: Prices,
    chosen: BoolArray,
    open_cases: BoolArray,
    wide: BoolArray,
) -> Opening:
    """Open the rows of some cases that may be worth it, all rows of the wide ones."""
    opened = open_cases[program.place]
    size = prices.sizes(program)
    close = prices.excess <= REACH * size[program.place]
    return Opening(chosen & ~opened, opened & (close | wide[program.place] | chosen))


def _loss_by_change(program: Program, prices: Prices, current: BoolArray) -> FloatArray:
    """What the best other option of each case costs, for the size of the case."""
    excess = np.where(current, np.inf, prices.excess)
    other = np.minimum.reduceat(excess, program.starts)
    served = np.zeros(len(program.starts), dtype=np.bool_)
    served[program.place[current]] = True
    loss = np.where(served, np.minimum(other, prices.left_out), other)
    size = prices.sizes(program)
    relative: FloatArray = loss / np.maximum(size, np.median(size) * 0.1 + 1e-9)
    return relative


@dataclass(frozen=True, slots=True)
class Choice:
    """Rows chosen, shape (rows,); what they amount to, and no choice amounts to less."""

    chosen: BoolArray
    objective: float
    bound: float


class _StartedHiGHS(pulp.HiGHS):  # type: ignore[misc]  # PuLP has no types
    """HiGHS from a known solution, which PuLP does not hand over by itself."""

    def __init__(self, known: Mapping[pulp.LpVariable, float], **options: object) -> None:
        super().__init__(**options)
        self._known = known

    def callSolver(self, lp: pulp.LpProblem) -> None:  # noqa: N802 - PuLP's name
        """Run from the known solution; one that breaks a constraint is only a hint."""
        solution = highspy.HighsSolution()
        values = np.zeros(len(self._known))
        for variable, value in self._known.items():
            values[variable.index] = value
        solution.col_value = values
        lp.solverModel.setSolution(solution)
        super().callSolver(lp)


class Columns:
    """The open rows of a program as binary columns, of which objectives are minimized.

    Each of the first levels keeps its floor; the first `whole` ones are served entirely.
    """

    def __init__(self, program: Program, opening: Opening, floors: FloatArray, whole: int) -> None:
        self._program, self._opening = program, opening
        self._rows = np.flatnonzero(opening.free)
        self._problem = pulp.LpProblem("assignment", pulp.LpMinimize)
        self._columns = [
            self._problem.add_variable(f"x{row}", 0, 1, "Integer") for row in self._rows
        ]
        self._one_for_each_case(whole)
        self._within_capacity()
        for level in range(whole, len(floors)):
            self._keep(level, float(floors[level]))

    def _one_for_each_case(self, whole: int) -> None:
        """At most one row for a case; exactly one at a level that is served entirely."""
        case, level = self._program.case[self._rows], self._program.level[self._rows]
        ones = np.ones(len(case))
        for mine in np.split(np.arange(len(case)), np.flatnonzero(np.diff(case)) + 1):
            rows = self._sum(ones, mine)
            self._problem += (rows == 1) if level[mine[0]] < whole else (rows <= 1)

    def _within_capacity(self) -> None:
        left = self._program.capacity - self._program.used(self._opening.fixed)
        types, cards = self._program.type[self._rows], self._program.cards[self._rows]
        for card_type, available in enumerate(left):
            mine = np.flatnonzero((types == card_type) & (cards > 0))
            if len(mine):
                self._problem += self._sum(cards, mine) <= float(available)

    def _keep(self, level: int, load: float) -> None:
        """A level serves at least this load."""
        served = self._program.served(self._opening.fixed, level + 1)[level]
        mine = np.flatnonzero(self._program.level[self._rows] == level)
        if len(mine):
            weights = self._program.weight[self._rows]
            self._problem += self._sum(weights, mine) >= float(load - served)

    def minimize(
        self, objective: FloatArray, seconds: float, gap: float, start: BoolArray
    ) -> Choice | None:
        """Least sum over the chosen rows, to an absolute gap; None if time ends before any.

        The search starts from a known solution where that fits what is fixed.
        """
        base = float(objective[self._opening.fixed].sum())
        chosen = self._opening.fixed.copy()
        if not len(self._rows):
            return Choice(chosen, base, base)
        if seconds <= 0:
            return None
        mine = objective[self._rows]
        self._problem.setObjective(self._sum(mine, np.flatnonzero(mine)))
        values, bound = self._solve(seconds, gap, start[self._rows].astype(np.float64))
        if values is None:
            return None
        chosen[self._rows[values > HALF]] = True
        value = float(objective[chosen].sum())
        return Choice(chosen, value, min(base + bound, value))

    def relax(self, objective: FloatArray) -> FloatArray:
        """Amounts of the open rows at a vertex of the linear relaxation; 0 where it has none."""
        self._problem.setObjective(self._sum(objective, np.flatnonzero(objective)))
        self._run(pulp.HiGHS(mip=False, msg=False, threads=1))
        return np.array([column.varValue or 0.0 for column in self._columns], dtype=np.float64)

    def _run(self, solver: pulp.HiGHS) -> None:
        try:
            self._problem.solve(solver)
        except pulp.PulpSolverError as error:
            raise SolverError(f"HiGHS failed: {error}") from error

    def _solve(
        self, seconds: float, gap: float, start: FloatArray
    ) -> tuple[FloatArray | None, float]:
        known = dict(zip(self._columns, start.tolist(), strict=True))
        self._run(
            _StartedHiGHS(known, msg=False, timeLimit=seconds, gapRel=0.0, gapAbs=gap, threads=1)
        )
        # PuLP calls a time limit optimal; HiGHS itself tells what it has, and its bound.
        information = self._problem.solverModel.getInfo()
        if information.primal_solution_status != FEASIBLE_POINT:
            return None, float(information.mip_dual_bound)
        values = np.array([column.varValue for column in self._columns], dtype=np.float64)
        return values, float(information.mip_dual_bound)

    def _sum(self, weights: FloatArray, which: IntArray) -> pulp.LpAffineExpression:
        return pulp.LpAffineExpression([(self._columns[i], float(weights[i])) for i in which])
