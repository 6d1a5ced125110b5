"""The exact solver with partial service: against every plan of small fleets, and beside greedy."""

import math
from dataclasses import replace
from random import Random

import pytest

from inferno_optimizer.optimize import optimize
from inferno_optimizer.solution import Solution, SolverStatus
from inferno_optimizer.system import Allocation, SaturationPolicy
from tests.tiers import extended
from tests.unit.optimizer.solvers.partial_plans import (
    UNITS,
    Fleet,
    goals_of,
    random_fleet,
    reached_by,
    served_by,
    with_policy,
)
from tests.unit.optimizer.systems import Demand

HOLD = SaturationPolicy.HOLD
EXHAUSTIVE = SaturationPolicy.PRIORITY_EXHAUSTIVE
IN_TURN = (SaturationPolicy.PRIORITY_ROUND_ROBIN, SaturationPolicy.ROUND_ROBIN)
FLEETS = 25
"""Random fleets of each test."""

PARTS = (0, *extended(*range(1, 10)))
"""Tests of each comparison with greedy: 1,000 fleets for two policies, running and from nothing."""

WITH_SHARES = [policy for policy in SaturationPolicy if policy is not SaturationPolicy.NONE]


def levels_of(solution: Solution) -> tuple[float, ...]:
    return tuple(level.served for level in solution.certificate.levels)


@pytest.mark.slow
@pytest.mark.parametrize("delayed", [False, *extended(True)], ids=["", "delayed"])
@pytest.mark.parametrize("policy", [WITH_SHARES[0], *extended(*WITH_SHARES[1:])])
def test_no_plan_of_a_small_fleet_is_better(policy: SaturationPolicy, delayed: bool) -> None:
    random = Random(f"{policy} {delayed}")  # noqa: S311 - a repeatable choice, not a secret
    options = with_policy(policy, delayed=delayed)
    for place in range(FLEETS):
        fleet = random_fleet(random, 4, running=place % 3 > 0)
        goals, value = reached_by(fleet, options)
        loads = goals[-len({d.priority for d in fleet.demands}) :] if delayed else goals[1::2]

        solution = optimize(fleet.system(options))

        assert levels_of(solution) == pytest.approx(loads), fleet
        if policy not in IN_TURN:
            assert served_by(fleet, solution) == pytest.approx(loads), fleet
            assert solution.certificate.objective == pytest.approx(value), fleet
            assert solution.certificate.gap == pytest.approx(0, abs=1e-6)


def test_an_important_server_gets_the_cards_that_others_would_take_entirely() -> None:
    premium = Demand("premium", {"X": 9}, priority=1, load=3600)
    free = [Demand(name, {"X": count}, priority=3) for name, count in (("a", 3), ("b", 4))]
    fleet = Fleet((premium, *free), {"x": 8})

    for policy in (HOLD, EXHAUSTIVE):
        solution = optimize(fleet.system(with_policy(policy)))

        assert replicas_of(solution) == {"premium": 8}
        assert levels_of(solution) == pytest.approx((3200, 0))
        assert solution.certificate.gap == pytest.approx(0, abs=1e-6)


def replicas_of(solution: Solution) -> dict[str, int]:
    return {name: allocation.replicas for name, allocation in solution.allocations.items()}


def test_free_servers_get_what_premium_leaves() -> None:
    premium = Demand("premium", {"X": 9, "W": 4}, priority=1, load=3600)
    free = Demand("free", {"X": 9}, priority=3)
    fleet = Fleet((premium, free), {"x": 8, "w": 4})

    solution = optimize(fleet.system(with_policy(EXHAUSTIVE)))

    assert replicas_of(solution) == {"premium": 4, "free": 8}


def test_round_robin_shares_out_evenly_among_all_classes_what_serves_nobody_entirely() -> None:
    fleet = Fleet(
        (Demand("high", {"X": 6}, priority=1), Demand("low", {"X": 6}, priority=2)), {"x": 5}
    )
    by_priority, among_all = (optimize(fleet.system(with_policy(policy))) for policy in IN_TURN)

    assert replicas_of(by_priority) == {"high": 5}
    assert replicas_of(among_all) == {"high": 3, "low": 2}


@pytest.mark.slow
@pytest.mark.parametrize("policy", [HOLD, *extended(EXHAUSTIVE)])
@pytest.mark.parametrize("running", [True, *extended(False)], ids=["running", "from nothing"])
@pytest.mark.parametrize("part", PARTS)
def test_the_exact_solver_reaches_no_less_than_greedy(
    policy: SaturationPolicy, running: bool, part: int
) -> None:
    random = Random(f"{policy} {running} {part}")  # noqa: S311 - a repeatable choice
    for _ in range(FLEETS):
        fleet = random_fleet(random, random.randint(5, 12), running=running)
        options, greedy = with_policy(policy), with_policy(policy, milp=False)

        more, less = optimize(fleet.system(options)), optimize(fleet.system(greedy))

        assert goals_of(fleet, options, more) >= goals_of(fleet, options, less), fleet
        if not running:
            assert served_by(fleet, more) >= served_by(fleet, less), fleet


def test_none_is_stopped_for_equal_ones_and_as_much_load_as_possible_is_held() -> None:
    carrying_much = Demand("much", {"Z": 4}, load=84, current=running("X", 2))
    carrying_some = Demand("some", {"X": 4}, load=60, current=running("X", 3))
    carrying_little = Demand("little", {"Z": 4}, load=12, current=running("X", 3))
    fleet = Fleet((carrying_much, carrying_some, carrying_little), {"x": 5})

    solution = optimize(fleet.system(with_policy(HOLD)))

    assert replicas_of(solution) == {"much": 2, "some": 2, "little": 1}


def running(accelerator: str, replicas: int) -> Allocation:
    unit = next(unit for unit in UNITS if unit.name == accelerator)
    return Allocation(accelerator, replicas, cost=unit.cost * replicas)


def test_none_that_runs_is_stopped_for_an_equal_one_that_does_not_run() -> None:
    two_cards = Demand("two cards", {"2xX": 2}, load=12, current=running("2xX", 2))
    one_card = Demand("one card", {"X": 4}, load=72, current=running("X", 2))
    new = Demand("new", {"X": 3}, load=96)
    fleet = Fleet((two_cards, one_card, new), {"x": 3})

    solution = optimize(fleet.system(with_policy(HOLD)))

    assert replicas_of(solution) == {"two cards": 1, "one card": 1}


@pytest.mark.parametrize("delayed", [False, True], ids=["", "delayed"])
def test_a_proven_plan_in_which_none_is_stopped_holds_no_less_than_greedy(delayed: bool) -> None:
    moves = Demand("moves", {"X": 1}, load=36, current=running("Z", 3))
    carrying_some = Demand("some", {"X": 4}, load=60, current=running("X", 2))
    carrying_much = Demand("much", {"Z": 4}, load=84, current=running("X", 2))
    fleet = Fleet((moves, carrying_some, carrying_much), {"x": 3})
    options, greedy = (with_policy(HOLD, milp=milp, delayed=delayed) for milp in (True, False))

    more, less = optimize(fleet.system(options)), optimize(fleet.system(greedy))

    assert goals_of(fleet, options, more) >= goals_of(fleet, options, less)
    assert more.certificate.status is SolverStatus.FEASIBLE


def test_a_plan_that_serves_more_in_part_is_no_better_where_best_effort_is_delayed() -> None:
    small = Demand("small", {"Z": 1, "W": 6}, load=12)
    flexible = Demand("flexible", {"Z": 1, "X": 3}, load=24)  # greedy gives it the card of small
    large = Demand("large", {"X": 6}, load=216)
    fleet = Fleet((small, flexible, large), {"x": 3, "z": 1})
    exact, greedy = (
        optimize(fleet.system(with_policy(HOLD, milp=milp, delayed=True))) for milp in (True, False)
    )

    assert replicas_of(greedy) == {"flexible": 1, "large": 3}
    assert replicas_of(exact) == {"small": 1, "flexible": 3}


@pytest.mark.slow
@pytest.mark.parametrize("milp", [False, True], ids=["greedy", "exact"])
def test_a_server_loses_all_that_runs_only_to_a_more_important_one(milp: bool) -> None:
    random = Random(f"{milp}")  # noqa: S311 - a repeatable choice, not a secret
    options = with_policy(HOLD, milp=milp)
    for _ in range(FLEETS):
        fleet = random_fleet(random, random.randint(5, 12), running=True)

        solution = optimize(fleet.system(options))

        for place, demand in enumerate(fleet.demands):
            if demand.current.replicas and demand.server.name not in solution.allocations:
                unit = next(u for u in UNITS if u.name == demand.current.accelerator)
                assert unit.multiplicity > cards_for(fleet, place, unit.type, solution), fleet


def cards_for(fleet: Fleet, place: int, card_type: str, solution: Solution) -> int:
    """Cards that neither more important servers have nor equal ones for what they hold."""
    mine = fleet.demands[place]
    left = fleet.capacity[card_type]
    units = {unit.name: unit for unit in UNITS}
    for demand in fleet.demands:
        given = solution.allocations.get(demand.name, Allocation())
        unit = units.get(given.accelerator)
        if unit is None or unit.type != card_type or demand.priority > mine.priority:
            continue
        replicas = given.replicas
        if demand.priority == mine.priority:
            replicas = min(replicas, replicas_held(demand, given))
        left -= replicas * unit.multiplicity
    return left


def replicas_held(demand: Demand, given: Allocation) -> int:
    """Replicas of what a server has that carry what runs of it now."""
    runs, needed = demand.current, demand.needs.get(demand.current.accelerator)
    if not runs.replicas:
        return 0
    carried = min(1.0, runs.replicas / needed) if needed else 1.0
    wanted = demand.needs.get(given.accelerator, runs.replicas)
    return math.ceil(carried * wanted - 1e-9)


@pytest.mark.parametrize("policy", [HOLD, EXHAUSTIVE])
def test_mixes_do_not_invert_priorities(policy: SaturationPolicy) -> None:
    premium = Demand("premium", {"X": 9}, priority=1, load=3600)
    free = [Demand(name, {"X": count}, priority=3) for name, count in (("a", 3), ("b", 4))]
    fleet = Fleet((premium, *free), {"x": 8})

    solution = optimize(fleet.system(replace(with_policy(policy), heterogeneous=True)))

    assert replicas_of(solution) == {"premium": 8}


@pytest.mark.parametrize("second_priority", [1, 2])
def test_with_mixes_nobody_loses_what_runs_to_an_equal_server(second_priority: int) -> None:
    first = Demand("first", {"X": 5}, current=Allocation("X", 3, cost=69))
    second = Demand("second", {"X": 4}, priority=second_priority, load=900)
    fleet = Fleet((first, second), {"x": 4})

    solution = optimize(fleet.system(replace(with_policy(HOLD), heterogeneous=True)))

    assert replicas_of(solution)["first"] >= 3
