"""What one more card is worth, against solving the system again that has it."""

import random
from collections.abc import Mapping
from dataclasses import replace

import pytest

from inferno_optimizer.optimize import optimize
from inferno_optimizer.solution import Gain, Solution
from inferno_optimizer.system import Allocation, Options, SaturationPolicy, System
from tests.tiers import sampled
from tests.unit.optimizer.enumeration import served
from tests.unit.optimizer.systems import Demand, accelerators, system_of

UNITS = accelerators(X=11.5, Y=23.0, Z=60.25)


def random_fleet(seed: int, options: Options) -> System:
    """Six servers of two priorities, and hardly enough cards."""
    dice = random.Random(seed)  # noqa: S311 - a repeatable choice, not a secret
    demands = [
        Demand(
            f"s{place}",
            {name: dice.randint(1, 5) for name in dice.sample("XYZ", 2)},
            priority=dice.randint(1, 2),
            load=dice.randint(10, 99),
            current=Allocation("X", 1, cost=11.5) if dice.random() < 0.3 else Allocation(),
        )
        for place in range(6)
    ]
    cards = {name: dice.randint(3, 9) for name in "XYZ"}
    return system_of(demands, UNITS, cards, options)


def with_one_more(system: System, card_type: str) -> System:
    cards: Mapping[str, int] = system.capacity
    return replace(system, capacity={**cards, card_type: cards[card_type] + 1})


def gain_of(more: Solution, less: Solution) -> Gain | None:
    """The most important priority that serves more, and how much."""
    for after, before in zip(more.certificate.levels, less.certificate.levels, strict=True):
        if after.served > before.served + 1e-6:
            return Gain(after.priority, after.served - before.served)
    return None


MODES = pytest.mark.parametrize(
    "options",
    [
        Options(milp=True),
        Options(milp=True, heterogeneous=True),
        Options(milp=True, saturation_policy=SaturationPolicy.PRIORITY_EXHAUSTIVE),
    ],
    ids=["single", "mixes", "partial"],
)


@MODES
@pytest.mark.parametrize("seed", sampled(range(15)))
def test_an_exact_worth_is_what_solving_again_with_the_card_shows(
    seed: int, options: Options
) -> None:
    system = random_fleet(seed, options)

    solution = optimize(system)

    assert served(system, solution)
    exact = [use for use in solution.capacity if not use.estimated]
    for use in exact:
        again = optimize(with_one_more(system, use.type))
        gain = gain_of(again, solution)
        assert (use.gain is None) == (gain is None)
        if use.gain is not None and gain is not None:
            assert use.gain.priority == gain.priority
            assert use.gain.load == pytest.approx(gain.load, abs=1e-6)
        else:
            saved = solution.certificate.objective - again.certificate.objective
            assert use.price == pytest.approx(saved, abs=1e-4)


@MODES
def test_most_prices_of_small_fleets_are_exact(options: Options) -> None:
    solutions = [optimize(random_fleet(seed, options)) for seed in range(15)]

    estimated = [use.estimated for solution in solutions for use in solution.capacity]
    assert sum(estimated) < 0.5 * len(estimated)
