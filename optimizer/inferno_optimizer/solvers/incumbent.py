"""The incumbent of a goal: the best plan so far. Here, and nowhere else, is a plan accepted.

The word is that of branch and bound [L. A. Wolsey, *Integer Programming*, 1998, chapter 7]. What a
search tells of it, and of a proven bound, becomes the curve of a certificate.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from inferno_optimizer.sizing.queueing import BoolArray, FloatArray, IntArray
from inferno_optimizer.solution import CurvePoint
from inferno_optimizer.solvers.goals import (
    Floor,
    Goal,
    GoalKind,
    Reached,
    levels_of,
)
from inferno_optimizer.solvers.problem import ReplicaProblem
from inferno_optimizer.solvers.rounding import fill_columns, is_floor_kept, lift_to_floors

UNKNOWN = -np.inf
"""The bound of an objective of which nothing is proven."""


@dataclass(frozen=True, slots=True)
class SearchProgress:
    """The state of a search.

    Attributes
    ----------
    level
        The level whose load is maximized; None while the value is minimized.
    served
        Load that the incumbent serves of each level; shape (levels,).
    value
        Value of the incumbent.
    bound
        No plan has a lower objective: the load of the level with its sign changed, or the value.
    """

    level: int | None
    served: FloatArray
    value: float
    bound: float

    @property
    def objective(self) -> float:
        """What the incumbent has of what is minimized."""
        return self.value if self.level is None else -float(self.served[self.level])


ProgressObserver = Callable[[SearchProgress], None]
"""Is told of every improvement of the incumbent or of the bound."""


class Incumbent:
    """The best plan of one goal.

    Parameters
    ----------
    problem, goal, floors
        What is maximized, and what every plan keeps.
    reached
        What is proven of the goals before.
    counts
        The plan to begin with: replicas of each column, shape (columns,).
    observe
        Is told of every better plan; None where nobody wants to know.

    Attributes
    ----------
    near
        Distance from a bound that is near enough.
    """

    def __init__(
        self,
        problem: ReplicaProblem,
        goal: Goal,
        floors: tuple[Floor, ...],
        reached: tuple[Reached, ...],
        counts: IntArray,
        observe: ProgressObserver | None = None,
    ) -> None:
        self.problem, self.goal, self.floors, self.reached = problem, goal, floors, reached
        self.counts, self.near = counts, 0.0
        self._observe = observe
        self.report()

    @property
    def worth(self) -> float:
        """What the plan has of the goal."""
        return self.worth_of(self.goal)

    def worth_of(self, goal: Goal) -> float:
        """What the plan has of another goal."""
        return goal.worth(self.problem, self.counts)

    def bound_of(self, goal: Goal) -> float:
        """What is proven of a goal before this one."""
        return next(reached.bound for reached in self.reached if reached.goal == goal)

    @property
    def has_all(self) -> bool:
        """Whether there is no more of the goal to have."""
        return self.worth >= self.goal.most(self.problem) * (1 - self.problem.params.rounding)

    @property
    def is_last(self) -> bool:
        """Whether no other load follows."""
        return self.goal.is_last(self.problem)

    @property
    def matter(self) -> BoolArray:
        """Cases that matter to the goal and to the floors; shape (cases,)."""
        return levels_of(self.goal, self.problem) | self.has_floor

    @property
    def has_floor(self) -> BoolArray:
        """Cases of which a floor counts what they have; shape (cases,)."""
        levels = [floor.goal.level for floor in self.floors]
        has_floor: BoolArray = np.isin(self.problem.level, levels)
        return has_floor

    def near_enough(self, bound: float) -> bool:
        """Whether the plan is near to a bound; or has all, where all might be had of the last."""
        is_load = self.is_last and self.goal.kind is not GoalKind.VALUE
        if is_load and bound >= self.goal.most(self.problem) * (1 - self.problem.params.rounding):
            return self.has_all
        return self.worth >= bound - self.near

    def offer(self, counts: IntArray) -> bool:
        """Accept a plan that fits, keeps the floors and has more of the goal; whether it does.

        Where it misses a floor, less important levels make room.
        """
        problem, goal = self.problem, self.goal
        if np.any(problem.used(counts) > problem.capacity):
            return False
        if goal.kind is not GoalKind.VALUE:
            counts = fill_columns(problem, counts, levels_of(goal, problem), only_hold=False)
        if not all(is_floor_kept(problem, floor, counts) for floor in self.floors):
            repaired = self._repair(counts)
            if repaired is None:
                return False
            counts = repaired
        better = goal.worth(problem, counts) > self.worth
        if better:
            self.counts = counts
            self.report()
        return better

    def report(self, bound: float = -UNKNOWN) -> None:
        """Tell the observer of the plan, and of what no plan exceeds."""
        problem, goal = self.problem, self.goal
        if self._observe is None or goal.kind not in (GoalKind.SERVED, GoalKind.VALUE):
            return
        served = problem.load(problem.served(self.counts))
        level = None if goal.kind is GoalKind.VALUE else goal.level
        value = float(problem.values(self.counts).sum())
        self._observe(SearchProgress(level, served, value, -bound))

    def _repair(self, counts: IntArray) -> IntArray | None:
        """A plan that misses a floor with more replicas for it; None if there is none better."""
        problem, goal = self.problem, self.goal
        if goal.kind is GoalKind.VALUE or goal.worth(problem, counts) <= self.worth:
            return None
        repaired = lift_to_floors(problem, counts, self.floors, goal.level)
        if repaired is None or goal.worth(problem, repaired) <= self.worth:
            return None
        return fill_columns(problem, repaired, levels_of(goal, problem), only_hold=False)


FINEST = 0.01
"""Share of the distance from the incumbent that a bound alone moves at least between points."""


class CurveRecorder:
    """Keeps the state of a search whenever it improves, with the time.

    Parameters
    ----------
    clock
        A monotonic clock [s]; times of the curve count from now on.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock, self._start = clock, clock()
        self._seen: list[tuple[float, SearchProgress]] = []

    def observe(self, progress: SearchProgress) -> None:
        """Record the state of the search now."""
        if not self._seen or _differs(self._seen[-1][1], progress):
            self._seen.append((self.seconds, progress))

    @property
    def seconds(self) -> float:
        """Time since the start [s]."""
        return self._clock() - self._start

    def curve(
        self, priorities: Sequence[int], besides: Mapping[int, float], value: float
    ) -> tuple[CurvePoint, ...]:
        """The points so far.

        Parameters
        ----------
        priorities
            Of each level.
        besides, value
            What every plan serves besides what the search decides: load by priority, with all
            priorities, and its value.
        """
        return tuple(
            _point(seconds, progress, priorities, besides, value)
            for seconds, progress in self._seen
        )


def _differs(last: SearchProgress, progress: SearchProgress) -> bool:
    """Whether there is another stage, a better incumbent, or a bound that is clearly better."""
    if progress.level != last.level or progress.objective < last.objective:
        return True
    if progress.bound <= last.bound:  # both may be unknown
        return False
    return last.bound == UNKNOWN or (
        progress.bound - last.bound >= FINEST * (last.objective - last.bound)
    )


def _point(
    seconds: float,
    progress: SearchProgress,
    priorities: Sequence[int],
    besides: Mapping[int, float],
    value: float,
) -> CurvePoint:
    loads = dict(zip(priorities, progress.served.tolist(), strict=True))
    served = {priority: loads.get(priority, 0.0) + load for priority, load in besides.items()}
    point = CurvePoint(seconds, None, served, progress.value + value)
    if progress.level is not None:
        point = replace(point, priority=priorities[progress.level])
    if progress.bound == UNKNOWN:
        return point
    if point.priority is None:
        return replace(point, bound=progress.bound + value)
    return replace(point, bound=besides[point.priority] - progress.bound)
