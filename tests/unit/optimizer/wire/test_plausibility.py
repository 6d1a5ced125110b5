"""Servers that an answer leaves out: no doubt where cards are short, a name where they are not."""

from dataclasses import replace
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from inferno_optimizer.optimize import optimize
from inferno_optimizer.system import (
    Accelerator,
    Allocation,
    DecodeParameters,
    Load,
    Options,
    PerformanceProfile,
    Reason,
    SaturationPolicy,
    Server,
    ServiceClass,
    System,
    Target,
)
from inferno_optimizer.wire.codec import decode_solution, encode_solution
from inferno_optimizer.wire.plausibility import find_doubts
from inferno_optimizer.wire.screening import screen
from tests.unit.optimizer.random_systems import Kind, random_options, random_system

FEW_SERVERS = Kind(servers=5, batches=(4, 16))
NO_TARGET = Target()


def one_server(
    rate: float, cards: int, target: Target = NO_TARGET, *, floor: int = 0, milp: bool = False
) -> System:
    """A server a replica of which, one card, carries 59.94 requests/min of one token."""
    load = Load(rate, tokens_per_request=1)
    return System(
        accelerators=(Accelerator("A", "T", 10.0),),
        profiles=(PerformanceProfile("M", "A", DecodeParameters(1000.0, 0.0), 1, 1),),
        classes=(ServiceClass("C", 1, {"M": target}),),
        servers=(Server("S", "C", "M", Allocation(load=load), min_replicas=floor),),
        capacity={"T": cards},
        options=Options(milp=milp),
    )


def doubts(system: System, *left_out: str) -> list[str]:
    """What is doubted of our own plan, told without reasons and without some servers."""
    answer = encode_solution(optimize(system))["allocations"]
    told = {name: given for name, given in answer.items() if name not in left_out}
    return list(find_doubts(decode_solution({"allocations": told}, system), system))


@pytest.mark.parametrize(("rate", "cards", "count"), [(90, 2, 1), (90, 1, 0), (59.5, 1, 0)])
def test_a_server_is_missed_where_all_its_replicas_fit_for_certain(
    rate: float, cards: int, count: int
) -> None:
    assert len(doubts(one_server(rate, cards), "S")) == count


def test_who_is_missed_is_named_with_what_would_serve_it() -> None:
    assert doubts(one_server(90, 2), "S") == [
        "it gives nothing to server 'S', although there are cards for 2 x A, which would serve it"
    ]


def test_without_limits_cards_are_never_short() -> None:
    system = one_server(90, 0)

    unlimited = replace(system, options=Options(unlimited=True))

    assert len(doubts(unlimited, "S")) == 1


@pytest.mark.parametrize(
    ("floor", "milp", "count"), [(0, False, 0), (0, True, 0), (1, False, 1), (1, True, 0)]
)
def test_an_idle_server_may_be_left_out_without_a_floor_and_by_the_exact_solver(
    floor: int, milp: bool, count: int
) -> None:
    assert len(doubts(one_server(0, 4, floor=floor, milp=milp), "S")) == count


def test_an_idle_server_that_is_left_out_has_all_that_it_needs() -> None:
    system = one_server(0, 0)

    (decision,) = decode_solution({"allocations": {}}, system).decisions

    assert (decision.reason, decision.message) == (Reason.ALLOCATED, "nothing, as it is idle")
    assert decision.allocation == Allocation(load=system.servers[0].load)


def test_a_percentile_which_others_do_not_know_makes_no_doubts() -> None:
    wait = Target(wait_ms=600.0)
    lenient = Target(wait_ms=600.0, wait_percentile=50.0)
    (needed,) = optimize(one_server(600, 10**6, wait)).allocations.values()
    (less,) = optimize(one_server(600, 10**6, lenient)).allocations.values()
    assert less.replicas < needed.replicas

    assert doubts(one_server(600, needed.replicas - 1, lenient), "S") == []


POLICIES = st.sampled_from(SaturationPolicy)


@pytest.mark.slow
@settings(max_examples=200)
@given(st.randoms(use_true_random=False), st.booleans(), POLICIES, st.booleans(), st.booleans())
def test_no_plan_of_ours_is_doubted(
    random: Random, milp: bool, policy: SaturationPolicy, delayed: bool, unlimited: bool
) -> None:
    options = replace(
        random_options(random, milp=milp, unlimited=unlimited),
        saturation_policy=policy,
        delayed_best_effort=delayed,
    )
    system = screen(random_system(random, FEW_SERVERS, options)).system

    assert doubts(system) == []


@pytest.mark.slow
@settings(max_examples=100)
@given(st.randoms(use_true_random=False))
def test_whoever_is_left_out_of_a_plan_without_limits_is_missed(random: Random) -> None:
    options = random_options(random, unlimited=True)
    system = screen(random_system(random, FEW_SERVERS, options)).system
    plan = optimize(system)

    for server, allocation in plan.allocations.items():
        assert bool(doubts(system, server)) == bool(allocation.replicas)
