"""The order and the steps of the greedy solver, on systems worked out by hand.

Nothing runs at first, so the value of a candidate is 1.1 times its cost.
"""

from dataclasses import replace

import pytest

from inferno_optimizer.optimize import optimize
from inferno_optimizer.solution import SolverStatus
from inferno_optimizer.system import Accelerator, Allocation, Load, Server
from tests.unit.optimizer.systems import Demand, accelerators, outcome, system_of

NOTHING = ("", 0)


def test_a_server_that_finds_no_room_steps_to_its_next_candidate() -> None:
    system = system_of([Demand("a", {"X": 2, "Y": 3})], accelerators(X=1, Y=1), {"X": 1, "Y": 3})

    assert outcome(system) == {"a": ("Y", 3)}


def test_a_server_without_room_on_any_accelerator_gets_nothing() -> None:
    system = system_of([Demand("a", {"X": 2, "Y": 3})], accelerators(X=1, Y=1), {"X": 1, "Y": 2})

    assert outcome(system) == {"a": NOTHING}


def test_a_type_that_is_not_listed_has_no_cards() -> None:
    system = system_of([Demand("a", {"X": 1})], accelerators(X=1))

    assert outcome(system) == {"a": NOTHING}


def test_the_more_important_class_comes_first() -> None:
    demands = [Demand("a", {"X": 1}, priority=2), Demand("b", {"X": 1}, priority=1)]

    assert outcome(system_of(demands, accelerators(X=1), {"X": 1})) == {
        "a": NOTHING,
        "b": ("X", 1),
    }


def test_a_priority_that_is_out_of_range_is_the_last() -> None:
    demands = [Demand("a", {"X": 1}, priority=0), Demand("b", {"X": 1}, priority=99)]

    assert outcome(system_of(demands, accelerators(X=1), {"X": 1})) == {
        "a": NOTHING,
        "b": ("X", 1),
    }


def test_the_server_with_most_to_lose_comes_first() -> None:
    # Regrets: a 1.1 * (12 - 10) = 2.2, b 1.1 * (3 * 12 - 10) = 28.6.
    demands = [Demand("a", {"X": 1, "Y": 1}), Demand("b", {"X": 1, "Y": 3})]

    system = system_of(demands, accelerators(X=10, Y=12), {"X": 1, "Y": 3})

    assert outcome(system) == {"a": ("Y", 1), "b": ("X", 1)}


def test_a_server_with_a_single_candidate_has_everything_to_lose() -> None:
    demands = [Demand("a", {"X": 1, "Y": 90}), Demand("b", {"X": 1})]

    system = system_of(demands, accelerators(X=10, Y=12), {"X": 1, "Y": 90})

    assert outcome(system) == {"a": ("Y", 90), "b": ("X", 1)}


def test_of_equal_regrets_the_larger_value_comes_first() -> None:
    demands = [Demand("a", {"X": 2}), Demand("b", {"X": 3})]

    assert outcome(system_of(demands, accelerators(X=10), {"X": 4})) == {
        "a": NOTHING,
        "b": ("X", 3),
    }


def test_of_equal_ranks_the_first_name_comes_first() -> None:
    demands = [Demand("b", {"X": 2}), Demand("a", {"X": 2})]

    assert outcome(system_of(demands, accelerators(X=10), {"X": 3})) == {
        "a": ("X", 2),
        "b": NOTHING,
    }


@pytest.mark.parametrize("prices", [(1, 2), (3, 10), (25, 40), (33, 66), (33.1, 47.7)])
@pytest.mark.parametrize(("cheap", "dear"), [("a", "b"), ("b", "a")])
def test_regrets_that_differ_by_rounding_alone_are_equal(
    cheap: str, dear: str, prices: tuple[float, float]
) -> None:
    # Both regrets are 1.1 * (Y - X), whatever runs now; the value is larger where 400 is paid.
    demands = [
        Demand(cheap, {"X": 1, "Y": 1}, current=Allocation("Z", 1, cost=400)),
        Demand(dear, {"X": 1, "Y": 1}, current=Allocation("Z", 1, cost=800)),
    ]
    units = accelerators(X=prices[0], Y=prices[1], Z=1)

    chosen = outcome(system_of(demands, units, {"X": 1, "Y": 1}))

    assert chosen == {cheap: ("X", 1), dear: ("Y", 1)}


def test_a_regret_that_is_rounding_alone_is_none() -> None:
    # 3 x 0.1 is 0.30000000000000004, yet a loses nothing if it gets X instead of Y. Neither does
    # b, whose value is larger.
    demands = [Demand("a", {"X": 3, "Y": 1}), Demand("b", {"Y": 2, "Z": 1})]
    units = accelerators(X=0.1, Y=0.3, Z=0.6)

    chosen = outcome(system_of(demands, units, {"X": 3, "Y": 2, "Z": 1}))

    assert chosen == {"a": ("X", 3), "b": ("Y", 2)}


def test_the_penalty_for_moving_is_part_of_the_order() -> None:
    # a: 0 on X, 0.1 * 22 + 2 = 4.2 on Y; b: 11 on X, 13.2 on Y, regret 2.2.
    demands = [
        Demand("b", {"X": 1, "Y": 1}),
        Demand("a", {"X": 1, "Y": 1}, current=Allocation("X", 1, cost=10)),
    ]

    system = system_of(demands, accelerators(X=10, Y=12), {"X": 1, "Y": 1})

    assert outcome(system) == {"a": ("X", 1), "b": ("Y", 1)}


def test_a_server_at_its_last_candidate_goes_before_those_with_a_choice() -> None:
    # Regrets: b 20 * 1.1, a 2 * 1.1, c 1 * 1.1. After b took X, a has only Y left.
    demands = [
        Demand("a", {"X": 1, "Y": 1}),
        Demand("b", {"X": 1, "V": 1}),
        Demand("c", {"Y": 1, "Z": 1}),
    ]

    system = system_of(
        demands, accelerators(X=10, Y=12, Z=13, V=30), {"X": 1, "Y": 1, "Z": 1, "V": 1}
    )

    assert outcome(system) == {"a": ("Y", 1), "b": ("X", 1), "c": ("Z", 1)}


def test_a_server_that_stepped_waits_behind_those_with_more_to_lose() -> None:
    # b takes X. a steps to Y with a regret of 1.1; c has one of 8.8 and takes Y first.
    demands = [
        Demand("a", {"X": 1, "Y": 1, "Z": 1}),
        Demand("b", {"X": 1}),
        Demand("c", {"Y": 1, "V": 1}),
    ]

    system = system_of(
        demands, accelerators(X=2, Y=12, Z=13, V=20), {"X": 1, "Y": 1, "Z": 1, "V": 1}
    )

    assert outcome(system) == {"a": ("Z", 1), "b": ("X", 1), "c": ("Y", 1)}


def test_a_server_that_stepped_goes_before_its_equals() -> None:
    # b takes X. z steps to Y, where it ranks as a does: regret 11, value 22.
    demands = [
        Demand("a", {"Y": 1, "Z": 1}),
        Demand("b", {"X": 1}),
        Demand("z", {"X": 1, "Y": 1, "Z": 1}),
    ]

    system = system_of(demands, accelerators(X=5, Y=20, Z=30), {"X": 1, "Y": 1, "Z": 1})

    assert outcome(system) == {"a": ("Z", 1), "b": ("X", 1), "z": ("Y", 1)}


def test_a_server_that_stepped_never_passes_a_more_important_one() -> None:
    demands = [
        Demand("first", {"X": 1, "Y": 1}),
        Demand("second", {"Y": 1, "Z": 1}),
        Demand("low", {"X": 1, "Y": 1, "Z": 1}, priority=2),
    ]

    system = system_of(demands, accelerators(X=10, Y=20, Z=90), {"X": 1, "Y": 1, "Z": 1})

    assert outcome(system) == {"first": ("X", 1), "second": ("Y", 1), "low": ("Z", 1)}


def test_nothing_is_taken_back() -> None:
    # Serving b alone would leave room for c; the larger value of a goes first all the same.
    demands = [Demand("a", {"X": 4}), Demand("b", {"X": 3}), Demand("c", {"X": 3})]

    assert outcome(system_of(demands, accelerators(X=1), {"X": 6})) == {
        "a": ("X", 4),
        "b": NOTHING,
        "c": NOTHING,
    }


def test_cards_are_replicas_times_accelerators_times_multiplicity() -> None:
    demand = Demand("a", {"4xX": 3}, accelerators_per_replica=2)
    units = [Accelerator("4xX", "X", 10, 4)]

    assert outcome(system_of([demand], units, {"X": 24})) == {"a": ("4xX", 3)}
    assert outcome(system_of([demand], units, {"X": 23})) == {"a": NOTHING}


def test_accelerators_of_one_type_share_its_cards() -> None:
    demands = [Demand("a", {"1xX": 3}), Demand("b", {"2xX": 2})]
    units = [Accelerator("1xX", "X", 90), Accelerator("2xX", "X", 10, 2)]

    assert outcome(system_of(demands, units, {"X": 6})) == {"a": ("1xX", 3), "b": NOTHING}
    assert outcome(system_of(demands, units, {"X": 7})) == {"a": ("1xX", 3), "b": ("2xX", 2)}


def test_a_server_that_needs_no_replica_is_served_without_any_card() -> None:
    idle = Server("a", "a", "a", Allocation(load=Load(0, 512)))
    system = replace(system_of([Demand("a", {"X": 1})], accelerators(X=1)), servers=(idle,))

    assert outcome(system) == {"a": ("X", 0)}


def test_the_certificate_claims_no_bound() -> None:
    certificate = optimize(
        system_of([Demand("a", {"X": 2})], accelerators(X=10), {"X": 2})
    ).certificate

    assert (certificate.solver, certificate.status) == ("greedy", SolverStatus.FEASIBLE)
    assert (certificate.objective, certificate.bound, certificate.gap) == (22, None, None)
