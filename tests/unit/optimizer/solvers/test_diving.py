"""Dives, and the relaxations that they solve."""

from itertools import count
from random import Random

import numpy as np
import pytest

from inferno_optimizer.solvers.budget import Budget
from inferno_optimizer.solvers.diving import Diver
from inferno_optimizer.solvers.goals import Floor, Goal, GoalKind
from inferno_optimizer.solvers.problem import ReplicaProblem
from inferno_optimizer.solvers.relaxation import Relaxation, WarmStart
from inferno_optimizer.system import SaturationPolicy
from tests.unit.optimizer.solvers.partial_plans import problem_of, with_policy
from tests.unit.optimizer.systems import Demand, accelerators, system_of

EXHAUSTIVE = with_policy(SaturationPolicy.PRIORITY_EXHAUSTIVE)
SECOND = Goal(GoalKind.SERVED, 1)
SECONDS = 60.0


def market(seed: int, servers: int = 60, power: int = 3) -> ReplicaProblem:
    """Servers of very different sizes, the more important half of which just fits."""
    random = Random(seed)  # noqa: S311 - a repeatable choice, not a secret
    demands, cards = list[Demand](), dict.fromkeys("XYZ", 0)
    for place in range(servers):
        size = random.uniform(1, 5) ** power
        needs = {name: max(round(size * random.uniform(0.7, 1.4)), 1) for name in "XYZ"}
        priority = 1 + place % 2
        demands.append(Demand(f"s{place:02}", needs, priority=priority, load=10 * size))
        if priority == 1:
            cards[random.choice("XYZ")] += min(needs.values())
    return problem_of(system_of(demands, accelerators(X=10, Y=12, Z=15), cards, EXHAUSTIVE))


def first_level_kept(problem: ReplicaProblem, part: float) -> tuple[Floor, ...]:
    """The floor of a part of what the relaxation serves of the first level."""
    first = Goal(GoalKind.SERVED, 0)
    vertex = relaxation_of(problem, first, ()).solve(Budget.of(SECONDS))
    assert vertex is not None
    return (Floor(first, part * vertex.bound, whole=False),)


def relaxation_of(problem: ReplicaProblem, goal: Goal, floors: tuple[Floor, ...]) -> Relaxation:
    nothing = np.zeros(len(problem.case), dtype=np.int64)
    return WarmStart(problem).relaxation(problem, goal, floors, nothing)


def test_a_dive_does_not_split_one_server_after_the_other_of_those_with_the_same_choice() -> None:
    demands = [Demand(f"s{place:03}", {"X": 3, "Z": 3}, load=30) for place in range(150)]
    cards = {"X": 100, "Z": 350}  # for one card each more or less, so that one server is split
    problem = problem_of(system_of(demands, accelerators(X=10, Z=12), cards, EXHAUSTIVE))
    relaxation, solutions = relaxation_of(problem, Goal(GoalKind.SERVED, 0), ()), count()
    budget = Budget.of(SECONDS, lambda: SECONDS + 0 * next(solutions))
    nobody = np.zeros(len(problem.cases), dtype=np.bool_)
    diver = Diver(problem, relaxation, nobody, lambda: 0.0, budget)

    vertex = next(diver.dive(np.zeros(len(problem.case), dtype=np.bool_), 5), None)

    assert vertex is not None
    assert vertex.bound > 0.99 * 150 * 30
    assert next(solutions) < 60


@pytest.mark.parametrize("seed", [4, 28])
def test_a_solution_with_enough_is_found_though_its_columns_are_not_in_the_program(
    seed: int,
) -> None:
    """The best one has too little before they are added, which says nothing of the others."""
    problem = market(seed)
    floors = first_level_kept(problem, 0.97)
    relaxation = relaxation_of(problem, SECOND, floors)
    root = relaxation.solve(Budget.of(SECONDS))
    assert root is not None
    forbidden = np.zeros(len(problem.case), dtype=np.bool_)
    outside = np.flatnonzero(~relaxation.active)
    cases, first = np.unique(problem.case[outside], return_index=True)
    largest = np.argsort(-problem.weight[cases], kind="stable")[:4]
    forbidden[np.isin(problem.case, cases[largest])] = True
    forbidden[outside[first[largest]]] = False
    free = relaxation_of(problem, SECOND, floors).solve(Budget.of(SECONDS), forbidden)
    assert free is not None

    found = relaxation.solve(Budget.of(SECONDS), forbidden, least=0.9 * free.bound)

    assert free.missing == pytest.approx(0.0, abs=1e-9)
    assert found is not None
    assert found.bound == pytest.approx(free.bound, rel=1e-6)
