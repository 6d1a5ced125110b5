"""Which mixes are near, and what there is time to list."""

import numpy as np
import pytest

from inferno_optimizer.sizing.queueing import IntArray
from inferno_optimizer.solvers.branch_and_bound import SearchLimits
from inferno_optimizer.solvers.heterogeneous.column_generation import MixPrices, best_prices
from inferno_optimizer.solvers.heterogeneous.near import NearMixes
from inferno_optimizer.solvers.heterogeneous.problem import MixProblem
from tests.tiers import sampled
from tests.unit.optimizer.solvers.heterogeneous.tables import (
    best_objective,
    no_prices,
    random_problem,
)

AMPLE = SearchLimits(60.0, 0.0)


def solved(near: NearMixes, problem: MixProblem, plan: IntArray) -> float:
    """The objective that is proven of the program of all cases."""
    return near.program(np.arange(len(plan)), problem, plan).solve(plan, AMPLE)[1]


def prices_of(problem: MixProblem, plan: IntArray) -> MixPrices:
    return best_prices(problem, plan, no_prices(problem), lambda: np.inf)


@pytest.mark.parametrize("seed", sampled(range(20)))
def test_what_there_is_no_time_to_list_keeps_all_its_mixes(seed: int) -> None:
    problem, plan = random_problem(np.random.default_rng(seed))

    near = NearMixes.of(problem, prices_of(problem, plan), 1000.0, lambda: 0.0)

    assert not np.any(near.listed)
    assert solved(near, problem, plan) == pytest.approx(best_objective(problem), abs=1e-6)


@pytest.mark.parametrize("seed", sampled(range(20)))
def test_with_all_the_time_every_case_is_listed(seed: int) -> None:
    problem, plan = random_problem(np.random.default_rng(seed))

    near = NearMixes.of(problem, prices_of(problem, plan), 1000.0, lambda: np.inf)

    assert np.all(near.listed)
    assert solved(near, problem, plan) >= best_objective(problem) - 1e-6
