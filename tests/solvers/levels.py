"""Level by level the most load, then the least value, with any solver of integer programs.

Nothing of ours is imported here: the libraries of two solvers do not load into one process.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import numpy as np
import numpy.typing as npt

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]
BoolArray = npt.NDArray[np.bool_]

THREADS = 2
"""Threads of each solver that can use several."""

TOLERANCE = 9e-4
"""Share of the most load of a level that later objectives may take, as in our solver."""

ROUNDING = 1e-9
"""What they may take besides, relative to the load that is served."""

WHOLE = 10_000
"""Parts of a unit of load that a solver counts which counts in whole numbers."""


@dataclass(frozen=True, slots=True)
class Rows:
    """Rows of which each case gets one at most, sorted by case; shape (rows,) but for `capacity`.

    `cards` of `type` is what a row takes; `level` and `weight` are those of its case.
    """

    case: IntArray
    type: IntArray
    cards: FloatArray
    value: FloatArray
    level: IntArray
    weight: FloatArray
    capacity: FloatArray

    @classmethod
    def load(cls, path: Path) -> "Rows":
        """Read the arrays from a file."""
        with np.load(path) as arrays:
            return cls(**{name: arrays[name] for name in cls.__slots__})

    @property
    def levels(self) -> int:
        """How many levels there are."""
        return int(self.level.max()) + 1

    @property
    def starts(self) -> IntArray:
        """Where the rows of each case begin."""
        return np.flatnonzero(np.diff(self.case, prepend=-1))

    def by_case(self) -> list[IntArray]:
        """Return the rows of each case."""
        return np.split(np.arange(len(self.case)), self.starts[1:])

    def of_type(self, card_type: int) -> IntArray:
        """Return the rows that take cards of a type."""
        return np.flatnonzero(self.type == card_type)

    def of_level(self, level: int) -> IntArray:
        """Return the rows of a level."""
        return np.flatnonzero(self.level == level)

    def served(self, chosen: BoolArray) -> FloatArray:
        """Return the load that chosen rows serve of each level."""
        served = np.bincount(self.level[chosen], self.weight[chosen], self.levels)
        return served.astype(np.float64)

    def loads(self) -> FloatArray:
        """Return the whole load of each level."""
        first = self.starts
        return np.bincount(self.level[first], self.weight[first], self.levels).astype(np.float64)

    def fits(self, chosen: BoolArray) -> bool:
        """Whether there is one row for a case at most, within the cards."""
        used = np.bincount(self.type[chosen], self.cards[chosen], len(self.capacity))
        single = len(np.unique(self.case[chosen])) == np.count_nonzero(chosen)
        return single and bool(np.all(used <= self.capacity))


@dataclass(frozen=True, slots=True)
class Stage:
    """One objective of a program: the smallest sum over the chosen rows.

    Parameters
    ----------
    rows
        The program.
    objective
        What each row adds, shape (rows,).
    floors
        Load that each of the first levels keeps, shape (levels,).
    known
        A choice that keeps them, to begin with.
    seconds
        The time limit [s].
    """

    rows: Rows
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


def solve_with(solver: Solver, rows: Rows, seconds: float) -> Result:
    """Solve a program; the objectives share what remains of the time."""
    start = time.perf_counter()
    chosen = np.zeros(len(rows.case), dtype=np.bool_)
    floors = np.zeros(0)
    for level in range(rows.levels + 1):
        is_last = level == rows.levels
        objective = rows.value if is_last else -rows.weight * (rows.level == level)
        left = start + seconds - time.perf_counter()
        stage = Stage(rows, objective, floors, chosen, left / (rows.levels + 1 - level))
        found = solver.minimize(stage) if left > 0 else Found(None, -np.inf)
        chosen = _better(stage, found.chosen)
        if not is_last:
            floors = np.append(floors, _floor(rows, level, chosen, -found.bound))
    return result_of(rows, chosen, time.perf_counter() - start)


def in_whole_numbers(weights: FloatArray, floor: float) -> tuple[list[int], int]:
    """Return weights and a floor in whole numbers; a sum that keeps the floor keeps it so, too."""
    return np.ceil(weights * WHOLE).astype(np.int64).tolist(), int(np.floor(floor * WHOLE))


def result_of(rows: Rows, chosen: BoolArray, seconds: float) -> Result:
    """Return what a choice amounts to."""
    served = rows.served(chosen) / rows.loads()
    return Result(served.tolist(), float(rows.value[chosen].sum()), seconds)


def _better(stage: Stage, found: BoolArray | None) -> BoolArray:
    """Return the better of what was known and what was found, if that is a plan."""
    if found is None or stage.objective @ found > stage.objective @ stage.known:
        return stage.known
    served = stage.rows.served(found)[: len(stage.floors)]
    keeps = bool(np.all(served >= stage.floors * (1 - 1e-6)))
    return found if keeps and stage.rows.fits(found) else stage.known


def _floor(rows: Rows, level: int, chosen: BoolArray, most: float) -> float:
    """Return the load of a level that later stages keep, as our solver does.

    Nobody is left out of the first levels that can be served entirely.
    """
    shares = rows.served(chosen) / rows.loads()
    served = float(rows.served(chosen)[level])
    if np.all(shares[: level + 1] >= 1 - ROUNDING):
        return served * (1 - ROUNDING)
    return min(served * (1 - ROUNDING), most * (1 - TOLERANCE))
