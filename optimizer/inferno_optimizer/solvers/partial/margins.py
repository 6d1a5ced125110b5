"""How far above the floors a dive stays, because whole replicas miss them by a little.

A dive ends at a vertex that keeps the floors; the plan that is rounded from it serves up to a
thousandth less. The next dive stays as much higher as the last one missed.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace

from inferno_optimizer.sizing.queueing import IntArray
from inferno_optimizer.solvers.partial.goals import Floor, Goal, Reached
from inferno_optimizer.solvers.partial.problem import ReplicaProblem

FIRST = 1e-4
"""Margin at first [share of the load]: plans of 1,000 servers missed floors by 1e-5 to 4e-4."""

HIGHEST = 0.9
"""The margin is at most this part of the way from a floor to what is proven of its goal."""

LESS = 0.5
"""Factor of the margins after a dive that finds no plan."""


class FloorMargins:
    """The margins of the floors of a goal.

    Parameters
    ----------
    floors
        What every plan keeps.
    reached
        What is proven of their goals.
    least
        Load up to which each floor is raised at least.
    """

    def __init__(
        self,
        floors: tuple[Floor, ...],
        reached: tuple[Reached, ...],
        least: Callable[[Floor], float],
    ) -> None:
        bound = {done.goal: done.bound for done in reached}
        self._floors = floors
        self._most = {f.goal: HIGHEST * max(bound[f.goal] - f.load, 0.0) for f in floors}
        self._margins: dict[Goal, float] = {}
        for floor in floors:
            first = max(least(floor) - floor.load, FIRST * floor.load)
            self._margins[floor.goal] = min(first, self._most[floor.goal])

    def raised(self) -> tuple[Floor, ...]:
        """The floors with their margins."""
        return tuple(replace(f, load=f.load + self._margins[f.goal]) for f in self._floors)

    def learn(self, problem: ReplicaProblem, plans: Sequence[IntArray]) -> None:
        """Raise the margins by what the best of a dive's plans misses; lower them without any."""
        if not plans:
            self._margins = {goal: LESS * margin for goal, margin in self._margins.items()}
            return
        missing = [self._missing(problem, plan) for plan in plans]
        for goal, load in min(missing, key=lambda loads: sum(loads.values())).items():
            self._margins[goal] = min(self._margins[goal] + load, self._most[goal])

    def _missing(self, problem: ReplicaProblem, plan: IntArray) -> dict[Goal, float]:
        """Load of each floor that a plan misses."""
        return {f.goal: max(f.load - f.goal.worth(problem, plan), 0.0) for f in self._floors}


def raised_towards(
    floors: tuple[Floor, ...], part: float, top: Callable[[Goal], float]
) -> tuple[Floor, ...]:
    """Floors a part of the way up to a top of each goal."""
    return tuple(
        replace(floor, load=floor.load + part * max(top(floor.goal) - floor.load, 0.0))
        for floor in floors
    )
