"""Plans that serve servers entirely or not at all: one row for each, or a mix of rows.

What a search leaves goes to whom it fits, and is shared out in part if the policy says so.
"""

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

import numpy as np

from inferno_optimizer.sizing.candidates import Candidates
from inferno_optimizer.sizing.queueing import IntArray
from inferno_optimizer.solution import CurvePoint, MarginalValue
from inferno_optimizer.solvers.assignment import Assignment, Mix, Timer
from inferno_optimizer.solvers.budget import Budget
from inferno_optimizer.solvers.curve import CurveRecorder
from inferno_optimizer.solvers.greedy import entries_by_rank, serve, share_out
from inferno_optimizer.solvers.heterogeneous.levels import solve_mixes
from inferno_optimizer.solvers.heterogeneous.mixes import MixTable
from inferno_optimizer.solvers.ledger import Ledger
from inferno_optimizer.solvers.loads import added, loads_of, loads_wanted, priorities_of
from inferno_optimizer.solvers.partial.levels import solve_by_levels
from inferno_optimizer.solvers.partial.problem import ReplicaProblem


@dataclass(frozen=True, slots=True)
class EntirePlan:
    """An assignment, and what is proven: the most load by priority, and the least value.

    `one_more` tells what one more card of each type is worth, in the time that remains.
    `failures` are steps that ended with an error.
    """

    assignment: Assignment
    most_served: Mapping[int, float]
    least_value: float
    one_more: Callable[[], tuple[MarginalValue, ...]]
    out_of_time: bool
    curve: tuple[CurvePoint, ...] = ()
    failures: tuple[str, ...] = ()


Solve = Callable[[Candidates, IntArray, Budget, CurveRecorder], EntirePlan]
"""A search, with the work that remains and what records its progress."""


def unproven(candidates: Candidates, assignment: Assignment, *, out_of_time: bool) -> EntirePlan:
    """An assignment of which nothing is proven."""
    most = loads_wanted(candidates)
    return EntirePlan(assignment, most, -math.inf, tuple, out_of_time)


def solve_whole(
    candidates: Candidates, capacity: IntArray, budget: Budget, recorder: CurveRecorder
) -> EntirePlan:
    """One row for each case.

    Cases that need no replicas are not in the problem; `_filled` serves them.
    """
    problem, options = (
        ReplicaProblem.whole(candidates, capacity, budget.params),
        candidates.system.options,
    )
    outcome = solve_by_levels(
        problem,
        budget,
        options.priority_tolerance,
        delayed=False,
        observe=recorder.observe if options.trace else None,
    )
    assignment = _filled(candidates, capacity, problem.row[outcome.counts > 0])
    priorities = priorities_of(candidates, problem.cases)
    most = dict(zip(priorities, outcome.most_served(), strict=True))
    besides, value = _served_besides(candidates, assignment, problem.cases)
    return EntirePlan(
        assignment,
        added(most, besides),
        outcome.least_value + value,
        lambda: outcome.one_more.described(priorities),
        outcome.out_of_time,
        recorder.curve(priorities, besides, value),
        outcome.failures,
    )


def solve_mixed(
    candidates: Candidates, capacity: IntArray, budget: Budget, recorder: CurveRecorder
) -> EntirePlan:
    """A mix of rows for each case.

    Cases that need no replicas are not in the program; `_filled` serves them.
    """
    table, options = MixTable.of(candidates, capacity), candidates.system.options
    observe = recorder.observe if options.trace else None
    whole = budget.whole
    timer = Timer(lambda: whole.seconds_left, whole.seconds_left - budget.seconds_left)
    outcome = solve_mixes(table, capacity, timer, options.priority_tolerance, observe)
    singles, mixes = table.given(outcome.plan)
    assignment = _filled(candidates, capacity, singles, mixes)
    priorities = priorities_of(candidates, table.case)
    most = dict(zip(priorities, outcome.most_served.tolist(), strict=True))
    besides, value = _served_besides(candidates, assignment, table.case)
    return EntirePlan(
        assignment,
        added(most, besides),
        outcome.least_value + value,
        lambda: outcome.one_more().described(priorities),
        outcome.out_of_time,
        recorder.curve(priorities, besides, value),
        outcome.failures,
    )


def _served_besides(
    candidates: Candidates, assignment: Assignment, cases: IntArray
) -> tuple[dict[int, float], float]:
    """Load by priority, and value, of what is served besides the cases of a program."""
    others = np.setdiff1d(assignment.served(candidates), cases)
    value = float(candidates.value[assignment.rows[others]].sum())
    return loads_of(candidates, others.tolist()), value


def _filled(
    candidates: Candidates, capacity: IntArray, chosen: IntArray, mixes: Iterable[Mix] = ()
) -> Assignment:
    """The chosen rows, and what fits besides: rounding or time may have left it behind."""
    ledger = Ledger(candidates, capacity)
    for mix in mixes:
        ledger.take_mix(mix)
    for row in chosen.tolist():
        if ledger.fits(row):  # a solver's tolerance could let a card too many pass
            ledger.take_all(row)
    unserved = serve(ledger, entries_by_rank(candidates, ledger.unserved()))
    share_out(ledger, unserved, candidates.system.options.saturation_policy)
    return ledger.assignment()
