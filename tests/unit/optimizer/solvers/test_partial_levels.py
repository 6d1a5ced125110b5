"""The search of large problems with partial service, on fleets small enough to try every plan."""

from random import Random

import numpy as np
import pytest

from inferno_optimizer.solvers.assignment import Timer
from inferno_optimizer.solvers.exact.branch_and_bound import SearchLimits
from inferno_optimizer.solvers.partial.levels import Outcome, solve_by_levels
from inferno_optimizer.solvers.partial.problem import ReplicaProblem
from inferno_optimizer.solvers.partial.tolerance import GIVEN_UP
from inferno_optimizer.solvers.partial.whole_replicas import Opening, best_of
from inferno_optimizer.system import SaturationPolicy, System
from tests.tiers import extended
from tests.unit.optimizer.solvers.partial_plans import (
    problem_of,
    random_fleet,
    reached_by,
    with_policy,
)
from tests.unit.optimizer.systems import Demand, accelerators, system_of

EXHAUSTIVE = with_policy(SaturationPolicy.PRIORITY_EXHAUSTIVE)
SECONDS = 20.0


def solved_as_large(system: System) -> tuple[ReplicaProblem, Outcome]:
    """A small system solved as if it were a large one; a clock that stands still."""
    problem = problem_of(system)
    timer = Timer(lambda: SECONDS)
    return problem, solve_by_levels(problem, timer, None, delayed=False, small=0)


@pytest.mark.slow
@pytest.mark.parametrize("running", [False, True], ids=["from nothing", "running"])
def test_nothing_that_is_possible_exceeds_the_bound_of_the_first_level(running: bool) -> None:
    random = Random(f"{running}")  # noqa: S311 - a repeatable choice, not a secret
    for _ in range(40):
        fleet = random_fleet(random, 4, running=running)
        goals, _ = reached_by(fleet, EXHAUSTIVE)

        problem, outcome = solved_as_large(fleet.system(EXHAUSTIVE))

        if not problem.levels or len(goals) != 2 * problem.levels:
            continue  # a priority of which no server can get anything
        held, served = outcome.reached[:2]
        assert np.all(problem.used(outcome.counts) <= problem.capacity)
        assert held.bound >= goals[0] * (1 - 1e-6), fleet
        reached = held.goal.worth(problem, outcome.counts)
        assert reached <= goals[0] * (1 + 1e-6), fleet
        if reached >= goals[0] * (1 - 1e-6):
            assert served.bound >= goals[1] * (1 - 1e-6), fleet


@pytest.mark.slow
@pytest.mark.parametrize("fleets", [15, *extended(60)])
@pytest.mark.parametrize("running", [False, True], ids=["from nothing", "running"])
def test_no_plan_that_keeps_the_floors_of_a_bound_exceeds_it(running: bool, fleets: int) -> None:
    random = Random(f"floors {running}")  # noqa: S311 - a repeatable choice, not a secret
    limits = SearchLimits(SECONDS, 0.0)
    proven = 0
    for _ in range(fleets):
        fleet = random_fleet(random, 12, running=running)

        problem, outcome = solved_as_large(fleet.system(EXHAUSTIVE))

        everything = Opening(np.ones(len(problem.case), np.bool_), np.zeros_like(outcome.counts))
        for reached in outcome.reached:
            found = best_of(
                problem, reached.goal, reached.floors, everything, limits, outcome.counts
            )
            if found.counts is not None:
                most = reached.goal.worth(problem, found.counts)
                assert reached.bound >= most - 1e-6 * max(abs(most), 1.0), (fleet, reached)
                proven += bool(reached.floors)
    assert proven > fleets


def test_a_large_server_that_the_relaxation_splits_is_decided() -> None:
    """Half of it on either type, says the relaxation; whole replicas serve half of it."""
    large = Demand("large", {"X": 100, "Z": 100}, load=6000)
    small = [Demand(f"s{place}", {"X": 1}, load=1) for place in range(3)]
    system = system_of((large, *small), accelerators(X=10, Z=10), {"X": 50, "Z": 50}, EXHAUSTIVE)

    problem, outcome = solved_as_large(system)

    served = next(r for r in outcome.reached if r.goal.kind.value == "served")
    assert served.goal.worth(problem, outcome.counts) == pytest.approx(3003, rel=GIVEN_UP)
    assert served.bound == pytest.approx(3003, rel=2 * GIVEN_UP)
