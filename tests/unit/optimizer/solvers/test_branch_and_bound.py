"""The MILP solvers behind PuLP: each alone, and one for the other."""

import math
import sys
from collections.abc import Mapping

import pulp
import pytest

from inferno_optimizer.errors import SolverError
from inferno_optimizer.sizing.queueing import FloatArray
from inferno_optimizer.solvers.branch_and_bound import (
    Engine,
    SearchLimits,
    SearchResult,
    Watch,
    branch_and_bound,
    cbc,
    highs,
    watched,
)

WEIGHTS = (12, 7, 11, 8, 9, 6, 5, 14, 3)
WORTH = (24, 13, 23, 15, 16, 11, 9, 28, 5)
ROOM = 26
MOST_WORTH = 52
"""Of the knapsack, by trying all 512 selections."""

AMPLE = SearchLimits(seconds=30.0, gap=0.0)


def knapsack() -> tuple[pulp.LpProblem, list[pulp.LpVariable]]:
    problem = pulp.LpProblem("knapsack", pulp.LpMinimize)
    columns = [problem.add_variable(f"x{i}", 0, 1, "Integer") for i in range(len(WEIGHTS))]
    problem += pulp.lpSum(w * x for w, x in zip(WEIGHTS, columns, strict=True)) <= ROOM
    problem.setObjective(-pulp.lpSum(v * x for v, x in zip(WORTH, columns, strict=True)))
    return problem, columns


def nothing(columns: list[pulp.LpVariable]) -> dict[pulp.LpVariable, float]:
    return dict.fromkeys(columns, 0.0)


def broken(
    _problem: pulp.LpProblem, _start: Mapping[pulp.LpVariable, float], _limits: SearchLimits
) -> SearchResult:
    raise pulp.PulpSolverError("out of order")


@pytest.mark.parametrize("engine", [highs, cbc])
def test_each_solver_finds_and_proves_the_best_selection(engine: Engine) -> None:
    problem, columns = knapsack()

    found = engine(problem, nothing(columns), AMPLE)

    assert found.solution
    assert found.bound == pytest.approx(-MOST_WORTH)
    assert sum(
        worth for worth, column in zip(WORTH, columns, strict=True) if column.varValue > 0.5
    ) == pytest.approx(MOST_WORTH)


def test_a_watch_is_told_solutions_in_the_order_of_the_columns_and_bounds() -> None:
    problem, columns = knapsack()
    solutions, bounds = list[FloatArray](), list[float]()
    watch = Watch(solutions.append, bounds.append)

    branch_and_bound(problem, nothing(columns), AMPLE, watched(watch, columns[::-1]))

    assert solutions[-1][::-1] @ WORTH == pytest.approx(MOST_WORTH)
    assert solutions[-1][::-1] @ WEIGHTS <= ROOM
    assert max(bounds) <= -MOST_WORTH + 1e-6


def test_cbc_steps_in_where_highs_fails() -> None:
    problem, columns = knapsack()

    found = branch_and_bound(problem, nothing(columns), AMPLE, engines=(broken, cbc))

    assert found.solution
    assert found.bound == pytest.approx(-MOST_WORTH)


def test_where_highs_fails_and_cbc_is_not_installed_the_error_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "cbcbox", None)  # Python's own way to hide a module
    problem, columns = knapsack()

    with pytest.raises(SolverError, match=r"out of order; CBC.*install inferno-operator\[cbc\]"):
        branch_and_bound(problem, nothing(columns), AMPLE, engines=(broken, cbc))


def test_a_failure_of_all_solvers_is_told_in_their_words() -> None:
    problem, columns = knapsack()

    with pytest.raises(SolverError, match="no solver works: out of order; out of order"):
        branch_and_bound(problem, nothing(columns), AMPLE, engines=(broken, broken))


@pytest.mark.parametrize("engine", [highs, cbc])
def test_a_problem_without_a_solution_has_none(engine: Engine) -> None:
    problem, columns = knapsack()
    problem += pulp.lpSum(columns) >= len(columns)

    found = engine(problem, nothing(columns), AMPLE)

    assert not found.solution


def test_an_objective_of_nothing_is_minimized_as_well() -> None:
    problem, columns = knapsack()
    problem.setObjective(pulp.LpAffineExpression())

    found = branch_and_bound(problem, nothing(columns), AMPLE)

    assert found.solution
    assert math.isclose(found.bound, 0.0, abs_tol=1e-9)
