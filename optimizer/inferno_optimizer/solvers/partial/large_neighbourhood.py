"""Parts of the problem are solved again as mixed integer programs; all others are as they are.

The parts lie around the incumbent, around a vertex of the relaxation, or between both. Cases that
lose the least by a change, as the multipliers say, are open first.
"""

from collections.abc import Iterator, Sequence

import numpy as np

from inferno_optimizer.sizing.queueing import BoolArray, FloatArray, IntArray
from inferno_optimizer.solvers.budget import Budget
from inferno_optimizer.solvers.groups import rank_in_group
from inferno_optimizer.solvers.partial.goals import Floor, Goal, least_of, levels_of
from inferno_optimizer.solvers.partial.incumbent import GoalIncumbent
from inferno_optimizer.solvers.partial.problem import ReplicaProblem
from inferno_optimizer.solvers.partial.relaxation import Vertex
from inferno_optimizer.solvers.partial.rounding import whole_of
from inferno_optimizer.solvers.partial.whole_replicas import Opening, best_of


def by_loss(
    problem: ReplicaProblem, vertex: Vertex, counts: IntArray, least: FloatArray
) -> IntArray:
    """The cases, those first that lose the least by a small change; of each type in turn.

    A case that has no more than its least share can only change to another column.
    """
    shares = np.bincount(problem.case, counts / problem.full, len(problem.cases))
    loss = np.maximum(vertex.lost, 0.0)
    loss = np.where(shares[problem.case] > 0, loss, loss / problem.full)
    fewer = np.maximum(vertex.share, 0.0)[problem.case] / problem.full
    spare = (shares > least * (1 + problem.params.rounding))[problem.case]
    loss = np.where(counts > 0, np.where(spare, fewer, np.inf), loss)
    entries = problem.cards
    case, loss = problem.case[entries.owner], loss[entries.owner]
    order = np.lexsort((problem.weight[case], loss, entries.type))
    order = order[np.isfinite(loss[order])]
    first = np.searchsorted(entries.type[order], np.arange(len(problem.capacity)))
    rank = np.arange(len(order)) - first[entries.type[order]]
    in_turn = case[order[np.lexsort((entries.type[order], rank))]]
    distinct, seen = np.unique(in_turn, return_index=True)
    return distinct[np.argsort(seen)]


def few_columns(problem: ReplicaProblem, vertex: Vertex, counts: IntArray, most: int) -> BoolArray:
    """The columns of each case that lose the least, and those that it has or that run."""
    loss: FloatArray = np.where((counts > 0) | (problem.runs > 0), -np.inf, vertex.lost)
    order = np.lexsort((loss, problem.case))
    few = np.zeros(len(order), dtype=np.bool_)
    few[order[rank_in_group(problem.case[order]) < most]] = True
    return few & np.isfinite(vertex.lost)


def between(problem: ReplicaProblem, vertex: Vertex, counts: IntArray, most: int) -> BoolArray:
    """Columns of the cases in which a plan and a vertex differ: what both have, and a few more.

    See `assignment.md`, section "Exact: one problem, one search", and its source [8].
    """
    differs = np.abs(vertex.amounts * problem.full - counts) > problem.params.whole
    cases = np.zeros(len(problem.cases), dtype=np.bool_)
    cases[problem.case[differs]] = True
    few = few_columns(problem, vertex, counts, most) | (vertex.amounts > problem.params.rounding)
    return few & problem.columns_of(cases)


def around(
    problem: ReplicaProblem,
    vertex: Vertex,
    least: FloatArray,
    matter: BoolArray,
    cases: int,
    most: int,
) -> tuple[BoolArray, IntArray]:
    """Columns of the cases that a vertex splits and of a few that lose little; what others have.

    See `assignment.md`, section "Exact: one problem, one search", and its source [9].

    Parameters
    ----------
    problem, vertex
        The problem, and a solution of its relaxation.
    least, matter
        Share that each case must have, and which ones are open at all; shape (cases,).
    cases, most
        How many cases that are not split are open, and columns of each.
    """
    counts, some = whole_of(problem, vertex)
    order = by_loss(problem, vertex, counts, least)
    some[order[matter[order]][:cases]] = True
    few = few_columns(problem, vertex, counts, most) | (vertex.amounts > problem.params.rounding)
    return few & problem.columns_of(some & matter), counts


def part_of_cards(problem: ReplicaProblem, counts: IntArray) -> FloatArray:
    """Part of the cards of a type that each case has, summed over types; shape (cases,)."""
    entries, capacity = problem.cards, np.maximum(problem.capacity, 1)
    part = counts[entries.owner] * entries.count / capacity[entries.type]
    return np.bincount(problem.case[entries.owner], part, len(problem.cases)).astype(np.float64)


def largest_first(problem: ReplicaProblem, counts: IntArray, matter: BoolArray) -> IntArray:
    """The cases, those first that matter and have the largest part of the cards of a type."""
    parts = np.where(matter, part_of_cards(problem, counts), 0.0)
    return np.argsort(-parts, kind="stable")


def short_first(problem: ReplicaProblem, counts: IntArray, level: int) -> IntArray:
    """Cases of a level that are not served entirely, those first that miss the most load."""
    missing = problem.weight * (1 - problem.served(counts))
    short = np.flatnonzero((missing > 0) & (problem.level == level))
    return short[np.argsort(-missing[short], kind="stable")]


class LargeNeighbourhoods:
    """Improves an incumbent by solving parts of its problem again.

    Parameters
    ----------
    incumbent
        The plan, its goal and the floors.
    budget
        Work that remains.
    """

    def __init__(self, incumbent: GoalIncumbent, budget: Budget) -> None:
        self._incumbent, self._problem = incumbent, incumbent.problem
        self._params = self._problem.params
        self._budget = budget

    def solve(self, opening: Opening, share: float) -> None:
        """Offer the best plan of an opening that is found with a share of the work that remains."""
        incumbent, budget = self._incumbent, self._budget.part(share)
        goal, floors, known = incumbent.goal, incumbent.floors, incumbent.counts
        budget.spend(self._params.plan * len(known))
        gap = incumbent.near * self._params.near_part
        found = best_of(self._problem, goal, floors, opening, known, budget, gap)
        if found.counts is not None:
            incumbent.offer(found.counts)

    def solve_around(self, vertices: Sequence[Vertex], bound: float) -> None:
        """Solve the cases that a vertex splits or that lose little, until that helps no more.

        All others are as in the vertex; of the last level also as in the plan.
        """
        incumbent, params = self._incumbent, self._params
        matter, least = incumbent.matter, least_of(self._problem, incumbent.floors)
        for vertex in vertices:
            before = incumbent.worth
            columns, counts = around(
                self._problem,
                vertex,
                least,
                matter,
                params.open_cases[0],
                params.open_columns_around,
            )
            self.solve(Opening(columns, counts), params.around)
            if incumbent.is_last and not incumbent.near_enough(bound):
                self.meet(vertex, params.around)
            if incumbent.worth < before + incumbent.near or incumbent.near_enough(bound):
                return

    def solve_close(self, vertex: Vertex) -> None:
        """Solve the few cases that lose the least by a change from a vertex that splits no case."""
        incumbent, params = self._incumbent, self._params
        columns, counts = around(
            self._problem,
            vertex,
            least_of(self._problem, incumbent.floors),
            incumbent.matter,
            params.close_cases,
            params.open_columns_around,
        )
        self.solve(Opening(columns, counts), params.close)

    def meet(self, vertex: Vertex, share: float) -> None:
        """Solve the cases again of which the plan has other replicas than a vertex."""
        problem, incumbent = self._problem, self._incumbent
        columns = between(problem, vertex, incumbent.counts, self._params.open_columns_around)
        columns &= problem.columns_of(incumbent.matter)
        self.solve(Opening(columns, incumbent.counts), share)

    def exchange(self, vertex: Vertex, bound: float) -> None:
        """Exchange replicas of a few cases at a time, until nothing improves any more."""
        problem, incumbent = self._problem, self._incumbent
        matter = levels_of(incumbent.goal, problem)
        # Less important ones may have what it takes.
        matter[problem.case[incumbent.counts > 0]] = True
        order = by_loss(problem, vertex, incumbent.counts, least_of(problem, incumbent.floors))
        order = order[matter[order]]
        few, failures = self._params.exchanged, 0
        numbers = np.random.default_rng(len(incumbent.reached))
        while not incumbent.near_enough(bound) and not self._budget.is_over:
            cases = self._some_cases(order, matter, few, numbers)
            columns = (
                few_columns(problem, vertex, incumbent.counts, self._params.open_columns)
                & cases[problem.case]
            )
            before = incumbent.worth
            self.solve(Opening(columns, incumbent.counts), 1.0)
            failures = 0 if incumbent.worth > before else failures + 1
            if failures == self._params.exchange_patience:
                few, failures = few * 2, 0
                if few > len(order):
                    return

    def _some_cases(
        self, order: IntArray, matter: BoolArray, few: int, numbers: np.random.Generator
    ) -> BoolArray:
        """A few cases that lose little, that are large, or that are short; shape (cases,)."""
        problem, incumbent = self._problem, self._incumbent
        cases = np.zeros(len(problem.cases), dtype=np.bool_)
        largest = largest_first(problem, incumbent.counts, matter)
        short = short_first(problem, incumbent.counts, incumbent.goal.level)[
            : self._params.exchanged
        ]
        for among in (order, largest, short):
            some = among[: few * self._params.exchanged_among]
            cases[numbers.choice(some, min(few // 2, len(some)), replace=False)] = True
        return cases


def everything(incumbent: GoalIncumbent) -> Opening:
    """All columns that matter to a goal."""
    problem = incumbent.problem
    nothing = np.zeros(len(problem.case), dtype=np.int64)
    return Opening(problem.columns_of(incumbent.matter), nothing)


def openings(
    incumbent: GoalIncumbent,
    goal: Goal,
    floors: tuple[Floor, ...],
    vertex: Vertex,
    base: IntArray,
    touched: BoolArray,
) -> Iterator[Opening]:
    """More and more of the problem, around a plan; of the touched cases always all.

    Parameters
    ----------
    incumbent
        The plan around which it is, unless `base` has more of the goal.
    goal, floors
        What is maximized of the opening, and what is kept.
    vertex
        The vertex whose multipliers say which cases lose the least.
    base
        Another plan, which need not keep the floors; shape (columns,).
    touched
        Cases that are open in any case; shape (cases,).
    """
    problem = incumbent.problem
    matter = incumbent.matter
    order = by_loss(problem, vertex, base, least_of(problem, floors))
    order = order[matter[order]]
    for most in problem.params.open_cases:
        counts = incumbent.counts
        centre = base if incumbent.worth_of(goal) < goal.worth(problem, base) else counts
        cases = touched.copy()
        cases[order[:most]] = True
        few = few_columns(problem, vertex, centre + counts, problem.params.open_columns)
        yield Opening(few & cases[problem.case], centre)
        if most >= len(order):
            break
