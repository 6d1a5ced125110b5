"""The search for one goal, and what it proves.

A small problem is solved at once. Of a larger one the linear relaxation proves a bound, and leaves
few servers split: as many as there are types of cards and floors. Then, until the plan is near
enough: a tree and dives decide their columns, and a mixed integer program exchanges replicas of the
cases that the multipliers say lose the least by a change.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from inferno_optimizer.errors import SolverError
from inferno_optimizer.sizing.queueing import BoolArray, FloatArray, IntArray
from inferno_optimizer.solvers.budget import Budget
from inferno_optimizer.solvers.diving import BranchAndDive, Diver, Tree
from inferno_optimizer.solvers.formulation import formulate
from inferno_optimizer.solvers.goal_incumbent import GoalIncumbent
from inferno_optimizer.solvers.goals import (
    Floor,
    Goal,
    GoalKind,
    GoalTolerance,
    levels_before,
    raise_to,
)
from inferno_optimizer.solvers.neighbourhoods import (
    Found,
    LargeNeighbourhoods,
    Opening,
    best_of,
    everything,
    openings,
)
from inferno_optimizer.solvers.relaxation import Relaxation, Vertex, WarmStart
from inferno_optimizer.solvers.rounding import roundings


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
        solve_everything(self._incumbent, self._serve, self._floors, self._budget, np.inf)

    def search(self) -> None:
        """Round the relaxation, dive in it, then solve more and more of the problem."""
        incumbent, goal, floors = self._incumbent, self._serve, self._floors
        relaxation = self._start.relaxation(self._problem, goal, floors, incumbent.counts)
        vertex = self._start.solved(relaxation, self._budget)
        if vertex is None or vertex.missing > self._problem.params.whole:
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
        for vertex in diver.dive(no_columns, problem.params.dive_parts[0]):
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


def solve_everything(
    incumbent: GoalIncumbent,
    goal: Goal,
    floors: tuple[Floor, ...],
    budget: Budget,
    gap: float = 0.0,
) -> float:
    """Offer the best plan of all columns; what no plan exceeds. Where HiGHS fails, CBC finds it."""
    problem, known = incumbent.problem, incumbent.counts
    try:
        found = best_of(problem, goal, floors, everything(incumbent), known, budget, gap)
    except SolverError:
        counts = formulate(problem, goal, floors).solve_with_cbc(budget.seconds_left)
        found = Found(counts, np.inf)
    if found.counts is not None:
        incumbent.offer(found.counts)
    return found.bound


@dataclass(frozen=True, slots=True)
class GoalProof:
    """What is proven of a goal.

    Attributes
    ----------
    bound, floors
        No plan that keeps the floors has more.
    prices
        What a card of each type is worth to the goal, shape (types,); None where that is unknown.
    """

    bound: float
    floors: tuple[Floor, ...]
    prices: FloatArray | None = None


class GoalStage:
    """The search for one goal.

    Parameters
    ----------
    incumbent
        The plan to begin with, its goal and the floors.
    tolerance
        How near to its bound the goal has to be.
    start
        Where relaxations begin.
    budget
        Work of the goal that remains.
    """

    def __init__(
        self,
        incumbent: GoalIncumbent,
        tolerance: GoalTolerance,
        start: WarmStart,
        budget: Budget,
    ) -> None:
        self._incumbent, self._problem, self._goal = incumbent, incumbent.problem, incumbent.goal
        self._tolerance, self._start, self._budget = tolerance, start, budget
        self._params = self._problem.params
        self._is_last_load = incumbent.is_last and incumbent.goal.kind is not GoalKind.VALUE
        self._parts = LargeNeighbourhoods(incumbent, budget)
        self._to_prove = budget.part(1 + self._params.proof * self._is_last_load)

    def run(self) -> GoalProof:
        """Improve the plan, unless it has all that there is; what is proven."""
        if self._goal.kind is GoalKind.HELD:
            self.hold_all()
        if self._goal.kind is not GoalKind.VALUE and self._incumbent.has_all:
            return GoalProof(self._goal.most(self._problem), self._incumbent.floors)
        return self.maximize()

    def hold_all(self) -> None:
        """Look for a plan in which all of the level that runs is held, and most is served."""
        if self._incumbent.has_all:
            return
        search = AllHeld(self._incumbent, self._start, self._budget)
        if self._tolerance.exact:
            search.solve_everything()
        else:
            search.search()

    def maximize(self) -> GoalProof:
        """Improve the plan as to the goal; what is proven."""
        incumbent, goal, most = self._incumbent, self._goal, np.inf
        if goal.kind is not GoalKind.VALUE:
            most = goal.most(self._problem)
        if self._tolerance.exact:
            bound = solve_everything(incumbent, goal, incumbent.floors, self._budget)
            return GoalProof(min(most, bound), incumbent.floors)
        proof = self._improve()
        return replace(proof, bound=min(most, proof.bound))

    def _improve(self) -> GoalProof:
        """Decide columns, round, and exchange replicas; what is proven."""
        incumbent = self._incumbent
        relaxation = self._start.relaxation(
            self._problem, self._goal, incumbent.floors, incumbent.counts
        )
        params = self._params
        searched = params.searched_last if incumbent.is_last else params.searched
        for_tree = self._budget.part(searched)
        raised = raise_to(incumbent.floors, incumbent.worth_of)
        # The search of the last level has no use for this bound, and needs the time.
        root = None if self._is_last_load else self._solved(relaxation, raised)
        proof = GoalProof(np.inf, incumbent.floors)
        if root is not None:
            proof = GoalProof(root.bound, raised)
        vertex = self._solved(relaxation, incumbent.floors)
        if vertex is None:
            return proof
        incumbent.near = self._tolerance.near(self._goal, vertex.bound)
        search = BranchAndDive(incumbent, relaxation, vertex, self._parts, for_tree, self._budget)
        base = self._search(search, vertex)
        bound = min(proof.bound, search.tree.bound)
        self._refine(search, vertex, base, search.tree.bound if incumbent.is_last else bound)
        if self._is_last_load:
            relaxation.keep(raised)
            bound = self._proven(relaxation, bound)
        return GoalProof(max(bound, incumbent.worth), raised, vertex.prices)

    def _solved(self, relaxation: Relaxation, floors: tuple[Floor, ...]) -> Vertex | None:
        """The best vertex that keeps floors; None where there is no time or none."""
        relaxation.keep(floors)
        vertex = self._start.solved(relaxation, self._budget)
        return None if vertex is None or vertex.missing > self._problem.params.whole else vertex

    def _proven(self, relaxation: Relaxation, known: float) -> float:
        """A bound of the plans that keep what was reached, by decisions on their relaxation."""
        incumbent = self._incumbent
        root = None if incumbent.near_enough(known) else relaxation.solve(self._to_prove)
        if root is None or root.missing > self._problem.params.whole:
            return known
        tree = Tree(self._problem, relaxation, root, self._to_prove)
        while not incumbent.near_enough(min(known, tree.bound)):
            if not tree.branch(incumbent.worth, incumbent.near):
                break
        return min(known, tree.bound)

    def _search(self, search: BranchAndDive, vertex: Vertex) -> IntArray:
        """Round, solve around vertices, and dive; the best plan, if it does not keep a floor."""
        incumbent, tree = self._incumbent, search.tree
        search.offer_roundings(vertex)
        is_far = self._is_far(tree.bound)
        if is_far:
            search.dive_around()
            search.dive_first()
        if not search.branch_at_first() and not self._is_far(tree.bound):
            self._parts.solve_around(tree.vertices(self._params.surroundings), tree.bound)
        base = incumbent.counts
        if self._misses(tree.bound, 1):  # else later levels need the time
            if not is_far:
                search.dive_around()
            base = search.decide()
        return base

    def _is_far(self, bound: float) -> bool:
        """Whether so much of a load is missing that plans around a vertex are hardly of use."""
        return self._goal.kind is not GoalKind.VALUE and self._misses(bound, self._params.far)

    def _misses(self, bound: float, tolerances: float) -> bool:
        """Whether so many tolerances are missing to a bound."""
        incumbent = self._incumbent
        return incumbent.worth < bound - tolerances * incumbent.near / self._params.near

    def _refine(self, search: BranchAndDive, root: Vertex, base: IntArray, bound: float) -> None:
        """Solve more and more of the problem again, until the plan is near enough to a bound."""
        incumbent, budget = self._incumbent, self._budget
        best = search.tree.vertex or root
        is_held = self._goal.kind is GoalKind.HELD  # of which later levels may take nothing
        if not is_held and not incumbent.is_last and not self._misses(bound, 1):
            budget = budget.part(self._params.refined)
        parts = LargeNeighbourhoods(incumbent, budget)
        if incumbent.is_last and not incumbent.near_enough(bound):
            parts.meet(best, self._params.between_last)
        goal, floors = self._goal, incumbent.floors
        for opening in openings(incumbent, goal, floors, best, base, search.touched):
            if budget.is_over or incumbent.near_enough(bound):
                break
            parts.solve(opening, self._params.part_again)
            parts.exchange(root, bound)
