"""Without a limit on capacity every server takes its best candidate."""

import pytest

from inferno_optimizer.optimize import optimize
from inferno_optimizer.solution import SolverStatus
from inferno_optimizer.system import Allocation, Options
from tests.unit.optimizer.systems import Demand, accelerators, outcome, system_of

UNLIMITED = Options(unlimited=True)


def test_every_server_takes_the_candidate_of_least_value_whatever_the_capacity() -> None:
    demands = [
        Demand("cheap", {"X": 3, "Y": 1}),
        Demand("moves", {"X": 1, "Y": 1}, current=Allocation("Y", 1, cost=50)),
        Demand("stays", {"X": 1, "Y": 1}, current=Allocation("Y", 1, cost=21)),
        Demand("only", {"Y": 7}),
    ]

    system = system_of(demands, accelerators(X=10, Y=21), {"X": 0}, UNLIMITED)

    # cheap: 23.1 for Y against 33; moves: 6 - 40 against -0; stays: 3.1 - 11 against 0
    assert outcome(system) == {
        "cheap": ("Y", 1),
        "moves": ("X", 1),
        "stays": ("X", 1),
        "only": ("Y", 7),
    }


def test_a_server_stays_where_moving_gains_less_than_its_penalty() -> None:
    demand = Demand("a", {"X": 1, "Y": 1}, current=Allocation("Y", 1, cost=12))

    system = system_of([demand], accelerators(X=10, Y=12), options=UNLIMITED)

    assert outcome(system) == {"a": ("Y", 1)}


def test_of_equal_candidates_the_cheaper_replica_then_the_first_name_wins() -> None:
    demands = [Demand("price", {"X": 1, "Y": 2}), Demand("name", {"Z": 2, "Y": 2})]

    system = system_of(demands, accelerators(X=20, Y=10, Z=10), options=UNLIMITED)

    assert outcome(system) == {"price": ("Y", 2), "name": ("Y", 2)}


def test_unlimited_wins_over_the_exact_solver() -> None:
    options = Options(unlimited=True, milp=True, heterogeneous=True)

    solution = optimize(system_of([Demand("a", {"X": 2})], accelerators(X=1), {}, options))

    assert solution.certificate.solver == "unlimited"
    assert len(solution.allocations) == 1


def test_the_plan_is_proven_to_be_the_best() -> None:
    demands = [Demand("a", {"X": 2}), Demand("b", {"X": 3})]

    certificate = optimize(system_of(demands, accelerators(X=10), options=UNLIMITED)).certificate

    assert certificate.status is SolverStatus.OPTIMAL
    assert (certificate.objective, certificate.bound) == pytest.approx((55, 55))
    assert certificate.gap == 0
