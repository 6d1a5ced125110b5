"""What one more card is worth, against linear programs solved again; and bounds in fractions."""

import math
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest

from inferno_optimizer.optimize import optimize
from inferno_optimizer.sizing.queueing import FloatArray
from inferno_optimizer.solution import Gain
from inferno_optimizer.solvers.assignment import NO_LEVEL, Timer
from inferno_optimizer.solvers.exact.lexicographic import solve_by_levels
from inferno_optimizer.solvers.exact.prices import RowPrices, price
from inferno_optimizer.solvers.exact.program import BoolArray, Program
from inferno_optimizer.solvers.exact.settings import ExactSettings, ProgramSizes
from inferno_optimizer.solvers.levels import LevelPlan
from inferno_optimizer.system import Options, System
from inferno_optimizer.wire.codec import decode_system
from tests.generate import fleet
from tests.tiers import sampled
from tests.unit.optimizer.programs import best_of_all, random_program, relaxed
from tests.unit.optimizer.systems import Demand, accelerators, system_of

AMPLE = Timer(lambda: 600.0)
LARGE = ExactSettings(sizes=ProgramSizes(small=0, medium=0))
ROUNDING = 1e-4
"""What HiGHS lets a load that is kept miss."""


def with_cards(program: Program, card_type: int, more: int) -> Program:
    capacity = program.capacity.copy()
    capacity[card_type] += more
    return replace(program, capacity=capacity)


def most_of(program: Program, level: int, floors: FloatArray) -> float:
    """The most load of a level in the relaxation, the earlier ones keeping theirs."""
    load = np.where(program.level == level, -program.weight, 0.0)
    return -relaxed(program, load.tolist(), floors[:level].tolist())


def most_of_each(program: Program, floors: FloatArray) -> FloatArray:
    """The most load of each level in the relaxation, the earlier ones keeping theirs."""
    return np.array([most_of(program, level, floors) for level in range(len(floors))])


def kept(program: Program, outcome: LevelPlan[BoolArray]) -> FloatArray:
    return program.served(outcome.plan, int(program.level.max()) + 1) * (1 - 1e-9)


@pytest.mark.slow
@pytest.mark.parametrize("seed", sampled(range(20)))
def test_an_estimate_is_what_the_relaxation_with_one_more_card_shows(seed: int) -> None:
    program = random_program(seed, cases=40)

    outcome = solve_by_levels(program, AMPLE, LARGE)

    told, floors = outcome.one_more(), kept(program, outcome)
    now = relaxed(program, program.value.tolist(), floors.tolist())
    most = most_of_each(program, floors)
    for card_type, level in enumerate(told.level.tolist()):
        grown = with_cards(program, card_type, 1)
        gained = (most_of_each(grown, floors) - most).tolist()
        if level != NO_LEVEL:
            assert told.gain[card_type] == pytest.approx(gained[level], abs=ROUNDING)
            assert gained[:level] == pytest.approx([0.0] * level, abs=ROUNDING)
            assert math.isnan(told.price[card_type])
        else:
            saved = now - relaxed(grown, grown.value.tolist(), floors.tolist())
            assert told.price[card_type] == pytest.approx(saved, abs=1e-4)
            assert gained == pytest.approx([0.0] * len(gained), abs=ROUNDING)


@pytest.mark.parametrize("seed", sampled(range(60)))
def test_a_worth_that_is_not_estimated_is_what_trying_every_choice_shows(seed: int) -> None:
    program = random_program(seed, cases=5)
    levels = int(program.level.max()) + 1
    loads, value = best_of_all(program, levels)

    told = solve_by_levels(program, AMPLE).one_more()

    assert np.all(told.exact)
    for card_type, level in enumerate(told.level.tolist()):
        more, cheaper = best_of_all(with_cards(program, card_type, 1), levels)
        gained = np.subtract(more, loads)
        first = next(iter(np.flatnonzero(gained > 1e-6).tolist()), NO_LEVEL)
        assert level == first
        if level == NO_LEVEL:
            assert told.price[card_type] == pytest.approx(value - cheaper, abs=1e-6)
            assert math.isnan(told.gain[card_type])
        else:
            assert told.gain[card_type] == pytest.approx(gained[level], abs=1e-6)
            assert math.isnan(told.price[card_type])


def test_the_worth_is_estimated_where_the_plan_may_not_be_the_best() -> None:
    program = random_program(1, cases=40)

    told = solve_by_levels(program, AMPLE, LARGE).one_more()

    assert not np.any(told.exact)
    assert all(worth.estimated for worth in told.described([1, 2, 3]))


@pytest.mark.parametrize("seed", sampled(range(40)))
def test_every_price_lies_between_what_a_card_more_saves_and_a_card_less_costs(seed: int) -> None:
    whole = random_program(seed, cases=40)
    program = replace(whole, capacity=np.ceil(whole.capacity / 2))
    worth = program.value - 2.0 * program.weight

    prices = price(program, worth, np.zeros(0), 0)

    now = relaxed(program, worth.tolist())
    for card_type, found in enumerate(prices.cards.tolist()):
        saved = now - relaxed(with_cards(program, card_type, 1), worth.tolist())
        lost = relaxed(with_cards(program, card_type, -1), worth.tolist()) - now
        assert saved - ROUNDING <= found <= lost + ROUNDING


@pytest.mark.parametrize("seed", sampled(range(20)))
def test_multipliers_stay_small_where_the_load_that_is_kept_takes_every_card(seed: int) -> None:
    program, floors = forced(seed)

    prices = price(program, program.value, floors, 0)

    dearest = np.abs(program.value).max() / program.cards.min()
    assert prices.cards.max() < 1e3 * dearest
    optimum = relaxed(program, program.value.tolist(), floors.tolist())
    assert prices.bound <= optimum + 1e-9 * abs(optimum)
    assert prices.bound == pytest.approx(optimum, rel=1e-3)


@pytest.mark.parametrize("seed", sampled(range(20)))
def test_a_bound_holds_in_exact_arithmetic(seed: int) -> None:
    program, floors = forced(seed)

    prices = price(program, program.value, floors, 0)

    assert Fraction(prices.bound) <= exact_bound(program, floors, prices)


def forced(seed: int) -> tuple[Program, FloatArray]:
    """A program and the most load of its only level, which every card is needed for."""
    program = random_program(seed, cases=30, levels=1)
    short = replace(program, capacity=np.ceil(program.capacity / 2))
    most = -relaxed(short, (-short.weight).tolist())
    return short, np.array([most * (1 - 1e-9)])


def exact_bound(program: Program, floors: FloatArray, prices: RowPrices) -> Fraction:
    """The dual function at the multipliers, without any rounding."""
    cards, loads = [*map(Fraction, prices.cards)], [*map(Fraction, prices.loads)]
    least: dict[int, Fraction] = {}
    for case, card_type, count, value, load in zip(
        program.case, program.type, program.cards, program.value, program.weight, strict=True
    ):
        cost = Fraction(value) + cards[card_type] * Fraction(count) - loads[0] * Fraction(load)
        least[case] = min(least.get(case, Fraction(0)), cost)
    room = sum(p * Fraction(c) for p, c in zip(cards, program.capacity, strict=True))
    return sum(least.values(), -room) + loads[0] * Fraction(floors[0])


def test_a_card_that_lets_another_server_be_served_has_a_gain_and_no_price() -> None:
    demands = [Demand("a", {"X": 2}, load=60), Demand("b", {"X": 2}, priority=2, load=30)]

    solution = optimize(system_of(demands, accelerators(X=10), {"X": 3}, Options(milp=True)))

    assert (solution.capacity[0].price, solution.capacity[0].gain) == (None, Gain(2, 30.0))


def test_a_card_that_nobody_needs_is_worth_nothing() -> None:
    demands = [Demand("a", {"X": 2}, load=60)]

    solution = optimize(system_of(demands, accelerators(X=10), {"X": 3}, Options(milp=True)))

    assert (solution.capacity[0].price, solution.capacity[0].gain) == (0.0, None)


def tight(servers: int, demand: float) -> System:
    system = decode_system(fleet(servers, 20, seed=1, demand=demand))
    return replace(system, options=Options(milp=True, time_limit=5.0))


def test_the_gap_of_a_priority_that_gets_next_to_nothing_is_small() -> None:
    levels = optimize(tight(60, 20.0)).certificate.levels

    assert all(0.0 <= level.gap <= 1.0 for level in levels)
    assert all(level.served <= level.bound <= level.load for level in levels)
