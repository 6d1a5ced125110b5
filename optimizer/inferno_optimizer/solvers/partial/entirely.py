"""The least value where all cases are served entirely: a program of rows, as with `None`.

Nobody is served in part then, so that a column is a row: all of its replicas or none.
"""

from collections.abc import Callable

import numpy as np

from inferno_optimizer.sizing.queueing import IntArray
from inferno_optimizer.solvers.exact.lexicographic import least_value
from inferno_optimizer.solvers.exact.program import Program
from inferno_optimizer.solvers.partial.problem import ReplicaProblem


def takes_one_type(problem: ReplicaProblem) -> bool:
    """Whether no column takes cards of several types, which a program of rows does not know."""
    return bool(np.all(np.bincount(problem.cards.owner, minlength=len(problem.case)) <= 1))


def cheapest(
    problem: ReplicaProblem, counts: IntArray, seconds_left: Callable[[], float]
) -> tuple[IntArray, float]:
    """The plan of least value that is found, and a value that no plan is below.

    Parameters
    ----------
    problem
        One whose columns have one replica at most, for one type of cards each.
    counts
        A plan that serves all cases; shape (columns,).
    seconds_left
        Time that remains.
    """
    columns = np.flatnonzero(problem.most > 0)
    case, cards = problem.case[columns], problem.cards
    card_type, taken = np.zeros_like(problem.case), np.zeros(len(problem.case))
    card_type[cards.owner], taken[cards.owner] = cards.type, cards.count
    program = Program(
        case=case,
        type=card_type[columns],
        cards=taken[columns],
        value=problem.unit[columns],
        level=problem.level[case],
        weight=problem.weight[case],
        capacity=problem.capacity.astype(np.float64),
        stays=np.zeros(len(columns), dtype=np.bool_),
    )
    chosen = counts[columns] > 0
    rows = np.union1d(program.undominated(), np.flatnonzero(chosen))
    found, bound = least_value(program.take(rows), chosen[rows], seconds_left)
    plan = np.zeros_like(counts)
    plan[columns[rows[found]]] = 1
    return plan, bound
