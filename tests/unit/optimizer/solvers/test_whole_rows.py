"""Servers that get all of a row or nothing, against brute force and a program of all columns."""

from dataclasses import replace
from functools import cache

import numpy as np
import pytest

from inferno_optimizer.solvers.budget import Budget
from inferno_optimizer.solvers.exact import Outcome, solve_goals
from inferno_optimizer.solvers.incumbent import SearchProgress
from tests.solvers.levels import Rows
from tests.solvers.ours import problem_of
from tests.tiers import extended, sampled
from tests.unit.optimizer.programs import best_of_all, random_rows
from tests.unit.optimizer.solvers.partial_plans import tuned

EVERYTHING = 10**6
"""As many columns as a program of all columns may have: it is solved to the last digit."""


def solve(
    rows: Rows,
    small: int = 0,
    tolerance: float | None = None,
    told: list[SearchProgress] | None = None,
) -> Outcome:
    """Search, or solve the program of all columns where it has few enough."""
    observe = None if told is None else told.append
    problem = tuned(problem_of(rows), small=small)
    return solve_goals(problem, Budget.of(60.0), tolerance, delayed=False, observe=observe)


@cache
def best_plan(seed: int, cases: int, levels: int = 3) -> tuple[Rows, Outcome]:
    """Rows, and the best plan of them."""
    rows = random_rows(seed, cases, levels=levels)
    return rows, solve(rows, EVERYTHING, 0.0)


@pytest.mark.parametrize("seed", sampled(range(40)))
def test_few_rows_are_solved_to_the_best_there_is(seed: int) -> None:
    rows = random_rows(seed, cases=5)

    outcome = solve(rows, EVERYTHING)

    most, value = best_of_all(rows)
    plan = outcome.counts > 0
    assert tuple(rows.served(plan)) == pytest.approx(most)
    assert rows.value[plan].sum() == pytest.approx(value)
    assert outcome.most_served() == pytest.approx(most)
    assert outcome.least_value == pytest.approx(value)


@pytest.mark.parametrize("seed", [0, 1, *extended(*range(2, 8))])
def test_a_search_ends_close_to_the_best_there_is_and_proves_no_more(seed: int) -> None:
    rows, best = best_plan(seed, cases=80)
    most, told = rows.served(best.counts > 0), list[SearchProgress]()

    outcome = solve(rows, told=told)

    served = rows.served(outcome.counts > 0)
    assert rows.fits(outcome.counts > 0)
    assert served[0] >= most[0] * (1 - 1e-3)
    assert outcome.most_served()[0] >= most[0] * (1 - 1e-9)
    for progress in told:
        if progress.level == 0:
            assert progress.bound <= -most[0] * (1 - 1e-9)


@pytest.mark.parametrize("seed", range(5))
def test_with_cards_for_all_no_bound_is_above_the_sum_of_the_least_values(seed: int) -> None:
    rows = replace(random_rows(seed, cases=80), capacity=np.full(3, 1e4))

    outcome = solve(rows)

    least = np.minimum.reduceat(rows.value, rows.starts).sum()
    assert rows.served(outcome.counts > 0) == pytest.approx(rows.loads())
    assert rows.value[outcome.counts > 0].sum() == pytest.approx(least)
    assert outcome.least_value <= least + 1e-6


@pytest.mark.parametrize("seed", range(8, 12))
def test_a_level_that_hardly_fits_is_served_entirely_in_spite_of_the_tolerance(seed: int) -> None:
    rows = random_rows(seed, cases=30, levels=2)
    first = np.zeros(len(rows.case), dtype=np.bool_)
    first[rows.starts] = rows.level[rows.starts] == 0
    used = np.bincount(rows.type[first], rows.cards[first], len(rows.capacity))

    outcome = solve(replace(rows, capacity=np.ceil(1.1 * used)))

    assert rows.served(outcome.counts > 0)[0] == rows.loads()[0]


@pytest.mark.parametrize("seed", sampled(range(4)))
def test_all_later_goals_together_take_no_more_of_a_level_than_its_tolerance(seed: int) -> None:
    rows = random_rows(seed, cases=40, levels=4)
    reached, tolerance, told = dict[int | None, float](), 0.05, list[SearchProgress]()

    outcome = solve(rows, tolerance=tolerance, told=told)

    reached = {progress.level: -progress.objective for progress in told}
    for level, served in enumerate(rows.served(outcome.counts > 0)):
        assert served >= reached[level] - tolerance * outcome.most_served()[level] - 1e-6


@pytest.mark.parametrize(("given_up", "below"), [(9.1e-4, 0.0), (8.9e-4, 500.0)])
def test_by_default_a_class_gives_up_nine_of_ten_thousand_requests(
    given_up: float, below: float
) -> None:
    smallest = 10_000 * given_up
    rows = Rows(
        case=np.arange(4),
        type=np.array([0, 1, 0, 1]),
        cards=np.array([3.0, 1.0, 2.0, 1.0]),
        value=np.ones(4),
        level=np.array([0, 0, 0, 1]),
        weight=np.array([10_000 - smallest, smallest, 10.0, 500.0]),
        capacity=np.array([4.0, 1.0]),
    )

    outcome = solve(rows)

    first = 10_000 - (smallest if below else 0.0)
    assert rows.served(outcome.counts > 0).tolist() == pytest.approx([first, below])


def test_without_any_time_the_first_plan_is_the_answer() -> None:
    rows = random_rows(1, cases=300)

    outcome = solve_goals(tuned(problem_of(rows), small=0), Budget.of(0.0), None, delayed=False)

    assert rows.fits(outcome.counts > 0)
    assert outcome.counts.any()
