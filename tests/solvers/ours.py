"""Our solver."""

import time
from importlib.metadata import version
from pathlib import Path

import numpy as np

from inferno_optimizer.solvers.assignment import Timer
from inferno_optimizer.solvers.exact.lexicographic import solve_by_levels
from inferno_optimizer.solvers.exact.program import Program
from inferno_optimizer.solvers.partial.rows import most_load
from tests.solvers.levels import Result, Rows, result_of

NAME = f"Inferno {version('inferno-operator')}"

RESERVED = 0.1
"""Share of the time limit that our solver keeps for prices."""


def solve_ours(path: Path, seconds: float) -> Result:
    """Solve the program in a file."""
    with np.load(path) as arrays:
        program = Program(**{name: arrays[name] for name in arrays.files})
    start = time.perf_counter()
    timer = Timer(lambda: start + seconds - time.perf_counter(), RESERVED * seconds)
    chosen = solve_by_levels(program, timer, level_search=most_load).plan
    return result_of(Rows.load(path), chosen, time.perf_counter() - start)
