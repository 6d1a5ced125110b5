"""Which cases a vertex of the relaxation splits over several columns, and how large they are."""

import numpy as np

from inferno_optimizer.sizing.queueing import FloatArray, IntArray
from inferno_optimizer.solvers.exact.program import BoolArray
from inferno_optimizer.solvers.partial.problem import ReplicaProblem
from inferno_optimizer.solvers.partial.relaxation import Vertex

SOME = 1e-7
"""Share of a case from which a column has some of it; or from which a share is missing."""

SIZE = 1e-2
"""Part of the worth of all cards that each type has for the order of decisions."""


def split_cases(problem: ReplicaProblem, vertex: Vertex) -> IntArray:
    """Cases with several columns, those first whose cards are worth the most."""
    return split_in_order(problem, vertex, worth_of_cards(problem, vertex))


def split_in_order(problem: ReplicaProblem, vertex: Vertex, worth: FloatArray) -> IntArray:
    """Cases with several columns, those first that are worth the most; `worth` is by case."""
    several = np.bincount(problem.case[vertex.amounts > SOME], minlength=len(problem.cases)) > 1
    cases = np.flatnonzero(several)
    return cases[np.argsort(-worth[cases], kind="stable")]


def worth_of_cards(problem: ReplicaProblem, vertex: Vertex) -> FloatArray:
    """What the cards of each case are worth, shape (cases,)."""
    paid = vertex.amounts * _worth_of_columns(problem, vertex)
    return np.bincount(problem.case, paid, len(problem.cases)).astype(np.float64)


def _worth_of_columns(problem: ReplicaProblem, vertex: Vertex) -> FloatArray:
    """What the cards are worth that a whole share of each column takes, shape (columns,)."""
    entries = problem.cards
    cards = problem.full[entries.owner] * entries.count
    worth = np.abs(vertex.prices)
    some = SIZE * (worth @ problem.capacity + 1.0) / np.maximum(problem.capacity, 1)
    paid = (worth + some)[entries.type] * cards
    return np.bincount(entries.owner, paid, len(vertex.amounts)).astype(np.float64)


def main_column(problem: ReplicaProblem, vertex: Vertex, case: int) -> int:
    """The column that a case has most of."""
    first, last = np.searchsorted(problem.case, (case, case + 1))
    return int(first + np.argmax(vertex.amounts[first:last]))


def other_columns(problem: ReplicaProblem, vertex: Vertex, case: int) -> IntArray:
    """All columns of a case but that one."""
    first, last = np.searchsorted(problem.case, (case, case + 1))
    return np.setdiff1d(np.arange(first, last), main_column(problem, vertex, case))


def others_of_larger(problem: ReplicaProblem, vertex: Vertex, case: int) -> BoolArray:
    """Columns that cases do not have which are as large as a case and not split; (columns,)."""
    worth = worth_of_cards(problem, vertex)
    return _others_of(problem, vertex, worth >= worth[case])


def others_of_alike(problem: ReplicaProblem, vertex: Vertex, case: int) -> BoolArray:
    """Columns that cases do not have which could be split in place of a case; (columns,).

    These are not split, and can have as much of the same cards as the case has of each of its
    columns. Types differ in what a card is worth, so that what is worth the same is the same.
    """
    worth = _worth_of_columns(problem, vertex)
    alike = np.ones(len(problem.cases), dtype=np.bool_)
    for column in np.flatnonzero((problem.case == case) & (vertex.amounts > SOME)).tolist():
        same = np.abs(worth - worth[column]) <= SOME * worth[column]
        alike &= np.bincount(problem.case[same], minlength=len(alike)) > 0
    return _others_of(problem, vertex, alike)


def _others_of(problem: ReplicaProblem, vertex: Vertex, cases: BoolArray) -> BoolArray:
    """Columns that cases do not have, of those among some that are not split; (columns,)."""
    some = vertex.amounts > SOME
    one = np.bincount(problem.case[some], minlength=len(problem.cases)) == 1
    return problem.columns_of(one & cases) & ~some
