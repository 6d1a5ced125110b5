"""A plan in which all of a level that runs is held, and most of the level is served.

The relaxation serves the most with all that is held as a floor; plans close to it are offered.
"""

from collections.abc import Iterator

import numpy as np

from inferno_optimizer.sizing.queueing import IntArray
from inferno_optimizer.solvers.budget import Budget
from inferno_optimizer.solvers.exact.program import BoolArray
from inferno_optimizer.solvers.partial.branch_and_dive import PARTS
from inferno_optimizer.solvers.partial.dive import Diver
from inferno_optimizer.solvers.partial.goals import Floor, Goal, GoalKind, levels_before
from inferno_optimizer.solvers.partial.incumbent import GoalIncumbent
from inferno_optimizer.solvers.partial.large_neighbourhood import everything, openings
from inferno_optimizer.solvers.partial.relaxation import Relaxation, Vertex
from inferno_optimizer.solvers.partial.rounding import WHOLE, roundings
from inferno_optimizer.solvers.partial.warm_start import WarmStart
from inferno_optimizer.solvers.partial.whole_replicas import Opening, best_of


class AllHeld:
    """The search for a plan that holds all of a level.

    Parameters
    ----------
    incumbent
        The best plan of the goal to hold the level.
    start
        Where relaxations begin.
    budget
        Work of the goal that remains.
    """

    def __init__(self, incumbent: GoalIncumbent, start: WarmStart, budget: Budget) -> None:
        goal, problem = incumbent.goal, incumbent.problem
        self._incumbent, self._problem = incumbent, problem
        self._start, self._budget = start, budget
        self._serve = Goal(GoalKind.SERVED, goal.level)
        self._floors = (*incumbent.floors, Floor(goal, goal.most(problem), whole=True))

    def solve_everything(self) -> None:
        """Solve all columns at once."""
        self._solve(everything(self._incumbent))

    def search(self) -> None:
        """Round the relaxation, dive in it, then solve more and more of the problem."""
        incumbent, goal, floors = self._incumbent, self._serve, self._floors
        relaxation = self._start.relaxation(self._problem, goal, floors, incumbent.counts)
        vertex = self._start.solved(relaxation, self._budget)
        if vertex is None or vertex.missing > WHOLE:
            return
        for plan in self._roundings(vertex):
            if incumbent.offer(plan) and incumbent.has_all:
                return
        base, touched = self._dive(relaxation)
        for opening in openings(incumbent, goal, floors, vertex, base, touched):
            if incumbent.has_all or self._budget.is_over:
                return
            self._solve(opening)

    def _dive(self, relaxation: Relaxation) -> tuple[IntArray, BoolArray]:
        """Offer the plans of a dive; the last of them, and the cases that it decided."""
        incumbent, problem = self._incumbent, self._problem
        before = levels_before(incumbent.goal, problem)
        diver = Diver(problem, relaxation, before, lambda: -np.inf, self._budget)
        base, no_columns = incumbent.counts, np.zeros(len(problem.case), dtype=np.bool_)
        for vertex in diver.dive(no_columns, PARTS[0]):
            for plan in self._roundings(vertex):
                base = plan
                incumbent.offer(plan)
        return base, diver.touched

    def _roundings(self, vertex: Vertex) -> Iterator[IntArray]:
        level = self._serve.level
        return roundings(self._problem, vertex, self._floors, level, self._budget)

    def _solve(self, opening: Opening) -> None:
        """Offer the first plan of an opening that has all."""
        known = self._incumbent.counts
        found = best_of(
            self._problem, self._serve, self._floors, opening, known, self._budget, np.inf
        )
        if found.counts is not None:
            self._incumbent.offer(found.counts)
