"""Decisions on the columns of large split cases, one after the other: a closer bound.

A vertex of the relaxation splits few cases, but a large one among them may carry several percent
of a level's load. The tree decides the columns of the cases whose cards are worth the most. What
no node of the tree exceeds, no plan does.
"""

import heapq
from dataclasses import dataclass, field

import numpy as np

from inferno_optimizer.solvers.budget import Budget
from inferno_optimizer.solvers.exact.program import BoolArray
from inferno_optimizer.solvers.partial.problem import ReplicaProblem
from inferno_optimizer.solvers.partial.relaxation import Relaxation, Vertex
from inferno_optimizer.solvers.partial.splits import (
    main_column,
    other_columns,
    split_in_order,
    worth_of_cards,
)

SMALL = 0.5
"""Part of the distance that is near enough, below which a case is not worth a decision."""


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
        if not len(split) or cards[split[0]] < SMALL * near:
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
