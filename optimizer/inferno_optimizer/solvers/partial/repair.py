"""A plan that misses the floor of an important level by a little: the lowest level makes room.

A dive ends at a vertex that keeps the floors, but whole replicas of its cases serve up to a
thousandth less. A few replicas more are enough then, and the cards of a few replicas less of the
level whose load is maximized.
"""

import numpy as np

from inferno_optimizer.sizing.queueing import FloatArray, IntArray
from inferno_optimizer.solvers.exact.program import BoolArray
from inferno_optimizer.solvers.partial.goals import Floor, GoalKind, held_shares, least_of
from inferno_optimizer.solvers.partial.problem import ReplicaProblem
from inferno_optimizer.solvers.partial.rounding import SLACK, WHOLE, fewest_held, take_some

STEPS = 50
"""How often a case is given more replicas, for each floor, at most."""

TRIED = 5
"""Steps after which a floor is given up that would be missed after all of them at this pace."""


def is_kept(problem: ReplicaProblem, floor: Floor, counts: IntArray) -> bool:
    """Whether a plan keeps a floor, but for rounding."""
    return _missing(problem, floor, counts) <= _rounding(floor)


def _rounding(floor: Floor) -> float:
    """Load that a plan may miss of a floor."""
    return WHOLE * max(floor.load, 1.0)


def _missing(problem: ReplicaProblem, floor: Floor, counts: IntArray) -> float:
    """Load that a plan misses of a floor; below 0 where it has more."""
    return floor.load - floor.goal.worth(problem, counts)


def lifted(
    problem: ReplicaProblem, counts: IntArray, floors: tuple[Floor, ...], level: int
) -> IntArray | None:
    """The plan with more replicas for the floors that it misses; None if that is not possible.

    Less important levels make room for each of the floors, at first the one whose load is
    maximized. What a floor in between loses by that, it gets back when its turn comes.

    Parameters
    ----------
    problem, counts
        The plan: replicas of each column, shape (columns,). It is not changed.
    floors
        What is to be kept, the most important ones first.
    level
        The one whose load is maximized.
    """
    counts = counts.copy()
    least = least_of(problem, floors)[problem.case] * problem.full
    fewest = np.ceil(least * (1 - SLACK)).astype(np.int64)
    holding = fewest_held(problem, fewest, held_shares(problem, floors))
    of_level = problem.level == level
    for floor in floors:
        lower = problem.level >= min(floor.goal.level + 1, level)
        donors = ((of_level, holding), (lower, holding), (of_level, fewest), (lower, fewest))
        if not _reach(problem, counts, floor, donors):
            return None
    return counts if all(is_kept(problem, floor, counts) for floor in floors) else None


def _reach(
    problem: ReplicaProblem,
    counts: IntArray,
    floor: Floor,
    donors: tuple[tuple[BoolArray, IntArray], ...],
) -> bool:
    """Give one case after the other what a floor needs; whether the plan keeps it then.

    A floor that the steps would not reach at the pace of the first ones is given up: of 10,000
    servers, steps in vain took up to 11 s.
    """
    lower, fewest = donors[-1]
    first = missing = _missing(problem, floor, counts)
    for step in range(STEPS):
        if missing <= _rounding(floor):
            return True
        if step >= TRIED and missing * step > (first - missing) * (STEPS - step):
            return False
        others = np.where(lower[problem.case], fewest, counts)
        if not (_lift(problem, counts, floor, others) and _make_room(problem, counts, donors)):
            return False
        missing = _missing(problem, floor, counts)
    return missing <= _rounding(floor)


def fitted(
    problem: ReplicaProblem, counts: IntArray, floors: tuple[Floor, ...], level: int
) -> IntArray | None:
    """The plan with less of a level, so that it fits; None if that does not suffice."""
    counts = counts.copy()
    least = least_of(problem, floors)[problem.case] * problem.full
    fewest = np.ceil(least * (1 - SLACK)).astype(np.int64)
    holding = fewest_held(problem, fewest, held_shares(problem, floors))
    of_level = problem.level == level
    fits = _make_room(problem, counts, ((of_level, holding), (of_level, fewest)))
    return counts if fits else None


def _lift(problem: ReplicaProblem, counts: IntArray, floor: Floor, fewest: IntArray) -> bool:
    """Give a case what a floor needs, in any of its columns, for the smallest part of the cards.

    There is room for it once all others have the fewest replicas.
    """
    missing = _missing(problem, floor, counts)
    share = floor.goal.shares(problem, counts)[problem.case]
    weight = problem.weight[problem.case]
    wanted = np.ceil((share + missing / weight) * problem.full * (1 - SLACK))
    room = counts + _room(problem, np.minimum(counts, fewest))
    replicas = np.minimum(np.minimum(wanted, problem.most), room).astype(np.int64)
    gain = weight * (replicas / problem.full - share)
    columns = np.flatnonzero(_may_have(problem, floor) & (gain > SLACK * floor.load))
    if not len(columns):
        return False
    cards = replicas * _part_of_cards(problem) - _part_of_case(problem, counts)[problem.case]
    useful = np.minimum(gain, missing) / np.maximum(cards, SLACK)
    best = int(columns[np.argmax(useful[columns])])
    counts[problem.case == problem.case[best]] = 0
    counts[best] = replicas[best]
    return True


def _room(problem: ReplicaProblem, counts: IntArray) -> IntArray:
    """Replicas of each column for which a plan leaves the cards; shape (columns,)."""
    left, entries = problem.capacity - problem.used(counts), problem.cards
    room = problem.most.copy()
    np.minimum.at(room, entries.owner, np.maximum(left[entries.type], 0) // entries.count)
    return room


def _may_have(problem: ReplicaProblem, floor: Floor) -> BoolArray:
    """Columns that a floor counts: of its level, and of what is held also what is kept."""
    goal = floor.goal
    if floor.whole or goal.kind is GoalKind.ENTIRE:
        return np.zeros(len(problem.case), dtype=np.bool_)
    counted = problem.serves | (goal.kind is GoalKind.HELD)
    of_goal: BoolArray = counted & (problem.level[problem.case] == goal.level)
    return of_goal


def _part_of_case(problem: ReplicaProblem, counts: IntArray) -> FloatArray:
    """Part of the cards of its types that each case takes; shape (cases,)."""
    part = counts * _part_of_cards(problem)
    return np.bincount(problem.case, part, len(problem.cases)).astype(np.float64)


def _part_of_cards(problem: ReplicaProblem) -> FloatArray:
    """Part of the cards of its types that a replica of each column takes; shape (columns,)."""
    entries = problem.cards
    part = entries.count / np.maximum(problem.capacity, 1)[entries.type]
    return np.bincount(entries.owner, part, len(problem.case)).astype(np.float64)


def _make_room(
    problem: ReplicaProblem, counts: IntArray, donors: tuple[tuple[BoolArray, IntArray], ...]
) -> bool:
    """Take replicas until the plan fits; whether it does.

    The first donors that have any beyond the fewest that go with them give the next ones.
    """
    left = problem.capacity - problem.used(counts)
    while np.any(left < 0):
        card_type = int(np.argmin(left))
        missing = int(-left[card_type])
        if not any(
            take_some(problem, counts, fewest, cases, card_type, missing)
            for cases, fewest in donors
        ):
            return False
        left = problem.capacity - problem.used(counts)
    return True
