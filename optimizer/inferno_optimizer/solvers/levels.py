"""Level by level the most load, then the least value: the driver of the lexicographic solvers.

A solver gives a search for each goal. What a level reached is a floor for all goals after it; the
bound of a goal holds among the plans that keep the floors before it. See `assignment.md`, section
"The problem".
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

import numpy as np

from inferno_optimizer.sizing.queueing import FloatArray
from inferno_optimizer.solvers.assignment import OneMoreCard, Timer
from inferno_optimizer.solvers.failures import Failures
from inferno_optimizer.solvers.incumbent import Incumbent

SLACK = 1e-9
"""Relative difference of loads that is rounding."""

SOLVED = 1e-6
"""Relative distance of a value from its bound up to which the plan counts as the best one."""

Plan = TypeVar("Plan")
"""Rows that are chosen, or replicas of items."""


@dataclass(frozen=True, slots=True)
class Floors:
    """Load that each of the first levels is to keep, shape (levels,).

    The first `whole` of them are served entirely: none of their cases is left out.
    """

    loads: FloatArray
    whole: int


@dataclass(frozen=True, slots=True)
class LevelGoal:
    """The level whose load is maximized, or None for the value; and what every plan keeps."""

    level: int | None
    floors: Floors


@dataclass(frozen=True, slots=True)
class Tolerance:
    """What later goals may trade away of a level's load.

    Attributes
    ----------
    share
        Share of the load.
    keeps_whole
        Whether nobody is left out of a level that can be served entirely, and of those before it.
    """

    share: float
    keeps_whole: bool

    @classmethod
    def of(cls, wanted: float | None, by_default: float) -> "Tolerance":
        """The share that a person wants, or else that of a solver; never less than rounding."""
        share = by_default if wanted is None else max(wanted, SLACK)
        return cls(share, keeps_whole=not wanted)

    def floor(self, served: float) -> float:
        """Load of a level that later goals keep: hardly any other plan serves all of it."""
        return served * (1 - self.share)


@dataclass(frozen=True, slots=True)
class GoalTime:
    """Seconds that remain for a goal; and for it and all that come after it."""

    left: Callable[[], float]
    left_in_all: Callable[[], float]


class GoalSearch(Protocol[Plan]):
    """The search for one goal, among the cases that matter to it."""

    @property
    def incumbent(self) -> Incumbent[Plan]:
        """The best plan of these cases."""

    def improve(self, time: GoalTime) -> None:
        """Improve the incumbent and its bound; an error ends only the search for this goal."""

    def plan(self, floors: Floors) -> Plan:
        """The incumbent, with what all other cases have; or another plan that keeps the floors."""


@dataclass(frozen=True, slots=True)
class ProvenPlan(Generic[Plan]):
    """A plan, with proven bounds of the load of each level and of the value.

    A bound of a level holds among the plans that serve as much of the levels before it; that of
    the value among those that keep the floors of all, and it is -inf where nothing is proven.
    """

    plan: Plan
    most_served: FloatArray
    least_value: float
    floors: Floors

    def is_best(self, served: FloatArray, value: float) -> bool:
        """Whether it is proven that no plan is better than this one, with its loads and value."""
        served_most = bool(np.all(served >= self.most_served * (1 - SLACK)))
        return served_most and value - self.least_value <= SOLVED * max(1.0, abs(value))


class LevelProblem(Protocol[Plan]):
    """What a solver gives to the driver."""

    @property
    def loads(self) -> FloatArray:
        """The whole load of each level; shape (levels,)."""

    def share_of_time(self, ahead: int) -> float:
        """Share of the remaining time for a goal, of so many that are ahead with it."""

    def search(self, goal: LevelGoal, plan: Plan) -> GoalSearch[Plan]:
        """The search for a goal, from what is known after the goals before it."""

    def one_more(self, reached: ProvenPlan[Plan]) -> OneMoreCard:
        """What one more card of each type is worth, in the time that remains."""


@dataclass(frozen=True, slots=True)
class LevelPlan(Generic[Plan]):
    """What was reached.

    `one_more` tells what one more card of each type is worth, in the time that remains.
    `failures` are steps that ended with an error.
    """

    reached: ProvenPlan[Plan]
    one_more: Callable[[], OneMoreCard]
    out_of_time: bool
    failures: tuple[str, ...] = ()

    @property
    def plan(self) -> Plan:
        """Rows that are chosen, or replicas of items."""
        return self.reached.plan

    @property
    def most_served(self) -> FloatArray:
        """No plan serves more of each level, and as much of the levels before it."""
        return self.reached.most_served

    @property
    def least_value(self) -> float:
        """No plan has a lower value, and serves as much of all levels."""
        return self.reached.least_value


def solve_levels(
    problem: LevelProblem[Plan], plan: Plan, timer: Timer, tolerance: Tolerance
) -> LevelPlan[Plan]:
    """Reach the goals one after the other.

    Parameters
    ----------
    problem
        What the goals are, and how each is searched for.
    plan
        The plan to begin with.
    timer
        Time that remains; when it ends, the best plan so far is the answer.
    tolerance
        What later goals may trade away.
    """
    driver = _Driver(problem, plan, timer, tolerance)
    for level in range(len(problem.loads)):
        driver.serve(level)
    return driver.finish()


class _Driver(Generic[Plan]):
    """The levels done so far: a plan, and floors that later goals keep."""

    def __init__(
        self, problem: LevelProblem[Plan], plan: Plan, timer: Timer, tolerance: Tolerance
    ) -> None:
        self._problem, self._plan = problem, plan
        self._seconds_left, self._tolerance = timer.to_search, tolerance
        self._failures = Failures()
        self._floors = Floors(np.zeros(0), 0)
        self._bounds = np.zeros(0)

    def serve(self, level: int) -> None:
        """Serve the most load of one level, the earlier ones keeping theirs."""
        search, total = self._reach(level), float(self._problem.loads[level])
        incumbent = search.incumbent
        served, most = -incumbent.value, min(-incumbent.bound, total)
        is_whole = self._floors.whole == level and served >= total * (1 - SLACK)
        whole = self._floors.whole + (is_whole and self._tolerance.keeps_whole)
        loads = np.append(self._floors.loads, self._tolerance.floor(served))
        self._floors = Floors(loads, whole)
        self._bounds = np.append(self._bounds, most)
        self._plan = search.plan(self._floors)

    def finish(self) -> LevelPlan[Plan]:
        """Find the least value among the plans that keep the floors."""
        search = self._reach(None)
        incumbent, self._plan = search.incumbent, search.plan(self._floors)
        floors = Floors(incumbent.floors, self._floors.whole)
        reached = ProvenPlan(self._plan, self._bounds, incumbent.bound, floors)
        return LevelPlan(
            reached,
            lambda: self._problem.one_more(reached),
            out_of_time=self._seconds_left() <= 0,
            failures=self._failures.texts,
        )

    def _reach(self, level: int | None) -> GoalSearch[Plan]:
        """The search for a goal, at its end."""
        search = self._problem.search(LevelGoal(level, self._floors), self._plan)
        self._failures.attempt(
            "value" if level is None else f"load of priority class {level + 1}",
            lambda: search.improve(self._time(level)),
        )
        return search

    def _time(self, level: int | None) -> GoalTime:
        """A share of the time that remains."""
        ahead = 1 if level is None else len(self._problem.loads) + 1 - level
        reserved = self._seconds_left() * (1 - self._problem.share_of_time(ahead))
        return GoalTime(lambda: self._seconds_left() - reserved, self._seconds_left)
