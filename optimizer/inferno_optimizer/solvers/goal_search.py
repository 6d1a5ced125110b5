"""The search for one goal: bound, improve until near, prove.

A small problem is solved at once. Of a larger one the linear relaxation proves a bound, and leaves
few servers split: as many as there are types of cards and floors. Then, until the plan is near
enough: a tree and dives decide their columns, and a mixed integer program exchanges replicas of the
cases that lose the least by a change, as the multipliers say. That is branch and price [C. Barnhart
et al., *Branch-and-price: column generation for solving huge integer programs*, Operations Research
46 (1998) 316-329], with columns that are all known: pricing looks through them.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import count

import numpy as np

from inferno_optimizer.errors import SolverError
from inferno_optimizer.sizing.queueing import BoolArray, FloatArray, IntArray
from inferno_optimizer.solvers.budget import Budget
from inferno_optimizer.solvers.diving import Diver, Tree
from inferno_optimizer.solvers.formulation import formulate
from inferno_optimizer.solvers.goals import (
    Floor,
    Goal,
    GoalKind,
    GoalTolerance,
    levels_before,
    raise_for_rounding,
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
from inferno_optimizer.solvers.relaxation import Vertex, WarmStart
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
    """The search for one goal of a large problem: a tree, dives in its nodes, neighbourhoods."""

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
        self._relaxation = start.relaxation(
            self._problem, self._goal, incumbent.floors, incumbent.counts
        )
        self._parts = LargeNeighbourhoods(incumbent, budget)
        # A dive that has begun in time ends: half a dive is no plan.
        whole = levels_before(incumbent.goal, self._problem) | incumbent.has_floor
        self._diver = Diver(self._problem, self._relaxation, whole, lambda: incumbent.worth, budget)

    def improve(self) -> GoalProof:
        """Bound, then improve until the plan is near enough; what is proven."""
        incumbent, params, budget = self._incumbent, self._params, self._budget
        searched = params.searched_last if incumbent.is_last else params.searched
        for_tree, to_prove = budget.part(searched), budget.part(1 + params.proof)

        # Bound: of the plans that keep what was reached, and where the search begins, of those
        # that keep the floors. The last level has no use for the first, and needs the time.
        raised = raise_to(incumbent.floors, incumbent.worth_of)
        root = None if self._is_last_load else self._solve(raised)
        bound = np.inf if root is None else root.bound
        vertex = self._solve(incumbent.floors)
        if vertex is None:
            return GoalProof(bound, incumbent.floors if root is None else raised)
        incumbent.near = self._tolerance.near(self._goal, vertex.bound)

        # Improve: round, solve around vertices, and dive in the nodes of the tree.
        tree = Tree(self._problem, self._relaxation, vertex, for_tree)
        self._offer_roundings(vertex)
        is_far = self._is_far(tree.bound)
        if is_far:
            self._dive_around()
            self._dive(tree.best(0), params.dive_parts[0])
        if not self._branch_at_first(tree) and not self._is_far(tree.bound):
            self._parts.solve_around(tree.vertices(params.surroundings), tree.bound)
        base = incumbent.counts
        if self._misses(tree.bound, 1):  # else later levels need the time
            if not is_far:
                self._dive_around()
            base = self._decide(tree)
        bound = min(bound, tree.bound)
        best = tree.vertex or vertex
        self._refine(vertex, best, base, tree.bound if incumbent.is_last else bound)

        if self._is_last_load:
            self._relaxation.keep(raised)
            bound = self._prove(bound, to_prove)
        return GoalProof(max(bound, incumbent.worth), raised, vertex.prices)

    def _solve(self, floors: tuple[Floor, ...]) -> Vertex | None:
        """The best vertex that keeps floors; None where there is no time or none."""
        self._relaxation.keep(floors)
        vertex = self._start.solve(self._relaxation, self._budget)
        return None if vertex is None or vertex.missing > self._params.whole else vertex

    def _prove(self, known: float, budget: Budget) -> float:
        """A bound of the plans that keep what was reached, by decisions on their relaxation."""
        incumbent, relaxation = self._incumbent, self._relaxation
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

    def _branch_at_first(self, tree: Tree) -> bool:
        """Decide columns before any dive; whether the plan is near enough to the bound then."""
        incumbent, at_first = self._incumbent, self._budget.part(self._params.tree_first)
        while not at_first.is_over and tree.branch(incumbent.worth, incumbent.near):
            if incumbent.near_enough(tree.bound):
                return True
        return False

    def _decide(self, tree: Tree) -> IntArray:
        """Decide columns of large cases, and dive; the best plan, if it does not keep a floor."""
        incumbent, all_parts = self._incumbent, self._params.dive_parts
        base, best, in_vain = incumbent.counts, -np.inf, 0
        for number in count():
            self._relaxation.keep(incumbent.floors)
            for _ in range(self._params.tree_decisions):
                if incumbent.near_enough(tree.bound):
                    break
                if not tree.branch(incumbent.worth, incumbent.near):
                    break
            place, parts = divmod(number, len(all_parts))
            forbidden, before = tree.best(place), incumbent.worth
            done = in_vain == len(all_parts) or incumbent.near_enough(tree.bound)
            if done or tree.out_of_time:
                break
            for plan in self._dive(forbidden, all_parts[parts]):
                worth = self._goal.worth(self._problem, plan)
                base, best = (plan, worth) if worth > best else (base, best)
            in_vain = 0 if incumbent.worth > before else in_vain + 1
        return base

    def _dive_around(self) -> None:
        """Offer what a dive finds in which large cases of earlier goals stay in their columns.

        There is always such a plan, whatever the floors are.
        """
        incumbent, problem = self._incumbent, self._problem
        large = problem.parts_of(incumbent.counts) > self._params.large_case
        stays = levels_before(self._goal, problem) & large
        if np.any(stays):
            forbidden = problem.columns_of(stays) & (incumbent.counts == 0)
            self._dive(forbidden, self._params.dive_parts[0], incumbent.worth_of)

    def _dive(
        self,
        forbidden: BoolArray | None,
        parts: int,
        top: Callable[[Goal], float] | None = None,
    ) -> list[IntArray]:
        """Offer the plans of a dive until one is better; all of them.

        It stays above the floors, towards a top. Nothing may be forbidden.
        """
        incumbent, params = self._incumbent, self._params
        top = top or incumbent.bound_of
        self._relaxation.keep(raise_for_rounding(incumbent.floors, top, params.above_floor))
        no_columns = np.zeros(len(self._problem.case), dtype=np.bool_)
        before, plans = incumbent.worth, list[IntArray]()
        for vertex in self._diver.dive(no_columns if forbidden is None else forbidden, parts):
            plans += self._offer_roundings(vertex)
            if incumbent.worth <= before:
                self._parts.solve_close(vertex)
            if incumbent.worth > before:
                break
        return plans

    def _offer_roundings(self, vertex: Vertex) -> list[IntArray]:
        """Offer the plans close to a vertex; all of them."""
        floors, level = self._incumbent.floors, self._goal.level
        plans = [*roundings(self._problem, vertex, floors, level, self._budget)]
        for plan in plans:
            self._incumbent.offer(plan)
        return plans

    def _refine(self, root: Vertex, best: Vertex, base: IntArray, bound: float) -> None:
        """Solve more and more of the problem again, until the plan is near enough to a bound."""
        incumbent, budget = self._incumbent, self._budget
        is_held = self._goal.kind is GoalKind.HELD  # of which later levels may take nothing
        if not is_held and not incumbent.is_last and not self._misses(bound, 1):
            budget = budget.part(self._params.refined)
        parts = LargeNeighbourhoods(incumbent, budget)
        if incumbent.is_last and not incumbent.near_enough(bound):
            parts.solve_between(best, self._params.between_last)
        goal, floors = self._goal, incumbent.floors
        for opening in openings(incumbent, goal, floors, best, base, self._diver.touched):
            if budget.is_over or incumbent.near_enough(bound):
                break
            parts.solve(opening, self._params.part_again)
            parts.exchange(root, bound)
