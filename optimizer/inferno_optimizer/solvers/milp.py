"""Limited capacity, exactly: a mixed integer linear program for PuLP and HiGHS.

The problem is that of `assignment.md`: at most one row for each case, cards within the
capacity; priority by priority the served load is made as large as it can be, then the total
value as small as it can be. Capacity that is too short is an answer, not an error.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import replace

import numpy as np

from inferno_optimizer.candidates import Candidates
from inferno_optimizer.errors import UnsupportedError
from inferno_optimizer.queueing import IntArray
from inferno_optimizer.solvers.assignment import NO_ROW, Answer, Assignment
from inferno_optimizer.solvers.greedy import entries_by_rank, serve, solve_greedy
from inferno_optimizer.solvers.ledger import Ledger
from inferno_optimizer.solvers.lexicographic import GIVEN_UP, solve_by_levels
from inferno_optimizer.solvers.program import Program, weight_of
from inferno_optimizer.solvers.saturation import share_out
from inferno_optimizer.system import Certificate, Level, Status

OPTIMAL = 1e-4
"""Gap up to which a plan counts as optimal, as is usual with MILP solvers."""


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
    deadline = clock() + options.time_limit
    room = capacity[candidates.pairs.type]
    rows = np.flatnonzero(candidates.usable & (candidates.cards <= room))
    if not len(rows):
        assignment = _filled(candidates, capacity, rows)
        levels = _levels(candidates, assignment, {})
        return Answer("milp", Status.OPTIMAL, assignment, 0.0, levels, np.zeros(len(capacity)))
    rows = rows[Program.of(candidates, rows, capacity).undominated()]
    outcome = solve_by_levels(Program.of(candidates, rows, capacity), lambda: deadline - clock())
    assignment = _filled(candidates, capacity, rows[outcome.chosen])
    priorities = sorted({candidates.cases[case].priority for case in candidates.pairs.case[rows]})
    most = dict(zip(priorities, outcome.most_served.tolist(), strict=True))
    levels = _levels(candidates, assignment, most)
    bound = min(outcome.least_value, assignment.objective(candidates))
    unproven = Status.FEASIBLE if clock() < deadline else Status.TIME_LIMIT
    answer = Answer("milp", unproven, assignment, bound, levels, outcome.prices)
    if _distance(candidates, answer) <= OPTIMAL:
        return replace(answer, status=Status.OPTIMAL)
    return _or_greedy(candidates, capacity, answer)


def _levels(
    candidates: Candidates, assignment: Assignment, most: Mapping[int, float]
) -> tuple[Level, ...]:
    """Load served of each priority, with the most that is proven to be possible."""
    return tuple(
        Level(priority, load, max(load, most.get(priority, 0.0)))
        for priority, load in _served(candidates, assignment).items()
    )


def _distance(candidates: Candidates, answer: Answer) -> float:
    objective, bound = answer.assignment.objective(candidates), answer.bound
    certificate = Certificate(answer.solver, answer.status, objective, bound, 0.0, answer.levels)
    return math.inf if certificate.gap is None else certificate.gap


def _or_greedy(candidates: Candidates, capacity: IntArray, answer: Answer) -> Answer:
    """What greedy finds, where that serves more: time may have ended before anything good."""
    greedy = solve_greedy(candidates, capacity).assignment
    mine, other = _served(candidates, answer.assignment), _served(candidates, greedy)
    differs = [p for p, load in mine.items() if abs(other[p] - load) > GIVEN_UP * load]
    if not differs or other[differs[0]] < mine[differs[0]]:
        return answer
    levels = tuple(replace(level, served=other[level.priority]) for level in answer.levels)
    return replace(answer, assignment=greedy, bound=None, levels=levels)


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


def _served(candidates: Candidates, plan: Assignment) -> dict[int, float]:
    """Load served entirely, by priority; the most important first."""
    rows = plan.rows[plan.rows != NO_ROW]
    entire = rows[plan.replicas[plan.rows != NO_ROW] == candidates.replicas[rows]]
    load = dict.fromkeys(sorted({case.priority for case in candidates.cases}), 0.0)
    for case in candidates.pairs.case[entire].tolist():
        load[candidates.cases[case].priority] += weight_of(candidates.cases[case])
    return load
