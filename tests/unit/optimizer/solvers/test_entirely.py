"""Levels that are served entirely: their servers have whole rows, in what is planned and proven."""

from random import Random

import numpy as np
import pytest
from scipy.optimize import LinearConstraint, milp

from inferno_optimizer.solvers.budget import Budget
from inferno_optimizer.solvers.exact import solve_goals
from inferno_optimizer.system import Allocation, SaturationPolicy
from tests.unit.optimizer.oracles import value
from tests.unit.optimizer.solvers.partial_plans import problem_of, tuned, with_policy
from tests.unit.optimizer.systems import Demand, accelerators, system_of

COSTS, CARDS = {"X": 10, "Y": 17, "Z": 23}, {"X": 600, "Y": 500, "Z": 400}


def demands_of(seed: int) -> list[Demand]:
    """Sixty servers; what runs of them costs something else than as many replicas would."""
    random = Random(seed)  # noqa: S311 - a repeatable choice, not a secret

    def running() -> Allocation:
        return Allocation(random.choice([*CARDS]), random.randint(1, 4), cost=random.randint(1, 90))

    return [
        Demand(
            f"s{place}",
            {name: random.randint(5, 40) for name in CARDS},
            priority=1 + place % 2,
            load=float(random.randint(20, 400)),
            current=running(),
        )
        for place in range(60)
    ]


def least_value(demands: list[Demand]) -> float:
    """Of all plans that serve everybody, as SciPy's solver has it."""
    rows = [(place, name) for place in range(len(demands)) for name in CARDS]
    needs = np.array([demands[place].needs[name] for place, name in rows], dtype=float)
    one_each = [[place == case for place, _ in rows] for case in range(len(demands))]
    cards = [np.where([name == card for _, name in rows], needs, 0) for card in CARDS]
    cost = [
        value(demands[place].current, name, int(count), COSTS[name] * count)
        for (place, name), count in zip(rows, needs, strict=True)
    ]
    found = milp(
        cost,
        integrality=np.ones(len(rows), dtype=np.int64),
        constraints=[
            LinearConstraint(np.array(one_each, dtype=float), 1, 1),
            LinearConstraint(np.array(cards), -np.inf, [*CARDS.values()]),
        ],
    )
    assert found.fun is not None
    return found.fun


@pytest.mark.parametrize("policy", [SaturationPolicy.HOLD, SaturationPolicy.PRIORITY_EXHAUSTIVE])
@pytest.mark.parametrize("seed", range(3))
def test_where_all_are_served_plan_and_bound_are_those_of_whole_rows(
    seed: int, policy: SaturationPolicy
) -> None:
    demands = demands_of(seed)
    system = system_of(demands, accelerators(**COSTS), CARDS, with_policy(policy))
    problem, runs = problem_of(system), sum(demand.current.cost for demand in demands)
    least = least_value(demands) + runs

    outcome = solve_goals(tuned(problem, small=0), Budget.of(20.0), None, delayed=False)

    assert np.all(problem.served(outcome.counts) == 1)
    found = float(problem.values(outcome.counts).sum())
    assert least * (1 - 1e-9) <= found <= least * (1 + 1e-3)
    assert least * (1 - 1e-3) <= outcome.least_value <= least * (1 + 1e-9)


def test_where_the_last_level_might_be_served_entirely_that_is_looked_for() -> None:
    random = Random(6)  # noqa: S311 - a repeatable choice, not a secret
    demands = [
        Demand(
            f"s{place}",
            {name: random.randint(5, 40) for name in CARDS},
            load=float(random.randint(20, 400)),
        )
        for place in range(60)
    ]
    cards = dict.fromkeys(CARDS, 0)
    for demand in demands:  # a plan that serves all of them, and a few cards more
        name = random.choice([*CARDS])
        cards[name] += demand.needs[name]
    cards = {name: int(count * 1.02) for name, count in cards.items()}
    options = with_policy(SaturationPolicy.PRIORITY_EXHAUSTIVE)
    problem = problem_of(system_of(demands, accelerators(**COSTS), cards, options))

    outcome = solve_goals(tuned(problem, small=0), Budget.of(20.0), None, delayed=False)

    assert np.all(problem.served(outcome.counts) == 1)
