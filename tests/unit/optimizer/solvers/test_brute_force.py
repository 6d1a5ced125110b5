"""The exact solver without partial service against every plan there is, on 300 small systems."""

import random
from dataclasses import replace

import pytest

from inferno_optimizer.optimize import optimize
from inferno_optimizer.solution import SolverStatus
from inferno_optimizer.system import SaturationPolicy
from tests.tiers import sampled
from tests.unit.optimizer.enumeration import best_plan, served
from tests.unit.optimizer.random_systems import Kind, random_options, random_system

SMALL = Kind(servers=5, batches=(1, 2, 3))


@pytest.mark.parametrize("seed", sampled(range(300)))
def test_the_plan_is_the_best_of_all_plans(seed: int) -> None:
    numbers = random.Random(seed)  # noqa: S311 - a repeatable choice, not a secret
    options = random_options(numbers, milp=True)
    options = replace(options, saturation_policy=SaturationPolicy.NONE)
    system = random_system(numbers, SMALL, options)
    best_served, best_value = best_plan(system)

    solution = optimize(system)

    assert served(system, solution) == best_served
    assert solution.certificate.objective == pytest.approx(best_value, rel=1e-9, abs=1e-6)
    assert solution.certificate.status is SolverStatus.OPTIMAL
    assert solution.certificate.bound == pytest.approx(best_value, rel=1e-4, abs=1e-3)
