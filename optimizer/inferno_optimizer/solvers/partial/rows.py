"""The most load of a level of a program of rows, where a column is a row with all its replicas.

The search of `exact` dives and exchanges around a first choice. Where large cases are much of a
level, it ends far from the bound; column generation and the tree of this package begin anew.
"""

from collections.abc import Callable

import numpy as np

from inferno_optimizer.sizing.cards import Cards
from inferno_optimizer.solvers.exact.program import BoolArray, Program
from inferno_optimizer.solvers.exact.stage import RowGoal
from inferno_optimizer.solvers.partial.goals import Floor, Goal, GoalKind, Reached
from inferno_optimizer.solvers.partial.incumbent import GoalIncumbent
from inferno_optimizer.solvers.partial.problem import ReplicaProblem
from inferno_optimizer.solvers.partial.stage import GoalStage
from inferno_optimizer.solvers.partial.tolerance import GoalTolerance
from inferno_optimizer.solvers.partial.warm_start import WarmStart


def most_load(goal: RowGoal, chosen: BoolArray, seconds_left: Callable[[], float]) -> BoolArray:
    """The choice that serves the most of a level that is found; shape (rows,).

    Parameters
    ----------
    goal
        Its level is the last one of the program.
    chosen
        A choice that keeps the floors, to begin with.
    seconds_left
        Time that remains.

    Raises
    ------
    SolverError
        When HiGHS fails.
    """
    problem, floors = problem_of(goal.program), goal.floors
    levels = [Goal(GoalKind.SERVED, level) for level in range(len(floors.loads) + 1)]
    served = goal.program.served(chosen, len(floors.loads)).tolist()
    kept = [*zip(levels, floors.loads.tolist(), served, strict=False)]
    incumbent = GoalIncumbent(
        problem,
        levels[-1],
        tuple(Floor(level, load, level.level < floors.whole) for level, load, _ in kept),
        tuple(Reached(level, load, load) for level, _, load in kept),
        chosen.astype(np.int64),
    )
    tolerance = GoalTolerance.of(None, exact=False)
    GoalStage(incumbent, tolerance, WarmStart(problem), seconds_left).maximize()
    found: BoolArray = incumbent.counts > 0
    return found


def problem_of(program: Program) -> ReplicaProblem:
    """The problem whose columns are the rows, with one replica each."""
    first, rows = program.starts, len(program.case)
    nothing, none = np.zeros(rows), np.zeros(rows, dtype=np.int64)
    taken = np.flatnonzero(program.cards > 0)
    return ReplicaProblem(
        case=program.place,
        row=np.arange(rows),
        lot=none,
        most=none + 1,
        full=nothing + 1.0,
        unit=program.value,
        fixed=nothing,
        runs=none,
        stands=none,
        standing=nothing,
        cards=Cards(taken, program.type[taken], program.cards[taken].astype(np.int64)),
        cases=np.arange(len(first)),
        level=program.level[first],
        weight=program.weight[first],
        held=np.zeros(len(first)),
        capacity=program.capacity.astype(np.int64),
    )
