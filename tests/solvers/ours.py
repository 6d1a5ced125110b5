"""Our solver."""

import time
from importlib.metadata import version
from pathlib import Path

import numpy as np

from inferno_optimizer.sizing.cards import Cards
from inferno_optimizer.solvers.budget import Budget
from inferno_optimizer.solvers.exact import solve_goals
from inferno_optimizer.solvers.params import DEFAULTS
from inferno_optimizer.solvers.problem import ReplicaProblem
from tests.solvers.levels import Result, Rows, result_of

NAME = f"Inferno {version('inferno-operator')}"

RESERVED = 0.1
"""Share of the time limit that our solver keeps for prices."""


def solve_ours(path: Path, seconds: float) -> Result:
    """Solve the program in a file."""
    rows, start = Rows.load(path), time.perf_counter()
    work = DEFAULTS.work_per_second * seconds
    budget = Budget.of(work, lambda: start + seconds - time.perf_counter())
    outcome = solve_goals(problem_of(rows), budget.without(RESERVED * seconds), None, delayed=False)
    return result_of(rows, outcome.counts > 0, time.perf_counter() - start)


def problem_of(rows: Rows) -> ReplicaProblem:
    """The problem whose columns are the rows, with one replica each."""
    first, number = rows.starts, len(rows.case)
    nothing, none = np.zeros(number), np.zeros(number, dtype=np.int64)
    taken = np.flatnonzero(rows.cards > 0)
    return ReplicaProblem(
        case=np.cumsum(np.diff(rows.case, prepend=-1) != 0) - 1,
        row=np.arange(number),
        lot=none,
        most=none + 1,
        full=nothing + 1.0,
        unit=rows.value,
        fixed=nothing,
        runs=none,
        stands=none,
        standing=nothing,
        cards=Cards(taken, rows.type[taken], rows.cards[taken].astype(np.int64)),
        cases=np.arange(len(first)),
        level=rows.level[first],
        weight=rows.weight[first],
        held=np.zeros(len(first)),
        capacity=rows.capacity.astype(np.int64),
    )
