"""Limited capacity, exactly: a mixed integer linear program for PuLP and HiGHS.

The problem is that of `assignment.md`: at most one row for each case, cards within the
capacity; priority by priority the served load is made as large as it can be, then the total
value as small as it can be. Capacity that is too short is an answer, not an error.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pulp

from inferno_optimizer.candidates import Candidates
from inferno_optimizer.cases import Case
from inferno_optimizer.errors import SolverError, UnsupportedError
from inferno_optimizer.queueing import FloatArray, IntArray
from inferno_optimizer.solvers.assignment import NO_ROW, Answer, Assignment
from inferno_optimizer.solvers.greedy import Entry, entries_by_rank, serve, solve_greedy
from inferno_optimizer.solvers.ledger import Ledger
from inferno_optimizer.solvers.saturation import share_out
from inferno_optimizer.system import Status

RELATIVE_GAP = 1e-6
"""Distance from the optimum at which a level counts as solved."""

FEASIBLE_POINT = 2
"""HiGHS's word for a solution that satisfies every constraint."""

HALF = 0.5
"""Binary columns come back as numbers close to 0 or 1."""

SLACK = 1e-6
"""What later levels may fall short of an earlier one, relative: room for rounding."""


@dataclass(frozen=True, slots=True)
class Level:
    """Outcome of one objective: columns chosen, objective reached, and its lower bound."""

    chosen: npt.NDArray[np.bool_]
    objective: float
    bound: float
    optimal: bool


class AssignmentProgram:
    """The program of some usable rows, a binary column each; objectives come and go."""

    def __init__(self, candidates: Candidates, rows: IntArray, capacity: IntArray) -> None:
        self._problem = pulp.LpProblem("assignment", pulp.LpMinimize)
        self._columns = [self._problem.add_variable(f"x{row}", 0, 1, "Integer") for row in rows]
        cases = candidates.pairs.case[rows]
        for mine in np.split(np.arange(len(rows)), np.flatnonzero(np.diff(cases)) + 1):
            self._problem += self._sum(np.ones(len(rows)), mine) <= 1
        types, cards = candidates.pairs.type[rows], candidates.cards[rows].astype(np.float64)
        for position, available in enumerate(capacity):
            mine = np.flatnonzero((types == position) & (cards > 0))
            if len(mine):
                self._problem += self._sum(cards, mine) <= float(available)

    def _sum(self, weights: FloatArray, which: IntArray) -> pulp.LpAffineExpression:
        return pulp.LpAffineExpression([(self._columns[i], float(weights[i])) for i in which])

    def minimize(self, weights: FloatArray, seconds: float) -> Level | None:
        """Least weighted sum of chosen columns; None when time ends before any is found."""
        self._problem.setObjective(self._sum(weights, np.flatnonzero(weights)))
        solver = pulp.HiGHS(msg=False, timeLimit=max(seconds, 0.0), gapRel=RELATIVE_GAP, threads=1)
        try:
            self._problem.solve(solver)
        except pulp.PulpSolverError as error:
            raise SolverError(f"HiGHS failed: {error}") from error
        return self._level(weights)

    def _level(self, weights: FloatArray) -> Level | None:
        values = [column.varValue for column in self._columns]
        information = self._problem.solverModel.getInfo()
        if information.primal_solution_status != FEASIBLE_POINT:
            return None
        chosen = np.array(values, dtype=np.float64) > HALF
        # PuLP calls a time limit optimal; only its solution status tells them apart.
        optimal = self._problem.sol_status == pulp.LpSolutionOptimal
        bound = information.mip_dual_bound
        return Level(chosen, float(weights @ chosen), float(bound), optimal)

    def keep_at_most(self, weights: FloatArray, limit: float) -> None:
        """From now on the weighted sum of chosen columns stays within a limit."""
        self._problem += self._sum(weights, np.flatnonzero(weights)) <= limit


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
    program = AssignmentProgram(candidates, rows, capacity)
    deadline = clock() + options.time_limit
    levels = list(_levels(program, _objectives(candidates, rows), lambda: deadline - clock()))
    reached = [level for level in levels if level is not None]
    chosen = rows[reached[-1].chosen] if reached else rows[:0]
    assignment = _filled(candidates, capacity, chosen)
    if len(reached) == len(levels) and all(level.optimal for level in reached):
        return Answer("milp", Status.OPTIMAL, assignment, bound=reached[-1].bound)
    greedy = solve_greedy(candidates, capacity).assignment
    best = max(assignment, greedy, key=lambda plan: _served(candidates, plan))
    return Answer("milp", Status.TIME_LIMIT, best)


def _filled(candidates: Candidates, capacity: IntArray, chosen: IntArray) -> Assignment:
    """The chosen rows, and what fits besides: rounding or time may have left it behind."""
    ledger = Ledger(candidates, capacity)
    for row in chosen:
        ledger.take_all(int(row))
    unserved = serve(ledger, _unserved(candidates, ledger))
    share_out(ledger, unserved, candidates.system.options.saturation_policy)
    return ledger.assignment()


def _served(candidates: Candidates, plan: Assignment) -> tuple[float, ...]:
    """Load served entirely, by priority; the most important first."""
    rows = plan.rows[plan.rows != NO_ROW]
    entire = rows[plan.replicas[plan.rows != NO_ROW] == candidates.replicas[rows]]
    load: defaultdict[int, float] = defaultdict(float)
    for case in candidates.pairs.case[entire].tolist():
        load[candidates.cases[case].priority] += _weight(candidates.cases[case])
    return tuple(load[priority] for priority in sorted({c.priority for c in candidates.cases}))


def _objectives(candidates: Candidates, rows: IntArray) -> list[FloatArray]:
    """What is minimized, in this order: unserved load by priority, then value."""
    cases = candidates.pairs.case[rows]
    priorities = np.array([case.priority for case in candidates.cases])[cases]
    weights = np.array([_weight(case) for case in candidates.cases])[cases]
    levels = [np.where(priorities == p, -weights, 0.0) for p in np.unique(priorities)]
    return [*levels, candidates.value[rows]]


def _weight(case: Case) -> float:
    """Load that counts as served [requests/min]; 1 for a floor without arrivals."""
    return case.server.load.arrival_rate or 1.0


def _levels(
    program: AssignmentProgram, objectives: Iterable[FloatArray], seconds_left: Callable[[], float]
) -> Iterator[Level | None]:
    """Outcome of one objective after the other; ends with None when time runs out."""
    for weights in objectives:
        level = program.minimize(weights, seconds_left())
        yield level
        if level is None:
            return
        program.keep_at_most(weights, level.objective + SLACK * max(1.0, abs(level.objective)))


def _unserved(candidates: Candidates, ledger: Ledger) -> list[Entry]:
    """Cases without a row, in the order in which the greedy solver would serve them."""
    served = ledger.assignment().rows != NO_ROW
    return [entry for entry in entries_by_rank(candidates) if not served[entry.case]]
