"""Level by level the most load, then the least value, with any solver of integer programs."""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from inferno_optimizer.sizing.queueing import FloatArray, IntArray
from inferno_optimizer.solvers.assignment import Timer
from inferno_optimizer.solvers.exact.lexicographic import GIVEN_UP, solve_by_levels
from inferno_optimizer.solvers.exact.program import BoolArray, Program

THREADS = 2
"""Of each solver that can use several."""

ROUNDING = 1e-9
"""What later objectives may take from the load of a level, relative, besides the tolerance."""


@dataclass(frozen=True, slots=True)
class Stage:
    """One objective of a program: the smallest sum over the chosen rows.

    Parameters
    ----------
    program
        The rows.
    objective
        What each row adds, shape (rows,).
    floors
        Load that each of the first levels keeps, shape (levels,).
    known
        A choice that keeps them, to begin with.
    seconds
        The time limit [s].
    """

    program: Program
    objective: FloatArray
    floors: FloatArray
    known: BoolArray
    seconds: float


@dataclass(frozen=True, slots=True)
class Found:
    """The best choice that was found, None if none was, and what no choice falls below."""

    chosen: BoolArray | None
    bound: float


class Solver(Protocol):
    """A solver of integer programs."""

    name: str
    """With its version."""

    def minimize(self, stage: Stage) -> Found:
        """Minimize one objective."""


@dataclass(frozen=True, slots=True)
class Result:
    """What a plan serves of each level, as a share of its load, and its value."""

    served: Sequence[float]
    value: float
    seconds: float


def solve_ours(program: Program, seconds: float) -> Result:
    """Solve a program with our solver."""
    start = time.perf_counter()
    timer = Timer(lambda: start + seconds - time.perf_counter(), 0.1 * seconds)
    chosen = solve_by_levels(program, timer).chosen
    return _result(program, chosen, time.perf_counter() - start)


def solve_with(solver: Solver, program: Program, seconds: float) -> Result:
    """Solve a program with another solver; what remains of the time is shared by the stages."""
    start = time.perf_counter()
    levels = int(program.level.max()) + 1
    chosen = np.zeros(len(program.case), dtype=np.bool_)
    floors = np.zeros(0)
    for level in range(levels + 1):
        is_last = level == levels
        objective = program.value if is_last else -program.weight * (program.level == level)
        left = start + seconds - time.perf_counter()
        stage = Stage(program, objective, floors, chosen, left / (levels + 1 - level))
        found = solver.minimize(stage) if left > 0 else Found(None, -np.inf)
        chosen = _better(stage, found.chosen)
        if not is_last:
            floors = np.append(floors, _floor(-float(objective @ chosen), -found.bound))
    return _result(program, chosen, time.perf_counter() - start)


def _better(stage: Stage, found: BoolArray | None) -> BoolArray:
    """Return the better of what was known and what was found, which must fit."""
    if found is None or stage.objective @ found > stage.objective @ stage.known:
        return stage.known
    served = stage.program.served(found, len(stage.floors))
    fits = np.all(stage.program.used(found) <= stage.program.capacity)
    keeps = np.all(served >= stage.floors * (1 - 1e-6))
    single = np.bincount(stage.program.place[found]).max(initial=0) <= 1
    return found if fits and keeps and single else stage.known


def _floor(served: float, most: float) -> float:
    """Return the load that later stages keep, with the tolerance that our solver has."""
    return min(served * (1 - ROUNDING), most * (1 - GIVEN_UP))


def _result(program: Program, chosen: BoolArray, seconds: float) -> Result:
    levels = int(program.level.max()) + 1
    first = program.starts
    loads = np.bincount(program.level[first], program.weight[first], levels)
    served = program.served(chosen, levels) / loads
    return Result(served.tolist(), float(program.value[chosen].sum()), seconds)


def rows_by_case(program: Program) -> list[IntArray]:
    """Return the rows of each case."""
    return np.split(np.arange(len(program.case), dtype=np.int32), program.starts[1:])


def rows_of_type(program: Program, card_type: int) -> IntArray:
    """Return the rows that take cards of a type."""
    return np.flatnonzero(program.type == card_type).astype(np.int32)
