"""The core of a problem: the cases that matter the most; all others are as at a vertex.

A few hundred cases take nearly all cards that are worth anything. A relaxation of these alone has
the bound of the whole one, and is solved in a fourth of the time.
"""

from dataclasses import dataclass, replace

import numpy as np

from inferno_optimizer.sizing.queueing import IntArray
from inferno_optimizer.solvers.exact.program import BoolArray
from inferno_optimizer.solvers.partial.goals import Floor, Goal
from inferno_optimizer.solvers.partial.problem import ReplicaProblem
from inferno_optimizer.solvers.partial.relaxation import Vertex
from inferno_optimizer.solvers.partial.rounding import whole_of
from inferno_optimizer.solvers.partial.splits import worth_of_cards

CASES = 250
"""Cases of a core, besides those that the vertex splits."""


@dataclass(frozen=True, slots=True)
class Core:
    """The problem of some cases, and what they have to keep.

    Attributes
    ----------
    problem, whole
        The problem of the core, with the cards that the others leave, and the whole problem.
    cases, columns
        Which cases and columns of the whole problem belong to it.
    fixed
        Replicas of all others, shape (all columns,).
    """

    problem: ReplicaProblem
    whole: ReplicaProblem
    cases: BoolArray
    columns: BoolArray
    fixed: IntArray

    @classmethod
    def of(cls, problem: ReplicaProblem, goal: Goal, vertex: Vertex) -> "Core":
        """The core around a vertex: what it splits, and what has the most worth for the goal."""
        counts, some = whole_of(problem, vertex)
        of_goal = problem.level == goal.level
        worth = np.maximum(worth_of_cards(problem, vertex), problem.weight * of_goal)
        some[np.argsort(-worth, kind="stable")[:CASES]] = True
        return cls.of_cases(problem, some, counts)

    @classmethod
    def of_cases(cls, problem: ReplicaProblem, cases: BoolArray, counts: IntArray) -> "Core":
        """The problem of some cases, shape (cases,), where the others have these replicas."""
        of_core = problem.columns_of(cases)
        fixed = np.where(of_core, 0, counts)
        part = problem.of_cases(cases, problem.capacity - problem.used(fixed))
        return cls(part, problem, cases, of_core, fixed)

    def floors(self, floors: tuple[Floor, ...]) -> tuple[Floor, ...]:
        """Floors of the whole problem, less what the others have."""
        of_core = [floor for floor in floors if np.any(self.problem.level == floor.goal.level)]
        return tuple(
            floor if floor.whole else replace(floor, load=floor.load - self.outside(floor.goal))
            for floor in of_core
        )

    def outside(self, goal: Goal) -> float:
        """What the others have of a goal."""
        return goal.worth(self.whole, self.fixed)

    def in_whole(self, columns: BoolArray) -> BoolArray:
        """Columns of the core, shape (its columns,), as columns of the whole problem."""
        whole = np.zeros_like(self.columns)
        whole[self.columns] = columns
        return whole
