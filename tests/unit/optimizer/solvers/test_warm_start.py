"""Relaxations of many servers begin near that of a sample, and prove the same."""

from random import Random

import numpy as np
import pytest

from inferno_optimizer.solvers.budget import Budget
from inferno_optimizer.solvers.goals import Floor, Goal, GoalKind
from inferno_optimizer.solvers.problem import ReplicaProblem
from inferno_optimizer.solvers.relaxation import Relaxation, SampledProblem, WarmStart
from inferno_optimizer.system import Allocation, SaturationPolicy
from tests.unit.optimizer.solvers.partial_plans import problem_of, tuned, with_policy
from tests.unit.optimizer.systems import Demand, accelerators, system_of

EXHAUSTIVE = with_policy(SaturationPolicy.PRIORITY_EXHAUSTIVE)
HELD, SECOND = Goal(GoalKind.HELD, 0), Goal(GoalKind.SERVED, 1)
VALUE = Goal(GoalKind.VALUE, 1)
SERVERS, LARGE, SAMPLED = 400, 20, 80
SECONDS = 60.0

STEPS = 120
"""Fewer than from nothing, between two additions of columns."""


def market(seed: int) -> ReplicaProblem:
    """Servers of which the more important half runs, and mostly fits."""
    random = Random(seed)  # noqa: S311 - a repeatable choice, not a secret
    demands, cards = list[Demand](), dict.fromkeys("XYZ", 0)
    for place in range(SERVERS):
        size = random.uniform(1, 3) ** 3
        needs = {name: max(round(size * random.uniform(0.7, 1.4)), 1) for name in "XYZ"}
        runs = Allocation(random.choice("XYZ"), random.randint(1, 3), cost=10)
        priority = 1 + place % 2
        demand = Demand(f"s{place:03}", needs, priority=priority, load=10 * size, current=runs)
        demands.append(demand)
        if priority == 1:
            cards[random.choice("XYZ")] += min(needs.values())
    problem = problem_of(system_of(demands, accelerators(X=10, Y=12, Z=15), cards, EXHAUSTIVE))
    return tuned(
        problem, sample_large=LARGE, sample=SAMPLED, sampled_from=SERVERS // 2, few_steps=0
    )


def cold(problem: ReplicaProblem, goal: Goal, floors: tuple[Floor, ...]) -> Relaxation:
    nothing = np.zeros(len(problem.case), dtype=np.int64)
    return WarmStart(problem).relaxation(problem, goal, floors, nothing)


def near_sample(relaxation: Relaxation) -> Relaxation:
    """The same relaxation, from where that of a sample ends."""
    sample = SampledProblem.of(relaxation.problem, relaxation.matter)
    sampled = sample.relaxation(relaxation.goal, relaxation.floors)
    vertex = sampled.solve(Budget.of(SECONDS))
    assert vertex is not None
    relaxation.begin_at(sample.start(sampled, vertex, relaxation))
    return relaxation


def floors_before(problem: ReplicaProblem, goal: Goal) -> tuple[Floor, ...]:
    """All that runs of the first level is held, and nearly all that can be served is."""
    if goal is HELD:
        return ()
    first = Goal(GoalKind.SERVED, 0)
    whole = Floor(HELD, HELD.most(problem), whole=True)
    best = cold(problem, first, (whole,)).solve(Budget.of(SECONDS))
    assert best is not None
    return whole, Floor(first, 0.99 * best.bound, whole=False)


@pytest.mark.parametrize("goal", [HELD, SECOND, VALUE])
def test_a_relaxation_proves_the_same_from_a_sample_in_fewer_steps(goal: Goal) -> None:
    problem = market(1)
    floors = floors_before(problem, goal)
    best = cold(problem, goal, floors).solve(Budget.of(SECONDS))
    assert best is not None

    found = near_sample(cold(problem, goal, floors)).solve(Budget.of(SECONDS), steps=STEPS)

    assert found is not None
    assert found.bound == pytest.approx(best.bound)
    assert cold(problem, goal, floors).solve(Budget.of(SECONDS), steps=STEPS) is None


@pytest.mark.parametrize("goal", [HELD, SECOND, VALUE])
def test_a_start_that_may_take_a_sample_proves_what_each_other_one_proves(goal: Goal) -> None:
    problem = market(2)
    floors = floors_before(problem, goal)
    best = cold(problem, goal, floors).solve(Budget.of(SECONDS))
    nothing = np.zeros(len(problem.case), dtype=np.int64)
    start = WarmStart(problem)

    found = start.solve(start.relaxation(problem, goal, floors, nothing), Budget.of(SECONDS))

    assert best is not None
    assert found is not None
    assert found.bound == pytest.approx(best.bound)


def test_a_sample_stands_for_the_load_of_all() -> None:
    problem = market(3)
    everybody = np.ones(SERVERS, dtype=np.bool_)

    sample = SampledProblem.of(problem, everybody)

    assert np.count_nonzero(sample.cases) == pytest.approx(SAMPLED, abs=4)
    assert sample.problem.weight.sum() == pytest.approx(problem.weight.sum(), rel=0.1)
