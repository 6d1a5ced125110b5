"""What one more card of each type is worth.

The multipliers of the linear relaxation estimate it [A. M. Geoffrion, *Lagrangean relaxation for
integer programming*, Mathematical Programming Study 2 (1974) 82-114]; a small problem whose plan is
the best is solved again with each.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from inferno_optimizer.sizing.queueing import FloatArray, IntArray
from inferno_optimizer.solvers.assignment import NO_LEVEL, SMALLEST_GAIN, OneMoreCard
from inferno_optimizer.solvers.budget import Budget
from inferno_optimizer.solvers.goals import Floor, Goal, GoalKind, Reached, levels_of
from inferno_optimizer.solvers.neighbourhoods import Opening, solve_opening
from inferno_optimizer.solvers.problem import ReplicaProblem

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
        best = solve_opening(problem, goal, floors, opening, self.counts, budget)
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
