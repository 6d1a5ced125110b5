"""Relaxation, dive and exchanges: the steps by which large programs are solved."""

import itertools
from collections.abc import Callable
from dataclasses import replace
from functools import cache

import numpy as np
import pytest

from inferno_optimizer.solvers.assignment import Timer
from inferno_optimizer.solvers.exact.branch_and_bound import SearchLimits
from inferno_optimizer.solvers.exact.columns import BinaryColumns
from inferno_optimizer.solvers.exact.diving import DiveExtent, dive
from inferno_optimizer.solvers.exact.large_neighbourhood import Task, improve
from inferno_optimizer.solvers.exact.lexicographic import solve_by_levels
from inferno_optimizer.solvers.exact.local_search import (
    Guide,
    descend,
    exchange,
    round_off,
)
from inferno_optimizer.solvers.exact.neighbourhood import (
    Centre,
    leave_everything_open,
    leave_exchanges_open,
)
from inferno_optimizer.solvers.exact.packing import (
    change_little,
    completed,
    fill,
    insert,
    pack,
    stand,
)
from inferno_optimizer.solvers.exact.prices import RowPrices, price
from inferno_optimizer.solvers.exact.program import Program
from inferno_optimizer.solvers.exact.relaxation import NOTHING, RowRelaxation
from inferno_optimizer.solvers.exact.settings import DEFAULTS, ExactSettings, ProgramSizes
from inferno_optimizer.solvers.incumbent import Incumbent
from inferno_optimizer.solvers.levels import Floors
from tests.tiers import extended, sampled
from tests.unit.optimizer.programs import fleet_program, loads, random_program, relaxed

NO_FLOORS = np.zeros(0)
LARGEST, SMALL = DEFAULTS.diving.together_rows, DEFAULTS.diving.small
CASES = DEFAULTS.packing.cases_per_look


def worth(program: Program) -> np.ndarray:
    """An objective that serves as much as is good."""
    return program.value - 2.0 * program.weight


def search(
    program: Program,
    prices: RowPrices,
    known: np.ndarray,
    seconds_left: Callable[[], float],
    guide: Guide = Guide.BRANCHES,
) -> np.ndarray:
    """Dive, then exchange around where that ends; without floors."""
    floors = Floors(NO_FLOORS, 0)
    centre = descend(program, prices, floors, known, guide, seconds_left)
    found = exchange(program, prices, floors, centre, seconds_left)
    if found is None:
        return round_off(program, prices, centre, lambda: 60.0)
    return found


@pytest.mark.parametrize("seed", range(10))
def test_the_relaxation_is_that_of_another_program(seed: int) -> None:
    program = random_program(seed, cases=60)
    objective = worth(program)

    vertex = RowRelaxation(program, objective, NO_FLOORS, NO_FLOORS, whole=0).solve()

    assert vertex is not None
    assert vertex.objective == pytest.approx(relaxed(program, objective.tolist()))


def test_a_decision_holds_in_the_relaxation() -> None:
    program = random_program(1, cases=60)
    relaxation = RowRelaxation(program, worth(program), NO_FLOORS, NO_FLOORS, whole=0)
    row = int(program.starts[7])

    relaxation.decide(7, row)
    with_row = relaxation.solve()
    relaxation.decide(7, NOTHING)
    without = relaxation.solve()

    assert with_row is not None
    assert without is not None
    assert with_row.amounts[row] == 1
    assert without.amounts[program.place == 7].sum() == 0


def test_load_below_a_floor_is_paid_for() -> None:
    program = random_program(2, cases=60, levels=1)
    all_load = float(program.weight[program.starts].sum())
    floors, price_of_load = np.array([all_load]), np.array([1000.0])

    vertex = RowRelaxation(program, program.value, floors, price_of_load, whole=0).solve()

    assert vertex is not None
    missed = all_load - vertex.amounts @ program.weight
    assert missed > 0
    assert vertex.objective == pytest.approx(vertex.amounts @ program.value + 1000 * missed)


@pytest.mark.parametrize("seed", range(5))
def test_branching_makes_some_rows_whole_at_the_least_objective(seed: int) -> None:
    program = random_program(seed, cases=60)
    objective = worth(program)
    rows = np.flatnonzero(program.place < 20)
    relaxation = RowRelaxation(program, objective, NO_FLOORS, NO_FLOORS, whole=0)
    before = relaxation.solve()

    amounts = relaxation.branch(rows, SearchLimits(60.0, 0.0))

    assert amounts is not None
    np.testing.assert_allclose(amounts[rows], np.round(amounts[rows]), atol=1e-6)
    best = relaxed(program, objective.tolist(), whole=rows.tolist())
    assert objective @ amounts == pytest.approx(best)
    after = relaxation.solve()
    assert before is not None
    assert after is not None
    assert after.objective == pytest.approx(before.objective)


@pytest.mark.parametrize("together", [0, LARGEST])
def test_a_dive_leaves_no_large_case_undecided(together: int) -> None:
    program = fleet_program(300, demand=1.0)
    objective = worth(program)
    prices = price(program, objective, NO_FLOORS, 0)
    sizes = prices.sizes(program)

    found = dive(
        program,
        RowRelaxation(program, objective, NO_FLOORS, NO_FLOORS, whole=0),
        DiveExtent(sizes, SMALL * float(np.median(sizes)), together),
        0,
        lambda: 60.0,
    )

    assert found is not None
    assert np.all(sizes[found.split] <= SMALL * np.median(sizes))
    assert np.all(program.used(found.chosen) <= program.capacity + 1e-6)
    assert np.bincount(program.place[found.chosen]).max() == 1


def test_exchanges_keep_what_is_fixed_and_leave_room_for_every_kind() -> None:
    program = fleet_program(300, demand=1.0)
    prices = price(program, worth(program), NO_FLOORS, 0)
    chosen = pack(program, prices)
    split = np.zeros(len(program.starts), dtype=np.bool_)
    centre = Centre(chosen, split, prices.excess, prices.loads)

    opening = leave_exchanges_open(program, centre, whole=0)

    assert not np.any(opening.fixed & opening.free)
    assert not np.any(opening.fixed & ~chosen)
    assert set(program.type[opening.free]) == set(program.type)
    opened = np.unique(program.place[opening.free])
    assert not np.any(np.isin(program.place[opening.fixed], opened))


@pytest.mark.parametrize("guide", Guide)
@pytest.mark.parametrize("demand", [1.0, *extended(0.5, 2.0)])
def test_search_comes_close_to_what_prices_prove(demand: float, guide: Guide) -> None:
    program = fleet_program(1000, demand)
    program = program.take(program.undominated())
    prices = price(program, worth(program), NO_FLOORS, 0)

    found = search(program, prices, nothing(program), lambda: 60.0, guide)

    assert np.all(program.used(found) <= program.capacity)
    assert prices.objective[found].sum() <= prices.bound + 1e-3 * abs(prices.bound)


def test_without_time_a_search_keeps_what_is_known() -> None:
    program = fleet_program(300, demand=2.0)
    prices = price(program, worth(program), NO_FLOORS, 0)
    known = pack(program, prices)

    found = search(program, prices, known, lambda: 0.0)

    assert prices.objective[found].sum() <= prices.objective[known].sum()
    assert np.all(program.used(found) <= program.capacity)


@pytest.mark.parametrize("guide", Guide)
def test_a_search_goes_on_where_all_of_the_level_is_certain(guide: Guide) -> None:
    scarce = random_program(5, cases=60, types=2, levels=1)
    scarce = replace(scarce, capacity=np.append(scarce.capacity, 0.0))
    program = beside(scarce, with_room(20, level=1))
    objective = np.where(program.level == 1, -program.weight, 0.0)
    floors = np.array([0.9 * scarce.served(fill(scarce, nothing(scarce)), 1)[0]])
    prices = price(program, objective, floors, 0)
    known = nothing(program)

    centre = descend(program, prices, Floors(floors, 0), known, guide, lambda: 60.0)

    assert np.all(centre.chosen[program.level == 1])
    assert centre.excess.shape == program.case.shape
    assert centre.loads.shape == floors.shape


@pytest.mark.parametrize("guide", Guide)
def test_a_search_goes_on_where_nothing_is_left_to_decide(guide: Guide) -> None:
    program = with_room(20, level=0)
    prices = price(program, -program.weight, NO_FLOORS, 0)

    found = search(program, prices, nothing(program), lambda: 60.0, guide)

    assert np.all(found)


def test_nothing_is_inserted_or_exchanged_after_the_time_is_over() -> None:
    program = fleet_program(300, demand=2.0)
    prices = price(program, -program.weight, NO_FLOORS, 0)
    split = np.zeros(len(program.starts), dtype=np.bool_)
    known = nothing(program)
    centre = Centre(known, split, prices.excess, prices.loads)

    assert np.array_equal(insert(program, known, prices, lambda: 0.0), known)
    assert 0 < np.count_nonzero(insert(program, known, prices, time_for(1))) <= CASES
    assert exchange(program, prices, Floors(NO_FLOORS, 0), centre, lambda: 0.0) is None


@pytest.mark.parametrize("guide", Guide)
@pytest.mark.parametrize("readings", sampled([1, 2, 3, 5, 8, 13]))
def test_a_dive_that_is_cut_short_still_leads_to_a_good_choice(readings: int, guide: Guide) -> None:
    program = fleet_program(300, demand=2.0)
    load = -program.weight
    prices = price(program, load, NO_FLOORS, 0)

    # HiGHS goes by the time of day, and takes a share of what is left: little is left.
    found = search(program, prices, nothing(program), time_for(readings, 6.0), guide)

    assert np.all(program.used(found) <= program.capacity)
    assert load[found].sum() <= 0.9 * prices.bound


@pytest.mark.extended
def test_a_few_hundred_servers_serve_what_highs_alone_finds() -> None:
    program = fleet_program(300, demand=2.0)
    program = program.take(program.undominated())
    load = program.weight[program.starts[program.level[program.starts] == 2]].sum()

    outcome = solve_by_levels(
        program, Timer(time_for(150, 240.0)), ExactSettings(sizes=ProgramSizes(small=0, medium=0))
    )

    assert program.served(outcome.plan, 3)[2] >= (0.98663 - 1e-4) * load


@pytest.mark.parametrize("seed", sampled(range(5)))
def test_parts_that_are_solved_again_only_improve_a_choice(seed: int) -> None:
    program = random_program(seed, cases=200)
    known = fill(program, nothing(program))
    floors = Floors(program.served(known, 2), 0)
    objective = np.where(program.level == 2, -program.weight, 0.0)
    task = Task(program, objective, floors, gap=0.0)

    incumbent = Incumbent(known, lambda chosen: float(objective @ chosen))

    improve(task, incumbent, 10, time_for(20))

    found = incumbent.plan
    assert np.all(program.used(found) <= program.capacity)
    assert np.bincount(program.place[found]).max() == 1
    assert np.all(program.served(found, 2) >= floors.loads - 1e-6)
    assert objective[found].sum() < objective[known].sum()


def test_a_start_that_breaks_a_constraint_is_not_given_to_the_solver() -> None:
    program = random_program(1, cases=20, levels=1)
    everything = leave_everything_open(program)
    all_load = np.array([program.weight[program.starts].sum()])
    columns = BinaryColumns(program, everything, all_load, 0, np.array([1000.0]))

    start = nothing(program)
    found = columns.minimize(program.value, SearchLimits(60.0, 0.0), start)

    assert found is not None
    assert columns.start(start)
    hard = BinaryColumns(program, everything, all_load, 0)
    assert not hard.start(start)


@pytest.mark.parametrize("seed", range(10))
def test_servers_that_fit_stay_as_they_are(seed: int) -> None:
    program = random_program(seed, cases=200)
    standing = fill(replace(program, weight=1 / program.weight), nothing(program))
    settled = replace(program, stays=standing)

    again = stand(settled)

    assert np.array_equal(again & standing, standing)
    assert np.all(program.used(again) <= program.capacity)


@pytest.mark.parametrize("seed", range(10))
def test_cases_that_must_be_served_are_inserted_at_the_expense_of_others(seed: int) -> None:
    program = random_program(seed, cases=60)
    known = fill(replace(program, level=program.level.max() - program.level), nothing(program))
    objective = np.where(program.level == 1, -program.weight, 0.0)
    all_load = np.array([program.weight[program.starts[program.level[program.starts] == 0]].sum()])
    prices = price(program, objective, all_load, 1)

    found = insert(program, known, prices)

    assert not program.serves_all_of(known, 1)
    assert program.serves_all_of(found, 1)
    assert np.all(program.used(found) <= program.capacity)
    assert np.bincount(program.place[found]).max() == 1


@pytest.mark.parametrize("seed", range(10))
def test_a_choice_is_completed_to_what_the_floors_take_and_hardly_more(seed: int) -> None:
    program = random_program(seed, cases=100)
    floors = 0.8 * loads(program)[:2]
    prices = price(program, np.where(program.level == 2, -program.weight, 0.0), floors, 0)
    known = fill(replace(program, level=program.level.max() - program.level), nothing(program))

    served = completed(program, known, Floors(floors, 0), prices)

    first = program.starts
    load = np.bincount(program.level[first][served], program.weight[first][served], 3)
    before = program.served(known, 2)
    assert np.all(served[program.place[known]])
    assert np.all(load[:2] >= floors)
    assert np.all(load[:2] <= np.maximum(before, floors + program.weight.max()))


@pytest.mark.parametrize("every", [10, 30, 100])
def test_a_plan_that_stands_hardly_changes_where_some_servers_have_to_move(every: int) -> None:
    first = planned_fleet()
    standing = change_little(first, by_the_last_level(first))  # what changes anyway
    gone = standing & (first.place % every == 0)
    changed = replace(first, stays=standing).take(~gone)
    prices = by_the_last_level(changed)

    found = change_little(changed, prices)

    packed = pack(changed, prices)
    assert changed.serves_all_of(found, 2)
    moved, left = np.count_nonzero(found & ~changed.stays), np.count_nonzero(gone)
    assert moved <= max(1.2 * left, left + 1)  # one other server at least may make room
    assert changed.served(found, 3)[2] > changed.served(packed, 3)[2]


@cache
def planned_fleet() -> Program:
    """A fleet whose servers run where a plan has put them."""
    program = fleet_program(300, demand=2.0)
    program = program.take(program.undominated())
    settings = ExactSettings(sizes=ProgramSizes(small=0, medium=0, large=0))
    return replace(program, stays=solve_by_levels(program, Timer(time_for(60)), settings).plan)


def by_the_last_level(program: Program) -> RowPrices:
    """Prices where the load of the third level is maximized, and all of the others is served."""
    objective = np.where(program.level == 2, -program.weight, 0.0)
    return price(program, objective, loads(program)[:2], 2)


def with_room(cases: int, level: int) -> Program:
    """A row for each case on a type that has room for all; two more types are there."""
    ones = np.ones(cases)
    return Program(
        case=np.arange(cases),
        type=np.full(cases, 2),
        cards=ones,
        value=ones,
        level=np.full(cases, level),
        weight=7 * ones,
        capacity=np.array([0.0, 0.0, 2.0 * cases]),
        stays=np.zeros(cases, dtype=np.bool_),
    )


def beside(first: Program, second: Program) -> Program:
    """Both programs as one, with the cards of both."""
    joined = {
        name: np.concatenate((getattr(first, name), getattr(second, name)))
        for name in ("type", "cards", "value", "level", "weight", "stays")
    }
    case = np.concatenate((first.case, second.case + first.case.max() + 1))
    return Program(case=case, capacity=first.capacity + second.capacity, **joined)


def nothing(program: Program) -> np.ndarray:
    """No row at all."""
    return np.zeros(len(program.case), dtype=np.bool_)


def time_for(readings: int, seconds: float = 60.0) -> Callable[[], float]:
    """The same time, so many times; nothing afterwards."""
    left = itertools.chain([seconds] * readings, itertools.repeat(0.0))
    return lambda: next(left)


@pytest.mark.parametrize("seed", sampled(range(20)))
def test_dominated_rows_change_no_optimum(seed: int) -> None:
    program = random_program(seed, cases=40)
    random = np.random.default_rng(seed)
    worse = replace(
        program,
        cards=program.cards + random.integers(0, 3, len(program.cards)),
        value=program.value + random.integers(0, 3, len(program.cards)),
    )
    order = np.argsort(np.tile(program.case, 2), kind="stable")

    def twice(name: str) -> np.ndarray:
        merged: np.ndarray = np.concatenate((getattr(program, name), getattr(worse, name)))[order]
        return merged

    both = Program(
        case=twice("case"),
        type=twice("type"),
        cards=twice("cards"),
        value=twice("value"),
        level=twice("level"),
        weight=twice("weight"),
        capacity=program.capacity,
        stays=twice("stays"),
    )

    kept = both.take(both.undominated())

    assert len(kept.case) <= len(program.case)
    everything = solve_by_levels(both, Timer(lambda: 60.0))
    undominated = solve_by_levels(kept, Timer(lambda: 60.0))
    assert undominated.most_served == pytest.approx(everything.most_served)
    assert undominated.least_value == pytest.approx(everything.least_value)


@pytest.mark.extended
def test_a_tight_fleet_of_a_thousand_is_close_to_what_is_proven() -> None:
    program = fleet_program(1000, demand=2.0)
    program = program.take(program.undominated())

    outcome = solve_by_levels(
        program, Timer(time_for(320)), ExactSettings(sizes=ProgramSizes(small=0, medium=0, large=0))
    )

    served = program.served(outcome.plan, 3)
    assert np.all(program.used(outcome.plan) <= program.capacity)
    assert np.all(outcome.most_served - served <= 2e-3 * served)
    assert program.value[outcome.plan].sum() - outcome.least_value <= 2e-2 * abs(
        outcome.least_value
    )
