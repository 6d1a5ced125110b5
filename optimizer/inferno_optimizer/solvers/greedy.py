"""Limited capacity, one server after the other: the order and the steps of the original.

See `assignment.md`, section "Greedy". The original computes in single precision, so regrets and
values are compared in it: two that differ by the rounding of doubles are equal. Ties, which the
original leaves to chance, go by name.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from heapq import heapify, heappop, heappush
from itertools import count, groupby

import numpy as np
import numpy.typing as npt

from inferno_optimizer.sizing.candidates import Candidates
from inferno_optimizer.sizing.queueing import IntArray
from inferno_optimizer.solvers.assignment import NO_ROW, Assignment, KeptReplicas
from inferno_optimizer.solvers.ledger import Ledger
from inferno_optimizer.solvers.running import Running
from inferno_optimizer.solvers.saturation import share_out
from inferno_optimizer.solvers.swaps import without_swaps
from inferno_optimizer.system import SaturationPolicy

BoolArray = npt.NDArray[np.bool_]

SAME_VALUE = float(np.finfo(np.float32).eps)
"""Values that differ by so little, relative, are the same."""


@dataclass(frozen=True, slots=True)
class Entry:
    """A case in line, with its usable rows by value.

    The rank of a row orders the cases that try theirs at the same time, the smallest first: by
    priority, then by what the case loses when it does not get the row, then by larger value.
    """

    case: int
    priority: int
    rows: tuple[int, ...]
    ranks: tuple[tuple[int, float, float], ...]


Serve = Callable[[Ledger, Sequence[Entry]], list[Entry]]
"""Gives cases what their targets take; returns those that did not get it, in that order."""


def serve_after_those_that_stand(standing: BoolArray) -> Serve:
    """Serve cases once those stand that have one of these rows, shape (rows,), and fit."""

    def serve_the_others(ledger: Ledger, entries: Sequence[Entry]) -> list[Entry]:
        return serve(ledger, _stand(ledger, entries, standing))

    return serve_the_others


def fill(candidates: Candidates, capacity: IntArray, serve_each: Serve) -> Assignment:
    """Serve the cases of one priority after the other, and share out what is left.

    With the policy `Hold` the cases of a priority hold what runs before any of them gets more.
    """
    return next(fillings(candidates, capacity, [serve_each]))


def fillings(
    candidates: Candidates, capacity: IntArray, ways: Iterable[Serve]
) -> Iterator[Assignment]:
    """The plan of each way to serve cases, computed once it is asked for; see `fill`."""
    options = candidates.system.options
    ledger, policy = Ledger(candidates, capacity), options.saturation_policy
    running = Running.of(candidates) if policy is SaturationPolicy.HOLD else None
    line = entries_by_rank(candidates, ledger.unserved())
    for serve_each in ways:
        ledger.clear()
        waiting = list[Entry]()
        for _, group in groupby(line, key=lambda entry: entry.priority):
            entries = list(group)
            if running:
                _hold(ledger, entries, running)
            unserved = serve_each(ledger, entries)
            if options.delayed_best_effort:
                waiting += unserved
            else:
                share_out(ledger, unserved, policy)
        share_out(ledger, waiting, policy)
        plan = ledger.assignment()
        yield without_swaps(candidates, plan) if options.avoids_swaps else plan


def filled_up(candidates: Candidates, capacity: IntArray, plan: Assignment) -> Assignment:
    """The plan, with what exchanges left for those that have less than they need.

    First, those that run and have nothing hold what runs, the important ones before others.
    """
    short = np.ones(len(candidates.cases), dtype=np.bool_)
    short[plan.served(candidates)] = False
    if not short.any():
        return plan
    ledger, running = Ledger(candidates, capacity), Running.of(candidates)
    for case in np.flatnonzero(plan.rows != NO_ROW).tolist():
        ledger.take(int(plan.rows[case]), int(plan.replicas[case]))
    for case, parts in plan.kept.items():
        ledger.keep(case, parts)
    line, nothing = entries_by_rank(candidates, short), plan.without()
    stopped = (entry for entry in line if nothing[entry.case])
    for _, group in groupby(stopped, key=lambda entry: entry.priority):
        _hold(ledger, list(group), running)
    share_out(ledger, line, SaturationPolicy.HOLD)
    return ledger.assignment()


def _hold(ledger: Ledger, entries: Sequence[Entry], running: Running) -> None:
    """Give the cases what runs, as far as more important ones have left it.

    Each holds one replica before any holds more, so that none is stopped for an equal one.
    """
    for entry in entries:
        hold(ledger, entry.case, running, most=1)
    for entry in entries:
        hold(ledger, entry.case, running)


def hold(ledger: Ledger, case: int, running: Running, most: int | None = None) -> None:
    """Give a case what runs of it, or so many replicas of that at most."""
    row = int(running.rows[case])
    if row != NO_ROW:
        replicas = int(running.replicas[case])
        ledger.hold(row, replicas if most is None else min(replicas, most))
    elif case in running.parts:
        parts = running.parts[case]
        ledger.keep(case, parts if most is None else tuple(at_most(most, parts)))


def at_most(replicas: int, parts: Iterable[KeptReplicas]) -> Iterator[KeptReplicas]:
    """Every part, with so many replicas in all at most."""
    for part in parts:
        kept = min(part.replicas, replicas)
        replicas -= kept
        yield replace(part, replicas=kept)


def _stand(ledger: Ledger, entries: Iterable[Entry], standing: BoolArray) -> list[Entry]:
    """Give the cases that have such a row, and for whom it fits, all of it; return the others."""
    moving = []
    for entry in entries:
        row = next((row for row in entry.rows if standing[row]), NO_ROW)
        if row != NO_ROW and ledger.fits(row):
            ledger.take_all(row)
        else:
            moving.append(entry)
    return moving


def entries_by_rank(candidates: Candidates, wanted: BoolArray) -> list[Entry]:
    """Wanted cases, shape (cases,), with a usable row, in the order in which they are served."""
    ranked = candidates.ranked()
    ranked = ranked[wanted[candidates.pairs.case[ranked]]]
    owners = candidates.pairs.case[ranked]
    starts = np.flatnonzero(np.diff(owners, prepend=-1))
    ends = np.append(starts[1:], len(ranked))[: len(starts)]
    rows, ranks = ranked.tolist(), _ranks(candidates, ranked)
    entries = [
        Entry(case, ranks[first][0], tuple(rows[first:end]), tuple(ranks[first:end]))
        for case, first, end in zip(
            *(column.tolist() for column in (owners[starts], starts, ends)), strict=True
        )
    ]
    names = [case.server.name for case in candidates.cases]
    return sorted(entries, key=lambda entry: (*entry.ranks[0], names[entry.case]))


def _ranks(candidates: Candidates, ranked: IntArray) -> list[tuple[int, float, float]]:
    """Rank of each of the rows, which are sorted by case and value; see `Entry`."""
    owners, value = candidates.pairs.case[ranked], candidates.value[ranked]
    priority = np.array([case.priority for case in candidates.cases], dtype=np.int64)[owners]
    after = np.append(value[1:], 0.0)
    same = np.abs(after - value) <= SAME_VALUE * np.maximum(np.abs(value), np.abs(after))
    regret = np.where(same, 0.0, (after - value).astype(np.float32))
    regret[np.diff(owners, append=-1) != 0] = np.inf
    columns = priority, -regret, -value.astype(np.float32)
    return list(zip(*(column.tolist() for column in columns), strict=True))


def serve(ledger: Ledger, entries: Iterable[Entry]) -> list[Entry]:
    """Allocate to each in turn; one whose row does not fit steps to its next and is put back.

    Returns those that ran out of rows, in the order in which they did.
    """
    line = [(entry.ranks[0], place, 0, entry) for place, entry in enumerate(entries)]
    heapify(line)
    first = count(-1, -1)  # of equals the one that was put back last comes first
    unserved = []
    while line:
        _, _, position, entry = heappop(line)
        row, position = entry.rows[position], position + 1
        if ledger.fits(row):
            ledger.take_all(row)
        elif position < len(entry.rows):
            heappush(line, (entry.ranks[position], next(first), position, entry))
        else:
            unserved.append(entry)
    return unserved
