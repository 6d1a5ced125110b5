"""The search of large problems with partial service, on fleets small enough to try every plan."""

import math
from random import Random

import numpy as np
import pytest

from inferno_optimizer.solvers.budget import Budget
from inferno_optimizer.solvers.exact import Outcome, solve_goals
from inferno_optimizer.solvers.goal_search import hold_all
from inferno_optimizer.solvers.goals import Goal, GoalKind
from inferno_optimizer.solvers.incumbent import Incumbent
from inferno_optimizer.solvers.neighbourhoods import Opening, solve_opening
from inferno_optimizer.solvers.params import DEFAULTS
from inferno_optimizer.solvers.problem import ReplicaProblem
from inferno_optimizer.solvers.relaxation import WarmStart
from inferno_optimizer.solvers.rounding import fill_columns
from inferno_optimizer.system import Allocation, SaturationPolicy, System
from tests.tiers import extended
from tests.unit.optimizer.solvers.partial_plans import (
    problem_of,
    random_fleet,
    reached_by,
    tuned,
    with_policy,
)
from tests.unit.optimizer.systems import Demand, accelerators, system_of

EXHAUSTIVE = with_policy(SaturationPolicy.PRIORITY_EXHAUSTIVE)
SECONDS = 20.0


def solved_as_large(system: System) -> tuple[ReplicaProblem, Outcome]:
    """A small system solved as if it were a large one."""
    problem = problem_of(system)
    return problem, solve_goals(tuned(problem, small=0), Budget.of(SECONDS), None, delayed=False)


@pytest.mark.slow
@pytest.mark.parametrize("running", [True, *extended(False)], ids=["running", "from nothing"])
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


@pytest.mark.parametrize("seed", [10, 16, 17, 20, 21])
def test_all_that_runs_is_held_on_cards_where_rounding_alone_does_not_find_that(seed: int) -> None:
    random = Random(seed)  # noqa: S311 - a repeatable choice, not a secret
    demands, cards, held = list[Demand](), dict.fromkeys("XYZ", 0), 0.0
    for place in range(8):
        needs = {name: random.randint(2, 12) for name in random.sample("XYZ", 2)}
        now, needed = list(needs.items())[1]
        runs, load = random.randint(1, needed - 1), float(random.randint(20, 400))
        runs_now = Allocation(now, runs, cost=runs)
        demands.append(Demand(f"s{place}", needs, load=load, current=runs_now))
        held += load * runs / needed
        there = random.choice([*needs])  # cards for as much, here or on the other type
        cards[there] += math.ceil(runs * needs[there] / needed)
    options = with_policy(SaturationPolicy.HOLD)

    problem = problem_of(system_of(demands, accelerators(X=1, Y=1, Z=1), cards, options))
    everybody, nothing = np.ones(8, dtype=np.bool_), np.zeros_like(problem.case)
    first = fill_columns(problem, nothing, everybody, only_hold=True)
    incumbent = Incumbent(problem, Goal(GoalKind.HELD, 0), (), (), first)

    hold_all(incumbent, WarmStart(problem), Budget.of(SECONDS), exact=False)

    assert problem.load(problem.holding(first)) < held * (1 - 1e-9)
    assert np.all(problem.used(incumbent.counts) <= problem.capacity)
    assert problem.load(problem.holding(incumbent.counts)) == pytest.approx([held])


@pytest.mark.extended
@pytest.mark.minutes
@pytest.mark.slow
@pytest.mark.parametrize("fleets", [15, *extended(60)])
@pytest.mark.parametrize("running", [True, *extended(False)], ids=["running", "from nothing"])
def test_no_plan_that_keeps_the_floors_of_a_bound_exceeds_it(running: bool, fleets: int) -> None:
    random = Random(f"floors {running}")  # noqa: S311 - a repeatable choice, not a secret
    proven = 0
    for _ in range(fleets):
        fleet = random_fleet(random, 12, running=running)

        problem, outcome = solved_as_large(fleet.system(EXHAUSTIVE))

        everything = Opening(np.ones(len(problem.case), np.bool_), np.zeros_like(outcome.counts))
        for reached in outcome.reached:
            found = solve_opening(
                problem,
                reached.goal,
                reached.floors,
                everything,
                outcome.counts,
                Budget.of(SECONDS),
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
    assert served.goal.worth(problem, outcome.counts) == pytest.approx(3003, rel=DEFAULTS.tolerance)
    assert served.bound == pytest.approx(3003, rel=2 * DEFAULTS.tolerance)
