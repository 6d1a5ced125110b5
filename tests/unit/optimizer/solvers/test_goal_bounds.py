"""What is proven of each goal with partial service, beside a program that SciPy solves.

The fleets are large enough for the relaxation to be within a thousandth of the best plan: a bound
that is a thousandth too low is seen, also where the search ends before it finds that plan.
"""

from itertools import count
from random import Random

import numpy as np
import pytest
from scipy.optimize import Bounds, LinearConstraint, milp

from inferno_optimizer.sizing.queueing import FloatArray
from inferno_optimizer.solvers.budget import Budget
from inferno_optimizer.solvers.exact import Outcome, solve_goals
from inferno_optimizer.solvers.goals import GoalKind, Reached
from inferno_optimizer.solvers.problem import ReplicaProblem
from inferno_optimizer.system import SaturationPolicy
from tests.tiers import extended
from tests.unit.optimizer.solvers.partial_plans import problem_of, tuned, with_policy
from tests.unit.optimizer.systems import Demand, accelerators, system_of

EXHAUSTIVE = with_policy(SaturationPolicy.PRIORITY_EXHAUSTIVE)
CARDS = {"X": 450, "Y": 300, "Z": 200}
NEAR, SECONDS = 1e-5, 2.0
"""Relative distance and time at which the oracle ends, with the best plan that it knows."""


def problem_with(seed: int, priorities: int = 2) -> ReplicaProblem:
    """Seventy servers that want twice the cards that there are."""
    random = Random(seed)  # noqa: S311 - a repeatable choice, not a secret
    demands = [
        Demand(
            f"s{place}",
            {name: random.randint(20, 120) for name in CARDS},
            priority=1 + place % priorities,
            load=float(random.randint(20, 400)),
        )
        for place in range(70)
    ]
    return problem_of(system_of(demands, accelerators(X=10, Y=17, Z=23), CARDS, EXHAUSTIVE))


def most_of(problem: ReplicaProblem, reached: Reached) -> float:
    """What the best plan known that keeps the floors of a goal has of it; -inf without any."""
    columns, cards = len(problem.case), problem.cards
    of_case = (problem.case == np.arange(len(problem.cases))[:, None]).astype(float)
    use = np.zeros((len(problem.capacity), columns))
    use[cards.type, cards.owner] = cards.count
    limits = [
        LinearConstraint(np.hstack([np.eye(columns), -np.diag(problem.most)]), -np.inf, 0),
        LinearConstraint(np.hstack([0 * of_case, of_case]), -np.inf, 1),
        LinearConstraint(np.hstack([use, 0 * use]), -np.inf, problem.capacity),
    ]
    for floor in reached.floors:
        if floor.goal.kind is GoalKind.SERVED:
            load = _load_of(problem, floor.goal.level)
            limits.append(LinearConstraint(np.append(load, 0 * load), floor.load))
    if reached.goal.kind is GoalKind.HELD:
        return 0.0  # nothing runs
    if reached.goal.kind is GoalKind.VALUE:
        cost = np.append(problem.unit, problem.fixed)
    else:
        load = _load_of(problem, reached.goal.level)
        cost = np.append(-load, 0 * load)
    most = np.append(problem.most, np.ones(columns))
    found = milp(
        cost,
        integrality=np.ones(2 * columns, dtype=np.int64),
        bounds=Bounds(0, most),
        constraints=limits,
        options={"mip_rel_gap": NEAR, "time_limit": SECONDS},
    )
    return -np.inf if found.x is None else -float(found.fun)


def _load_of(problem: ReplicaProblem, level: int) -> FloatArray:
    """Load of a level that a replica of each column serves."""
    mine = problem.level[problem.case] == level
    return np.where(mine, problem.weight[problem.case] / problem.full, 0.0)


@pytest.mark.slow
@pytest.mark.parametrize("looks", [22, *extended(60)])
@pytest.mark.parametrize("tolerance", [None, 0.02], ids=["near", "far"])
@pytest.mark.parametrize("seed", [6, *extended(8, 9)])
def test_no_plan_exceeds_what_is_proven_wherever_the_search_ends(
    seed: int, tolerance: float | None, looks: int
) -> None:
    problem, number = problem_with(seed), count()
    budget = Budget.of(20.0, lambda: 1.0 - next(number) / looks)

    outcome = solve_goals(tuned(problem, small=0), budget, tolerance, delayed=False)

    assert exceeded(problem, outcome) == []


@pytest.mark.slow
@pytest.mark.parametrize("seed", [6, *extended(8)])
def test_the_proof_of_a_level_is_about_plans_as_good_as_the_one_before_its_turn(seed: int) -> None:
    problem, number = problem_with(seed, priorities=3), count()
    budget = Budget.of(20.0, lambda: 1.0 - next(number) / 600)

    outcome = solve_goals(tuned(problem, small=0), budget, 0.02, delayed=False)

    served = [reached for reached in outcome.reached if reached.goal.kind is GoalKind.SERVED]
    floors = {floor.goal: floor.load for floor in served[2].floors}
    assert floors[served[1].goal] == pytest.approx(served[1].has)
    assert exceeded(problem, outcome) == []


@pytest.mark.slow
@pytest.mark.parametrize("seconds", [0.1, 0.2])
@pytest.mark.parametrize("seed", [6, *extended(9)])
def test_no_plan_exceeds_what_is_proven_of_a_small_problem_in_no_time(
    seed: int, seconds: float
) -> None:
    problem = problem_with(seed)

    outcome = solve_goals(problem, Budget.of(seconds), None, delayed=False)

    assert exceeded(problem, outcome) == []


def exceeded(problem: ReplicaProblem, outcome: Outcome) -> list[Reached]:
    """The goals of which a plan of the oracle has more than what is proven."""
    most = [most_of(problem, reached) for reached in outcome.reached]
    return [
        reached
        for reached, best in zip(outcome.reached, most, strict=True)
        if not reached.bound >= best - 1e-9 * abs(best)
    ]
