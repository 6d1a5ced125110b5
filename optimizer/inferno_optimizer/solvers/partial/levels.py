"""Goal by goal: what is held and served of each level, then the value; with what is proven.

The linear relaxation of a goal proves a bound, and leaves few servers split: as many as there are
types of cards and floors. A mixed integer program exchanges whole replicas of these and of the
cases that the multipliers say lose the least by a change; of all cases, where they are few.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from inferno_optimizer.sizing.queueing import FloatArray, IntArray
from inferno_optimizer.solvers.assignment import OneMoreCard, Timer
from inferno_optimizer.solvers.exact.branch_and_bound import Limits
from inferno_optimizer.solvers.exact.program import BoolArray
from inferno_optimizer.solvers.partial.filling import filled
from inferno_optimizer.solvers.partial.goals import Floor, Goal, Kind, least_of, levels_of
from inferno_optimizer.solvers.partial.problem import Problem
from inferno_optimizer.solvers.partial.relaxation import Relaxation, Vertex
from inferno_optimizer.solvers.partial.rounding import WHOLE, rounded, whole_of
from inferno_optimizer.solvers.partial.whole_replicas import Opening, best_of

SMALL = 1_500
"""Up to so many columns the mixed integer program has all of them, to the last digit."""

SLACK = 1e-9
"""What later goals may take from the load of a level, relative: room for rounding."""

CLOSE = 1e-6
"""Relative distance from what is proven that a vertex can keep."""

GIVEN_UP = 5e-4
"""The same of a larger problem: the last bit of load would make the rest no concern at all."""

NEAR = 0.5
"""Share of that within which whole replicas are near enough to what is proven."""

NEAR_VALUE = 1e-4
"""The same of the value."""

OPEN = (150, 500, 2_000)
"""Cases that are open in the mixed integer program, in turn, until the plan is near enough."""

COLUMNS = 6
"""Open columns of an open case at most: the ones that lose the least."""


@dataclass(frozen=True, slots=True)
class Reached:
    """A goal, what the plan had of it when it was done, and what no plan exceeds."""

    goal: Goal
    bound: float


@dataclass(frozen=True, slots=True)
class Outcome:
    """Replicas of each column, and what is proven of each goal, in their order."""

    counts: IntArray
    reached: tuple[Reached, ...]
    one_more: OneMoreCard
    out_of_time: bool

    def most_served(self) -> list[float]:
        """The most load that can be served of each level."""
        return [reached.bound for reached in self.reached if reached.goal.kind is Kind.SERVED]

    @property
    def least_value(self) -> float:
        """No plan that serves as much of all levels has a lower value."""
        return -self.reached[-1].bound


def goals_of(problem: Problem, *, delayed: bool) -> Iterator[Goal]:
    """What is looked for, the most important first.

    With `delayed`, the cases of all levels are served entirely, as far as possible, before any
    is served in part.
    """
    for level in range(problem.levels):
        yield Goal(Kind.HELD, level)
        yield Goal(Kind.ENTIRE if delayed else Kind.SERVED, level)
    if delayed:
        for level in range(problem.levels):
            yield Goal(Kind.SERVED, level)
    yield Goal(Kind.VALUE, problem.levels - 1)


def solve_by_levels(
    problem: Problem, timer: Timer, tolerance: float | None, *, delayed: bool
) -> Outcome:
    """Solve a problem.

    Parameters
    ----------
    problem
        Columns and cases.
    timer
        Time that remains; when it ends, the best plan so far is the answer.
    tolerance
        Share of the most load of a level that later goals may take; None means `GIVEN_UP`, or
        nothing of a small problem.
    delayed
        As in `goals_of`.
    """
    goals = tuple(goals_of(problem, delayed=delayed))
    search = _Search(problem, timer, tolerance)
    if not len(problem.case):
        return search.nothing(goals)
    for place, goal in enumerate(goals):
        search.reach(goal, ahead=len(goals) - place)
    return search.outcome()


class _Search:
    """The goals reached so far: a plan, and what later goals keep."""

    def __init__(self, problem: Problem, timer: Timer, tolerance: float | None) -> None:
        self._problem, self._timer = problem, timer
        self._exact = len(problem.case) <= SMALL
        by_default = SLACK if self._exact else GIVEN_UP
        self._tolerance = by_default if tolerance is None else max(tolerance, SLACK)
        self._counts = np.zeros(len(problem.case), dtype=np.int64)
        self._known = np.zeros(len(problem.case), dtype=np.bool_)
        self._floors: tuple[Floor, ...] = ()
        self._reached: tuple[Reached, ...] = ()
        self._card_prices: dict[Goal, FloatArray] = {}
        self._ends_at = 0.0

    def outcome(self) -> Outcome:
        """The plan and what is proven."""
        out_of_time = self._timer.to_search() <= 0
        return Outcome(self._counts, self._reached, self._one_more(), out_of_time)

    def nothing(self, goals: tuple[Goal, ...]) -> Outcome:
        """The plan where no card can be given to anybody."""
        reached = tuple(Reached(goal, 0.0) for goal in goals)
        unknown = OneMoreCard.unknown(len(self._problem.capacity))
        return Outcome(self._counts, reached, unknown, out_of_time=False)

    def _one_more(self) -> OneMoreCard:
        """What one more card of each type is worth, by the multipliers of the relaxations."""
        found = OneMoreCard.unknown(len(self._problem.capacity))
        floors: tuple[Floor, ...] = ()
        for reached in self._reached:
            goal = reached.goal
            short = self._worth(goal) < goal.most(self._problem) * (1 - SLACK)
            if goal.kind is Kind.VALUE or (goal.kind is Kind.SERVED and short):
                prices = self._prices(goal, floors)
                if prices is None:
                    break
                if goal.kind is Kind.VALUE:
                    found.add_price(prices)
                else:
                    found.add_gain(goal.level, prices)
            floors = (*floors, *(floor for floor in self._floors if floor.goal == goal))
        return found

    def _prices(self, goal: Goal, floors: tuple[Floor, ...]) -> FloatArray | None:
        """What a card of each type is worth to a goal; None where there is no time to tell."""
        if goal not in self._card_prices:
            relaxation = Relaxation(self._problem, goal, floors)
            known = self._known | (self._counts > 0)
            vertex = relaxation.solve(known, self._timer.seconds_left)
            if vertex is None:
                return None
            self._card_prices[goal] = vertex.prices
        return self._card_prices[goal]

    def reach(self, goal: Goal, ahead: int) -> None:
        """Reach the most of a goal, in its share of the time."""
        problem = self._problem
        self._ends_at = self._timer.to_search() * (1 - 2 / (ahead + 1))
        if goal.kind is Kind.HELD:
            self._extend(goal)
            self._hold_all(goal)
        most = goal.most(problem)
        bound = most
        if self._worth(goal) < most * (1 - SLACK) or goal.kind is Kind.VALUE:
            bound = self._maximize(goal, self._floors)
        self._keep(goal, max(bound, self._worth(goal)))

    def _worth(self, goal: Goal) -> float:
        return goal.worth(self._problem, self._counts)

    def _seconds_left(self) -> float:
        """Seconds of the present goal's share of the time."""
        return self._timer.to_search() - self._ends_at

    def _extend(self, goal: Goal) -> None:
        """Give the cases of a level, which have nothing yet, what runs, then what fits."""
        problem, counts = self._problem, self._counts
        mine = problem.level == goal.level
        counts = filled(problem, counts, mine, only_hold=True)
        counts = filled(problem, counts, mine, only_hold=False)
        self._counts = counts

    def _hold_all(self, goal: Goal) -> None:
        """Look for a plan in which all of the level that runs is held, and most is served."""
        most = goal.most(self._problem)
        if self._done(goal):
            return
        floors = (*self._floors, Floor(goal, most, whole=True))
        self._maximize(Goal(Kind.SERVED, goal.level), floors, goal)

    def _maximize(
        self, goal: Goal, floors: tuple[Floor, ...], instead: Goal | None = None
    ) -> float:
        """Improve the plan as to a goal, among those that keep floors; the bound that is proven.

        A plan may also be better as to another goal, whatever it then has of this one.
        """
        problem, bound = self._problem, goal.most(self._problem)
        if goal.kind is Kind.VALUE:
            bound = np.inf
        vertex, start = None, self._counts
        if not self._exact:
            vertex, proven = self._relax(goal, floors)
            if vertex is None:
                return bound
            bound = min(bound, proven)
            least = least_of(problem, floors)
            plan = rounded(problem, vertex, least, problem.level == goal.level)
            if plan is not None:
                start = filled(problem, plan, levels_of(goal, problem), only_hold=False)
                self._offer(instead or goal, floors, start)
        for opening, everything in self._openings(goal, floors, vertex, start):
            near = self._near(goal, bound)
            if self._seconds_left() <= 0 or (
                self._worth(goal) >= bound - near if instead is None else self._done(instead)
            ):
                break
            limits = Limits(self._seconds_left(), near)
            found = best_of(problem, goal, floors, opening, limits, start)
            if everything:
                bound = min(bound, found.bound)
            if found.counts is not None:
                start = found.counts
                self._offer(instead or goal, floors, found.counts)
        return bound

    def _done(self, goal: Goal) -> bool:
        """Whether there is no more of a goal to have."""
        return self._worth(goal) >= goal.most(self._problem) * (1 - SLACK)

    def _relax(self, goal: Goal, floors: tuple[Floor, ...]) -> tuple[Vertex | None, float]:
        """A vertex that keeps as much as the plan, and what is proven with the floors."""
        known = self._known | (self._counts > 0)
        relaxation = Relaxation(self._problem, goal, floors)
        vertex = relaxation.solve(known, self._seconds_left)
        if vertex is None or vertex.missing > WHOLE:
            return None, np.inf
        proven = vertex.bound
        self._card_prices[goal] = vertex.prices
        self._known = known | (vertex.amounts > 0)
        for raised in (self._raised(floors, to_bound=True), self._raised(floors, to_bound=False)):
            if raised == floors:
                continue
            nearer = Relaxation(self._problem, goal, raised).solve(self._known, self._seconds_left)
            if nearer is not None and nearer.missing <= WHOLE:
                self._known |= nearer.amounts > 0
                return nearer, proven
        return vertex, proven

    def _raised(self, floors: tuple[Floor, ...], *, to_bound: bool) -> tuple[Floor, ...]:
        """Floors at what the plan has, the last sum at what is proven: whole replicas have less."""
        bounds = {reached.goal: reached.bound for reached in self._reached}
        sums = [floor for floor in floors if not floor.whole and floor.goal.kind is not Kind.HELD]
        raised = []
        for floor in floors:
            load = self._worth(floor.goal)
            if to_bound and floor in sums[-1:]:
                load = bounds[floor.goal] * (1 - CLOSE)
            kept = (
                floor if floor.whole else replace(floor, load=max(floor.load, load * (1 - SLACK)))
            )
            raised.append(kept)
        return tuple(raised)

    def _near(self, goal: Goal, bound: float) -> float:
        """Distance from a bound that is near enough."""
        if self._exact or not np.isfinite(bound):
            return 0.0
        if goal.kind is Kind.VALUE:
            return NEAR_VALUE * max(abs(bound), 1.0)
        return NEAR * self._tolerance * bound

    def _openings(
        self, goal: Goal, floors: tuple[Floor, ...], vertex: Vertex | None, start: IntArray
    ) -> Iterator[tuple[Opening, bool]]:
        """More and more of the problem; whether it is everything that matters."""
        problem = self._problem
        matter = levels_of(goal, problem)
        for floor in self._floors:
            matter = matter | (problem.level == floor.goal.level)
        nothing = np.zeros(len(problem.case), dtype=np.int64)
        if vertex is None:
            yield Opening(problem.columns_of(matter), nothing), True
            return
        counts, split = whole_of(problem, vertex)
        moved = np.zeros(len(problem.cases), dtype=np.bool_)
        moved[problem.case[start != counts]] = True
        if np.count_nonzero(moved) <= OPEN[0]:
            split |= moved
        order = _by_loss(problem, vertex, counts, least_of(problem, floors))
        order = order[matter[order]]
        for most in OPEN:
            cases = split.copy()
            cases[order[:most]] = True
            yield (
                Opening(
                    _few_columns(problem, vertex, counts + start) & cases[problem.case], counts
                ),
                False,
            )
            if most >= len(order):
                break

    def _offer(self, goal: Goal, floors: tuple[Floor, ...], counts: IntArray) -> None:
        """Accept a plan that fits, keeps the floors and has more of the goal."""
        problem = self._problem
        if goal.kind is not Kind.VALUE:
            counts = filled(problem, counts, levels_of(goal, problem), only_hold=False)
        if np.any(problem.used(counts) > problem.capacity):
            return
        for floor in floors:
            if floor.goal.worth(problem, counts) < floor.load - WHOLE * max(floor.load, 1.0):
                return
        if goal.worth(problem, counts) > self._worth(goal):
            self._counts = counts

    def _keep(self, goal: Goal, bound: float) -> None:
        """Record what is proven, and what later goals keep."""
        self._reached = (*self._reached, Reached(goal, bound))
        if goal.kind is Kind.VALUE:
            return
        reached, most = self._worth(goal), goal.most(self._problem)
        if reached >= most * (1 - SLACK):
            self._floors = (*self._floors, Floor(goal, most, whole=True))
            return
        load = reached * (1 - SLACK)
        if goal.kind is not Kind.HELD:  # what runs is no matter of tolerance
            load = min(load, bound * (1 - self._tolerance))
        if load > 0:
            self._floors = (*self._floors, Floor(goal, load, whole=False))


def _by_loss(problem: Problem, vertex: Vertex, counts: IntArray, least: FloatArray) -> IntArray:
    """The cases, those first that lose the least by a small change; of each type in turn.

    A case that has no more than its least share can only change to another column.
    """
    shares = np.bincount(problem.case, counts / problem.full, len(problem.cases))
    loss = np.maximum(vertex.lost, 0.0)
    loss = np.where(shares[problem.case] > 0, loss, loss / problem.full)
    fewer = np.maximum(vertex.share, 0.0)[problem.case] / problem.full
    spare = (shares > least * (1 + SLACK))[problem.case]
    loss = np.where(counts > 0, np.where(spare, fewer, np.inf), loss)
    entries = problem.cards
    case, loss = problem.case[entries.column], loss[entries.column]
    order = np.lexsort((problem.weight[case], loss, entries.type))
    order = order[np.isfinite(loss[order])]
    first = np.searchsorted(entries.type[order], np.arange(len(problem.capacity)))
    rank = np.arange(len(order)) - first[entries.type[order]]
    in_turn = case[order[np.lexsort((entries.type[order], rank))]]
    distinct, seen = np.unique(in_turn, return_index=True)
    return distinct[np.argsort(seen)]


def _few_columns(problem: Problem, vertex: Vertex, counts: IntArray) -> BoolArray:
    """The columns of each case that lose the least, and those that it has or that run."""
    loss: FloatArray = np.where((counts > 0) | (problem.runs > 0), -1.0, vertex.lost)
    order = np.lexsort((loss, problem.case))
    case = problem.case[order]
    first = np.flatnonzero(np.diff(case, prepend=-1))
    rank = np.arange(len(case)) - np.repeat(first, np.diff(first, append=len(case)))
    few = np.zeros(len(case), dtype=np.bool_)
    few[order[rank < COLUMNS]] = True
    return few & np.isfinite(vertex.lost)
