"""Candidate table and capacity -> one row for each case; see `assignment.Answer`."""

from collections.abc import Callable

from inferno_optimizer.sizing.candidates import Candidates
from inferno_optimizer.sizing.queueing import IntArray
from inferno_optimizer.solvers.assignment import SolverResult
from inferno_optimizer.solvers.exact import solve_exact
from inferno_optimizer.solvers.greedy import solve_greedy, solve_unlimited
from inferno_optimizer.solvers.params import DEFAULTS, SolveParams


def solve(
    candidates: Candidates,
    capacity: IntArray,
    clock: Callable[[], float],
    start: float,
    params: SolveParams = DEFAULTS,
) -> SolverResult:
    """Answer with the solver that the options name.

    Parameters
    ----------
    candidates
        The table.
    capacity
        Cards of each of the table's types, none negative; shape (types,).
    clock
        Seconds that only ever grow; the exact solver's time limit is measured on it.
    start
        When the time limit began on that clock: sizing takes its part of it.
    params
        Of the search.
    """
    options = candidates.system.options
    if options.unlimited:
        return solve_unlimited(candidates)
    if options.milp:
        return solve_exact(candidates, capacity, clock, start, params)
    return solve_greedy(candidates, capacity, params)
