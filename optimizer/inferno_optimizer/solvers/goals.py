"""What is maximized or minimized one after the other, and what later goals keep of it.

This is the method of lexicographic optimization, in which a goal may be given up within a tolerance
[M. Ehrgott, *Multicriteria Optimization*, 2005, chapter 5; F. M. Waltz, *An engineering approach:
hierarchical optimization criteria*, IEEE Transactions on Automatic Control 12 (1967) 179-180].
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from enum import Enum

import numpy as np

from inferno_optimizer.sizing.queueing import BoolArray, FloatArray, IntArray
from inferno_optimizer.solvers.params import SolveParams
from inferno_optimizer.solvers.problem import ReplicaProblem


class GoalKind(Enum):
    """The load of a level that is held, served or served entirely; or the value of all."""

    HELD = "held"
    SERVED = "served"
    ENTIRE = "entire"
    VALUE = "value"


@dataclass(frozen=True, slots=True)
class Goal:
    """Something to be maximized of a level; the value is minimized, of all levels."""

    kind: GoalKind
    level: int

    def __str__(self) -> str:
        if self.kind is GoalKind.VALUE:
            return "value"
        return f"{self.kind.value} load of priority class {self.level + 1}"

    def worth(self, problem: ReplicaProblem, counts: IntArray) -> float:
        """What replicas, shape (columns,), reach; a value with its sign changed."""
        if self.kind is GoalKind.VALUE:
            return -float(problem.values(counts).sum())
        return float(problem.load(self.shares(problem, counts))[self.level])

    def shares(self, problem: ReplicaProblem, counts: IntArray) -> FloatArray:
        """Share of each case that counts."""
        if self.kind is GoalKind.HELD:
            return problem.holding(counts)
        served = problem.served(counts)
        return np.floor(served) if self.kind is GoalKind.ENTIRE else served

    def most(self, problem: ReplicaProblem) -> float:
        """What no plan exceeds, whatever cards there are."""
        if self.kind is GoalKind.VALUE:
            return 0.0
        shares = problem.held if self.kind is GoalKind.HELD else np.ones(len(problem.cases))
        return float(problem.load(shares)[self.level])

    def may_be_reached(self, problem: ReplicaProblem) -> bool:
        """Whether there is something to search for: nothing is held where nothing runs."""
        return self.kind is GoalKind.VALUE or self.most(problem) > 0

    def is_last(self, problem: ReplicaProblem) -> bool:
        """Whether no other load follows."""
        return self.level == problem.levels - 1 and self.kind is not GoalKind.HELD


def goals_of(problem: ReplicaProblem, *, delayed: bool) -> Iterator[Goal]:
    """What is looked for, the most important first.

    With `delayed`, the cases of all levels are served entirely, as far as possible, before any
    is served in part.
    """
    for level in range(problem.levels):
        yield Goal(GoalKind.HELD, level)
        yield Goal(GoalKind.ENTIRE if delayed else GoalKind.SERVED, level)
    if delayed:
        for level in range(problem.levels):
            yield Goal(GoalKind.SERVED, level)
    yield Goal(GoalKind.VALUE, problem.levels - 1)


@dataclass(frozen=True, slots=True)
class Floor:
    """What later goals keep of a goal.

    Where it is `whole`, every case of the level keeps all that there is to have: no sum is needed.
    """

    goal: Goal
    load: float
    whole: bool


def raise_for_rounding(
    floors: tuple[Floor, ...], top: Callable[[Goal], float], share: float
) -> tuple[Floor, ...]:
    """The floors higher by a share, half of the way to a top of each goal at most."""
    return tuple(
        replace(floor, load=floor.load + min(share * floor.load, room / 2))
        for floor in floors
        for room in (max(top(floor.goal) - floor.load, 0.0),)
    )


def raise_to(floors: tuple[Floor, ...], worth_of: Callable[[Goal], float]) -> tuple[Floor, ...]:
    """The floors as high as what a plan has, where that is more."""
    return tuple(replace(floor, load=max(worth_of(floor.goal), floor.load)) for floor in floors)


@dataclass(frozen=True, slots=True)
class Reached:
    """A goal, what the plan had of it when it was done, and what no plan that keeps floors has."""

    goal: Goal
    bound: float
    has: float = 0.0
    floors: tuple[Floor, ...] = ()


def least_shares(problem: ReplicaProblem, floors: tuple[Floor, ...], kind: GoalKind) -> FloatArray:
    """Share of each case that must count as held, as served or as served entirely; (cases,)."""
    least = np.zeros(len(problem.cases))
    for floor in floors:
        if floor.whole and floor.goal.kind is kind:
            of_level = problem.level == floor.goal.level
            least[of_level] = problem.held[of_level] if kind is GoalKind.HELD else 1.0
    return least


def least_of(problem: ReplicaProblem, floors: tuple[Floor, ...]) -> FloatArray:
    """Share that each case must have in any way, shape (cases,)."""
    least: FloatArray = np.maximum.reduce(
        [least_shares(problem, floors, kind) for kind in GoalKind]
    )
    return least


def held_shares(problem: ReplicaProblem, floors: tuple[Floor, ...]) -> FloatArray:
    """Share of each case that a floor counts as held, shape (cases,): the last to be given up."""
    levels = [floor.goal.level for floor in floors if floor.goal.kind is GoalKind.HELD]
    return np.where(np.isin(problem.level, levels), problem.held, 0.0)


def served_entirely(problem: ReplicaProblem, floors: tuple[Floor, ...]) -> BoolArray:
    """Cases of levels that are served entirely."""
    kinds = (GoalKind.SERVED, GoalKind.ENTIRE)
    entirely: BoolArray = np.maximum(*(least_shares(problem, floors, kind) for kind in kinds)) >= 1
    return entirely


def with_sum(floors: tuple[Floor, ...], kind: GoalKind) -> list[Floor]:
    """Floors of a kind that are sums over the cases of a level."""
    return [floor for floor in floors if floor.goal.kind is kind and not floor.whole]


def levels_of(goal: Goal, problem: ReplicaProblem) -> BoolArray:
    """Cases that matter to a goal and those before it."""
    if goal.kind is GoalKind.VALUE:
        return np.ones(len(problem.cases), dtype=np.bool_)
    matter: BoolArray = problem.level <= goal.level
    return matter


def levels_before(goal: Goal, problem: ReplicaProblem) -> BoolArray:
    """Cases that only goals before this one serve."""
    before: BoolArray = (problem.level < goal.level) | (goal.kind is GoalKind.VALUE)
    return before


@dataclass(frozen=True, slots=True)
class GoalTolerance:
    """Share of the load of a level that later goals may take; nothing where all is `exact`.

    With `keeps_whole` nobody is left out of a level that is served entirely: only who asks for a
    tolerance wants that.
    """

    share: float
    exact: bool
    keeps_whole: bool
    params: SolveParams

    @classmethod
    def of(cls, wanted: float | None, params: SolveParams, *, exact: bool) -> "GoalTolerance":
        """What a person wants, or that of the search; never less than rounding."""
        by_default = params.rounding if exact else params.tolerance
        share = by_default if wanted is None else max(wanted, params.rounding)
        return cls(share, exact, not wanted, params)

    def near(self, goal: Goal, bound: float) -> float:
        """Distance from a bound that is near enough."""
        if self.exact or not np.isfinite(bound):
            return 0.0
        if goal.kind is GoalKind.VALUE:
            return self.params.near_value * max(abs(bound), 1.0)
        return self.params.near * self.share * bound

    def kept(self, goal: Goal, load: float, bound: float) -> float:
        """What later goals keep of a load: all but the tolerance, a share of the bound.

        Later goals get the whole of it also where an earlier one is not at its bound: a floor close
        to what was reached leaves their plans hardly any room. What runs is no matter of tolerance.
        """
        return load if goal.kind is GoalKind.HELD else load - self.share * bound
