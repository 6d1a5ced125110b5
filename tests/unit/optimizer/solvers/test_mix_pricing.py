"""The cheapest mixes of a case at prices of the cards, against all of its mixes."""

from collections.abc import Iterator
from dataclasses import replace
from itertools import product
from random import Random
from typing import Any

import numpy as np
import pytest

from inferno_optimizer.sizing.candidates import Candidates
from inferno_optimizer.sizing.cases import Case, Catalogue
from inferno_optimizer.sizing.queueing import IntArray
from inferno_optimizer.sizing.table import build_candidates
from inferno_optimizer.solvers import exact
from inferno_optimizer.solvers.budget import UNLIMITED, Budget
from inferno_optimizer.solvers.goals import Goal, GoalKind
from inferno_optimizer.solvers.mixes import MixColumns, MixTable, cheapest_mixes
from inferno_optimizer.solvers.neighbourhoods import Found, Opening, solve_opening
from inferno_optimizer.solvers.params import DEFAULTS, SolveParams
from inferno_optimizer.solvers.problem import Columns, ReplicaProblem
from inferno_optimizer.solvers.relaxation import Vertex
from inferno_optimizer.solvers.running import Running
from inferno_optimizer.system import Accelerator, Allocation, Options, SaturationPolicy, System
from inferno_optimizer.wire.codec import decode_system
from tests.generate import fleet
from tests.tiers import sampled
from tests.unit.optimizer.solvers.test_mixes import UNITS
from tests.unit.optimizer.systems import Demand, system_of

CASES, TYPES = 3, 3
CARDS = {"w": (2, 8), "x": (2, 10), "z": (0, 4)}
LIMIT = np.full(CASES, 1e6)


def price_nothing(
    columns: MixColumns, problem: ReplicaProblem, _goal: Goal, vertex: Vertex
) -> tuple[Columns, float]:
    """No column, and no bound but that of what is served."""
    items = columns.items(np.ones(len(problem.cases), dtype=np.bool_))
    none = columns.columns_of(items, np.zeros_like(items.most), len(problem.capacity))
    return none, vertex.bound + 1e6


def table_of(system: System) -> tuple[Candidates, IntArray]:
    """The candidate table of a system, and the cards of each of its types."""
    catalogue = Catalogue(system)
    cases = [case for case in map(catalogue.case, system.servers) if isinstance(case, Case)]
    candidates = build_candidates(catalogue, cases)
    return candidates, np.array([system.capacity.get(name, 0) for name in candidates.types])


def random_table(random: np.random.Generator) -> MixTable:
    """Cases with up to four items; some run something now, some have floors."""
    shape = (CASES, 4)
    alone = random.integers(1, 5, shape)
    stop = np.where(random.random(shape) < 0.3, random.integers(0, 40, shape), 0)
    return MixTable(
        case=np.arange(CASES),
        rows=np.arange(CASES * 4).reshape(shape),
        share=1 / (alone - random.random(shape) * 0.9),
        most=np.where(random.random(shape) < 0.8, alone, random.integers(0, 3, shape)),
        type=random.integers(0, TYPES, shape),
        cards=random.integers(1, 3, shape),
        unit=2.5 * random.integers(0, 30, shape).astype(np.float64),
        stop=stop.astype(np.float64),
        base=stop.sum(axis=1) - random.integers(0, 100, CASES).astype(np.float64),
        now=np.zeros(CASES),
        need=np.full(CASES, 1.0 - 1e-9),
        floor=random.choice([1, 1, 3], CASES),
    )


def mixes_of(table: MixTable, case: int, capacity: IntArray) -> Iterator[tuple[IntArray, float]]:
    """Every mix of several items that serves a case within the capacity, and its value."""
    only = table.take(np.array([case]))
    for numbers in product(*(range(most + 1) for most in table.most[case].tolist())):
        counts = np.array([numbers])
        fits = np.all(only.used(counts, TYPES) <= capacity)
        if np.count_nonzero(counts) > 1 and only.are_enough(counts)[0] and fits:
            yield counts[0], float(only.value(counts)[0])


@pytest.mark.parametrize("width", [1000, 1])
@pytest.mark.parametrize("seed", sampled(range(30)))
def test_no_mix_costs_less_than_what_is_told_and_all_are_looked_at_in_a_wide_search(
    seed: int, width: int
) -> None:
    random = np.random.default_rng(seed)
    table, capacity = random_table(random), random.integers(1, 8, TYPES)

    found, missed = cheapest_mixes(table, capacity, LIMIT, width, alike=False)

    for case in range(CASES):
        only = table.take(np.array([case]))
        every = [
            value
            for counts, value in mixes_of(table, case, capacity)
            if np.array_equal(only.trim(counts[None])[0], counts)
        ]
        told = min(found.value[found.place == case], default=np.inf)
        assert min(told, missed[case]) <= min(every, default=np.inf) + 1e-9
        if width > 1 and every:
            assert told >= min(every) - 1e-9
    assert np.all(table.take(found.place).are_enough(found.counts))
    assert np.all(table.take(found.place).used(found.counts, TYPES) <= capacity)


@pytest.mark.parametrize("seed", sampled(range(30)))
def test_every_mix_below_the_limit_without_needless_replicas_is_found(seed: int) -> None:
    random = np.random.default_rng(seed)
    table, capacity = random_table(random), random.integers(1, 8, TYPES)
    least = [min((v for _, v in mixes_of(table, c, capacity)), default=0.0) for c in range(CASES)]
    limit = np.array(least) + 25.1

    found, missed = cheapest_mixes(table, capacity, limit, 1000, alike=True)

    told = set(zip(found.place.tolist(), map(tuple, found.counts.tolist()), strict=True))
    assert np.all(missed >= limit - 1e-9)
    assert table.take(found.place).value(found.counts) == pytest.approx(found.value)
    for case in range(CASES):
        only = table.take(np.array([case]))
        for counts, value in mixes_of(table, case, capacity):
            needed = np.array_equal(only.trim(counts[None])[0], counts)
            if value < limit[case] - 1e-9 and needed:
                assert (case, tuple(counts.tolist())) in told


@pytest.mark.parametrize(("width", "most"), [(1, UNLIMITED), (1000, 50)])
def test_the_listing_of_all_mixes_ends_where_some_would_be_missed(width: int, most: int) -> None:
    table, sizes = random_table(np.random.default_rng(1)), list[int]()

    def may_go_on(parts: int) -> bool:
        sizes.append(parts)
        return parts <= most

    found, missed = cheapest_mixes(
        table, np.full(TYPES, 8), LIMIT, width, alike=True, may_go_on=may_go_on
    )

    assert len(sizes) < table.rows.shape[1]
    assert len(found.place) == 0
    assert np.all(missed < LIMIT)


def test_a_listing_of_large_servers_does_no_more_than_its_work() -> None:
    units = [Accelerator(f"A{place}", f"t{place}", 20 + 3 * place) for place in range(6)]
    demands = [
        Demand(f"s{place}", {unit.name: 300 + place for unit in units}) for place in range(10)
    ]
    capacity = {unit.type: 500 for unit in units}
    system = system_of(demands, units, capacity, Options(milp=True, heterogeneous=True))
    candidates, cards = table_of(system)
    table = MixTable.of(candidates, cards, changes=True)
    problem = ReplicaProblem.of(candidates, cards, Running.of(candidates), others=table.case)
    columns = MixColumns(table, problem)

    plenty, little = Budget.of(100.0), Budget.of(0.001)

    assert columns.list_all(problem, DEFAULTS.small, plenty) is None
    assert plenty.left > 99.5
    assert columns.list_all(problem, DEFAULTS.small, little) is None
    assert columns.list_all(problem, DEFAULTS.small, Budget.of(0.0)) is None


@pytest.mark.parametrize("seed", [14, 20])
def test_prices_of_a_load_prove_nothing_of_the_value(seed: int) -> None:
    numbers, policy = Random(seed), SaturationPolicy.HOLD  # noqa: S311 - a repeatable choice
    demands = []
    for place in range(6):
        units = numbers.sample(UNITS, numbers.randint(2, 4))
        first, needs = units[0], {unit.name: numbers.randint(1, 6) for unit in units}
        priority, load = numbers.randint(1, 2), numbers.randint(1, 900)
        floor, runs = numbers.choice([0, 0, 2]), Allocation(first.name, 2, cost=first.cost * 2)
        current = numbers.choice([Allocation(), runs])
        demands.append(Demand(f"s{place}", needs, priority, load, current, min_replicas=floor))
    capacity = {name: numbers.randint(*most) for name, most in CARDS.items()}
    options = Options(milp=True, heterogeneous=True, saturation_policy=policy)
    candidates, cards = table_of(system_of(demands, UNITS, capacity, options))
    table = MixTable.of(candidates, cards, changes=False)
    params = SolveParams(mix_few_items=0, small=0)
    problem = ReplicaProblem.of(candidates, cards, Running.of(candidates), params, table.case)
    for work in np.arange(0.001, 0.004, 0.00025):
        budget = Budget.of(float(work), params=params)

        found = exact.solve_goals(problem, budget, None, delayed=False, mixes=table)

        assert found.failures == ()


@pytest.mark.parametrize(("seconds", "has_large"), [(0.03, False), (1e3, True)])
def test_no_large_program_begins_shortly_before_the_end(
    monkeypatch: pytest.MonkeyPatch, seconds: float, *, has_large: bool
) -> None:
    options = Options(milp=True, heterogeneous=True)
    system = replace(decode_system(fleet(40, 10, 1, demand=2.0)), options=options)
    candidates, cards = table_of(system)
    table = MixTable.of(candidates, cards, changes=True)
    problem = ReplicaProblem.whole(candidates, cards, others=table.case)
    sizes, solve = [0], solve_opening

    def record(*args: Any) -> Found:  # noqa: ANN401 - as they are given
        opening: Opening = args[3]
        if opening.items is not None:
            size = np.count_nonzero(opening.items.most) + np.count_nonzero(opening.columns)
            sizes.append(int(size))
        return solve(*args)

    monkeypatch.setattr(exact, "solve_opening", record)

    exact.solve_goals(problem, Budget.of(0.2, lambda: seconds), None, delayed=False, mixes=table)

    assert (max(sizes) > 300) is has_large


def test_a_program_of_a_load_begins_in_the_time_that_the_whole_search_has(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    options = Options(milp=True, heterogeneous=True)
    system = replace(decode_system(fleet(12, 6, 1, demand=2.0)), options=options)
    candidates, cards = table_of(system)
    table, solve = MixTable.of(candidates, cards, changes=True), solve_opening

    def largest_of_a_load(mix_seconds: float) -> int:
        """Size of the largest program of a load, in 100 s of which a part has some."""
        sizes = [0]

        def record(*args: Any) -> Found:  # noqa: ANN401 - as they are given
            opening: Opening = args[3]
            if opening.items is not None and args[1].kind is GoalKind.SERVED:
                size = np.count_nonzero(opening.items.most) + np.count_nonzero(opening.columns)
                sizes.append(int(size))
            return solve(*args)

        monkeypatch.setattr(exact, "solve_opening", record)
        params = SolveParams(mix_few_items=0, small=0, mix_seconds=mix_seconds)
        problem = ReplicaProblem.whole(candidates, cards, params, table.case)
        budget = Budget.of(1.0, lambda: 100.0, params)
        exact.solve_goals(problem, budget, None, delayed=False, mixes=table)
        return max(sizes)

    largest = largest_of_a_load(1e-9)

    assert largest_of_a_load(99.0 / largest) == largest > largest_of_a_load(101.0 / largest)


def test_a_program_whose_mix_lacks_a_share_serves_nobody_with_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    demand = Demand("a", {"W": 5, "X": 5})
    options = Options(milp=True, heterogeneous=True)
    candidates, cards = table_of(system_of([demand], UNITS, {"w": 4, "x": 4}, options))
    table, params = MixTable.of(candidates, cards, changes=True), SolveParams(mix_few_items=0)
    problem = ReplicaProblem.whole(candidates, cards, params, table.case)

    def lack(*args: Any) -> Found:  # noqa: ANN401 - as they are given
        opening: Opening = args[3]
        items = opening.items
        mixes = None if items is None else np.where(items.most > 0, 1, 0)
        return Found(np.zeros_like(opening.counts), np.inf, mixes)

    monkeypatch.setattr(exact, "solve_opening", lack)
    monkeypatch.setattr(MixColumns, "price", price_nothing)

    found = exact.solve_goals(
        problem, Budget.of(1.0, params=params), None, delayed=False, mixes=table
    )

    assert found.mixes == ()
