"""Whole replicas from a vertex of the relaxation: split cases get one column, others make room.

A vertex splits as many cases at most as there are rows for cards and floors, so that to round it is
near the best [J. F. Benders, J. A. E. E. van Nunen, *A property of assignment type mixed integer
linear programming problems*, Operations Research Letters 2 (1983) 47-52]. What does not fit, or
misses a floor, is repaired; what is left is given to those that can use it.
"""

import math
from collections.abc import Iterable, Iterator

import numpy as np

from inferno_optimizer.sizing.queueing import BoolArray, FloatArray, IntArray
from inferno_optimizer.solvers.budget import Budget
from inferno_optimizer.solvers.goals import Floor, GoalKind, held_shares, least_of
from inferno_optimizer.solvers.problem import ReplicaProblem
from inferno_optimizer.solvers.relaxation import Vertex


class Filling:
    """A plan, and the cards that it leaves.

    Parameters
    ----------
    problem, counts
        The plan: replicas of each column, shape (columns,). It is not changed.
    """

    def __init__(self, problem: ReplicaProblem, counts: IntArray) -> None:
        self._problem = problem
        self.counts = counts.copy()
        self._left: list[int] = (problem.capacity - problem.used(counts)).tolist()
        self._first: list[int] = np.searchsorted(
            problem.case, np.arange(len(problem.cases) + 1)
        ).tolist()
        self._needs = problem.needs
        self._most: list[int] = problem.most.tolist()
        self._full: list[float] = problem.full.tolist()

    def hold(self, cases: Iterable[int]) -> None:
        """Give each case that has nothing what runs of it, as far as it fits."""
        for case in cases:
            columns = range(self._first[case], self._first[case + 1])
            if any(self.counts[column] for column in columns):
                continue
            for column in columns:
                runs = int(self._problem.runs[column])
                if runs:
                    self._give(column, min(runs, self._room(column)))

    def serve(self, cases: Iterable[int]) -> None:
        """Give each case all that fits, where that serves more of it than now."""
        may_gain, moved = self._may_gain(), False
        for case in cases:
            if moved or may_gain[case]:  # who moves leaves cards to all that follow
                moved |= self._serve(case)

    def _may_gain(self) -> list[bool]:
        """Whether more of each case would be served by what is left, or less where cards go."""
        problem, entries = self._problem, self._problem.cards
        case, types = problem.case[entries.owner], len(self._left)
        taken = entries.count * self.counts[entries.owner]
        own = np.bincount(case * types + entries.type, taken, len(problem.cases) * types)
        cards = np.array(self._left)[entries.type] + own[case * types + entries.type]
        room = problem.most.astype(np.float64)
        np.minimum.at(room, entries.owner, cards // entries.count)
        best = np.zeros(len(problem.cases))
        np.maximum.at(best, problem.case, room * problem.served_share)
        share = np.bincount(problem.case, self.counts / problem.full, len(problem.cases))
        more = problem.params.rounding
        gain: list[bool] = ((share < 1 - more) & (best > share + more)).tolist()
        return gain

    def follow(self, case: int, column: int, share: float, loss: FloatArray) -> None:
        """Give a case a share of a column, or as much as fits of the one that loses the least."""
        wanted = self._replicas(column, share)
        if column < 0 or self._room(column) < wanted:
            columns = range(self._first[case], self._first[case + 1])
            fitting = [
                (min(self._room(c), self._replicas(c, share)) / self._full[c], -loss[c], -c)
                for c in columns
            ]
            column = -max(fitting, default=(0.0, 0.0, 1))[2]
            wanted = self._replicas(column, share)
        if column >= 0:
            self._give(column, min(wanted, self._room(column)))

    def _replicas(self, column: int, share: float) -> int:
        """Whole replicas that carry a share of a column's case."""
        return math.ceil(share * self._full[column] - self._problem.params.whole)

    def _serve(self, case: int) -> bool:
        """Give a case all that fits, if it gains; whether it moves and leaves cards to others."""
        columns = range(self._first[case], self._first[case + 1])
        before = {column: int(self.counts[column]) for column in columns if self.counts[column]}
        share = sum(count / self._full[column] for column, count in before.items())
        if share >= 1 - self._problem.params.rounding:
            return False
        for column, count in before.items():
            self._give(column, -count)
        rooms = [(self._room(c) / self._full[c], c) for c in columns if self._problem.serves[c]]
        best, column = max(rooms, key=lambda room: (room[0], -room[1]), default=(0.0, -1))
        if best > share + self._problem.params.rounding:
            self._give(column, self._room(column))
            return bool(before)
        for column, count in before.items():
            self._give(column, count)
        return False

    def _room(self, column: int) -> int:
        rooms = [self._left[card_type] // count for card_type, count in self._needs[column]]
        return max(min([self._most[column], *rooms]), 0)

    def _give(self, column: int, replicas: int) -> None:
        self.counts[column] += replicas
        for card_type, count in self._needs[column]:
            self._left[card_type] -= replicas * count


def fill_columns(
    problem: ReplicaProblem, counts: IntArray, cases: BoolArray, *, only_hold: bool
) -> IntArray:
    """The plan with what is left given to some cases, the most load for the cards first."""
    filling = Filling(problem, counts)
    order = _by_load_for_cards(problem)
    order = order[cases[order]]
    if only_hold:
        filling.hold(order.tolist())
    else:
        filling.serve(order.tolist())
    return filling.counts


def _by_load_for_cards(problem: ReplicaProblem) -> IntArray:
    """Cases by level; in a level those first that serve the most load for their cards."""
    least = np.full(len(problem.cases), np.inf)
    np.minimum.at(least, problem.case, problem.scarcest_part)
    worth = problem.weight / np.maximum(least, problem.params.same)
    return np.lexsort((np.arange(len(worth)), -worth, problem.level))


def is_floor_kept(problem: ReplicaProblem, floor: Floor, counts: IntArray) -> bool:
    """Whether a plan keeps a floor, but for rounding."""
    return _missing(problem, floor, counts) <= _rounding(problem, floor)


def _rounding(problem: ReplicaProblem, floor: Floor) -> float:
    """Load that a plan may miss of a floor."""
    return problem.params.whole * max(floor.load, 1.0)


def _missing(problem: ReplicaProblem, floor: Floor, counts: IntArray) -> float:
    """Load that a plan misses of a floor; below 0 where it has more."""
    return floor.load - floor.goal.worth(problem, counts)


def lift_to_floors(
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
    fewest = np.ceil(least * (1 - problem.params.rounding)).astype(np.int64)
    holding = fewest_held(problem, fewest, held_shares(problem, floors))
    of_level = problem.level == level
    for floor in floors:
        lower = problem.level >= min(floor.goal.level + 1, level)
        donors = ((of_level, holding), (lower, holding), (of_level, fewest), (lower, fewest))
        if not _reach(problem, counts, floor, donors):
            return None
    return counts if all(is_floor_kept(problem, floor, counts) for floor in floors) else None


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
    steps = problem.params.lifts
    first = missing = _missing(problem, floor, counts)
    for step in range(steps):
        if missing <= _rounding(problem, floor):
            return True
        if step >= problem.params.lifts_tried and missing * step > (first - missing) * (
            steps - step
        ):
            return False
        others = np.where(lower[problem.case], fewest, counts)
        if not (_lift(problem, counts, floor, others) and _make_room(problem, counts, donors)):
            return False
        missing = _missing(problem, floor, counts)
    return missing <= _rounding(problem, floor)


def _lift(problem: ReplicaProblem, counts: IntArray, floor: Floor, fewest: IntArray) -> bool:
    """Give a case what a floor needs, in any of its columns, for the smallest part of the cards.

    There is room for it once all others have the fewest replicas.
    """
    missing = _missing(problem, floor, counts)
    share = floor.goal.shares(problem, counts)[problem.case]
    weight = problem.weight[problem.case]
    wanted = np.ceil((share + missing / weight) * problem.full * (1 - problem.params.rounding))
    room = counts + _room(problem, np.minimum(counts, fewest))
    replicas = np.minimum(np.minimum(wanted, problem.most), room).astype(np.int64)
    gain = weight * (replicas / problem.full - share)
    columns = np.flatnonzero(
        _may_have(problem, floor) & (gain > problem.params.rounding * floor.load)
    )
    if not len(columns):
        return False
    cards = replicas * problem.part - problem.parts_of(counts)[problem.case]
    useful = np.minimum(gain, missing) / np.maximum(cards, problem.params.rounding)
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


def keep_whole(problem: ReplicaProblem, vertex: Vertex) -> tuple[IntArray, BoolArray]:
    """Replicas of the cases that are not split, and which cases are."""
    amounts, whole = vertex.amounts * problem.full, problem.params.whole
    counts = np.rint(amounts).astype(np.int64)
    some = vertex.amounts > problem.params.rounding
    split = np.zeros(len(problem.cases), dtype=np.bool_)
    split[problem.case[some & (np.abs(amounts - counts) > whole * np.maximum(counts, 1))]] = True
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
    budget.spend(2 * problem.params.plan * len(problem.case))
    plan = round_vertex(problem, vertex, least, held, problem.level == level, budget)
    if plan is not None:
        yield plan
    if not budget.is_over:
        yield follow_vertex(problem, vertex)


def round_vertex(
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
    counts, split = keep_whole(problem, vertex)
    fewest = np.ceil(least[problem.case] * problem.full * (1 - problem.params.rounding)).astype(
        np.int64
    )
    spare = problem.capacity - problem.used(np.where(lowest[problem.case], 0, counts))
    left, none = problem.capacity - problem.used(counts), np.zeros_like(fewest)
    for case in _largest_first(problem, vertex, split):
        budget.spend(problem.params.plan_step * len(problem.case))
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
    for _ in range(problem.params.room_steps):
        if np.all(left >= 0):
            return counts
        if budget.is_over:
            return None
        budget.spend(problem.params.plan_step * len(problem.case))
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


def follow_vertex(problem: ReplicaProblem, vertex: Vertex) -> IntArray:
    """A plan that follows a vertex case by case, the important ones first; it always fits.

    In a level the split cases come last, the largest first: others may then lose cards to them
    that are less important.
    """
    counts, split = keep_whole(problem, vertex)
    filling = Filling(problem, np.zeros_like(counts))
    share = np.bincount(problem.case, vertex.amounts, len(problem.cases))
    column = np.full(len(problem.cases), -1)
    some = np.flatnonzero(counts)
    column[problem.case[some]] = some
    place = np.zeros(len(problem.cases), dtype=np.int64)
    splits = _largest_first(problem, vertex, split)
    place[splits] = np.arange(len(splits)) + 1
    loss = np.where(np.isfinite(vertex.lost), vertex.lost, problem.params.forbidden_loss)
    for case in np.lexsort((place, problem.level)).tolist():
        if share[case] > problem.params.rounding:
            filling.follow(case, int(column[case]), min(float(share[case]), 1.0), loss)
    return filling.counts


def _largest_first(problem: ReplicaProblem, vertex: Vertex, split: BoolArray) -> list[int]:
    """The split cases, those first that have most of the cards of a type."""
    size = problem.parts_of(vertex.amounts * problem.full)
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
    whole = (share * problem.full[columns] + problem.params.whole).astype(np.int64)
    replicas = np.minimum(np.maximum(whole, fewest[columns]), problem.most[columns])
    place = np.full(len(problem.case), -1)
    place[columns] = np.arange(len(columns))
    placed = place[problem.cards.owner] >= 0
    at, card_type = place[problem.cards.owner[placed]], problem.cards.type[placed]
    needs = problem.cards.count[placed] * replicas[at]
    missing = needs - np.maximum(left[card_type], 0)
    too_many = needs > np.maximum(spare[card_type], 0)
    paid = np.maximum(vertex.prices[card_type], problem.params.rounding) * np.maximum(missing, 0)
    loss = np.maximum(vertex.lost[columns], 0.0) + np.bincount(at, paid, len(columns))
    loss[at[too_many]] += problem.params.forbidden_loss
    best = int(np.argmin(loss))
    return int(columns[best]), int(replicas[best])


def fewest_held(problem: ReplicaProblem, fewest: IntArray, held: FloatArray) -> IntArray:
    """Replicas of each column that a case must have, or that hold a share; shape (columns,)."""
    holds = np.ceil(held[problem.case] * problem.full * (1 - problem.params.rounding)).astype(
        np.int64
    )
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
        np.ceil(share[problem.case] * problem.full - problem.params.whole).astype(np.int64), fewest
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
