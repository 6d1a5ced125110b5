"""The rows of an assignment problem that are left to decide, as a program of PuLP's."""

from dataclasses import dataclass

import numpy as np
import pulp

from inferno_optimizer.sizing.queueing import FloatArray, IntArray
from inferno_optimizer.solvers.exact.branch_and_bound import (
    ENGINES,
    SearchLimits,
    Start,
    Watch,
    branch_and_bound,
    watched,
)
from inferno_optimizer.solvers.exact.neighbourhood import Neighbourhood
from inferno_optimizer.solvers.exact.program import BoolArray, Program
from inferno_optimizer.solvers.incumbent import Incumbent

HALF = 0.5
"""Binary columns come back as numbers close to 0 or 1."""


@dataclass(frozen=True, slots=True)
class Choice:
    """Rows chosen, shape (rows,); what they amount to, and no choice amounts to less."""

    chosen: BoolArray
    objective: float
    bound: float


class BinaryColumns:
    """The open rows of a program as binary columns, of which objectives are minimized.

    Parameters
    ----------
    program, opening
        The rows, and which of them are open.
    floors
        Load that each of the first levels keeps; shape (levels,).
    whole
        The first so many levels are served entirely.
    shortfall
        What a unit of load below a floor costs, shape (levels,); None where none may be.
    """

    def __init__(
        self,
        program: Program,
        opening: Neighbourhood,
        floors: FloatArray,
        whole: int,
        shortfall: FloatArray | None = None,
    ) -> None:
        self._program, self._opening = program, opening
        self._rows = np.flatnonzero(opening.free)
        self._problem = pulp.LpProblem("assignment", pulp.LpMinimize)
        self._columns = [
            self._problem.add_variable(f"x{row}", 0, 1, "Integer") for row in self._rows
        ]
        self._floors, self._whole = floors, whole
        self._missed: dict[int, tuple[pulp.LpVariable, float]] = {}
        self._one_for_each_case(whole)
        self._within_capacity()
        for level in range(whole, len(floors)):
            self._keep(level, float(floors[level]), shortfall)

    def _one_for_each_case(self, whole: int) -> None:
        """At most one row for a case; exactly one at a level that is served entirely."""
        case, level = self._program.case[self._rows], self._program.level[self._rows]
        ones = np.ones(len(case))
        for of_case in np.split(np.arange(len(case)), np.flatnonzero(np.diff(case)) + 1):
            if len(of_case):
                rows = self._sum(ones, of_case)
                self._problem += (rows == 1) if level[of_case[0]] < whole else (rows <= 1)

    def _within_capacity(self) -> None:
        left = self._program.capacity - self._program.used(self._opening.fixed)
        types, cards = self._program.type[self._rows], self._program.cards[self._rows]
        for card_type, available in enumerate(left):
            of_type = np.flatnonzero((types == card_type) & (cards > 0))
            if len(of_type):
                self._problem += self._sum(cards, of_type) <= float(available)

    def _keep(self, level: int, load: float, shortfall: FloatArray | None) -> None:
        """A level serves at least this load, or pays for it."""
        served = self._program.served(self._opening.fixed, level + 1)[level]
        of_level = np.flatnonzero(self._program.level[self._rows] == level)
        if not len(of_level):
            return
        load_served = self._sum(self._program.weight[self._rows], of_level)
        if shortfall is not None:
            missed = self._problem.add_variable(f"missed{level}", 0)
            self._missed[level] = missed, float(shortfall[level])
            load_served += missed
        self._problem += load_served >= float(load - served)

    def minimize(
        self,
        objective: FloatArray,
        limits: SearchLimits,
        start: BoolArray,
        incumbent: Incumbent[BoolArray] | None = None,
    ) -> Choice | None:
        """Least sum over the chosen rows; None if the limits are met before there is any.

        The search starts from a known solution where that is one of these columns too. An
        incumbent is improved while it runs.
        """
        base = float(objective[self._opening.fixed].sum())
        if not len(self._rows):
            return Choice(self._opening.fixed.copy(), base, base)
        if limits.seconds <= 0:
            return None
        cost = objective[self._rows]
        self._problem.setObjective(
            self._sum(cost, np.flatnonzero(cost))
            + pulp.LpAffineExpression([*self._missed.values()])
        )
        engines = (
            ENGINES if incumbent is None else watched(self._watch(incumbent, base), self._columns)
        )
        found = branch_and_bound(self._problem, self.start(start), limits, engines)
        if not found.solution:
            return None
        chosen = self._chosen(np.array([column.varValue or 0.0 for column in self._columns]))
        value = float(objective[chosen].sum())
        return Choice(chosen, value, min(base + found.bound, value))

    def _chosen(self, values: FloatArray) -> BoolArray:
        """The rows that values of the columns choose, with the fixed ones."""
        chosen = self._opening.fixed.copy()
        chosen[self._rows[values > HALF]] = True
        return chosen

    def _watch(self, incumbent: Incumbent[BoolArray], base: float) -> Watch:
        """Offers solutions to an incumbent, and proves bounds, above what is fixed."""

        def offer(values: FloatArray) -> None:
            incumbent.offer(self._chosen(values))

        def prove(bound: float) -> None:
            incumbent.prove(base + bound)

        return Watch(offer, prove)

    def start(self, known: BoolArray) -> Start:
        """Values of all columns; none where the known solution breaks a constraint."""
        opening, program = self._opening, self._program
        missing = self._short_of(known)
        fits = not np.any(known & ~(opening.fixed | opening.free) | opening.fixed & ~known)
        fits &= bool(np.all(program.used(known) <= program.capacity))
        fits &= all(load <= 0 or level in self._missed for level, load in missing.items())
        fits &= program.serves_all_of(known, self._whole)
        if not fits:
            return {}
        start = dict(zip(self._columns, known[self._rows].astype(float).tolist(), strict=True))
        return start | {
            missed: max(missing[level], 0.0) for level, (missed, _) in self._missed.items()
        }

    def _short_of(self, chosen: BoolArray) -> dict[int, float]:
        """By how much chosen rows miss the floor of each level that is not served entirely."""
        served = self._program.served(chosen, len(self._floors))
        levels = range(self._whole, len(self._floors))
        return {level: float(self._floors[level] - served[level]) for level in levels}

    def _sum(self, weights: FloatArray, which: IntArray) -> pulp.LpAffineExpression:
        return pulp.LpAffineExpression([(self._columns[i], float(weights[i])) for i in which])
