"""A dive in the core of a problem, which compares the columns of a case before it decides.

Of a vertex, the largest split case is tried in a few of its columns, and has the one with which
the relaxation is the best. Among the largest, the column that a case has most of is often not that
one: each may cost several percent of a load, and a dozen of these decisions make nearly all of the
difference between a relaxation and a plan. What is missing costs a multiple of its multiplier, so
that a dive goes on where it misses a floor by a little: later decisions make up for it.
"""

from collections.abc import Callable

import numpy as np

from inferno_optimizer.solvers.exact.program import BoolArray
from inferno_optimizer.solvers.partial.core import Core
from inferno_optimizer.solvers.partial.goals import Floor, Goal
from inferno_optimizer.solvers.partial.problem import ReplicaProblem
from inferno_optimizer.solvers.partial.relaxation import Vertex
from inferno_optimizer.solvers.partial.splits import (
    SOME,
    others_of_larger,
    split_in_order,
    worth_of_cards,
)
from inferno_optimizer.solvers.partial.warm_start import WarmStart

NONE = 4.0
"""A decision that loses less than so many times what is near enough is taken at once."""

OPTIONS = 6
"""Columns of a case that are compared at most."""

SMALLEST = 0.03
"""Part of the goal that the cards of a case are worth at least to be decided."""

PENALTY, LEAST_PENALTY = 10.0, 0.02
"""What is missing costs so many times its multiplier; a case, besides, this part of the goal."""


class CoreDive:
    """A dive for one goal.

    Parameters
    ----------
    problem, goal, floors
        The whole problem; what is maximized, and what the dive keeps.
    vertex
        The best vertex of its relaxation.
    near
        Loss of a decision that is none: no other column is tried then.
    seconds_left
        Time that remains.
    """

    def __init__(
        self,
        problem: ReplicaProblem,
        goal: Goal,
        floors: tuple[Floor, ...],
        vertex: Vertex,
        near: float,
        seconds_left: Callable[[], float],
    ) -> None:
        self._core = core = Core.of(problem, goal, vertex)
        self._problem, self._near, self._seconds_left = core.problem, near, seconds_left
        self._of_others = core.outside(goal)
        known = (vertex.amounts[core.columns] > 0).astype(np.int64)
        start = WarmStart(core.problem)
        self._relaxation = start.relaxation(core.problem, goal, core.floors(floors), known)
        prices = {of: PENALTY * max(abs(price), 1.0) for of, price in vertex.floor_prices.items()}
        shares = PENALTY * np.abs(vertex.share[core.cases])
        self._relaxation.price_missing(shares + LEAST_PENALTY * goal.most(problem), prices)
        self._smallest = SMALLEST * goal.most(problem)

    def decided(self, least: float) -> BoolArray | None:
        """Columns that nobody has where the dive ends, by its time or as it has decided enough.

        None where it has decided nothing, or has no more of the goal than what is of use.
        """
        least -= self._of_others
        nobody = np.zeros(len(self._problem.case), dtype=np.bool_)
        vertex, last = self._relaxation.solve(self._seconds_left), None
        while vertex is not None and vertex.bound > least:
            if vertex.missing <= SOME:
                last = nobody
            case = self._next_case(vertex)
            if case is None:
                break
            vertex, nobody = self._with_best_column(vertex, nobody, case)
        return None if last is None or not np.any(last) else self._core.in_whole(last)

    def _next_case(self, vertex: Vertex) -> int | None:
        """The largest case that is split; None if none is worth a decision."""
        worth = worth_of_cards(self._problem, vertex)
        split = split_in_order(self._problem, vertex, worth)
        return int(split[0]) if len(split) and worth[split[0]] > self._smallest else None

    def _with_best_column(
        self, before: Vertex, forbidden: BoolArray, case: int
    ) -> tuple[Vertex | None, BoolArray]:
        """The best vertex where a case has one column, and what is forbidden; None without time."""
        stay = forbidden | others_of_larger(self._problem, before, case)
        best: Vertex | None = None
        for column in self._options(before, forbidden, case):
            closed = self._with_one(stay, case, column)
            vertex = self._relaxation.solve(self._seconds_left, closed)
            if vertex is None:
                return None, forbidden
            if best is None or vertex.bound > best.bound:
                best, forbidden = vertex, closed
            if vertex.missing <= SOME and vertex.bound > before.bound - NONE * self._near:
                break
        return best, forbidden

    def _with_one(self, forbidden: BoolArray, case: int, column: int) -> BoolArray:
        """What is forbidden, where a case has only one column."""
        with_one = forbidden.copy()
        with_one[self._problem.case == case] = True
        with_one[column] = False
        return with_one

    def _options(self, vertex: Vertex, forbidden: BoolArray, case: int) -> list[int]:
        """The columns of a case that it has most of, then those that lose the least."""
        first, last = np.searchsorted(self._problem.case, (case, case + 1))
        columns = np.arange(first, last)
        columns = columns[~forbidden[columns] & np.isfinite(vertex.lost[columns])]
        order = np.lexsort((vertex.lost[columns], -vertex.amounts[columns]))
        options: list[int] = columns[order][:OPTIONS].tolist()
        return options
