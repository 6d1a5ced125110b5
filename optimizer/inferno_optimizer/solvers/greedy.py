"""The plans in the order of the original: without limits, and one server after the other.

Whoever loses most by its next best row is served first, as in the heuristic for the generalized
assignment problem [S. Martello, P. Toth, *Knapsack Problems*, 1990, section 7.4]. See
`assignment.md`, sections "Unlimited", "Greedy" and "Saturation policies". The original computes
in single precision, so regrets and values are compared in it: two that differ by the rounding of
doubles are equal. Ties, which the original leaves to chance, go by name.

With `Hold` there are two beginnings: all are in line, or all stay where they run. What is served
first decides what is left for others. From the order of the original alone servers move that could
stay, and take cards with which others would be served.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from heapq import heapify, heappop, heappush
from itertools import count, groupby
from math import ceil

import numpy as np

from inferno_optimizer.sizing.candidates import Candidates
from inferno_optimizer.sizing.queueing import BoolArray, IntArray
from inferno_optimizer.solution import SolverStatus
from inferno_optimizer.solvers.assignment import NO_ROW, Assignment, KeptReplicas, SolverResult
from inferno_optimizer.solvers.exchanges import exchange_rows, serve_more
from inferno_optimizer.solvers.ledger import Ledger
from inferno_optimizer.solvers.loads import is_better
from inferno_optimizer.solvers.params import DEFAULTS, SolveParams
from inferno_optimizer.solvers.running import Running, rows_that_run
from inferno_optimizer.system import SaturationPolicy

SAME_VALUE = float(np.finfo(np.float32).eps)
"""Values that differ by so little, relative, are the same."""


def solve_unlimited(candidates: Candidates) -> SolverResult:
    """The candidate of least value for each case; of equal ones the cheapest replica."""
    rows = np.full(len(candidates.cases), NO_ROW, dtype=np.int64)
    ranked = candidates.ranked()
    cases, first = np.unique(candidates.pairs.case[ranked], return_index=True)
    rows[cases] = ranked[first]
    assignment = Assignment.of_rows(candidates, rows)
    objective = assignment.objective(candidates)
    return SolverResult("unlimited", SolverStatus.OPTIMAL, assignment, bound=objective)


def solve_greedy(
    candidates: Candidates,
    capacity: IntArray,
    params: SolveParams = DEFAULTS,
    *,
    stand: bool = False,
) -> SolverResult:
    """Serve the cases by rank; then share out what is left, as the saturation policy says.

    If they are to `stand`, those of a priority that may stay as they are do, before the others
    are served. With `Hold`, rows are exchanged at the end.
    """
    standing = candidates.stays & stand
    if candidates.system.options.saturation_policy is SaturationPolicy.HOLD:
        running = rows_that_run(candidates)
        plan = begin(candidates, capacity, standing, running, params)
        plan = exchange_rows(candidates, capacity, plan, running, params)
        plan = fill_up(candidates, capacity, plan)
    else:
        plan = fill(candidates, capacity, serve_after_those_that_stand(standing))
    return SolverResult("greedy", SolverStatus.FEASIBLE, plan)


def begin(
    candidates: Candidates,
    capacity: IntArray,
    standing: BoolArray,
    running: IntArray,
    params: SolveParams = DEFAULTS,
) -> Assignment:
    """The plan that serves as many as it can, with `Hold`.

    Parameters
    ----------
    candidates, capacity
        The table, and the cards of each of its types.
    standing
        The rows that stand before others are served; shape (rows,).
    running
        The rows on which cases run, or -1; shape (cases,). If some are not served, the plan is the
        one in which these stand, if that holds or serves more, for up to `second_plan` cases.
    """
    cases = len(candidates.cases)
    homes = np.zeros_like(standing)
    homes[running[running != NO_ROW]] = cases <= params.second_plan
    ways = map(serve_after_those_that_stand, (standing, homes))
    plans = (
        serve_more(candidates, capacity, plan, params)
        for plan in fillings(candidates, capacity, ways)
    )
    plan = next(plans)
    if not homes.any() or len(plan.served(candidates)) == cases:
        return plan
    calm = next(plans)
    return calm if is_better(candidates, calm, plan, params, one_each=True) else plan


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
        yield undo_swaps(candidates, plan) if options.avoids_swaps else plan


def fill_up(candidates: Candidates, capacity: IntArray, plan: Assignment) -> Assignment:
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


def share_out(ledger: Ledger, unserved: Sequence[Entry], policy: SaturationPolicy) -> None:
    """Give what is left to unserved cases, which stand in the order in which they failed."""
    _POLICIES[policy](ledger, unserved)


def _nothing(_ledger: Ledger, _unserved: Sequence[Entry]) -> None:
    """Leave it."""


def _exhaustive(ledger: Ledger, unserved: Sequence[Entry]) -> None:
    """One case after the other takes all it can of the first row of which a replica fits."""
    for entry in unserved:
        row = _first_with_room(ledger, entry)
        if row is not None:
            ledger.take(row, ledger.room(row))


def _largest_share(ledger: Ledger, unserved: Sequence[Entry]) -> None:
    """One case after the other adds what fits to what it holds, or moves where it gets more.

    What runs on an accelerator without a usable row stays as it is, and what runs on several ones
    until more of the load can be served on one.
    """
    for entry in unserved:
        held = sorted(entry.rows, key=lambda row: ledger.given(row) == 0)
        row = max(held, key=ledger.share)
        if ledger.room(row) > 0 and ledger.share(row) > ledger.kept_share(entry.case):
            ledger.take(row, ledger.room(row))


def _round_robin(ledger: Ledger, unserved: Sequence[Entry]) -> None:
    """One replica each in turn, of the row chosen first, until its type is used up."""
    waiting = []
    for entry in unserved:
        row = _first_with_room(ledger, entry)
        if row is not None:
            ledger.take(row, 1)
            waiting.append(row)
    while waiting:
        rounds = ledger.whole_rounds(waiting)
        for row in waiting:
            ledger.take(row, rounds)
        waiting = [row for row in waiting if _take_one(ledger, row)]


def _take_one(ledger: Ledger, row: int) -> bool:
    """Give one replica of a row if there is room; whether there was."""
    room = ledger.room(row) > 0
    if room:
        ledger.take(row, 1)
    return room


def _round_robin_by_priority(ledger: Ledger, unserved: Sequence[Entry]) -> None:
    """Round robin in each priority group, the important ones first."""
    for _, group in groupby(unserved, key=lambda entry: entry.priority):
        _round_robin(ledger, list(group))


def _first_with_room(ledger: Ledger, entry: Entry) -> int | None:
    """The row that a case has, else its best row of which a replica fits."""
    given = next((row for row in entry.rows if ledger.given(row) > 0), None)
    if given is not None:
        return given if ledger.room(given) > 0 else None
    return next((row for row in entry.rows if ledger.room(row) > 0), None)


_POLICIES: Mapping[SaturationPolicy, Callable[[Ledger, Sequence[Entry]], None]] = {
    SaturationPolicy.NONE: _nothing,
    SaturationPolicy.HOLD: _largest_share,
    SaturationPolicy.PRIORITY_EXHAUSTIVE: _exhaustive,
    SaturationPolicy.PRIORITY_ROUND_ROBIN: _round_robin_by_priority,
    SaturationPolicy.ROUND_ROBIN: _round_robin,
}


@dataclass(slots=True)
class _Change:
    """Replicas of a row that a case gets more than it runs, negative if fewer; with their cards.

    Peers have the same priority and type of card.
    """

    case: int
    row: int
    replicas: int
    cards: int
    peers: tuple[int, int]


def undo_swaps(candidates: Candidates, plan: Assignment) -> Assignment:
    """Give replicas back to cases that run and are short, from equal cases on the same cards.

    The original gives what is short to whoever has less now. Of plans that follow each other, each
    then takes the last card of one server and gives it to an equal one, until the next plan.

    Only those give that run there too and get more, or that run nothing, and only what they get
    more. Moves to other accelerators stay as they are, and so does what other levels get.
    """
    rows, replicas = plan.rows.copy(), plan.replicas.copy()
    changes = sorted(_changes(candidates, plan), key=lambda change: (change.peers, change.case))
    for _, group in groupby(changes, key=lambda change: change.peers):
        peers = list(group)
        gains = [change for change in peers if change.replicas > 0]
        for loss in (change for change in peers if change.replicas < 0):
            free = sum(gain.replicas * gain.cards for gain in gains)
            back = min(-loss.replicas, free // loss.cards)
            _take(gains, back * loss.cards, replicas)
            replicas[loss.case] += back
            rows[loss.case] = loss.row if back else rows[loss.case]
    has_given_all = (plan.replicas > 0) & (replicas == 0)
    return replace(plan, rows=np.where(has_given_all, NO_ROW, rows), replicas=replicas)


def _take(gains: list[_Change], cards: int, replicas: IntArray) -> None:
    """Take so many cards from those that gain, one after the other."""
    for gain in gains:
        taken = min(gain.replicas, ceil(max(cards, 0) / gain.cards))
        gain.replicas -= taken
        replicas[gain.case] -= taken
        cards -= taken * gain.cards


def _changes(candidates: Candidates, plan: Assignment) -> Iterator[_Change]:
    """Yield what cases get less or more on cards of one type, where they stay or begin."""
    runs_on, nothing = rows_that_run(candidates), plan.without()
    running, needed = candidates.running(), candidates.replicas
    for case, (row, given) in enumerate(
        zip(plan.rows.tolist(), plan.replicas.tolist(), strict=True)
    ):
        now = int(runs_on[case])
        begins = candidates.cases[case].server.current.replicas == 0
        if not (begins or (now != NO_ROW and (row == now or nothing[case]))):
            continue
        stays = now if row == NO_ROW else row
        cards = candidates.cards_of(stays) if stays != NO_ROW else []
        had = 0 if begins else min(int(running[stays]), int(needed[stays]))
        if len(cards) == 1 and given != had:
            ((card_type, count),) = cards
            priority = candidates.cases[case].priority
            yield _Change(case, stays, given - had, count, (priority, card_type))
