"""Limited capacity, exactly: a mixed integer linear program for PuLP and HiGHS.

The problem is that of `assignment.md`: at most one row for each case, cards within the
capacity; priority by priority the served load is made as large as it can be, then the total
value as small as it can be. Capacity that is too short is an answer, not an error.
"""

from collections import defaultdict
from collections.abc import Callable

import numpy as np

from inferno_optimizer.candidates import Candidates
from inferno_optimizer.errors import UnsupportedError
from inferno_optimizer.queueing import IntArray
from inferno_optimizer.solvers.assignment import NO_ROW, Answer, Assignment
from inferno_optimizer.solvers.greedy import entries_by_rank, serve, solve_greedy
from inferno_optimizer.solvers.ledger import Ledger
from inferno_optimizer.solvers.lexicographic import solve_by_levels
from inferno_optimizer.solvers.program import Program, weight_of
from inferno_optimizer.solvers.saturation import share_out
from inferno_optimizer.system import Status


def solve_milp(candidates: Candidates, capacity: IntArray, clock: Callable[[], float]) -> Answer:
    """Serve as much as possible by priority at the least value, within the time limit.

    Raises
    ------
    UnsupportedError
        For a heterogeneous plan (several accelerators for one server).
    SolverError
        When the solver fails.
    """
    options = candidates.system.options
    if options.heterogeneous:
        raise UnsupportedError("heterogeneous plans are not supported yet: set it to false")
    room = capacity[candidates.pairs.type]
    rows = np.flatnonzero(candidates.usable & (candidates.cards <= room))
    if not len(rows):
        assignment = _filled(candidates, capacity, rows)
        return Answer("milp", Status.OPTIMAL, assignment, 0.0, np.zeros(len(capacity)))
    deadline = clock() + options.time_limit
    program = Program.of(candidates, rows, capacity)
    outcome = solve_by_levels(program, lambda: deadline - clock())
    assignment = _filled(candidates, capacity, rows[outcome.chosen])
    if outcome.reached:
        return Answer("milp", Status.OPTIMAL, assignment, outcome.least_value, outcome.prices)
    greedy = solve_greedy(candidates, capacity).assignment
    best = max(assignment, greedy, key=lambda plan: _served(candidates, plan))
    bound = outcome.least_value if best is assignment else None
    return Answer("milp", Status.TIME_LIMIT, best, bound, outcome.prices)


def _filled(candidates: Candidates, capacity: IntArray, chosen: IntArray) -> Assignment:
    """The chosen rows, and what fits besides: rounding or time may have left it behind."""
    ledger = Ledger(candidates, capacity)
    for row in chosen.tolist():
        if ledger.fits(row):  # a solver's tolerance could let a card too many pass
            ledger.take_all(row)
    served = ledger.assignment().rows != NO_ROW
    line = [entry for entry in entries_by_rank(candidates) if not served[entry.case]]
    share_out(ledger, serve(ledger, line), candidates.system.options.saturation_policy)
    return ledger.assignment()


def _served(candidates: Candidates, plan: Assignment) -> tuple[float, ...]:
    """Load served entirely, by priority; the most important first."""
    rows = plan.rows[plan.rows != NO_ROW]
    entire = rows[plan.replicas[plan.rows != NO_ROW] == candidates.replicas[rows]]
    load: defaultdict[int, float] = defaultdict(float)
    for case in candidates.pairs.case[entire].tolist():
        load[candidates.cases[case].priority] += weight_of(candidates.cases[case])
    return tuple(load[priority] for priority in sorted({c.priority for c in candidates.cases}))
