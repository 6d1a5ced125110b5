"""Whole replicas from a vertex of the relaxation: split cases get one column, others make room."""

import numpy as np

from inferno_optimizer.sizing.queueing import FloatArray, IntArray
from inferno_optimizer.solvers.exact.program import BoolArray
from inferno_optimizer.solvers.partial.problem import Problem
from inferno_optimizer.solvers.partial.relaxation import Vertex

WHOLE = 1e-6
"""Distance from a whole number up to which replicas are whole."""

SLACK = 1e-9
"""Share that is none."""

STEPS = 1_000
"""How often room is made at most."""


def whole_of(problem: Problem, vertex: Vertex) -> tuple[IntArray, BoolArray]:
    """Replicas of the cases that are not split, and which cases are."""
    amounts = vertex.amounts * problem.full
    counts = np.rint(amounts).astype(np.int64)
    some = vertex.amounts > SLACK
    split = np.zeros(len(problem.cases), dtype=np.bool_)
    split[problem.case[some & (np.abs(amounts - counts) > WHOLE * np.maximum(counts, 1))]] = True
    split |= np.bincount(problem.case[some], minlength=len(split)) > 1
    return np.where(some & ~split[problem.case], counts, 0), split


def rounded(
    problem: Problem, vertex: Vertex, least: FloatArray, lowest: BoolArray
) -> IntArray | None:
    """A plan close to a vertex; None where none is found.

    Parameters
    ----------
    problem, vertex
        The problem, and a solution of its relaxation.
    least
        Share that each case must have, shape (cases,).
    lowest
        Cases that may have less than at the vertex; shape (cases,).
    """
    counts, split = whole_of(problem, vertex)
    fewest = np.ceil(least[problem.case] * problem.full * (1 - SLACK)).astype(np.int64)
    for case in np.flatnonzero(split).tolist():
        column = _largest(problem, vertex, case, fewest)
        if column is None:
            return None
        share = vertex.amounts[problem.case == case].sum()
        whole = int(share * problem.full[column] + WHOLE)
        counts[column] = min(max(whole, fewest[column]), problem.most[column])
    left = problem.capacity - problem.used(counts)
    for _ in range(STEPS):
        if np.all(left >= 0):
            return counts
        card_type = int(np.argmin(left))
        if not (
            _take_some(problem, counts, fewest, lowest, card_type, int(-left[card_type]))
            or _move_one(problem, vertex, counts, fewest, card_type, left)
        ):
            return None
        left = problem.capacity - problem.used(counts)
    return None


def _largest(problem: Problem, vertex: Vertex, case: int, fewest: IntArray) -> int | None:
    """The column of a case with the largest amount of which the least share fits."""
    columns = np.flatnonzero((problem.case == case) & (fewest <= problem.most))
    columns = columns[vertex.amounts[columns] > 0]
    return int(columns[np.argmax(vertex.amounts[columns])]) if len(columns) else None


def _take_some(
    problem: Problem,
    counts: IntArray,
    fewest: IntArray,
    lowest: BoolArray,
    card_type: int,
    missing: int,
) -> bool:
    """Take replicas from the case that loses the least for the cards; whether there is one."""
    mine = problem.cards.type == card_type
    columns, cards = problem.cards.column[mine], problem.cards.count[mine]
    spare = np.where(lowest[problem.case[columns]], counts[columns] - fewest[columns], 0)
    taken = np.minimum(np.maximum(spare, 0), -(-missing // cards))
    useful = np.minimum(taken * cards, missing)
    if not np.any(useful > 0):
        return False
    share = problem.served_share[columns] * problem.weight[problem.case[columns]]
    loss = np.where(useful > 0, (share * taken) / np.maximum(useful, 1), np.inf)
    best = int(np.argmin(loss))
    counts[columns[best]] -= taken[best]
    return True


def _move_one(
    problem: Problem,
    vertex: Vertex,
    counts: IntArray,
    fewest: IntArray,
    card_type: int,
    left: IntArray,
) -> bool:
    """Move a case off a type to a column with room that loses the least; whether there is one."""
    entries = problem.cards
    on_type = entries.column[(entries.type == card_type) & (counts[entries.column] > 0)]
    movable = np.zeros(len(problem.cases), dtype=np.bool_)
    movable[problem.case[on_type]] = True
    share = np.bincount(problem.case, counts / problem.full, len(problem.cases))
    wanted = np.maximum(
        np.ceil(share[problem.case] * problem.full - WHOLE).astype(np.int64), fewest
    )
    room = np.full(len(problem.case), np.iinfo(np.int64).max)
    np.minimum.at(room, entries.column, np.maximum(left[entries.type], 0) // entries.count)
    room[entries.column[entries.type == card_type]] = 0
    possible = movable[problem.case] & (room >= wanted) & (wanted <= problem.most)
    columns = np.flatnonzero(possible & np.isfinite(vertex.lost) & (wanted > 0))
    if not len(columns):
        return False
    best = int(columns[np.argmin(vertex.lost[columns])])
    counts[problem.case == problem.case[best]] = 0
    counts[best] = wanted[best]
    return True
