"""Cards that are left are given away, one case after the other: what runs, or all that fits."""

import math
from collections.abc import Iterable

import numpy as np

from inferno_optimizer.sizing.queueing import FloatArray, IntArray
from inferno_optimizer.solvers.exact.program import BoolArray
from inferno_optimizer.solvers.partial.problem import ReplicaProblem

MORE = 1e-9
"""Share by which a case must gain to move to another column."""

ENOUGH = 1e-6
"""Part of a replica that can be done without."""

SMALLEST = 1e-12
"""Part of the cards that counts as such."""


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
        gain: list[bool] = ((share < 1 - MORE) & (best > share + MORE)).tolist()
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
        return math.ceil(share * self._full[column] - ENOUGH)

    def _serve(self, case: int) -> bool:
        """Give a case all that fits, if it gains; whether it moves and leaves cards to others."""
        columns = range(self._first[case], self._first[case + 1])
        before = {column: int(self.counts[column]) for column in columns if self.counts[column]}
        share = sum(count / self._full[column] for column, count in before.items())
        if share >= 1 - MORE:
            return False
        for column, count in before.items():
            self._give(column, -count)
        rooms = [(self._room(c) / self._full[c], c) for c in columns if self._problem.serves[c]]
        best, column = max(rooms, key=lambda room: (room[0], -room[1]), default=(0.0, -1))
        if best > share + MORE:
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


def filled(
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
    part = np.full(len(problem.case), 0.0)
    entries = problem.cards
    capacity = np.maximum(problem.capacity, 1)[entries.type]
    needs: FloatArray = entries.count * problem.full[entries.owner] / capacity
    np.maximum.at(part, entries.owner, needs)
    least = np.full(len(problem.cases), np.inf)
    np.minimum.at(least, problem.case, part)
    worth = problem.weight / np.maximum(least, SMALLEST)
    return np.lexsort((np.arange(len(worth)), -worth, problem.level))
