"""Columns of large cases are decided in a tree, and dives in its nodes make plans."""

import heapq
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from itertools import count

import numpy as np

from inferno_optimizer.sizing.queueing import BoolArray, IntArray
from inferno_optimizer.solvers.budget import Budget
from inferno_optimizer.solvers.partial.dive import (
    Diver,
    main_column,
    other_columns,
    split_in_order,
    worth_of_cards,
)
from inferno_optimizer.solvers.partial.goals import (
    Goal,
    levels_before,
    raise_for_rounding,
)
from inferno_optimizer.solvers.partial.incumbent import GoalIncumbent
from inferno_optimizer.solvers.partial.large_neighbourhood import LargeNeighbourhoods, part_of_cards
from inferno_optimizer.solvers.partial.problem import ReplicaProblem
from inferno_optimizer.solvers.partial.relaxation import Relaxation, Vertex
from inferno_optimizer.solvers.partial.rounding import roundings


@dataclass(order=True, slots=True)
class _Node:
    """What is forbidden, and the vertex without it; the highest bound comes first."""

    order: tuple[float, int]
    forbidden: BoolArray = field(compare=False)
    vertex: Vertex = field(compare=False)


class Tree:
    """A search for a bound of one goal.

    Parameters
    ----------
    problem, relaxation
        The problem, and its relaxation.
    root
        The vertex of the relaxation.
    budget
        Work of the search.
    """

    def __init__(
        self,
        problem: ReplicaProblem,
        relaxation: Relaxation,
        root: Vertex,
        budget: Budget,
    ) -> None:
        self._problem, self._relaxation = problem, relaxation
        self._budget = budget
        self._nodes: list[_Node] = []
        self._count = 0
        self._push(root.bound, np.zeros(len(problem.case), dtype=np.bool_), root)

    @property
    def bound(self) -> float:
        """What no plan exceeds that may be better than all found."""
        return -self._nodes[0].order[0] if self._nodes else -np.inf

    @property
    def out_of_time(self) -> bool:
        """Whether the time of the search is over."""
        return self._budget.is_over

    @property
    def vertex(self) -> Vertex | None:
        """That of the highest bound."""
        return self._nodes[0].vertex if self._nodes else None

    def vertices(self, most: int) -> list[Vertex]:
        """Those of the highest bounds."""
        return [node.vertex for node in heapq.nsmallest(most, self._nodes)]

    def best(self, place: int) -> BoolArray | None:
        """What is forbidden in the node at this place in the order of the bounds, if there is."""
        nodes = heapq.nsmallest(place + 1, self._nodes)
        return nodes[place].forbidden if place < len(nodes) else None

    def branch(self, worth: float, near: float) -> bool:
        """Decide a case in the node of the highest bound; whether any is worth it, and in time.

        Nodes without a plan of some worth are dropped.
        """
        if not self._nodes or self.out_of_time:
            return False
        problem, node = self._problem, self._nodes[0]
        cards = worth_of_cards(problem, node.vertex)
        split = split_in_order(problem, node.vertex, cards)
        if not len(split) or cards[split[0]] < problem.params.least_worth * near:
            return False
        heapq.heappop(self._nodes)
        case = int(split[0])
        one, others = (
            main_column(problem, node.vertex, case),
            other_columns(problem, node.vertex, case),
        )
        for columns in (others, one):
            forbidden = node.forbidden.copy()
            forbidden[columns] = True
            vertex = self._relaxation.solve(self._budget, forbidden)
            bound = -node.order[0] if vertex is None else min(vertex.bound, -node.order[0])
            if bound >= worth:  # a plan of this worth may be better for a later goal
                self._push(bound, forbidden, vertex or node.vertex)
        return True

    def _push(self, bound: float, forbidden: BoolArray, vertex: Vertex) -> None:
        self._count += 1
        heapq.heappush(self._nodes, _Node((-bound, self._count), forbidden, vertex))


class BranchAndDive:
    """The tree and the dives for one goal.

    Parameters
    ----------
    incumbent
        The plan, its goal and the floors.
    relaxation, vertex
        The relaxation of the goal, and its best vertex: the root of the tree.
    parts
        Offers the best plans of whole replicas around a vertex.
    for_tree, budget
        Work that remains for the tree, and for the goal.
    """

    def __init__(
        self,
        incumbent: GoalIncumbent,
        relaxation: Relaxation,
        vertex: Vertex,
        parts: LargeNeighbourhoods,
        for_tree: Budget,
        budget: Budget,
    ) -> None:
        self._incumbent, self._problem = incumbent, incumbent.problem
        self._params = self._problem.params
        self._relaxation, self._parts = relaxation, parts
        self._budget = budget
        self.tree = Tree(self._problem, relaxation, vertex, for_tree)
        # A dive that has begun in time ends: half a dive is no plan.
        self._diver = Diver(
            self._problem,
            relaxation,
            levels_before(incumbent.goal, self._problem) | incumbent.has_floor,
            lambda: incumbent.worth,
            budget,
        )

    @property
    def touched(self) -> BoolArray:
        """Cases that a dive has decided; shape (cases,)."""
        return self._diver.touched

    def branch_at_first(self) -> bool:
        """Decide columns before any dive; whether the plan is near enough to the bound then."""
        incumbent, tree = self._incumbent, self.tree
        at_first = self._budget.part(self._params.tree_first)
        while not at_first.is_over and tree.branch(incumbent.worth, incumbent.near):
            if incumbent.near_enough(tree.bound):
                return True
        return False

    def dive_first(self) -> None:
        """Offer what a dive from the root finds, before any decision."""
        self._dive_from(self.tree.best(0), self._params.dive_parts[0])

    def dive_around(self) -> None:
        """Offer what a dive finds in which large cases of earlier goals stay in their columns.

        There is always such a plan, whatever the floors are.
        """
        incumbent, problem = self._incumbent, self._problem
        large = part_of_cards(problem, incumbent.counts) > self._params.large_case
        stays = levels_before(incumbent.goal, problem) & large
        if np.any(stays):
            forbidden = problem.columns_of(stays) & (incumbent.counts == 0)
            self._dive_from(forbidden, self._params.dive_parts[0], incumbent.worth_of)

    def decide(self) -> IntArray:
        """Decide columns of large cases, and dive; the best plan, if it does not keep a floor."""
        incumbent, tree = self._incumbent, self.tree
        base, best, in_vain = incumbent.counts, -np.inf, 0
        all_parts = self._params.dive_parts
        for number in count():
            self._relaxation.keep(incumbent.floors)
            self._branch()
            place, parts = divmod(number, len(all_parts))
            forbidden, before = tree.best(place), incumbent.worth
            done = in_vain == len(all_parts) or incumbent.near_enough(tree.bound)
            if done or tree.out_of_time:
                break
            for plan in self._dive_from(forbidden, all_parts[parts]):
                worth = incumbent.goal.worth(self._problem, plan)
                base, best = (plan, worth) if worth > best else (base, best)
            in_vain = 0 if incumbent.worth > before else in_vain + 1
        return base

    def _dive_from(
        self,
        forbidden: BoolArray | None,
        parts: int,
        top: Callable[[Goal], float] | None = None,
    ) -> list[IntArray]:
        """Offer the plans of a dive that stays above the floors, towards a top; all of them."""
        incumbent = self._incumbent
        floors = raise_for_rounding(
            incumbent.floors, top or incumbent.bound_of, self._params.above_floor
        )
        self._relaxation.keep(floors)
        return self._dive(forbidden, parts)

    def _branch(self) -> None:
        """Make the bound closer by a few decisions."""
        incumbent, tree = self._incumbent, self.tree
        for _ in range(self._params.tree_decisions):
            if incumbent.near_enough(tree.bound):
                return
            if not tree.branch(incumbent.worth, incumbent.near):
                return

    def _dive(self, forbidden: BoolArray | None, parts: int) -> list[IntArray]:
        """Offer the plans close to the vertices of a dive, until one is better; all of them."""
        no_columns = np.zeros(len(self._problem.case), dtype=np.bool_)
        before, plans = self._incumbent.worth, list[IntArray]()
        for vertex in self._diver.dive(no_columns if forbidden is None else forbidden, parts):
            plans += self._offer_all(self._roundings(vertex))
            if self._incumbent.worth <= before:
                self._parts.solve_close(vertex)
            if self._incumbent.worth > before:
                break
        return plans

    def offer_roundings(self, vertex: Vertex) -> None:
        """Offer the plans close to a vertex."""
        self._offer_all(self._roundings(vertex))

    def _roundings(self, vertex: Vertex) -> Iterable[IntArray]:
        incumbent = self._incumbent
        floors, level = incumbent.floors, incumbent.goal.level
        return roundings(self._problem, vertex, floors, level, self._budget)

    def _offer_all(self, found: Iterable[IntArray]) -> list[IntArray]:
        """Offer plans; all of them."""
        plans = [*found]
        for plan in plans:
            self._incumbent.offer(plan)
        return plans
