"""Whole replicas from a vertex of the relaxation: split cases get one column, others make room."""

from collections.abc import Iterator

import numpy as np

from inferno_optimizer.sizing.queueing import FloatArray, IntArray
from inferno_optimizer.solvers.budget import PLAN, STEP, Budget
from inferno_optimizer.solvers.exact.program import BoolArray
from inferno_optimizer.solvers.partial.filling import Filling
from inferno_optimizer.solvers.partial.goals import Floor, held_shares, least_of
from inferno_optimizer.solvers.partial.problem import ReplicaProblem
from inferno_optimizer.solvers.partial.relaxation import Vertex

WHOLE = 1e-6
"""Distance from a whole number up to which replicas are whole."""

SLACK = 1e-9
"""Share that is none."""

FORBIDDEN = 1e15
"""A loss that is taken only where there is no other."""

STEPS = 1_000
"""How often room is made at most."""


def whole_of(problem: ReplicaProblem, vertex: Vertex) -> tuple[IntArray, BoolArray]:
    """Replicas of the cases that are not split, and which cases are."""
    amounts = vertex.amounts * problem.full
    counts = np.rint(amounts).astype(np.int64)
    some = vertex.amounts > SLACK
    split = np.zeros(len(problem.cases), dtype=np.bool_)
    split[problem.case[some & (np.abs(amounts - counts) > WHOLE * np.maximum(counts, 1))]] = True
    split |= np.bincount(problem.case[some], minlength=len(split)) > 1
    return np.where(some & ~split[problem.case], counts, 0), split


def roundings(
    problem: ReplicaProblem,
    vertex: Vertex,
    floors: tuple[Floor, ...],
    level: int,
    budget: Budget,
) -> Iterator[IntArray]:
    """Plans close to a vertex, in which a level may have less than there."""
    least, held = least_of(problem, floors), held_shares(problem, floors)
    budget.spend(2 * PLAN * len(problem.case))
    plan = rounded(problem, vertex, least, held, problem.level == level, budget)
    if plan is not None:
        yield plan
    if not budget.is_over:
        yield in_turn(problem, vertex)


def rounded(
    problem: ReplicaProblem,
    vertex: Vertex,
    least: FloatArray,
    held: FloatArray,
    lowest: BoolArray,
    budget: Budget,
) -> IntArray | None:
    """A plan close to a vertex; None where none is found in time.

    Where there is no other way, one of the lowest cases has less than it holds, then less than its
    least share.

    Parameters
    ----------
    problem, vertex
        The problem, and a solution of its relaxation.
    least
        Share that each case must have, shape (cases,).
    held
        Share that counts as held; shape (cases,).
    lowest
        Cases that may have less than at the vertex; shape (cases,).
    budget
        Work that remains.
    """
    counts, split = whole_of(problem, vertex)
    fewest = np.ceil(least[problem.case] * problem.full * (1 - SLACK)).astype(np.int64)
    spare = problem.capacity - problem.used(np.where(lowest[problem.case], 0, counts))
    left, none = problem.capacity - problem.used(counts), np.zeros_like(fewest)
    for case in _largest_first(problem, vertex, split):
        budget.spend(STEP * len(problem.case))
        column, replicas = _choice(problem, vertex, case, fewest, left, spare)
        if column is None:
            return None
        counts[column] = replicas
        of_column = problem.cards.owner == column
        if not lowest[case]:
            spare = spare - problem.used(np.where(np.arange(len(counts)) == column, counts, 0))
        np.subtract.at(
            left, problem.cards.type[of_column], problem.cards.count[of_column] * replicas
        )
    left = problem.capacity - problem.used(counts)
    holding = fewest_held(problem, fewest, held)
    for _ in range(STEPS):
        if np.all(left >= 0):
            return counts
        if budget.is_over:
            return None
        budget.spend(STEP * len(problem.case))
        card_type = int(np.argmin(left))
        if not (
            take_some(problem, counts, holding, lowest, card_type, int(-left[card_type]))
            or take_some(problem, counts, fewest, lowest, card_type, int(-left[card_type]))
            or _move_one(problem, vertex, counts, fewest, lowest, card_type)
            or take_some(problem, counts, none, lowest, card_type, int(-left[card_type]))
        ):
            return None
        left = problem.capacity - problem.used(counts)
    return None


def in_turn(problem: ReplicaProblem, vertex: Vertex) -> IntArray:
    """A plan that follows a vertex case by case, the important ones first; it always fits.

    In a level the split cases come last, the largest first: others may then lose cards to them
    that are less important.
    """
    counts, split = whole_of(problem, vertex)
    filling = Filling(problem, np.zeros_like(counts))
    share = np.bincount(problem.case, vertex.amounts, len(problem.cases))
    column = np.full(len(problem.cases), -1)
    some = np.flatnonzero(counts)
    column[problem.case[some]] = some
    place = np.zeros(len(problem.cases), dtype=np.int64)
    splits = _largest_first(problem, vertex, split)
    place[splits] = np.arange(len(splits)) + 1
    loss = np.where(np.isfinite(vertex.lost), vertex.lost, FORBIDDEN)
    for case in np.lexsort((place, problem.level)).tolist():
        if share[case] > SLACK:
            filling.follow(case, int(column[case]), min(float(share[case]), 1.0), loss)
    return filling.counts


def _largest_first(problem: ReplicaProblem, vertex: Vertex, split: BoolArray) -> list[int]:
    """The split cases, those first that have most of the cards of a type."""
    entries = problem.cards
    capacity = np.maximum(problem.capacity, 1)[entries.type]
    part = vertex.amounts[entries.owner] * problem.full[entries.owner] * entries.count / capacity
    size = np.bincount(problem.case[entries.owner], part, len(problem.cases))
    cases = np.flatnonzero(split)
    largest: list[int] = cases[np.argsort(-size[cases], kind="stable")].tolist()
    return largest


def _choice(
    problem: ReplicaProblem,
    vertex: Vertex,
    case: int,
    fewest: IntArray,
    left: IntArray,
    spare: IntArray,
) -> tuple[int | None, int]:
    """The column of a split case that loses the least, by what it takes from others, too."""
    first, last = np.searchsorted(problem.case, (case, case + 1))
    columns = np.arange(first, last)
    share = vertex.amounts[columns].sum()
    columns = columns[
        (fewest[columns] <= problem.most[columns]) & np.isfinite(vertex.lost[columns])
    ]
    if not len(columns):
        return None, 0
    whole = (share * problem.full[columns] + WHOLE).astype(np.int64)
    replicas = np.minimum(np.maximum(whole, fewest[columns]), problem.most[columns])
    place = np.full(len(problem.case), -1)
    place[columns] = np.arange(len(columns))
    placed = place[problem.cards.owner] >= 0
    at, card_type = place[problem.cards.owner[placed]], problem.cards.type[placed]
    needs = problem.cards.count[placed] * replicas[at]
    missing = needs - np.maximum(left[card_type], 0)
    too_many = needs > np.maximum(spare[card_type], 0)
    paid = np.maximum(vertex.prices[card_type], SLACK) * np.maximum(missing, 0)
    loss = np.maximum(vertex.lost[columns], 0.0) + np.bincount(at, paid, len(columns))
    loss[at[too_many]] += FORBIDDEN
    best = int(np.argmin(loss))
    return int(columns[best]), int(replicas[best])


def fewest_held(problem: ReplicaProblem, fewest: IntArray, held: FloatArray) -> IntArray:
    """Replicas of each column that a case must have, or that hold a share; shape (columns,)."""
    holds = np.ceil(held[problem.case] * problem.full * (1 - SLACK)).astype(np.int64)
    return np.maximum(fewest, holds)


def take_some(
    problem: ReplicaProblem,
    counts: IntArray,
    fewest: IntArray,
    lowest: BoolArray,
    card_type: int,
    missing: int,
) -> bool:
    """Take replicas from the case that loses the least for the cards; whether there is one."""
    columns, cards = problem.by_type[card_type]
    some = counts[columns] > 0
    columns, cards = columns[some], cards[some]
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
    problem: ReplicaProblem,
    vertex: Vertex,
    counts: IntArray,
    fewest: IntArray,
    lowest: BoolArray,
    card_type: int,
) -> bool:
    """Move a case off a type, where it loses the least; whether there is one.

    It moves to where the lowest cases have the cards that it takes, if nobody else has.
    """
    spare = problem.capacity - problem.used(np.where(lowest[problem.case], 0, counts))
    entries = problem.cards
    on_type = entries.owner[(entries.type == card_type) & (counts[entries.owner] > 0)]
    movable = np.zeros(len(problem.cases), dtype=np.bool_)
    movable[problem.case[on_type]] = True
    share = np.bincount(problem.case, counts / problem.full, len(problem.cases))
    wanted = np.maximum(
        np.ceil(share[problem.case] * problem.full - WHOLE).astype(np.int64), fewest
    )
    room = np.full(len(problem.case), np.iinfo(np.int64).max)
    near = movable[problem.case[entries.owner]]
    owner, needed, count = entries.owner[near], entries.type[near], entries.count[near]
    np.minimum.at(room, owner, np.maximum(spare[needed], 0) // count)
    room[owner[needed == card_type]] = 0
    possible = movable[problem.case] & (room >= wanted) & (wanted <= problem.most)
    columns = np.flatnonzero(possible & np.isfinite(vertex.lost) & (wanted > 0))
    if not len(columns):
        return False
    best = int(columns[np.argmin(vertex.lost[columns])])
    counts[problem.case == problem.case[best]] = 0
    counts[best] = wanted[best]
    return True
