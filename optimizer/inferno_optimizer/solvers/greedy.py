"""Limited capacity, one server after the other: the order and the steps of the original.

Reference: `sizing.md`, section 5.2. The original computes in single precision, so regrets and
values are compared in it: two that differ by the rounding of doubles are equal. Ties, which the
original leaves to chance, go by name.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace
from heapq import heapify, heappop, heappush
from itertools import count, groupby

import numpy as np

from inferno_optimizer.sizing.candidates import Candidates
from inferno_optimizer.sizing.queueing import IntArray
from inferno_optimizer.solvers.assignment import Answer
from inferno_optimizer.solvers.ledger import Ledger
from inferno_optimizer.solvers.saturation import share_out
from inferno_optimizer.system import Status

SAME_VALUE = float(np.finfo(np.float32).eps)
"""Values that differ by so little, relative, are the same."""


@dataclass(frozen=True, slots=True)
class Entry:
    """A case in line, with its usable rows by value and the one it tries now."""

    case: int
    priority: int
    rows: tuple[int, ...]
    values: tuple[float, ...]
    position: int = 0

    @property
    def regret(self) -> float:
        """What it loses when it does not get the row it tries now."""
        if self.position + 1 == len(self.rows):
            return math.inf
        value, next_value = self.values[self.position : self.position + 2]
        if math.isclose(value, next_value, rel_tol=SAME_VALUE):
            return 0.0
        return float(np.float32(next_value - value))

    @property
    def rank(self) -> tuple[int, float, float]:
        """Smaller comes first: by priority, then larger regret, then larger value."""
        return self.priority, -self.regret, -float(np.float32(self.values[self.position]))


def solve_greedy(candidates: Candidates, capacity: IntArray) -> Answer:
    """Serve the cases by rank; then share out what is left, as the saturation policy says."""
    options = candidates.system.options
    ledger = Ledger(candidates, capacity)
    line = entries_by_rank(candidates)
    if options.delayed_best_effort:
        share_out(ledger, serve(ledger, line), options.saturation_policy)
    else:
        for _, group in groupby(line, key=lambda entry: entry.priority):
            share_out(ledger, serve(ledger, group), options.saturation_policy)
    return Answer("greedy", Status.FEASIBLE, ledger.assignment())


def entries_by_rank(candidates: Candidates) -> list[Entry]:
    """All cases with a usable row, in the order in which they are served at first."""
    ranked = candidates.ranked()
    owners = candidates.pairs.case[ranked]
    entries = []
    for rows in np.split(ranked, np.flatnonzero(np.diff(owners)) + 1):
        if len(rows):
            case = int(candidates.pairs.case[rows[0]])
            values = tuple(candidates.value[rows].tolist())
            priority = candidates.cases[case].priority
            entries.append(Entry(case, priority, tuple(rows.tolist()), values))
    names = [case.server.name for case in candidates.cases]
    return sorted(entries, key=lambda entry: (*entry.rank, names[entry.case]))


def serve(ledger: Ledger, entries: Iterable[Entry]) -> list[Entry]:
    """Allocate to each in turn; one whose row does not fit steps to its next and is put back.

    Returns those that ran out of rows, in the order in which they did.
    """
    line = [(entry.rank, place, entry) for place, entry in enumerate(entries)]
    heapify(line)
    first = count(-1, -1)  # of equals the one that was put back last comes first
    unserved = []
    while line:
        _, _, entry = heappop(line)
        row = entry.rows[entry.position]
        if ledger.fits(row):
            ledger.take_all(row)
        elif entry.position + 1 < len(entry.rows):
            stepped = replace(entry, position=entry.position + 1)
            heappush(line, (stepped.rank, next(first), stepped))
        else:
            unserved.append(entry)
    return unserved
