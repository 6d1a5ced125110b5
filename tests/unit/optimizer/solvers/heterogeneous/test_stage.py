"""The search towards one goal, against every plan of small problems."""

import numpy as np
import pytest

from inferno_optimizer.sizing.queueing import IntArray
from inferno_optimizer.solvers.heterogeneous.covering import CoverInequalities
from inferno_optimizer.solvers.heterogeneous.problem import MixProblem
from inferno_optimizer.solvers.heterogeneous.program import MixProgram
from inferno_optimizer.solvers.heterogeneous.stage import MixSearch
from inferno_optimizer.solvers.incumbent import Incumbent
from tests.tiers import sampled
from tests.unit.optimizer.solvers.heterogeneous.tables import (
    best_objective,
    random_problem,
    relaxation,
)

AMPLE = 60.0
"""Seconds that remain, always."""


def objective(problem: MixProblem, counts: IntArray) -> float:
    table, served = problem.table, problem.table.covered(counts)
    if problem.goal.level is None:
        return float(table.value(counts)[served].sum())
    return -float(table.weight[served & (table.level == problem.goal.level)].sum())


@pytest.mark.parametrize("seed", sampled(range(40)))
def test_the_best_of_all_plans_is_found_and_proven(seed: int) -> None:
    problem, plan = random_problem(np.random.default_rng(seed))
    program = MixProgram(problem, CoverInequalities.of(problem.table))
    incumbent = Incumbent(plan, lambda counts: objective(problem, counts))

    MixSearch(program, incumbent, 1e-6, lambda: AMPLE).improve(relaxation(program))

    table, best = problem.table, best_objective(problem)
    assert incumbent.value == pytest.approx(best)
    assert incumbent.bound == pytest.approx(best, rel=1e-6, abs=1e-5)
    assert np.all(table.used(incumbent.plan, len(problem.capacity)) <= problem.capacity)


@pytest.mark.parametrize("seed", sampled(range(20)))
def test_no_bound_on_the_way_is_above_the_best_of_all_plans(seed: int) -> None:
    problem, plan = random_problem(np.random.default_rng(seed))
    program = MixProgram(problem, CoverInequalities.of(problem.table))
    bounds: list[float] = []
    incumbent = Incumbent(
        plan, lambda counts: objective(problem, counts), lambda _, bound: bounds.append(bound)
    )

    MixSearch(program, incumbent, 1e-6, lambda: AMPLE).improve(relaxation(program))

    assert max(bounds) <= best_objective(problem) + 1e-6


@pytest.mark.parametrize("seed", range(5))
def test_a_stage_without_time_keeps_the_plan(seed: int) -> None:
    problem, plan = random_problem(np.random.default_rng(seed))
    program = MixProgram(problem, CoverInequalities.of(problem.table))
    incumbent = Incumbent(plan, lambda counts: objective(problem, counts))

    MixSearch(program, incumbent, 0.0, lambda: -1.0).improve(relaxation(program))

    assert np.array_equal(incumbent.plan, plan)
