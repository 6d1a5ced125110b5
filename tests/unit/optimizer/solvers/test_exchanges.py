"""What the greedy solver makes better by exchanges once all servers had their turn."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from random import Random

import numpy as np
import pytest

from inferno_optimizer.decisions import size_servers
from inferno_optimizer.optimize import optimize
from inferno_optimizer.sizing.candidates import Candidates
from inferno_optimizer.sizing.cases import Catalogue
from inferno_optimizer.sizing.queueing import IntArray
from inferno_optimizer.solution import Reason
from inferno_optimizer.solvers.assignment import Assignment
from inferno_optimizer.solvers.greedy import fillings, serve_after_those_that_stand, solve_greedy
from inferno_optimizer.solvers.loads import loads_served_entirely
from inferno_optimizer.solvers.running import rows_that_run
from inferno_optimizer.system import Allocation, Options, SaturationPolicy, System
from tests.tiers import sampled
from tests.unit.optimizer.enumeration import best_plan, served
from tests.unit.optimizer.random_systems import Kind, random_system
from tests.unit.optimizer.systems import Demand, accelerators, outcome, system_of

HOLD = Options(saturation_policy=SaturationPolicy.HOLD)
OF_THE_ORIGINAL = [policy for policy in SaturationPolicy if policy is not SaturationPolicy.HOLD]
BATCHES = (1, 2, 3)
SYSTEMS = 400
PARTS = 4
"""Of which each has each fourth system; `make test` has the first part."""

in_parts = pytest.mark.parametrize("part", sampled(range(PARTS)))


def test_two_servers_exchange_their_cards() -> None:
    # The regret of a on X is larger, 60 of 30; yet b on Y costs 100, and 70 are saved together.
    demands = [
        Demand("a", {"X": 3, "Y": 3}, priority=1),
        Demand("b", {"X": 3, "Y": 10}, priority=2),
    ]
    units = accelerators(X=10, Y=11)

    found = outcome(system_of(demands, units, {"X": 3, "Y": 13}, HOLD))

    assert found == {"a": ("Y", 3), "b": ("X", 3)}


def test_several_servers_leave_cards_for_one_that_saves_more() -> None:
    small = [Demand(name, {"X": 1, "Y": 1}, priority=1) for name in "abc"]
    large = Demand("large", {"X": 3, "Y": 9}, priority=2)
    units = accelerators(X=10, Y=11)

    found = outcome(system_of([*small, large], units, {"X": 3, "Y": 12}, HOLD))

    assert found == {**dict.fromkeys("abc", ("Y", 1)), "large": ("X", 3)}


def test_a_server_that_found_no_cards_gets_those_that_another_can_do_without() -> None:
    demands = [Demand("a", {"X": 1, "Y": 1}, priority=1), Demand("b", {"X": 1}, priority=2)]

    found = outcome(system_of(demands, accelerators(X=10, Y=12), {"X": 1, "Y": 1}, HOLD))

    assert found == {"a": ("Y", 1), "b": ("X", 1)}


def full_pools(random: Random) -> tuple[list[Demand], dict[str, int]]:
    """Servers that run, and the cards that there are: too few."""
    needs = [{t: random.randint(1, 5) for t in "XY"} for _ in range(random.randint(3, 5))]
    demands = []
    for place, need in enumerate(needs):
        card, load = random.choice("XY"), random.choice((60, 300, 900))
        current = Allocation(card, replicas=random.randint(1, need[card]))
        demands.append(Demand(f"s{place}", need, random.randint(1, 2), load=load, current=current))
    return demands, {t: random.randint(1, 6) for t in "XY"}


@pytest.mark.extended
@in_parts
def test_nobody_is_served_with_cards_of_an_equal_one_that_is_stopped(part: int) -> None:
    random = Random(5)  # noqa: S311 - a repeatable choice, not a secret
    stopped = 0
    for demands, capacity in [full_pools(random) for _ in range(SYSTEMS)][part::PARTS]:
        system = system_of(demands, accelerators(X=10, Y=12), capacity, HOLD)
        begun = [plan.replicas.tolist() for plan in beginnings(*table(system))]

        plan = outcome(system)

        assert any(none_is_stopped_for(demands, before, plan) for before in begun), demands
        for one in (each for each in demands if not plan[each.name][1]):
            card = one.current.accelerator
            assert sum(n for t, n in plan.values() if t == card) == capacity[card], (demands, plan)
            stopped += 1
    assert stopped > SYSTEMS / PARTS / 10


def none_is_stopped_for(
    demands: Sequence[Demand], before: Sequence[int], plan: Mapping[str, tuple[str, int]]
) -> bool:
    """Whether all keep something, and who is stopped gives no cards to equal or lesser ones.

    Neither does who had nothing before, with so many replicas of each.
    """
    counts = [*zip(demands, before, strict=True)]
    stopped = [one for one in demands if not plan[one.name][1]]
    return all(plan[one.name][1] for one, count in counts if count) and all(
        other.priority < one.priority
        or not count
        or plan[other.name][0] != one.current.accelerator
        or plan[other.name][1] <= count
        for one in stopped
        for other, count in counts
    )


def beginnings(candidates: Candidates, capacity: IntArray) -> list[Assignment]:
    """The plans before exchanges: of the line, and of all where they run."""
    home = np.isin(np.arange(len(candidates.usable)), rows_that_run(candidates))
    ways = [serve_after_those_that_stand(standing) for standing in (home & False, home)]
    return [*fillings(candidates, capacity, ways)]


def test_a_server_moves_for_no_other_whose_saving_its_own_penalty_eats_up() -> None:
    # On Y, a pays 10 % of 30 and 33 for moving, and 3 more; b saves 5 there.
    runs = Allocation("X", 3, cost=30)
    demands = [
        Demand("a", {"X": 3, "Y": 3}, current=runs),
        Demand("b", {"X": 3, "Z": 1}, priority=2, current=Allocation("Z", 1, cost=35)),
    ]
    units = accelerators(X=10, Y=11, Z=35)

    found = outcome(system_of(demands, units, {"X": 3, "Y": 3, "Z": 1}, HOLD))

    assert found == {"a": ("X", 3), "b": ("Z", 1)}


def test_moves_that_cost_more_together_than_if_all_stayed_are_taken_back() -> None:
    # In line, a saves 2.8 on Y, b pays 19.8 for Z and c 11.6 for X. No two can do anything else.
    demands = [
        Demand("a", {"X": 3, "Y": 2}, priority=1, current=Allocation("X", 3, cost=30)),
        Demand("b", {"Y": 2, "Z": 3}, priority=2, current=Allocation("Y", 2, cost=22)),
        Demand("c", {"Z": 3, "X": 4}, priority=3, current=Allocation("Z", 3, cost=36)),
    ]
    units = accelerators(X=10, Y=11, Z=12)

    found = outcome(system_of(demands, units, {"X": 4, "Y": 2, "Z": 3}, HOLD))

    assert found == {"a": ("X", 3), "b": ("Y", 2), "c": ("Z", 3)}


@pytest.mark.parametrize("policy", OF_THE_ORIGINAL)
def test_with_the_policies_of_the_original_nothing_is_exchanged(policy: SaturationPolicy) -> None:
    demands = [Demand("a", {"X": 1, "Y": 1}, priority=1), Demand("b", {"X": 1}, priority=2)]
    options = Options(saturation_policy=policy)

    found = outcome(system_of(demands, accelerators(X=10, Y=12), {"X": 1, "Y": 1}, options))

    assert found == {"a": ("X", 1), "b": ("", 0)}


def systems(servers: int, part: int) -> Iterator[System]:
    for seed in range(part, SYSTEMS, PARTS):
        yield random_system(Random(seed), Kind(servers, BATCHES), HOLD)  # noqa: S311


@in_parts
def test_two_servers_that_can_both_be_served_have_the_best_of_all_plans(part: int) -> None:
    compared = 0
    for system in systems(servers=2, part=part):
        most, value = best_plan(system)
        solution = optimize(system)
        if any(decision.reason is not Reason.ALLOCATED for decision in solution.decisions):
            continue
        compared += 1

        assert served(system, solution) == most
        assert solution.certificate.objective == pytest.approx(value, rel=1e-9, abs=1e-6)

    assert compared > SYSTEMS / PARTS / 8


def table(system: System) -> tuple[Candidates, IntArray]:
    catalogue = Catalogue(system.by_name())
    candidates, _ = size_servers(catalogue, catalogue.system.servers, rates=False)
    return candidates, np.array([system.capacity[t] for t in candidates.types], dtype=np.int64)


@dataclass(frozen=True)
class Solved:
    """A system, what its servers may get, and the plan."""

    system: System
    candidates: Candidates
    capacity: IntArray
    plan: Assignment


@pytest.fixture(scope="module", params=sampled(range(PARTS)))
def solved(request: pytest.FixtureRequest) -> list[Solved]:
    """Systems of six servers."""
    tables = [(system, *table(system)) for system in systems(servers=6, part=request.param)]
    return [Solved(*each, solve_greedy(*each[1:]).assignment) for each in tables]


def improvements(
    candidates: Candidates, capacity: IntArray, plan: Assignment
) -> Iterator[tuple[int, ...]]:
    """All other rows of one or two servers that have all they need, if they fit at less value."""
    cases = [case for case in plan.served(candidates).tolist() if case not in plan.mixes]
    rows = [
        row
        for row in np.flatnonzero(candidates.usable).tolist()
        if candidates.pairs.case[row] in cases
    ]
    for chosen in (*((row,) for row in rows), *combinations(rows, 2)):
        where = candidates.pairs.case[[*chosen]]
        other = plan.rows.copy()
        other[where] = chosen
        replicas = plan.replicas.copy()
        replicas[where] = candidates.replicas[[*chosen]]
        found = replace(plan, rows=other, replicas=replicas)
        lower = found.objective(candidates) < plan.objective(candidates) - 1e-6
        fits = (found.used(candidates) <= capacity).all()
        if lower and fits and len({*where.tolist()}) == len(chosen):
            yield chosen


def test_no_other_rows_of_two_servers_fit_and_have_a_lower_value(solved: list[Solved]) -> None:
    for one in solved:
        assert (one.plan.used(one.candidates) <= one.capacity).all()
        assert not [*improvements(one.candidates, one.capacity, one.plan)], one.system


def test_no_priority_is_served_less_than_without_exchanges(solved: list[Solved]) -> None:
    more = 0
    for one in solved:
        candidates, after, system = one.candidates, one.plan, one.system
        begun = beginnings(candidates, one.capacity)
        then = loads_served_entirely(candidates, after)
        more += all(loads_served_entirely(candidates, before) != then for before in begun)

        assert any(is_no_worse(candidates, after, before) for before in begun), system

    assert more > 0


def is_no_worse(candidates: Candidates, after: Assignment, before: Assignment) -> bool:
    """Whether who was served entirely still is, and if there are no others, at no higher value."""
    then, once = ({*plan.served(candidates).tolist()} for plan in (after, before))
    lower = after.objective(candidates) <= before.objective(candidates) + 1e-6
    return once < then or (once == then and lower)


@in_parts
def test_no_plan_costs_more_with_its_moves_than_if_all_stayed_where_they_can(part: int) -> None:
    random = Random(11)  # noqa: S311 - a repeatable choice, not a secret
    moved = 0
    for system in [running_system(random) for _ in range(SYSTEMS)][part::PARTS]:
        candidates, capacity = table(system)
        staying = rows_that_run(candidates)

        plan = solve_greedy(candidates, capacity).assignment

        assert len(plan.served(candidates)) == len(candidates.cases), system
        assert (plan.used(candidates) <= capacity).all()
        assert plan.objective(candidates) <= candidates.value[staying].sum() + 1e-6, system
        moved += bool((plan.rows != staying).any())
    assert moved > SYSTEMS / PARTS / 10


def running_system(random: Random) -> System:
    """Servers that run, with the cards that each needs where it runs, and up to two more."""
    needs = [{t: random.randint(1, 6) for t in "XYZ"} for _ in range(random.randint(4, 7))]
    demands, cards = [], dict.fromkeys("XYZ", 0)
    units = accelerators(X=10, Y=13, Z=17)
    price = {unit.name: unit.cost for unit in units}
    for place, need in enumerate(needs):
        card = random.choice("XYZ")
        count = random.randint(1, need[card])
        current = Allocation(card, replicas=count, cost=count * price[card])
        demands.append(Demand(f"s{place}", need, random.randint(1, 2), current=current))
        cards[card] += need[card]
    capacity = {t: count + random.randint(0, 2) for t, count in cards.items()}
    return system_of(demands, units, capacity, HOLD)
