"""The greedy solver; with `Hold` from two beginnings: all are in line, or all stay where they run.

What is served first decides what is left for others. From the order of the original alone servers
move that could stay, and take cards with which others would be served. See `assignment.md`, section
"Greedy".
"""

import numpy as np

from inferno_optimizer.sizing.candidates import Candidates
from inferno_optimizer.sizing.queueing import IntArray
from inferno_optimizer.solution import SolverStatus
from inferno_optimizer.solvers.assignment import NO_ROW, Assignment, SolverResult
from inferno_optimizer.solvers.comparison import is_better
from inferno_optimizer.solvers.exchanges import exchanged, with_more_served
from inferno_optimizer.solvers.greedy import (
    BoolArray,
    fill,
    filled_up,
    fillings,
    serve_after_those_that_stand,
)
from inferno_optimizer.solvers.running import rows_that_run
from inferno_optimizer.system import SaturationPolicy

MOST_CASES = 3_000
"""Cases for which a second plan is made. For 10,000 servers it would take half as long again as the
whole solver takes, and the operator would write their decisions so much later."""


def solve_greedy(
    candidates: Candidates, capacity: IntArray, *, stand: bool = False
) -> SolverResult:
    """Serve the cases by rank; then share out what is left, as the saturation policy says.

    If they are to `stand`, those of a priority that may stay as they are do, before the others
    are served. With `Hold`, rows are exchanged at the end.
    """
    standing = candidates.stays & stand
    if candidates.system.options.saturation_policy is SaturationPolicy.HOLD:
        running = rows_that_run(candidates)
        plan = begin(candidates, capacity, standing, running)
        plan = exchanged(candidates, capacity, plan, running)
        plan = filled_up(candidates, capacity, plan)
    else:
        plan = fill(candidates, capacity, serve_after_those_that_stand(standing))
    return SolverResult("greedy", SolverStatus.FEASIBLE, plan)


def begin(
    candidates: Candidates, capacity: IntArray, standing: BoolArray, running: IntArray
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
        one in which these stand, if that holds or serves more, for up to `MOST_CASES`.
    """
    cases = len(candidates.cases)
    homes = np.zeros_like(standing)
    homes[running[running != NO_ROW]] = cases <= MOST_CASES
    ways = map(serve_after_those_that_stand, (standing, homes))
    plans = (
        with_more_served(candidates, capacity, plan)
        for plan in fillings(candidates, capacity, ways)
    )
    plan = next(plans)
    if not homes.any() or len(plan.served(candidates)) == cases:
        return plan
    calm = next(plans)
    return calm if is_better(candidates, calm, plan, one_each=True) else plan
