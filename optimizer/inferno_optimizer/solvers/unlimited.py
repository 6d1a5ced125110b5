"""No limit on capacity: every server takes its best candidate.

See `assignment.md`, section "Unlimited".
"""

import numpy as np

from inferno_optimizer.sizing.candidates import Candidates
from inferno_optimizer.solution import SolverStatus
from inferno_optimizer.solvers.assignment import NO_ROW, Assignment, SolverResult


def solve_unlimited(candidates: Candidates) -> SolverResult:
    """The candidate of least value for each case; of equal ones the cheapest replica."""
    rows = np.full(len(candidates.cases), NO_ROW, dtype=np.int64)
    ranked = candidates.ranked()
    cases, first = np.unique(candidates.pairs.case[ranked], return_index=True)
    rows[cases] = ranked[first]
    assignment = Assignment.of_rows(candidates, rows)
    objective = assignment.objective(candidates)
    return SolverResult("unlimited", SolverStatus.OPTIMAL, assignment, bound=objective)
