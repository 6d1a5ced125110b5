"""A tree in which columns of large cases are decided, and dives in its nodes that make plans.

The tree takes the node of the best bound first [A. H. Land, A. G. Doig, *An automatic method of
solving discrete programming problems*, Econometrica 28 (1960) 497-520]. A dive goes from a vertex
of the relaxation down to one that splits no case [R. Sadykov, F. Vanderbeck, A. Pessoa, I. Tahiri,
E. Uchoa, *Primal heuristics for branch and price: the assets of diving methods*, INFORMS Journal on
Computing 31 (2019) 251-267]. Split cases get the column that they have most of, the largest first,
and those that are as large and not split keep theirs. The relaxation is solved again after each
decision, so that all smaller ones make up for it. Where it cannot keep the floors, fewer cases are
decided at a time, at last one without those that are as large; if that is too many, the dive turns
back: the case loses that column instead, or the one that was decided before it.

Where several decisions in turn lose nothing, many cases have the same choice, and each of them is
split in place of the last one: they keep their columns, too.
"""

import heapq
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import numpy as np

from inferno_optimizer.sizing.queueing import BoolArray, FloatArray, IntArray
from inferno_optimizer.solvers.budget import Budget
from inferno_optimizer.solvers.problem import ReplicaProblem
from inferno_optimizer.solvers.relaxation import Relaxation, Vertex


def list_split_cases(problem: ReplicaProblem, vertex: Vertex) -> IntArray:
    """Cases with several columns, those first whose cards are worth the most."""
    return split_in_order(problem, vertex, worth_of_cards(problem, vertex))


def split_in_order(problem: ReplicaProblem, vertex: Vertex, worth: FloatArray) -> IntArray:
    """Cases with several columns, those first that are worth the most; `worth` is by case."""
    several = (
        np.bincount(
            problem.case[vertex.amounts > problem.params.some], minlength=len(problem.cases)
        )
        > 1
    )
    cases = np.flatnonzero(several)
    return cases[np.argsort(-worth[cases], kind="stable")]


def worth_of_cards(problem: ReplicaProblem, vertex: Vertex) -> FloatArray:
    """What the cards of each case are worth, shape (cases,)."""
    paid = vertex.amounts * _worth_of_columns(problem, vertex)
    return np.bincount(problem.case, paid, len(problem.cases)).astype(np.float64)


def _worth_of_columns(problem: ReplicaProblem, vertex: Vertex) -> FloatArray:
    """What the cards are worth that a whole share of each column takes, shape (columns,)."""
    entries = problem.cards
    cards = problem.full[entries.owner] * entries.count
    worth = np.abs(vertex.prices)
    some = (
        problem.params.type_worth
        * (worth @ problem.capacity + 1.0)
        / np.maximum(problem.capacity, 1)
    )
    paid = (worth + some)[entries.type] * cards
    return np.bincount(entries.owner, paid, len(vertex.amounts)).astype(np.float64)


def main_column(problem: ReplicaProblem, vertex: Vertex, case: int) -> int:
    """The column that a case has most of."""
    first, last = np.searchsorted(problem.case, (case, case + 1))
    return int(first + np.argmax(vertex.amounts[first:last]))


def other_columns(problem: ReplicaProblem, vertex: Vertex, case: int) -> IntArray:
    """All columns of a case but that one."""
    first, last = np.searchsorted(problem.case, (case, case + 1))
    return np.setdiff1d(np.arange(first, last), main_column(problem, vertex, case))


def others_of_larger(problem: ReplicaProblem, vertex: Vertex, case: int) -> BoolArray:
    """Columns that cases do not have which are as large as a case and not split; (columns,)."""
    worth = worth_of_cards(problem, vertex)
    return _others_of(problem, vertex, worth >= worth[case])


def others_of_alike(problem: ReplicaProblem, vertex: Vertex, case: int) -> BoolArray:
    """Columns that cases do not have which could be split in place of a case; (columns,).

    These are not split, and can have as much of the same cards as the case has of each of its
    columns. Types differ in what a card is worth, so that what is worth the same is the same.
    """
    worth, some = _worth_of_columns(problem, vertex), problem.params.some
    alike = np.ones(len(problem.cases), dtype=np.bool_)
    for column in np.flatnonzero((problem.case == case) & (vertex.amounts > some)).tolist():
        same = np.abs(worth - worth[column]) <= some * worth[column]
        alike &= np.bincount(problem.case[same], minlength=len(alike)) > 0
    return _others_of(problem, vertex, alike)


def _others_of(problem: ReplicaProblem, vertex: Vertex, cases: BoolArray) -> BoolArray:
    """Columns that cases do not have, of those among some that are not split; (columns,)."""
    some = vertex.amounts > problem.params.some
    one = np.bincount(problem.case[some], minlength=len(problem.cases)) == 1
    return problem.columns_of(one & cases) & ~some


Path = list[tuple[Vertex, BoolArray]]
"""Vertices on the way, and what is forbidden in each."""


class Diver:
    """Makes dives for one goal.

    Parameters
    ----------
    problem, relaxation
        The problem, and its relaxation, which keeps the floors of the dives.
    whole
        Cases that get whole replicas, too; shape (cases,).
    least
        How much of the goal the next dive must have, to be of use.
    budget
        Work that remains.
    """

    def __init__(
        self,
        problem: ReplicaProblem,
        relaxation: Relaxation,
        whole: BoolArray,
        least: Callable[[], float],
        budget: Budget,
    ) -> None:
        self._problem, self._relaxation, self._params = problem, relaxation, problem.params
        self._whole, self._least_of, self._least = whole, least, -np.inf
        self._budget, self._in_vain = budget, 0
        self.touched = np.zeros(len(problem.cases), dtype=np.bool_)

    def dive(self, forbidden: BoolArray, parts: int) -> Iterator[Vertex]:
        """A vertex that splits no case, if the dive finds one; then one with whole replicas.

        Parameters
        ----------
        forbidden
            Columns that nobody has, shape (columns,).
        parts
            One of so many parts of the split cases is decided at a time.
        """
        path: Path = []
        turns, self._least, self._in_vain = self._params.dive_turns, self._least_of(), 0
        vertex = self._solve(forbidden)
        while vertex is not None:
            split = list_split_cases(self._problem, vertex)
            self.touched[split] = True
            if not len(split):
                yield vertex
                yield self._make_whole(vertex, forbidden)
                return
            path.append((vertex, forbidden))
            vertex, forbidden = self._decide(vertex, forbidden, split, parts)
            while vertex is None and path and turns > 0:
                turns -= 1
                vertex, forbidden = self._turn_back(*path.pop())

    def _solve(self, forbidden: BoolArray, fixed: dict[int, float] | None = None) -> Vertex | None:
        """The vertex without some columns; None where a floor is missed, or nothing is gained."""
        vertex = self._relaxation.solve(self._budget, forbidden, fixed or {}, least=self._least)
        return vertex if vertex is not None and vertex.missing <= self._params.some else None

    def _decide(
        self, vertex: Vertex, forbidden: BoolArray, split: IntArray, parts: int
    ) -> tuple[Vertex | None, BoolArray]:
        """The vertex where as many cases as possible have only the column they have most of."""
        cases = split[: -(-len(split) // parts)].tolist()
        while cases:
            decided = self._with_main_columns(vertex, forbidden, cases)
            stay = decided | self._others(vertex, cases[-1])
            for columns in (stay, decided) if len(cases) == 1 else (stay,):
                found = self._solve(columns)
                if found is not None:
                    loses = found.bound < vertex.bound - self._params.rounding * abs(vertex.bound)
                    self._in_vain = 0 if loses else self._in_vain + 1
                    return found, columns
            cases = cases[: len(cases) // 2]
        return None, forbidden

    def _others(self, vertex: Vertex, case: int) -> BoolArray:
        """Columns that cases lose that stay once one is decided; shape (columns,)."""
        larger = others_of_larger(self._problem, vertex, case)
        if self._in_vain < self._params.dive_idle:
            return larger
        return larger | others_of_alike(self._problem, vertex, case)

    def _with_main_columns(
        self, vertex: Vertex, forbidden: BoolArray, cases: list[int]
    ) -> BoolArray:
        """What is forbidden, where some cases have only the column they have most of."""
        decided = forbidden.copy()
        for case in cases:
            decided[other_columns(self._problem, vertex, case)] = True
        return decided

    def _turn_back(self, vertex: Vertex, forbidden: BoolArray) -> tuple[Vertex | None, BoolArray]:
        """The vertex where the largest split case cannot have the column that it has most of."""
        case = int(list_split_cases(self._problem, vertex)[0])
        other = forbidden.copy()
        other[main_column(self._problem, vertex, case)] = True
        return self._solve(other), other

    def _make_whole(self, vertex: Vertex, forbidden: BoolArray) -> Vertex:
        """The same with whole replicas of some cases, of as many at once as possible."""
        problem, fixed, params = self._problem, dict[int, float](), self._params
        allowed, at_once, failures = self._whole[problem.case], len(problem.case), 0
        for _ in range(params.dive_whole):
            if self._budget.is_over or failures == params.dive_whole_failures:
                break
            amounts = vertex.amounts * problem.full
            part = np.abs(amounts - np.rint(amounts)) > params.whole * np.maximum(amounts, 1.0)
            columns = np.flatnonzero(part & allowed)
            if not len(columns):
                break
            self.touched[problem.case[columns]] = True
            order = np.argsort(-problem.weight[problem.case[columns]], kind="stable")
            columns = columns[order][:at_once]
            found, more = self._make_these_whole(forbidden, fixed, columns, amounts[columns])
            if found is not None:
                vertex, fixed, at_once = found, more, 2 * at_once
                continue
            failures += 1
            if len(columns) == 1:
                allowed[columns] = False
            at_once = max(len(columns) // 2, 1)
        return vertex

    def _make_these_whole(
        self,
        forbidden: BoolArray,
        fixed: dict[int, float],
        columns: IntArray,
        amounts: FloatArray,
    ) -> tuple[Vertex | None, dict[int, float]]:
        """The vertex with whole replicas of some columns: the nearest number, more, or less."""
        for replicas in (np.rint(amounts), np.ceil(amounts), np.floor(amounts)):
            shares = (replicas / self._problem.full[columns]).tolist()
            more = {**fixed, **dict(zip(columns.tolist(), shares, strict=True))}
            found = self._solve(forbidden, more)
            if found is not None:
                return found, more
        return None, fixed


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
