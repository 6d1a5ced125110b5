"""Candidate table and capacity -> a plan with partial service, with what is proven of it."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from inferno_optimizer.sizing.candidates import Candidates
from inferno_optimizer.sizing.demands import ROUNDING
from inferno_optimizer.sizing.queueing import IntArray
from inferno_optimizer.solution import MarginalValue
from inferno_optimizer.solvers.assignment import NO_ROW, Assignment, cost_kept
from inferno_optimizer.solvers.budget import Budget
from inferno_optimizer.solvers.greedy import at_most, entries_by_rank, hold, serve, share_out
from inferno_optimizer.solvers.ledger import Ledger
from inferno_optimizer.solvers.loads import added, loads_of, loads_served, priorities_of
from inferno_optimizer.solvers.partial.levels import solve_by_levels
from inferno_optimizer.solvers.partial.problem import ReplicaProblem
from inferno_optimizer.solvers.running import Running, lots_of
from inferno_optimizer.system import SaturationPolicy


@dataclass(frozen=True, slots=True)
class PartialPlan:
    """An assignment, and what is proven.

    Attributes
    ----------
    assignment
        Who gets what; with a round robin, after what serves nobody entirely is shared out evenly.
    served, most_served
        Load that the plan serves, partial service included, before that; and the most that is
        possible; by priority [requests/min].
    objective, least_value
        Change of the cost of all servers, with the penalties of moves; and the least possible.
    one_more
        What one more card of each type is worth.
    out_of_time
        Whether the time ended first.
    failures
        Steps that ended with an error.
    """

    assignment: Assignment
    served: Mapping[int, float]
    most_served: Mapping[int, float]
    objective: float
    least_value: float
    one_more: tuple[MarginalValue, ...]
    out_of_time: bool
    failures: tuple[str, ...] = ()


def solve_partial(
    candidates: Candidates, capacity: IntArray, budget: Budget, known: Assignment
) -> PartialPlan:
    """Serve as much as possible by priority, in part where cards are short, at the least value.

    The answer is no worse than a known plan, but for what that keeps as it is.
    """
    options, running = candidates.system.options, Running.of(candidates)
    problem = ReplicaProblem.of(candidates, capacity, running, budget.params)
    outcome = solve_by_levels(
        problem,
        budget,
        options.priority_tolerance,
        delayed=options.delayed_best_effort,
        known=problem.counts_of(known),
    )
    priorities = priorities_of(candidates, problem.cases)
    assignment = _assignment(candidates, capacity, problem, outcome.counts, running)
    besides = np.setdiff1d(np.flatnonzero(assignment.rows != NO_ROW), problem.cases)
    most = dict(zip(priorities, outcome.most_served(), strict=True))
    served = loads_served(candidates, assignment)
    if options.saturation_policy.takes_turns:
        assignment = _shared_out(candidates, capacity, assignment, running)
    others = _other_value(candidates, problem, assignment)
    value = _value(problem, assignment)
    return PartialPlan(
        assignment=assignment,
        served=served,
        most_served=added(most, loads_of(candidates, besides.tolist())),
        objective=value + others,
        least_value=min(outcome.least_value, value) + others,
        one_more=outcome.one_more.described(priorities),
        out_of_time=outcome.out_of_time,
        failures=outcome.failures,
    )


def total_value(candidates: Candidates, capacity: IntArray, assignment: Assignment) -> float:
    """Change of the cost of all servers, with the penalties of moves."""
    problem = ReplicaProblem.of(candidates, capacity, Running.of(candidates))
    return _value(problem, assignment) + _other_value(candidates, problem, assignment)


def _other_value(candidates: Candidates, problem: ReplicaProblem, assignment: Assignment) -> float:
    """The value of cases that need no replicas, less what all the others cost now."""
    besides = np.setdiff1d(np.flatnonzero(assignment.rows != NO_ROW), problem.cases)
    costs = [candidates.cases[case].server.current.cost for case in problem.cases.tolist()]
    return float(candidates.value[assignment.rows[besides]].sum()) - float(np.sum(costs))


def _assignment(
    candidates: Candidates,
    capacity: IntArray,
    problem: ReplicaProblem,
    counts: IntArray,
    running: Running,
) -> Assignment:
    """The plan as an assignment; cases that need no replicas get their best row.

    With the policy `Hold` no case that runs is stopped for an equal one that has several replicas,
    or that does not run: each of a level that runs has one before any has more. Then those that
    carry the most load with a replica come first, whether it is served or held.
    """
    ledger = Ledger(candidates, capacity)
    holds = candidates.system.options.saturation_policy is SaturationPolicy.HOLD
    columns = np.flatnonzero(counts)
    load = problem.weight[problem.case] / problem.full
    columns = columns[np.lexsort((-load[columns], problem.level[problem.case[columns]]))]
    levels, planned = problem.level[problem.case[columns]], np.unique(problem.case[columns])
    stopped = np.setdiff1d(np.arange(len(problem.cases)), planned)
    for level in range(problem.levels):
        of_level = columns[levels == level].tolist()
        if holds:
            for column in of_level:
                if problem.held[problem.case[column]] > 0:
                    _give(ledger, problem, column, int(counts[column]), running, most=1)
            for case in stopped[problem.level[stopped] == level].tolist():
                hold(ledger, int(problem.cases[case]), running, most=1)
        for column in of_level:
            _give(ledger, problem, column, int(counts[column]), running)
    free = np.ones(len(candidates.cases), dtype=np.bool_)
    free[problem.cases] = False
    serve(ledger, entries_by_rank(candidates, free))
    return ledger.assignment()


def _give(
    ledger: Ledger,
    problem: ReplicaProblem,
    column: int,
    count: int,
    running: Running,
    most: int | None = None,
) -> None:
    """Give a case what a column has, or so many replicas of that at most."""
    row, case = int(problem.row[column]), int(problem.cases[problem.case[column]])
    if row != NO_ROW:
        ledger.hold(row, count if most is None else min(count, most))
        return
    parts = lots_of(running.parts[case], problem.params)[int(problem.lot[column])].times(count)
    ledger.keep(case, parts if most is None else tuple(at_most(most, parts)))


def _shared_out(
    candidates: Candidates, capacity: IntArray, assignment: Assignment, running: Running
) -> Assignment:
    """The same where what serves nobody entirely is given in turns to those that are short."""
    policy = candidates.system.options.saturation_policy
    ledger, entire = Ledger(candidates, capacity), assignment.served(candidates)
    short = np.ones(len(candidates.cases), dtype=np.bool_)
    short[entire] = False
    for case in entire.tolist():
        ledger.take_all(int(assignment.rows[case]))
    line = entries_by_rank(candidates, short)
    if policy.protects_what_runs:
        held = running.held(policy)
        for entry in line:
            row, given = int(assignment.rows[entry.case]), int(assignment.replicas[entry.case])
            if row != NO_ROW:
                carry = np.ceil(held[entry.case] * candidates.replicas[row] * (1 - ROUNDING))
                ledger.hold(row, min(given, int(carry)))
    share_out(ledger, line, policy)
    return ledger.assignment()


def _value(problem: ReplicaProblem, assignment: Assignment) -> float:
    """What the cases of a problem cost with an assignment, with the penalties of moves."""
    case = problem.cases[problem.case]
    chosen = (assignment.rows[case] == problem.row) & problem.serves
    counts = np.where(chosen, assignment.replicas[case], 0)
    kept = sum(map(cost_kept, assignment.kept.values()))
    return float(problem.values(counts).sum()) + kept
