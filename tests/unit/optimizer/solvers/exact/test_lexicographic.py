"""Prices, first solutions and the search by levels, against linear programs and brute force."""

from dataclasses import replace
from functools import cache
from itertools import pairwise

import numpy as np
import pytest

from inferno_optimizer.solvers.assignment import Timer
from inferno_optimizer.solvers.exact.lexicographic import solve_by_levels
from inferno_optimizer.solvers.exact.packing import best_start, pack
from inferno_optimizer.solvers.exact.prices import price
from inferno_optimizer.solvers.exact.program import BoolArray, Program
from inferno_optimizer.solvers.exact.settings import (
    ExactSettings,
    ExchangeSettings,
    PartSettings,
    ProgramSizes,
)
from inferno_optimizer.solvers.incumbent import SearchProgress
from inferno_optimizer.solvers.levels import Floors
from tests.tiers import extended, sampled
from tests.unit.optimizer.programs import (
    best_of_all,
    every_choice,
    loads,
    random_program,
    relaxed,
)

NO_FLOORS = np.zeros(0)
LARGE = ExactSettings(sizes=ProgramSizes(small=0, medium=0, large=0))
"""Every program counts as large: prices, a dive, and exchanges around what it finds."""

CUTS = ExactSettings(sizes=ProgramSizes(small=0, medium=0))
"""Every program counts as medium: cuts too, and in the end the MILP solver for what is open."""

STEPS = replace(
    CUTS,
    seconds_per_column=np.inf,
    parts=PartSettings(growth=0, patience=0, patience_with_few=0),
)
"""The same without the MILP solver, which would make good for a step that finds nothing."""

NO_EXCHANGES = ExchangeSettings(each=0, rows=0, left_out=0, nodes=1, cut_rounds=0)

SEARCHES = ("cuts", "prices", "steps")


@pytest.mark.parametrize("seed", range(10))
def test_prices_prove_the_bound_of_the_linear_relaxation(seed: int) -> None:
    program = random_program(seed, cases=60)
    objective = program.value - 2 * program.weight

    prices = price(program, objective, NO_FLOORS, 0)

    optimum = relaxed(program, objective.tolist())
    assert prices.bound <= optimum + 1e-9 * abs(optimum)
    assert prices.bound == pytest.approx(optimum, rel=1e-4)


@pytest.mark.parametrize("seed", range(10))
def test_no_choice_is_better_than_its_excess_allows(seed: int) -> None:
    program = random_program(seed, cases=5)
    objective = program.value - 2 * program.weight
    prices = price(program, objective, NO_FLOORS, 0)

    for chosen in every_choice(program):
        left_out = np.setdiff1d(program.place, program.place[chosen])
        allowed = prices.bound + prices.excess[chosen].sum() + prices.left_out[left_out].sum()
        assert objective[chosen].sum() >= allowed - 1e-6


@pytest.mark.parametrize("seed", range(5))
def test_with_lower_floors_prices_prove_no_more_than_the_relaxation_with_these(seed: int) -> None:
    program = random_program(seed, cases=60)
    program = replace(program, capacity=program.capacity / 4)
    floors, lower = 0.6 * loads(program)[:1], 0.3 * loads(program)[:1]
    objective = np.where(program.level == 1, -program.weight, 0.0)
    prices = price(program, objective, floors, 0)

    lowered = prices.lowered(floors - lower)

    optimum = relaxed(program, objective.tolist(), lower.tolist())
    assert max(lowered.bound, lowered.proven) <= optimum + 1e-6


@pytest.mark.parametrize("card_type", range(3))
def test_one_more_card_changes_the_relaxed_optimum_by_about_its_price(card_type: int) -> None:
    program = random_program(3, cases=400)
    objective = program.value - 2 * program.weight
    more = program.capacity.copy()
    more[card_type] += 1
    grown = replace(program, capacity=more)

    prices = price(program, objective, NO_FLOORS, 0)

    saved = relaxed(program, objective.tolist()) - relaxed(grown, objective.tolist())
    assert prices.cards[card_type] == pytest.approx(saved, rel=0.05, abs=0.1)


@pytest.mark.parametrize("seed", sampled(range(20)))
def test_a_first_solution_fits(seed: int) -> None:
    program = random_program(seed, cases=200)
    objective = program.value - 2 * program.weight

    chosen = pack(program, price(program, objective, NO_FLOORS, 0))

    assert np.all(program.used(chosen) <= program.capacity)
    assert np.bincount(program.place[chosen]).max() == 1


@pytest.mark.parametrize(
    ("floor", "whole", "begins_with"), [(999.0, 0, 1), (1000.05, 0, 0), (999.0, 1, 0)]
)
def test_a_level_begins_with_the_plan_within_the_floors_that_leaves_it_the_most(
    floor: float, whole: int, begins_with: int
) -> None:
    program = Program(
        case=np.arange(3),
        type=np.zeros(3, dtype=np.int64),
        cards=np.array([7.0, 6.0, 4.0]),
        value=np.zeros(3),
        level=np.array([0, 0, 1]),
        weight=np.array([1000.1, 1000.0, 500.0]),
        capacity=np.array([10.0]),
        stays=np.zeros(3, dtype=np.bool_),
    )
    plans = [program.case == case for case in (0, 1, 2)]

    plan = best_start(program, plans, Floors(np.array([floor]), whole), 1)

    assert np.array_equal(plan, plans[begins_with])


@pytest.mark.parametrize("seed", sampled(range(40)))
def test_a_small_program_is_solved_to_the_best_there_is(seed: int) -> None:
    program = random_program(seed, cases=5)

    outcome = solve_by_levels(program, Timer(lambda: 60.0))

    levels = int(program.level.max()) + 1
    most, value = best_of_all(program, levels)
    assert tuple(program.served(outcome.plan, levels)) == pytest.approx(most)
    assert program.value[outcome.plan].sum() == pytest.approx(value)
    assert tuple(outcome.most_served) == pytest.approx(most)
    assert outcome.least_value == pytest.approx(value)


def larger_program(seed: int) -> Program:
    return random_program(seed, cases=80)


@cache
def exact_plan(seed: int) -> BoolArray:
    """The best plan of a larger program, by the MILP solver, for all tests of this seed."""
    return solve_by_levels(larger_program(seed), Timer(lambda: 60.0), tolerance=0.0).plan


@pytest.mark.parametrize(
    ("settings", "farthest"), [(CUTS, 1e-2), (LARGE, 50.0), (STEPS, 10.0)], ids=SEARCHES
)
@pytest.mark.parametrize("seed", sampled(range(5)))
def test_every_search_ends_at_the_best_there_is_and_close_to_what_it_proves(
    seed: int, settings: ExactSettings, farthest: float
) -> None:
    program, exact = larger_program(seed), exact_plan(seed)
    least, told = program.value[exact].sum(), list[SearchProgress]()

    outcome = solve_by_levels(program, Timer(lambda: 60.0), settings, observe=told.append)

    levels = len(outcome.most_served)
    served, best = program.served(outcome.plan, levels), program.served(exact, levels)
    assert np.all(program.used(outcome.plan) <= program.capacity)
    assert served == pytest.approx(best)
    assert program.value[outcome.plan].sum() == pytest.approx(least)
    assert np.all(outcome.most_served >= best * (1 - 1e-9))
    assert least - farthest <= outcome.least_value <= least + 1e-6
    no_bound_is_above_the_best(program, exact, told)


def no_bound_is_above_the_best(
    program: Program, exact: BoolArray, told: list[SearchProgress]
) -> None:
    """A bound that is too high is hidden once the plan is the best one."""
    least, best = program.value[exact].sum(), program.served(exact, len(loads(program)))
    for progress in told:
        before = slice(progress.level)
        if np.all(progress.served[before] >= best[before]):
            reached = least if progress.level is None else -best[progress.level]
            assert progress.bound <= reached + 1e-6


# With 2 the solver ends early with a plan of 174 of 181.
@pytest.mark.parametrize("seed", [2, *extended(0, 1, 3, 4, 5)])
def test_a_solver_that_ends_before_the_best_plan_proves_no_more_than_that_has(seed: int) -> None:
    program, told = random_program(seed, cases=40), list[SearchProgress]()
    early = replace(STEPS, seconds_per_column=0.0, gap=0.05, cut_rounds=0, exchanges=NO_EXCHANGES)

    solve_by_levels(program, Timer(lambda: 60.0), early, 0.0, told.append)

    exact = solve_by_levels(program, Timer(lambda: 60.0), tolerance=0.0).plan
    assert told
    no_bound_is_above_the_best(program, exact, told)


@pytest.mark.parametrize("seed", range(5))
def test_with_cards_for_all_no_bound_is_above_the_sum_of_the_least_values(seed: int) -> None:
    program, told = larger_program(seed), list[SearchProgress]()
    ample = replace(program, capacity=np.full(len(program.capacity), 1e4))

    solve_by_levels(ample, Timer(lambda: 60.0), CUTS, observe=told.append)

    least = np.minimum.reduceat(program.value, program.starts).sum()
    of_value = [progress for progress in told if progress.level is None]
    assert max(progress.value for progress in of_value) > least  # some are not yet the best
    assert max(progress.bound for progress in of_value) <= least + 1e-6


@pytest.mark.minutes
@pytest.mark.parametrize("settings", [CUTS, LARGE, STEPS], ids=SEARCHES)
@pytest.mark.parametrize("seed", [0, *extended(*range(1, 5))])
def test_floors_are_lowered_only_for_what_is_closer_to_its_bound_and_whole_levels_stay_whole(
    seed: int, settings: ExactSettings
) -> None:
    program, told = larger_program(seed), list[SearchProgress]()
    all_load = loads(program)

    outcome = solve_by_levels(
        program, Timer(lambda: 60.0), replace(settings, given_up=0.3), observe=told.append
    )

    served = program.served(outcome.plan, len(all_load))
    assert program.served(exact_plan(seed), 1) == all_load[0]
    assert served[0] == all_load[0]
    assert np.all(program.used(outcome.plan) <= program.capacity)
    for before, after in pairwise(told):
        if before.level == after.level and np.isfinite(before.bound):
            distance = before.objective - before.bound
            assert after.objective - after.bound <= distance + 1e-6


@pytest.mark.parametrize("seed", range(8, 12))
def test_a_level_that_hardly_fits_is_served_entirely_in_spite_of_a_large_tolerance(
    seed: int,
) -> None:
    program = random_program(seed, cases=30, levels=2)
    first = program.take(program.level == 0)
    of_each = np.isin(np.arange(len(first.case)), first.starts)
    hardly = replace(program, capacity=np.ceil(1.1 * first.used(of_each)))

    outcome = solve_by_levels(hardly, Timer(lambda: 60.0), replace(STEPS, given_up=0.3))

    assert program.served(outcome.plan, 1)[0] == loads(program)[0]


@pytest.mark.parametrize("seed", sampled(range(4)))
def test_all_later_goals_together_take_no_more_of_a_level_than_its_tolerance(seed: int) -> None:
    program = random_program(seed, cases=40, levels=4)
    reached, tolerance = dict[int | None, float](), 0.05

    def observe(progress: SearchProgress) -> None:
        reached[progress.level] = -progress.objective

    outcome = solve_by_levels(program, Timer(lambda: 60.0), STEPS, tolerance, observe)

    for level, served in enumerate(program.served(outcome.plan, 4)):
        assert served >= reached[level] * (1 - tolerance)


@pytest.mark.parametrize(("given_up", "below"), [(9.1e-4, 0.0), (8.9e-4, 500.0)])
def test_by_default_a_class_gives_up_nine_of_ten_thousand_requests_however_close_its_bound_is(
    given_up: float, below: float
) -> None:
    smallest = 10_000 * given_up
    program = Program(
        case=np.arange(4),
        type=np.array([0, 1, 0, 1]),
        cards=np.array([3.0, 1.0, 2.0, 1.0]),  # a relaxed plan has half of the third case
        value=np.ones(4),
        level=np.array([0, 0, 0, 1]),
        weight=np.array([10_000 - smallest, smallest, 10.0, 500.0]),
        capacity=np.array([4.0, 1.0]),
        stays=np.zeros(4, dtype=np.bool_),
    )

    outcome = solve_by_levels(program, Timer(lambda: 60.0), LARGE)

    first = 10_000 - (smallest if below else 0.0)
    assert program.served(outcome.plan, 2).tolist() == pytest.approx([first, below])


# Without the solver two of them end too early.
@pytest.mark.parametrize("seed", [*extended(0, 1), 2])
def test_what_the_solution_of_parts_leaves_open_goes_to_the_solver(seed: int) -> None:
    program = random_program(seed, cases=60)
    program = replace(program, level=np.zeros_like(program.level))

    outcome = solve_by_levels(program, Timer(lambda: 60.0), CUTS, 0.0)

    (served,) = program.served(outcome.plan, 1)
    assert outcome.most_served[0] - served <= ExactSettings().gap * outcome.most_served[0]


def test_without_any_time_the_first_solution_is_the_answer() -> None:
    program = random_program(1, cases=300)

    outcome = solve_by_levels(program, Timer(lambda: 0.0), LARGE)

    assert np.all(program.used(outcome.plan) <= program.capacity)
    assert outcome.plan.any()


def test_a_type_without_cards_has_a_finite_price() -> None:
    program = random_program(2, cases=30)
    dry = replace(program, capacity=np.array([0.0, 20.0, 20.0]))

    prices = price(dry, -program.weight, NO_FLOORS, 0)

    assert np.all(np.isfinite(prices.cards))
    assert np.isfinite(prices.bound)
