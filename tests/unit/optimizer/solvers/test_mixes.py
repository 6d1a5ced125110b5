"""Several accelerators for one server, against every possible mix of small systems."""

import math
import random
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product

import pytest

from inferno_optimizer.explain.comparison import compare
from inferno_optimizer.explain.options import explain
from inferno_optimizer.explain.remedies import remedies
from inferno_optimizer.optimize import optimize
from inferno_optimizer.solution import Reason, Solution, SolverStatus
from inferno_optimizer.system import (
    Accelerator,
    Allocation,
    Load,
    Options,
    SaturationPolicy,
    System,
)
from inferno_optimizer.wire.codec import (
    decode_solution,
    decode_system,
    encode_solution,
    encode_system,
)
from tests.generate import fleet
from tests.tiers import sampled
from tests.unit.optimizer.systems import Demand, accelerators, outcome, system_of

MIXED = Options(milp=True, heterogeneous=True)
SINGLE = Options(milp=True)
UNITS = (
    Accelerator("W", "w", 11.5),
    Accelerator("X", "x", 23),
    Accelerator("2xX", "x", 44, 2),
    Accelerator("Z", "z", 60.25),
)

Counts = Mapping[str, int]
Worth = tuple[float, ...]


@dataclass(frozen=True)
class Choice:
    """What one server may get: what it adds to the plan, and the cards of each type."""

    worth: Worth
    cards: Mapping[str, int]


def alone(demand: Demand, accelerator: str) -> int:
    """Replicas that it takes of one accelerator."""
    return max(demand.needs[accelerator], demand.min_replicas)


def covers(demand: Demand, counts: Counts) -> bool:
    carried = math.fsum(n / demand.needs[name] for name, n in counts.items())
    return carried >= 1 - 1e-9 and sum(counts.values()) >= demand.min_replicas


def mixes(demand: Demand) -> Iterator[Counts]:
    """Every mix that serves it; without needless replicas, but for one of what runs now."""
    numbers = [range(alone(demand, name) + 1) for name in demand.needs]
    for chosen in product(*numbers):
        counts = dict(zip(demand.needs, chosen, strict=True))
        if covers(demand, counts) and not any(spare(demand, counts)):
            yield counts


def spare(demand: Demand, counts: Counts) -> Iterator[bool]:
    """Whether each of the accelerators has a replica that can be done without."""
    for name, number in counts.items():
        last = number == 1 and name == demand.current.accelerator
        yield number > 0 and not last and covers(demand, {**counts, name: number - 1})


def value(demand: Demand, counts: Counts, units: Mapping[str, Accelerator]) -> float:
    """Cost more than now, and a tenth of what is started and of what is stopped."""
    per_replica = demand.accelerators_per_replica
    costs = {name: units[name].cost * per_replica * n for name, n in counts.items() if n}
    current = demand.current
    if [*costs] == [current.accelerator] and counts[current.accelerator] == current.replicas:
        return 0.0
    started = sum(cost for name, cost in costs.items() if name != current.accelerator)
    stopped = 0.0 if current.accelerator in costs else current.cost
    return sum(costs.values()) - current.cost + 0.1 * (started + stopped)


def choices(
    demand: Demand, units: Mapping[str, Accelerator], priorities: Sequence[int]
) -> Iterator[Choice]:
    yield Choice((0.0,) * (len(priorities) + 1), {})
    served = [demand.load if p == demand.priority else 0.0 for p in priorities]
    for counts in mixes(demand):
        cards: Counter[str] = Counter()
        for name, number in counts.items():
            per_replica = demand.accelerators_per_replica * units[name].multiplicity
            cards[units[name].type] += number * per_replica
        yield Choice((*served, -value(demand, counts, units)), cards)


def best_worth(
    demands: Sequence[Demand], units: Sequence[Accelerator], capacity: Mapping[str, int]
) -> Worth:
    """Try all plans: the best load of each priority, and then the largest negative value.

    Of plans that take the same cards only the best goes on: what is added later is the same.
    """
    by_name, types = {unit.name: unit for unit in units}, sorted(capacity)
    priorities = sorted({demand.priority for demand in demands})
    best: dict[tuple[int, ...], Worth] = {(0,) * len(types): (0.0,) * (len(priorities) + 1)}
    for demand in demands:
        found: dict[tuple[int, ...], Worth] = {}
        options = list(choices(demand, by_name, priorities))
        for (used, worth), option in product(best.items(), options):
            cards = tuple(n + option.cards.get(t, 0) for n, t in zip(used, types, strict=True))
            if all(n <= capacity[t] for n, t in zip(cards, types, strict=True)):
                total = tuple(a + b for a, b in zip(worth, option.worth, strict=True))
                found[cards] = max(found.get(cards, total), total)
        best = found
    return max(best.values())


def random_demands(numbers: random.Random) -> list[Demand]:
    """Up to four servers of three priorities; some run somewhere already, some have floors."""
    return [random_demand(numbers, place) for place in range(numbers.randint(1, 4))]


def random_demand(numbers: random.Random, place: int) -> Demand:
    units = numbers.sample(UNITS, numbers.randint(1, 3))
    running = numbers.choice(UNITS)
    replicas = numbers.randint(1, 5)
    cost = running.cost * replicas * numbers.choice([1, 1, 1, 0.3, 2.7])
    return Demand(
        f"s{place}",
        needs={unit.name: numbers.randint(1, 5) for unit in units},
        priority=numbers.randint(1, 3),
        load=numbers.randint(1, 900),
        current=numbers.choice([Allocation(), Allocation(running.name, replicas, cost=cost)]),
        min_replicas=numbers.choice([0, 0, 0, 2, 4]),
        accelerators_per_replica=numbers.choice([1, 1, 2]),
    )


def tight_capacity(numbers: random.Random) -> dict[str, int]:
    return {"w": numbers.randint(0, 5), "x": numbers.randint(0, 9), "z": numbers.randint(0, 3)}


def worth_of(demands: Sequence[Demand], solution: Solution) -> Worth:
    served = dict.fromkeys(sorted({demand.priority for demand in demands}), 0.0)
    for demand in demands:
        served[demand.priority] += demand.load if demand.name in solution.allocations else 0.0
    return (*served.values(), -solution.certificate.objective)


@pytest.mark.parametrize("seed", sampled(range(120)))
def test_the_plan_is_the_best_of_all_plans(seed: int) -> None:
    numbers = random.Random(seed)  # noqa: S311 - a repeatable choice, not a secret
    demands, capacity = random_demands(numbers), tight_capacity(numbers)

    solution = optimize(system_of(demands, UNITS, capacity, MIXED))

    best = best_worth(demands, UNITS, capacity)
    certificate = solution.certificate
    assert worth_of(demands, solution) == pytest.approx(best, rel=1e-6, abs=1e-6)
    assert certificate.status is SolverStatus.OPTIMAL
    assert certificate.bound == pytest.approx(certificate.objective, rel=1e-4, abs=1e-3)
    assert [level.bound for level in certificate.levels] == pytest.approx(best[:-1])
    assert all(use.used <= use.available for use in solution.capacity)


@pytest.mark.parametrize("seed", sampled(range(60)))
def test_values_and_cards_are_those_of_the_allocations(seed: int) -> None:
    numbers = random.Random(seed)  # noqa: S311 - a repeatable choice, not a secret
    demands, capacity = random_demands(numbers), tight_capacity(numbers)
    units = {unit.name: unit for unit in UNITS}

    solution = optimize(system_of(demands, UNITS, capacity, MIXED))

    total, used = 0.0, Counter[str]()
    for demand in demands:
        allocation = solution.allocations.get(demand.name)
        if allocation:
            counts = {part.accelerator: part.replicas for part in allocation.parts}
            total += value(demand, counts, units)
            for name, number in counts.items():
                per_replica = demand.accelerators_per_replica * units[name].multiplicity
                used[units[name].type] += number * per_replica
    assert solution.certificate.objective == pytest.approx(total)
    assert {use.type: use.used for use in solution.capacity} == {
        t: used[t] for t in ("w", "x", "z")
    }


@pytest.mark.parametrize("seed", sampled(range(30)))
def test_with_one_accelerator_for_each_server_nothing_is_different(seed: int) -> None:
    numbers = random.Random(seed)  # noqa: S311 - a repeatable choice, not a secret
    demands = [
        replace(demand, needs=dict([next(iter(demand.needs.items()))]))
        for demand in random_demands(numbers)
    ]
    capacity = tight_capacity(numbers)

    mixed = optimize(system_of(demands, UNITS, capacity, MIXED))
    single = optimize(system_of(demands, UNITS, capacity, SINGLE))

    assert mixed.certificate.objective == pytest.approx(single.certificate.objective)
    assert worth_of(demands, mixed) == pytest.approx(worth_of(demands, single))


def test_a_mix_that_is_cheaper_is_taken() -> None:
    # 4 of X or 2 of Y; 1 of Y (60) carries half, 2 of X (40) the rest: 100 of cost, 110 of value.
    # 4 of X are 80, but there are only 3; 2 of Y are 120, of value 132.
    demand = Demand("a", {"X": 4, "Y": 2})
    units = accelerators(X=20, Y=60)

    solution = optimize(system_of([demand], units, {"X": 3, "Y": 2}, MIXED))

    allocation = solution.allocations["a"]
    assert {p.accelerator: p.replicas for p in allocation.mix} == {"X": 2, "Y": 1}
    assert (allocation.replicas, allocation.cost) == (3, 100)
    assert solution.certificate.objective == pytest.approx(110)
    single = optimize(system_of([demand], units, {"X": 3, "Y": 2}, SINGLE))
    assert single.certificate.objective == pytest.approx(132)


def test_load_is_split_by_what_each_accelerator_carries() -> None:
    demand = Demand("a", {"X": 4, "Y": 2}, load=60)

    allocation = optimize(half_on_each(demand)).allocations["a"]

    assert [part.accelerator for part in allocation.mix] == ["X", "Y"]
    assert [part.load.arrival_rate for part in allocation.mix] == pytest.approx([30, 30])
    assert allocation.load == Load(60, 1)
    assert allocation.accelerator == "X"
    weighted = sum(part.wait_ms * part.load.arrival_rate / 60 for part in allocation.mix)
    assert allocation.wait_ms == pytest.approx(weighted)
    assert allocation.wait_ms > 0


def half_on_each(demand: Demand) -> System:
    """Only as many cards as two of X and one of Y take."""
    return system_of([demand], accelerators(X=20, Y=60), {"X": 2, "Y": 1}, MIXED)


def test_a_part_is_as_fast_as_its_accelerator_alone_under_that_load() -> None:
    part = optimize(half_on_each(Demand("a", {"X": 4, "Y": 2}))).allocations["a"].mix[1]

    whole = optimize(half_on_each(Demand("a", {"Y": 1}, load=30, accelerators_per_replica=1)))
    assert part.accelerator == "Y"
    assert part.wait_ms == pytest.approx(whole.allocations["a"].wait_ms)
    assert part.itl_ms == pytest.approx(whole.allocations["a"].itl_ms)


def test_what_runs_now_on_several_accelerators_is_kept_without_a_penalty() -> None:
    system = half_on_each(Demand("a", {"X": 4, "Y": 2}))
    first = optimize(system).allocations["a"]
    server = replace(system.servers[0], current=first)

    again = optimize(replace(system, servers=(server,)))

    assert again.allocations["a"].mix == first.mix
    assert again.certificate.objective == pytest.approx(0)


def test_one_of_several_accelerators_in_use_costs_to_stop() -> None:
    parts = (Allocation("X", 2, cost=40), Allocation("Y", 1, cost=60))
    current = Allocation("X", 3, cost=100, mix=parts)
    system = half_on_each(Demand("a", {"X": 2}, current=current))
    server = replace(system.servers[0], current=replace(current, load=Load(60, 1)))

    for options in (SINGLE, MIXED):
        plan = optimize(replace(system, servers=(server,), options=options))

        assert plan.certificate.objective == pytest.approx(40 - 100 + 0.1 * 60)


def test_idle_servers_are_allocated_with_and_without_a_floor() -> None:
    demands = [Demand("floor", {"X": 1, "Y": 1}, min_replicas=3), Demand("none", {"X": 1})]
    system = system_of(demands, accelerators(X=10, Y=30), {"X": 2, "Y": 5}, MIXED)
    idle = tuple(replace(s, current=Allocation(load=Load(0, 1))) for s in system.servers)

    solution = optimize(replace(system, servers=idle))

    floor = solution.allocations["floor"]
    assert {part.accelerator: part.replicas for part in floor.mix} == {"X": 2, "Y": 1}
    assert solution.allocations["none"].replicas == 0
    assert solution.certificate.objective == pytest.approx(1.1 * (2 * 10 + 30))
    assert solution.certificate.gap == pytest.approx(0, abs=1e-6)


@pytest.mark.parametrize(
    ("policy", "reason"),
    [
        (SaturationPolicy.NONE, Reason.NO_CAPACITY),
        (SaturationPolicy.PRIORITY_EXHAUSTIVE, Reason.BEST_EFFORT),
    ],
)
def test_what_is_left_is_shared_out_as_the_policy_says(
    policy: SaturationPolicy, reason: Reason
) -> None:
    demands = [Demand("a", {"X": 4, "Y": 2}, load=900), Demand("b", {"X": 5, "Y": 3})]
    options = replace(MIXED, saturation_policy=policy)

    solution = optimize(system_of(demands, accelerators(X=20, Y=60), {"X": 4, "Y": 1}, options))

    assert solution.decisions[1].reason is reason
    assert all(use.used <= use.available for use in solution.capacity)


def test_the_answer_is_read_back_as_it_was_written() -> None:
    system = half_on_each(Demand("a", {"X": 4, "Y": 2}))
    solution = optimize(system)

    read = decode_solution(encode_solution(solution), system)

    # The wire tells the wait of this generation, and not the time to first token.
    parts = [replace(part, ttft_ms=0.0) for part in solution.allocations["a"].mix]
    assert read.allocations["a"].mix == tuple(parts)
    assert read.decisions[0].message == "2 x X + 1 x Y"


def test_what_runs_now_on_several_accelerators_is_read_back_as_it_was_written() -> None:
    parts = (Allocation("X", 2, cost=40), Allocation("Y", 1, cost=60))
    system = half_on_each(Demand("a", {"X": 4}, current=Allocation("X", 3, cost=100, mix=parts)))

    assert decode_system(encode_system(system)).servers == system.servers


def test_clients_that_know_no_mix_are_told_what_fits() -> None:
    demand = Demand("a", {"X": 2, "Y": 4})
    system = system_of([demand], accelerators(X=20, Y=10), {"X": 1, "Y": 2}, MIXED)
    solution = optimize(system)
    mixed = solution.allocations["a"]

    answer = encode_solution(solution)["allocations"]["a"]

    # Half the load on each: one replica on X, two on Y.
    assert {part["accelerator"]: part["numReplicas"] for part in answer["mix"]} == {"X": 1, "Y": 2}
    assert (answer["accelerator"], answer["numReplicas"]) == ("Y", 2)
    assert answer["cost"] == mixed.cost == sum(part["cost"] for part in answer["mix"])
    assert decode_solution(encode_solution(solution), system).allocations["a"].replicas == 3


def test_plans_that_mix_differently_are_told_apart() -> None:
    system = half_on_each(Demand("a", {"X": 4, "Y": 2}))
    solution = optimize(system)
    other = replace(solution.allocations["a"], mix=())
    decision = replace(solution.decisions[0], allocation=other)

    assert not compare(solution, optimize(system)).differences
    assert compare(solution, replace(solution, decisions=(decision,))).differences


def test_options_and_remedies_are_told_for_plans_that_mix() -> None:
    demands = [Demand("a", {"X": 4, "Y": 2}, load=900), Demand("b", {"X": 5})]
    system = system_of(demands, accelerators(X=20, Y=60), {"X": 4, "Y": 1}, MIXED)

    found = remedies(system, optimize(system), "b")

    assert [option.accelerator for option in explain(system, "a")] == ["X", "Y"]
    assert found[0].change == "capacity.X+=3"


def fleet_system(servers: int, accelerator_count: int, seed: int, time_limit: float) -> System:
    system = decode_system(fleet(servers, accelerator_count, seed, demand=2.0))
    return replace(system, options=replace(MIXED, time_limit=time_limit))


@pytest.mark.parametrize("seed", sampled(range(3)))
def test_the_order_of_servers_makes_no_difference(seed: int) -> None:
    system = fleet_system(8, 5, seed, time_limit=60.0)
    numbers = random.Random(seed)  # noqa: S311 - a repeatable choice, not a secret
    shuffled = replace(system, servers=tuple(numbers.sample(system.servers, 8)))

    first, second = encode_solution(optimize(system)), encode_solution(optimize(shuffled))

    assert first["allocations"] == second["allocations"]
    assert list(first["allocations"]) == list(second["allocations"])
    assert first["unserved"].keys() == second["unserved"].keys()


def test_without_any_time_there_is_a_plan_no_worse_than_greedy() -> None:
    system = fleet_system(60, 20, 1, time_limit=0.0)
    greedy = optimize(replace(system, options=Options()))

    solution = optimize(system)

    assert solution.certificate.status is SolverStatus.TIME_LIMIT
    assert served_by_class(system, solution) >= served_by_class(system, greedy)
    assert all(use.used <= use.available for use in solution.capacity)


def served_by_class(system: System, solution: Solution) -> Worth:
    priority = {c.name: c.priority for c in system.classes}
    served = dict.fromkeys(sorted(priority.values()), 0.0)
    for server in system.servers:
        if server.name in solution.allocations:
            served[priority[server.service_class]] += server.load.arrival_rate
    return tuple(served.values())


@pytest.mark.extended
@pytest.mark.parametrize("seed", sampled(range(3)))
def test_parts_that_are_solved_again_keep_the_cards_and_serve_no_less(seed: int) -> None:
    system = fleet_system(16, 20, seed, time_limit=3.0)  # more items than are solved exactly
    single = optimize(replace(system, options=replace(SINGLE, time_limit=3.0)))

    solution = optimize(system)

    assert served_by_class(system, solution) >= served_by_class(system, single)
    assert all(use.used <= use.available for use in solution.capacity)
    certificate = solution.certificate
    assert certificate.bound is not None
    assert certificate.bound <= certificate.objective


def test_a_fleet_gets_a_plan_that_is_proven_to_be_within_the_gap_of_the_best() -> None:
    # The search ends there; how fast the machine is decides only when.
    solution = optimize(fleet_system(30, 20, 2, time_limit=300.0))

    certificate = solution.certificate
    assert [level.served for level in certificate.levels] == pytest.approx(
        [level.bound for level in certificate.levels]
    )
    assert certificate.gap is not None
    assert certificate.gap <= 5e-4


@pytest.mark.extended
def test_a_fleet_is_planned_within_the_time_limit_and_what_is_proven() -> None:
    system = fleet_system(100, 20, 1, time_limit=3.0)  # of what would take minutes

    solution = optimize(system, time.process_time)  # that of other processes does not count

    certificate = solution.certificate
    assert certificate.seconds < 3.0 + 3.0
    assert certificate.bound is not None
    assert certificate.bound <= certificate.objective
    assert all(use.used <= use.available for use in solution.capacity)


@pytest.mark.extended
def test_a_fleet_that_takes_longer_than_the_time_limit_is_close_to_what_is_proven() -> None:
    # HiGHS goes by the time of day: where other processes run, it takes more of that.
    systems = (fleet_system(60, 20, 1, time_limit=s) for s in (4.0, 30.0, 120.0))

    gaps = (optimize(system, time.process_time).certificate.gap for system in systems)

    assert any(gap is not None and gap < 0.02 for gap in gaps)


def test_a_mix_serves_where_no_single_accelerator_can() -> None:
    demand = Demand("a", {"X": 4, "Y": 2})
    system = half_on_each(demand)

    assert outcome(replace(system, options=SINGLE)) == {"a": ("", 0)}
    assert outcome(system) == {"a": ("X", 3)}
