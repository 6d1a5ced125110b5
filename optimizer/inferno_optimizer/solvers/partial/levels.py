"""Goal by goal: what is held and served of each level, then the value; with what is proven.

The driver of the search with partial service: it gives each goal its share of the time, and what it
reached is a floor for all goals after it. `stage.py` searches for one goal.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from inferno_optimizer.sizing.queueing import FloatArray, IntArray
from inferno_optimizer.solvers.assignment import NO_LEVEL, SMALLEST_GAIN, OneMoreCard
from inferno_optimizer.solvers.budget import Budget
from inferno_optimizer.solvers.failures import Failures
from inferno_optimizer.solvers.incumbent import ProgressObserver
from inferno_optimizer.solvers.partial.goals import (
    Floor,
    Goal,
    GoalKind,
    GoalTolerance,
    Reached,
    goals_of,
    levels_of,
    served_entirely,
)
from inferno_optimizer.solvers.partial.incumbent import GoalIncumbent
from inferno_optimizer.solvers.partial.problem import ReplicaProblem
from inferno_optimizer.solvers.partial.rounding import filled
from inferno_optimizer.solvers.partial.stage import GoalProof, GoalStage
from inferno_optimizer.solvers.partial.warm_start import WarmStart
from inferno_optimizer.solvers.partial.whole_replicas import Opening, best_of

PRICED = (GoalKind.SERVED, GoalKind.VALUE)
"""Goals to which a card has a price."""

CardPrices = Callable[[Goal, tuple[Floor, ...]], FloatArray | None]
"""What a card of each type is worth to a goal, with floors; None where there is no time to tell."""


@dataclass(frozen=True, slots=True)
class WorthOfCards:
    """A plan, and what was reached of each goal.

    Attributes
    ----------
    problem, counts
        The problem, and the plan: replicas of each column.
    reached, floors
        What is proven of each goal, in their order, and what the plan keeps of them.
    """

    problem: ReplicaProblem
    counts: IntArray
    reached: tuple[Reached, ...]
    floors: tuple[Floor, ...]

    def by_prices(self, prices_of: CardPrices) -> OneMoreCard:
        """What the multipliers of the relaxations tell."""
        found = OneMoreCard.unknown(len(self.problem.capacity))
        for goal, floors in self._goals():
            if goal.kind in PRICED and self._may_grow(goal, self.problem):
                prices = prices_of(goal, floors)
                if prices is None:
                    break
                if goal.kind is GoalKind.VALUE:
                    found.add_price(prices)
                else:
                    found.add_gain(goal.level, prices)
        return found

    def plan_is_best(self) -> bool:
        """Whether it is proven of every goal that no plan has more of it."""
        return all(
            reached.bound - self._worth(reached.goal)
            <= self.problem.params.solved * max(1.0, abs(reached.bound))
            for reached in self.reached
        )

    def by_solving_again(self, budget: Budget, found: OneMoreCard) -> None:
        """Tell what solving again with a card more of each type shows, if there is time for it."""
        types = len(self.problem.capacity)
        for card_type in range(types):
            capacity = self.problem.capacity + (np.arange(types) == card_type)
            grown = replace(self.problem, capacity=capacity)
            gain = self._gain(grown, budget.part(1 / (types - card_type)))
            if gain is not None:
                found.tell(card_type, *gain)

    def _gain(self, problem: ReplicaProblem, budget: Budget) -> tuple[int, float] | None:
        """The first level that serves more in another problem, or none, and how much better it is.

        None where there is no time to prove it, or where more is held, or served entirely.
        """
        for goal, floors in self._goals():
            if not self._may_grow(goal, problem):
                continue
            saved = None if budget.is_over else self._saved(goal, floors, problem, budget)
            if saved is None or goal.kind is GoalKind.VALUE:
                return None if saved is None else (NO_LEVEL, saved)
            if saved > SMALLEST_GAIN:
                return (goal.level, saved) if goal.kind is GoalKind.SERVED else None
        return None

    def _may_grow(self, goal: Goal, problem: ReplicaProblem) -> bool:
        return goal.kind is GoalKind.VALUE or self._worth(goal) < goal.most(problem) * (
            1 - problem.params.rounding
        )

    def _saved(
        self, goal: Goal, floors: tuple[Floor, ...], problem: ReplicaProblem, budget: Budget
    ) -> float | None:
        """How much more of a goal another problem has; None where that is not proven in time."""
        before = self._worth(goal)
        matter = problem.columns_of(levels_of(goal, problem))
        opening = Opening(matter, np.zeros_like(self.counts))
        best = best_of(problem, goal, floors, opening, self.counts, budget)
        after = before if best.counts is None else goal.worth(problem, best.counts)
        rounding = problem.params.solved * max(1.0, abs(before))
        if best.bound - after > rounding:
            return None
        return after - before if after - before > rounding else 0.0

    def _goals(self) -> list[tuple[Goal, tuple[Floor, ...]]]:
        """The goals, each with what is kept of those before it."""
        goals = [reached.goal for reached in self.reached]
        return [
            (goal, tuple(floor for floor in self.floors if floor.goal in goals[:place]))
            for place, goal in enumerate(goals)
        ]

    def _worth(self, goal: Goal) -> float:
        return goal.worth(self.problem, self.counts)


@dataclass(frozen=True, slots=True)
class Outcome:
    """Replicas of each column, and what is proven of each goal, in their order."""

    counts: IntArray
    reached: tuple[Reached, ...]
    one_more: OneMoreCard
    out_of_time: bool
    failures: tuple[str, ...] = ()

    def most_served(self) -> list[float]:
        """The most load that can be served of each level."""
        return [reached.bound for reached in self.reached if reached.goal.kind is GoalKind.SERVED]

    @property
    def least_value(self) -> float:
        """No plan has a lower value that serves of all levels what was reached in their turn."""
        return -self.reached[-1].bound


def solve_by_levels(
    problem: ReplicaProblem,
    budget: Budget,
    tolerance: float | None,
    *,
    delayed: bool,
    observe: ProgressObserver | None = None,
    known: IntArray | None = None,
) -> Outcome:
    """Solve a problem.

    Parameters
    ----------
    problem
        Columns and cases.
    budget
        Work that remains; when it is done, the best plan so far is the answer.
    tolerance
        Share of the most load of a level that later goals may take; None means that of
        `GoalTolerance`, or nothing of a small problem.
    delayed
        As in `goals_of`.
    observe
        Is told of every improvement; None where nobody wants to know.
    known
        A plan that fits, so that the answer is no worse: replicas of each column.
    """
    goals = tuple(goals_of(problem, delayed=delayed))
    exact = len(problem.case) <= problem.params.small
    search = _GoalByGoal(problem, budget, tolerance, observe, known, exact=exact)
    if not len(problem.case):
        return search.nothing(goals)
    for place, goal in enumerate(goals):
        search.reach(goal, ahead=sum(each.may_be_reached(problem) for each in goals[place:]))
    return search.outcome()


class _GoalByGoal:
    """The goals reached so far: a plan, and what later goals keep."""

    def __init__(
        self,
        problem: ReplicaProblem,
        budget: Budget,
        tolerance: float | None,
        observe: ProgressObserver | None,
        known: IntArray | None,
        *,
        exact: bool,
    ) -> None:
        self._problem, self._budget, self._observe = problem, budget, observe
        self._tolerance = GoalTolerance.of(tolerance, problem.params, exact=exact)
        self._counts = np.zeros(len(problem.case), dtype=np.int64)
        self._lots = np.ones_like(self._counts)
        self._entire = np.zeros(len(problem.cases), dtype=np.bool_)
        self._known = known
        self._start = WarmStart(problem)
        self._floors: tuple[Floor, ...] = ()
        self._reached: tuple[Reached, ...] = ()
        self._card_prices: dict[Goal, FloatArray] = {}
        self._failures = Failures()

    def outcome(self) -> Outcome:
        """The plan and what is proven."""
        is_over = self._budget.is_over
        counts, failures = self._counts * self._lots, self._failures
        one_more = failures.attempt("value of one more card", self._one_more)
        return Outcome(
            counts,
            self._reached,
            one_more or OneMoreCard.unknown(len(self._problem.capacity)),
            is_over,
            failures.texts,
        )

    def nothing(self, goals: tuple[Goal, ...]) -> Outcome:
        """The plan where no card can be given to anybody."""
        reached = tuple(Reached(goal, 0.0) for goal in goals)
        unknown = OneMoreCard.unknown(len(self._problem.capacity))
        return Outcome(self._counts, reached, unknown, out_of_time=False)

    def reach(self, goal: Goal, ahead: int) -> None:
        """Reach the most of a goal, in its share of the work."""
        if goal.kind is GoalKind.HELD:
            shares = 1
            self._extend(goal)
        else:
            shares = 2
            self._take_whole_rows()
        proof = self._proof(goal, self._budget.part(shares / (ahead + 1)))
        if proof.prices is not None:
            self._card_prices[goal] = proof.prices
        self._keep(goal, proof)

    def _proof(self, goal: Goal, budget: Budget) -> GoalProof:
        """Improve the plan as to a goal; what is proven."""
        problem, floors = self._problem, self._floors
        incumbent = GoalIncumbent(problem, goal, floors, self._reached, self._counts, self._observe)
        if self._known is not None:
            incumbent.offer(self._known // self._lots)
        stage = GoalStage(incumbent, self._tolerance, self._start, budget)
        proof = self._failures.attempt(str(goal), stage.run)
        if proof is None:  # nothing is proven where a step failed; the plan is the best so far
            is_value = goal.kind is GoalKind.VALUE
            proof = GoalProof(np.inf if is_value else goal.most(problem), floors)
        incumbent.report(max(proof.bound, incumbent.worth))
        self._counts = incumbent.counts
        return proof

    def _extend(self, goal: Goal) -> None:
        """Give the cases of a level, which have nothing yet, what runs, then what fits."""
        problem, counts = self._problem, self._counts
        of_level = problem.level == goal.level
        counts = filled(problem, counts, of_level, only_hold=True)
        counts = filled(problem, counts, of_level, only_hold=False)
        self._counts = counts

    def _take_whole_rows(self) -> None:
        """From now on cases of levels that are served entirely have all of a column or none."""
        problem, cases = self._problem, served_entirely(self._problem, self._floors)
        if np.array_equal(cases, self._entire):  # a new problem would count its cards again
            return
        self._entire, of_cases = cases, problem.columns_of(cases)
        self._lots *= np.where(of_cases, problem.full, 1.0).astype(np.int64)
        self._counts = np.where(of_cases, self._counts > 0, self._counts).astype(np.int64)
        self._problem = problem.entirely(cases)

    def _keep(self, goal: Goal, proof: GoalProof) -> None:
        """Record what is proven of a goal, and what later goals keep."""
        has, most = goal.worth(self._problem, self._counts), goal.most(self._problem)
        bound = max(proof.bound, has)
        self._reached = (*self._reached, Reached(goal, bound, has, proof.floors))
        if goal.kind is GoalKind.VALUE:
            return
        rounding = self._problem.params.rounding
        stays_whole = goal.kind is GoalKind.HELD or self._tolerance.keeps_whole
        if stays_whole and has >= most * (1 - rounding):
            self._floors = (*self._floors, Floor(goal, most, whole=True))
            return
        load = self._tolerance.kept(goal, has * (1 - rounding), bound)
        if load > 0:
            self._floors = (*self._floors, Floor(goal, load, whole=False))

    def _one_more(self) -> OneMoreCard:
        """What one more card of each type is worth.

        A small problem that is solved to the end is solved again with each.
        """
        cards = WorthOfCards(self._problem, self._counts, self._reached, self._floors)
        found = cards.by_prices(self._prices)
        if self._tolerance.exact and cards.plan_is_best():
            cards.by_solving_again(self._budget.whole, found)
        return found

    def _prices(self, goal: Goal, floors: tuple[Floor, ...]) -> FloatArray | None:
        """What a card of each type is worth to a goal; None where there is no time to tell."""
        if goal not in self._card_prices:
            relaxation = self._start.relaxation(self._problem, goal, floors, self._counts)
            vertex = relaxation.solve(self._budget.whole)
            if vertex is None:
                return None
            self._card_prices[goal] = vertex.prices
        return self._card_prices[goal]
