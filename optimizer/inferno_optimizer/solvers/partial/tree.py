"""Decisions on the columns of split cases, one after the other: plans, and a closer bound.

A vertex of the relaxation splits few cases, but a large one among them may carry several percent
of a level's load. The tree decides the columns of the cases whose cards are worth the most; the
others, and small cases, are rounded. What no node of the tree exceeds, no plan does.
"""

import heapq
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from inferno_optimizer.sizing.queueing import FloatArray, IntArray
from inferno_optimizer.solvers.exact.program import BoolArray
from inferno_optimizer.solvers.partial.problem import ReplicaProblem
from inferno_optimizer.solvers.partial.relaxation import Relaxation, Vertex

WHOLE = 1e-6
"""Distance from a whole number up to which replicas are whole."""

SOME = 1e-7
"""Share of a case from which a column has some of it."""

AT_ONCE = 1
"""A dive decides a part of the split cases at a time: one of so many."""

SIZE = 1e-2
"""Part of the worth of all cards that each type has for the order of decisions."""

SMALL = 0.5
"""Part of the distance that is near enough, below which a case is not worth a decision."""


@dataclass(order=True, slots=True)
class _Node:
    """What is forbidden, and the vertex without it; the highest bound comes first."""

    order: tuple[float, int]
    forbidden: BoolArray = field(compare=False)
    vertex: Vertex = field(compare=False)


class Tree:
    """A search for plans and a bound of one goal.

    Parameters
    ----------
    problem, relaxation
        The problem, and its relaxation.
    root, leaves
        The vertex of the relaxation, and what may be forbidden: every plan that matters avoids
        one of these sets of columns, arrays of shape (columns,).
    seconds_left
        Time of the search.
    """

    def __init__(
        self,
        problem: ReplicaProblem,
        relaxation: Relaxation,
        root: Vertex,
        leaves: Sequence[BoolArray],
        seconds_left: Callable[[], float],
    ) -> None:
        self._problem, self._relaxation = problem, relaxation
        self._seconds_left = seconds_left
        self._nodes: list[_Node] = []
        self._count = 0
        for forbidden in leaves:
            vertex = relaxation.solve(seconds_left, forbidden) if np.any(forbidden) else root
            known = root if vertex is None else vertex
            self._push(min(known.bound, root.bound), forbidden, known)
        self.touched = np.zeros(len(problem.cases), dtype=np.bool_)

    @property
    def bound(self) -> float:
        """What no plan exceeds that may be better than all found."""
        return -self._nodes[0].order[0] if self._nodes else -np.inf

    @property
    def out_of_time(self) -> bool:
        """Whether the time of the search is over."""
        return self._seconds_left() <= 0

    @property
    def vertex(self) -> Vertex | None:
        """That of the highest bound."""
        return self._nodes[0].vertex if self._nodes else None

    def _push(self, bound: float, forbidden: BoolArray, vertex: Vertex) -> None:
        self._count += 1
        heapq.heappush(self._nodes, _Node((-bound, self._count), forbidden, vertex))

    def leaves(self, worth: float) -> tuple[BoolArray, ...]:
        """What is forbidden in the nodes that may have plans of some worth."""
        return tuple(node.forbidden for node in self._nodes if -node.order[0] >= worth)

    def dive(self, whole: BoolArray) -> Vertex | None:
        """A vertex that splits few cases, below the node of the highest bound; None without any.

        A case that cannot have the column that it has most of, gets another one. Some cases, shape
        (cases,), get whole replicas, too.
        """
        if not self._nodes:
            return None
        node = self._nodes[0]
        vertex, forbidden, at_once = node.vertex, node.forbidden, AT_ONCE
        while self._seconds_left() > 0:
            split = self._split(vertex)
            self.touched[split] = True
            if not len(split):
                return self._with_whole(vertex, forbidden, whole)
            some = split[: max(len(split) // at_once, 1)].tolist()
            found, decided = self._decided(vertex, forbidden, some)
            if found is None and len(some) > 1:
                at_once = len(split)
                continue
            if found is None:
                decided = forbidden.copy()
                decided[self._most(vertex, some[0])] = True
                found = self._relaxation.solve(self._seconds_left, decided)
            if found is None:
                break
            vertex, forbidden = found, decided
        return vertex

    def _with_whole(self, vertex: Vertex, forbidden: BoolArray, cases: BoolArray) -> Vertex:
        """The same with whole replicas of some cases; of all at once, where that is possible."""
        problem, fixed, at_once = self._problem, dict[int, float](), len(cases)
        mine = cases[problem.case]
        while self._seconds_left() > 0:
            amounts = vertex.amounts * problem.full
            part = np.abs(amounts - np.rint(amounts)) > WHOLE * np.maximum(amounts, 1.0)
            columns = np.flatnonzero(part & mine)
            if not len(columns):
                break
            self.touched[problem.case[columns]] = True
            columns = columns[np.argsort(-problem.weight[problem.case[columns]], kind="stable")]
            columns = columns[:at_once]
            near = np.rint(amounts[columns])
            other = np.floor(amounts[columns]) + np.ceil(amounts[columns]) - near
            for replicas in (near, other):
                shares = (replicas / problem.full[columns]).tolist()
                more = {**fixed, **dict(zip(columns.tolist(), shares, strict=True))}
                found = self._relaxation.solve(self._seconds_left, forbidden, more)
                if found is not None and found.missing <= SOME:
                    vertex, fixed = found, more
                    break
                if len(columns) > 1:
                    at_once = 1
                    break
            else:
                mine[columns] = False
        return vertex

    def _decided(
        self, vertex: Vertex, forbidden: BoolArray, cases: list[int]
    ) -> tuple[Vertex | None, BoolArray]:
        """The vertex where cases have only the column that they have most of."""
        decided = forbidden.copy()
        for case in cases:
            decided[self._others(vertex, case)] = True
        found = self._relaxation.solve(self._seconds_left, decided)
        good = found is not None and found.missing <= SOME
        return found if good else None, decided

    def branch(self, worth: float, near: float) -> bool:
        """Decide a case in the node of the highest bound; whether any is worth it."""
        if not self._nodes:
            return False
        node = self._nodes[0]
        important = self._importance(node.vertex)
        split = self._split(node.vertex)
        if not len(split) or important[split[0]] < SMALL * near:
            return False
        heapq.heappop(self._nodes)
        case = int(split[0])
        for columns in (self._others(node.vertex, case), self._most(node.vertex, case)):
            forbidden = node.forbidden.copy()
            forbidden[columns] = True
            vertex = self._relaxation.solve(self._seconds_left, forbidden)
            bound = -node.order[0] if vertex is None else min(vertex.bound, -node.order[0])
            if bound > worth:
                self._push(bound, forbidden, vertex or node.vertex)
        return True

    def _split(self, vertex: Vertex) -> IntArray:
        """Cases with several columns, those first whose cards are worth the most."""
        problem = self._problem
        several = np.bincount(problem.case[vertex.amounts > SOME], minlength=len(problem.cases)) > 1
        cases = np.flatnonzero(several)
        return cases[np.argsort(-self._importance(vertex)[cases], kind="stable")]

    def _importance(self, vertex: Vertex) -> FloatArray:
        """What the cards of each case are worth."""
        problem, entries = self._problem, self._problem.cards
        cards = vertex.amounts[entries.column] * problem.full[entries.column] * entries.count
        worth = np.abs(vertex.prices)
        some = SIZE * (worth @ problem.capacity + 1.0) / np.maximum(problem.capacity, 1)
        paid = (worth + some)[entries.type] * cards
        return np.bincount(problem.case[entries.column], paid, len(problem.cases)).astype(
            np.float64
        )

    def _most(self, vertex: Vertex, case: int) -> IntArray:
        """The column that a case has most of."""
        first, last = np.searchsorted(self._problem.case, (case, case + 1))
        return np.array([first + int(np.argmax(vertex.amounts[first:last]))])

    def _others(self, vertex: Vertex, case: int) -> IntArray:
        first, last = np.searchsorted(self._problem.case, (case, case + 1))
        return np.setdiff1d(np.arange(first, last), self._most(vertex, case))
