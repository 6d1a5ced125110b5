"""What prices prove of mixes, against every plan of small problems."""

import numpy as np
import pytest

from inferno_optimizer.solvers.branch_and_bound import SearchLimits
from inferno_optimizer.solvers.heterogeneous.column_generation import best_prices
from inferno_optimizer.solvers.heterogeneous.covering import CoverInequalities
from inferno_optimizer.solvers.heterogeneous.program import MixProgram
from tests.tiers import sampled
from tests.unit.optimizer.solvers.heterogeneous.tables import (
    best_objective,
    no_prices,
    random_problem,
    relaxation,
)


@pytest.mark.parametrize("seed", sampled(range(40)))
def test_the_bound_is_between_that_of_the_relaxation_and_the_best_plan(seed: int) -> None:
    problem, plan = random_problem(np.random.default_rng(seed))
    relaxed = relaxation(MixProgram(problem, CoverInequalities.of(problem.table))).objective
    best = best_objective(problem)

    bound = best_prices(problem, plan, no_prices(problem), lambda: np.inf).bound

    assert relaxed - 1e-5 * max(1.0, abs(relaxed)) <= bound <= best + 1e-9


@pytest.mark.parametrize("seed", sampled(range(40)))
def test_the_program_with_prices_has_the_same_best_plan(seed: int) -> None:
    problem, plan = random_problem(np.random.default_rng(seed))
    prices = best_prices(problem, plan, no_prices(problem), lambda: np.inf)
    program = MixProgram(problem, CoverInequalities.of(problem.table), prices)

    found, bound = program.solve(plan, SearchLimits(np.inf, 0.0))

    assert found is not None
    assert bound == pytest.approx(best_objective(problem), abs=1e-6)
    assert relaxation(program).objective == pytest.approx(prices.bound, rel=1e-5, abs=1e-3)


def test_without_any_time_there_is_a_bound() -> None:
    problem, plan = random_problem(np.random.default_rng(0))

    bound = best_prices(problem, plan, no_prices(problem), lambda: -1.0).bound

    assert -np.inf < bound <= best_objective(problem)
