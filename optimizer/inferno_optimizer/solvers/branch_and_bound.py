"""A program of PuLP's, solved by HiGHS; by CBC where HiGHS fails and CBC is installed."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Protocol

import highspy
import numpy as np
import pulp

from inferno_optimizer.errors import SolverError
from inferno_optimizer.sizing.queueing import FloatArray

FEASIBLE_POINT = 2
"""HiGHS's word for a solution that satisfies every constraint."""


@dataclass(frozen=True, slots=True)
class SearchLimits:
    """When to stop: after seconds, within an absolute gap, or after so many nodes."""

    seconds: float
    gap: float
    nodes: int | None = None


@dataclass(frozen=True, slots=True)
class SearchResult:
    """Whether the columns have values, for which there may be no time; and a proven bound."""

    solution: bool
    bound: float


Start = Mapping[pulp.LpVariable, float]
"""Values of all variables, which keep every constraint; empty where no solution is known."""


@dataclass(frozen=True, slots=True)
class Watch:
    """Is told, while a search runs, the values of columns in a better solution, and bounds."""

    solution: Callable[[FloatArray], object]
    bound: Callable[[float], None]


Engine = Callable[[pulp.LpProblem, Start, SearchLimits], SearchResult]
"""Minimizes a problem from a start; raises PuLP's error on failure."""

SOLUTION = highspy.cb.HighsCallbackType.kCallbackMipImprovingSolution
MOMENT = highspy.cb.HighsCallbackType.kCallbackMipInterrupt
"""When HiGHS tells of a solution, and when it asks whether to go on, which is often."""


class _StartedHiGHS(pulp.HiGHS):  # type: ignore[misc]  # PuLP has no types
    """HiGHS from a known solution, which PuLP does not hand over by itself."""

    def __init__(self, start: Start, **options: object) -> None:
        super().__init__(**options)
        self._start = start

    def callSolver(self, lp: pulp.LpProblem) -> None:  # noqa: N802 - PuLP's name
        """Run from the known solution, if there is one."""
        if self._start:
            solution = highspy.HighsSolution()
            values = np.zeros(lp.numVariables())  # PuLP adds one where an objective is empty
            for variable, value in self._start.items():
                values[variable.index] = value
            solution.col_value = values
            lp.solverModel.setSolution(solution)
        super().callSolver(lp)

    def findSolutionValues(self, lp: pulp.LpProblem) -> tuple[int, int]:  # noqa: N802 - PuLP's name
        """Read the values; a limit on nodes, for which PuLP has no word, is like one on time."""
        try:
            status: tuple[int, int] = super().findSolutionValues(lp)
        except KeyError:
            return pulp.LpStatusOptimal, pulp.LpSolutionIntegerFeasible
        return status


def highs(
    problem: pulp.LpProblem, start: Start, limits: SearchLimits, watch: Watch | None = None
) -> SearchResult:
    """HiGHS, which can be watched."""
    options: dict[str, object] = {"msg": False, "threads": 1, "gapRel": 0.0, "gapAbs": limits.gap}
    if limits.nodes is not None:
        options["mip_max_nodes"] = limits.nodes
    if watch is not None:
        options["callbackTuple"] = (_callback(watch), None)
        options["callbacksToActivate"] = [SOLUTION, MOMENT]
    problem.solve(_StartedHiGHS(start, timeLimit=limits.seconds, **options))
    # PuLP calls a time limit optimal; HiGHS itself tells what it has, and its bound.
    information = problem.solverModel.getInfo()
    known = information.primal_solution_status == FEASIBLE_POINT
    return SearchResult(known, float(information.mip_dual_bound))


class _Known(Protocol):
    """What HiGHS tells in a callback."""

    mip_solution: FloatArray
    mip_dual_bound: float


def _callback(watch: Watch) -> Callable[..., None]:
    """What HiGHS calls: with the kind of event, a text, what it knows, and two things for us."""

    def told(kind: object, _text: str, known: _Known, *_: object) -> None:
        if kind == SOLUTION:
            watch.solution(known.mip_solution)
        watch.bound(float(known.mip_dual_bound))

    return told


def cbc(problem: pulp.LpProblem, _start: Start, limits: SearchLimits) -> SearchResult:
    """CBC, which is an extra; it tells a bound only of what it has solved."""
    problem.solve(
        pulp.COIN_CMD(
            path=_path_of_cbc(),
            msg=False,
            threads=1,
            timeLimit=limits.seconds,
            gapRel=0.0,
            gapAbs=limits.gap,
            maxNodes=limits.nodes,
        )
    )
    if problem.sol_status == pulp.LpSolutionOptimal:
        return SearchResult(solution=True, bound=float(pulp.value(problem.objective)) - limits.gap)
    return SearchResult(problem.sol_status == pulp.LpSolutionIntegerFeasible, -np.inf)


def _path_of_cbc() -> str:
    try:
        import cbcbox  # noqa: PLC0415 - 600 MB that most installations do without
    except ModuleNotFoundError as missing:
        hint = "CBC, which would take its place, is not installed: install inferno-operator[cbc]"
        raise pulp.PulpSolverError(hint) from missing
    return str(cbcbox.cbc_bin_path())


ENGINES: Sequence[Engine] = (highs, cbc)


def watched(watch: Watch, columns: Sequence[pulp.LpVariable]) -> Sequence[Engine]:
    """The engines, of which HiGHS tells the values of these columns, in their order."""

    def told(values: FloatArray) -> None:
        watch.solution(values[[column.index for column in columns]])  # PuLP sorts them by name

    return partial(highs, watch=Watch(told, watch.bound)), cbc


def branch_and_bound(
    problem: pulp.LpProblem,
    start: Start,
    limits: SearchLimits,
    engines: Sequence[Engine] = ENGINES,
) -> SearchResult:
    """Minimize with the first of the engines that does not fail.

    Raises
    ------
    SolverError
        When all of them do.
    """
    failures = []
    for engine in engines:
        try:
            return engine(problem, start, limits)
        except pulp.PulpSolverError as error:
            failures.append(str(error))
    raise SolverError(f"no solver works: {'; '.join(failures)}")
