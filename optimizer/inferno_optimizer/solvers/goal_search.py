"""The search for one goal: bound, improve until near, prove.

A small problem is solved at once. Of a larger one the linear relaxation proves a bound, and leaves
few servers split: as many as there are types of cards and floors. Then, until the plan is near
enough: a tree and dives decide their columns, and a mixed integer program exchanges replicas of the
cases that lose the least by a change, as the multipliers say. That is branch and price [C. Barnhart
et al., *Branch-and-price: column generation for solving huge integer programs*, Operations Research
46 (1998) 316-329], with columns that are all known: pricing looks through them.
"""

from dataclasses import dataclass, replace

import numpy as np

from inferno_optimizer.errors import SolverError
from inferno_optimizer.sizing.queueing import FloatArray, IntArray
from inferno_optimizer.solvers.budget import Budget
from inferno_optimizer.solvers.diving import BranchAndDive, Diver, Tree
from inferno_optimizer.solvers.formulation import formulate
from inferno_optimizer.solvers.goals import (
    Floor,
    Goal,
    GoalKind,
    GoalTolerance,
    levels_before,
    raise_to,
)
from inferno_optimizer.solvers.incumbent import Incumbent
from inferno_optimizer.solvers.neighbourhoods import (
    Found,
    LargeNeighbourhoods,
    open_everything,
    openings,
    solve_opening,
)
from inferno_optimizer.solvers.relaxation import Relaxation, Vertex, WarmStart
from inferno_optimizer.solvers.rounding import roundings


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


def search_goal(
    incumbent: Incumbent, tolerance: GoalTolerance, start: WarmStart, budget: Budget
) -> GoalProof:
    """Improve the plan of a goal, unless it has all that there is; what is proven.

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
    goal, floors = incumbent.goal, incumbent.floors
    if goal.kind is GoalKind.HELD and not incumbent.has_all:
        hold_all(incumbent, start, budget, exact=tolerance.exact)
    most = np.inf if goal.kind is GoalKind.VALUE else goal.most(incumbent.problem)
    if goal.kind is not GoalKind.VALUE and incumbent.has_all:
        return GoalProof(most, floors)
    if tolerance.exact:
        bound = solve_everything(incumbent, goal, floors, budget)
        return GoalProof(min(most, bound), floors)
    proof = _GoalSearch(incumbent, tolerance, start, budget).improve()
    return replace(proof, bound=min(most, proof.bound))


def hold_all(incumbent: Incumbent, start: WarmStart, budget: Budget, *, exact: bool) -> None:
    """Look for a plan in which all of a level that runs is held, and most of it is served.

    If it is not to be `exact`, round the relaxation, dive in it, then solve more and more of the
    problem.
    """
    held, problem = incumbent.goal, incumbent.problem
    goal = Goal(GoalKind.SERVED, held.level)
    floors = (*incumbent.floors, Floor(held, held.most(problem), whole=True))
    if exact:
        solve_everything(incumbent, goal, floors, budget, np.inf)
        return
    relaxation = start.relaxation(problem, goal, floors, incumbent.counts)
    root = start.solve(relaxation, budget)
    if root is None or root.missing > problem.params.whole:
        return
    for plan in roundings(problem, root, floors, goal.level, budget):
        if incumbent.offer(plan) and incumbent.has_all:
            return
    diver = Diver(problem, relaxation, levels_before(held, problem), lambda: -np.inf, budget)
    base, no_columns = incumbent.counts, np.zeros(len(problem.case), dtype=np.bool_)
    for vertex in diver.dive(no_columns, problem.params.dive_parts[0]):
        for plan in roundings(problem, vertex, floors, goal.level, budget):
            base = plan
            incumbent.offer(plan)
    for opening in openings(incumbent, goal, floors, root, base, diver.touched):
        if incumbent.has_all or budget.is_over:
            return
        known = incumbent.counts
        found = solve_opening(problem, goal, floors, opening, known, budget, np.inf)
        if found.counts is not None:
            incumbent.offer(found.counts)


def solve_everything(
    incumbent: Incumbent,
    goal: Goal,
    floors: tuple[Floor, ...],
    budget: Budget,
    gap: float = 0.0,
) -> float:
    """Offer the best plan of all columns; what no plan exceeds. Where HiGHS fails, CBC finds it."""
    problem, known = incumbent.problem, incumbent.counts
    try:
        found = solve_opening(problem, goal, floors, open_everything(incumbent), known, budget, gap)
    except SolverError:
        counts = formulate(problem, goal, floors).solve_with_cbc(budget.seconds_left)
        found = Found(counts, np.inf)
    if found.counts is not None:
        incumbent.offer(found.counts)
    return found.bound


class _GoalSearch:
    """The search for one goal of a large problem."""

    def __init__(
        self,
        incumbent: Incumbent,
        tolerance: GoalTolerance,
        start: WarmStart,
        budget: Budget,
    ) -> None:
        self._incumbent, self._problem, self._goal = incumbent, incumbent.problem, incumbent.goal
        self._tolerance, self._start, self._budget = tolerance, start, budget
        self._params = self._problem.params
        self._is_last_load = incumbent.is_last and incumbent.goal.kind is not GoalKind.VALUE

    def improve(self) -> GoalProof:
        """Bound, then improve until the plan is near enough; what is proven."""
        incumbent, params, budget = self._incumbent, self._params, self._budget
        relaxation = self._start.relaxation(
            self._problem, self._goal, incumbent.floors, incumbent.counts
        )
        searched = params.searched_last if incumbent.is_last else params.searched
        for_tree, to_prove = budget.part(searched), budget.part(1 + params.proof)

        # Bound: of the plans that keep what was reached, and where the search begins, of those
        # that keep the floors. The last level has no use for the first, and needs the time.
        raised = raise_to(incumbent.floors, incumbent.worth_of)
        root = None if self._is_last_load else self._solve(relaxation, raised)
        bound = np.inf if root is None else root.bound
        vertex = self._solve(relaxation, incumbent.floors)
        if vertex is None:
            return GoalProof(bound, incumbent.floors if root is None else raised)
        incumbent.near = self._tolerance.near(self._goal, vertex.bound)

        # Improve: round, solve around vertices, and dive in the nodes of the tree.
        parts = LargeNeighbourhoods(incumbent, budget)
        search = BranchAndDive(incumbent, relaxation, vertex, parts, for_tree, budget)
        tree = search.tree
        search.offer_roundings(vertex)
        is_far = self._is_far(tree.bound)
        if is_far:
            search.dive_around()
            search.dive_first()
        if not search.branch_at_first() and not self._is_far(tree.bound):
            parts.solve_around(tree.vertices(params.surroundings), tree.bound)
        base = incumbent.counts
        if self._misses(tree.bound, 1):  # else later levels need the time
            if not is_far:
                search.dive_around()
            base = search.decide()
        bound = min(bound, tree.bound)
        self._refine(search, vertex, base, tree.bound if incumbent.is_last else bound)

        if self._is_last_load:
            relaxation.keep(raised)
            bound = self._prove(relaxation, bound, to_prove)
        return GoalProof(max(bound, incumbent.worth), raised, vertex.prices)

    def _solve(self, relaxation: Relaxation, floors: tuple[Floor, ...]) -> Vertex | None:
        """The best vertex that keeps floors; None where there is no time or none."""
        relaxation.keep(floors)
        vertex = self._start.solve(relaxation, self._budget)
        return None if vertex is None or vertex.missing > self._params.whole else vertex

    def _prove(self, relaxation: Relaxation, known: float, budget: Budget) -> float:
        """A bound of the plans that keep what was reached, by decisions on their relaxation."""
        incumbent = self._incumbent
        root = None if incumbent.near_enough(known) else relaxation.solve(budget)
        if root is None or root.missing > self._params.whole:
            return known
        tree = Tree(self._problem, relaxation, root, budget)
        while not incumbent.near_enough(min(known, tree.bound)):
            if not tree.branch(incumbent.worth, incumbent.near):
                break
        return min(known, tree.bound)

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
            parts.solve_between(best, self._params.between_last)
        goal, floors = self._goal, incumbent.floors
        for opening in openings(incumbent, goal, floors, best, base, search.touched):
            if budget.is_over or incumbent.near_enough(bound):
                break
            parts.solve(opening, self._params.part_again)
            parts.exchange(root, bound)
