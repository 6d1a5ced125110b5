"""A program of PuLP's, solved by HiGHS; by CBC where HiGHS fails and CBC is installed."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

import highspy
import numpy as np
import pulp

from inferno_optimizer.errors import SolverError

FEASIBLE_POINT = 2
"""HiGHS's word for a solution that satisfies every constraint."""

EAGER = MappingProxyType({"mip_heuristic_effort": 0.8, "mip_allow_restart": False})
"""HiGHS's options to look for solutions rather than for bounds."""


@dataclass(frozen=True, slots=True)
class Limits:
    """When to stop: after seconds, within an absolute gap, or after so many nodes.

    Where the bound is tight early and good solutions are what is missing, `eager` spends most
    of the time on looking for these.
    """

    seconds: float
    gap: float
    nodes: int | None = None
    eager: bool = False


@dataclass(frozen=True, slots=True)
class Found:
    """Whether the columns have values, for which there may be no time; and a proven bound."""

    solution: bool
    bound: float


Start = Mapping[pulp.LpVariable, float]
"""Values of all variables, which keep every constraint; empty where no solution is known."""


Engine = Callable[[pulp.LpProblem, Start, Limits], Found]
"""Minimizes a problem from a start; raises PuLP's error on failure."""


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


def highs(problem: pulp.LpProblem, start: Start, limits: Limits) -> Found:
    """HiGHS."""
    options = {"msg": False, "threads": 1, "gapRel": 0.0, "gapAbs": limits.gap}
    if limits.nodes is not None:
        options["mip_max_nodes"] = limits.nodes
    if limits.eager:
        options |= EAGER
    problem.solve(_StartedHiGHS(start, timeLimit=limits.seconds, **options))
    # PuLP calls a time limit optimal; HiGHS itself tells what it has, and its bound.
    information = problem.solverModel.getInfo()
    known = information.primal_solution_status == FEASIBLE_POINT
    return Found(known, float(information.mip_dual_bound))


def cbc(problem: pulp.LpProblem, _start: Start, limits: Limits) -> Found:
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
        return Found(solution=True, bound=float(pulp.value(problem.objective)) - limits.gap)
    return Found(problem.sol_status == pulp.LpSolutionIntegerFeasible, -np.inf)


def _path_of_cbc() -> str:
    try:
        import cbcbox  # noqa: PLC0415 - 600 MB that most installations do without
    except ModuleNotFoundError as missing:
        hint = "CBC, which would take its place, is not installed: install inferno-operator[cbc]"
        raise pulp.PulpSolverError(hint) from missing
    return str(cbcbox.cbc_bin_path())


def branch_and_bound(
    problem: pulp.LpProblem,
    start: Start,
    limits: Limits,
    engines: Sequence[Engine] = (highs, cbc),
) -> Found:
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
