"""Several accelerators for one server, against every possible mix of small systems."""

import math
import random
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product

import pytest

from inferno_optimizer.codec import decode_solution, decode_system, encode_solution, encode_system
from inferno_optimizer.comparison import compare
from inferno_optimizer.explain import explain
from inferno_optimizer.optimize import optimize
from inferno_optimizer.remedies import remedies
from inferno_optimizer.system import (
    Accelerator,
    Allocation,
    Load,
    Options,
    Reason,
    SaturationPolicy,
    Solution,
    Status,
    System,
)
from tests.generate import fleet
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


@pytest.mark.parametrize("seed", range(120))
def test_the_plan_is_the_best_of_all_plans(seed: int) -> None:
    numbers = random.Random(seed)  # noqa: S311 - a repeatable choice, not a secret
    demands, capacity = random_demands(numbers), tight_capacity(numbers)

    solution = optimize(system_of(demands, UNITS, capacity, MIXED))

    best = best_worth(demands, UNITS, capacity)
    certificate = solution.certificate
    assert worth_of(demands, solution) == pytest.approx(best, rel=1e-6, abs=1e-6)
    assert certificate.status is Status.OPTIMAL
    assert certificate.bound == pytest.approx(certificate.objective, rel=1e-4, abs=1e-3)
    assert [level.bound for level in certificate.levels] == pytest.approx(best[:-1])
    assert all(use.used <= use.available for use in solution.capacity)


@pytest.mark.parametrize("seed", range(60))
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
    assert {use.type: use.used for use in solution.capacity} == {t: used[t] for t in ("w", "x", "z")}


@pytest.mark.parametrize("seed", range(30))
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
