"""Answers that give too little: no doubt where cards are short, a name where they are not."""

from dataclasses import replace
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from inferno_optimizer.optimize import optimize
from inferno_optimizer.solution import Reason
from inferno_optimizer.system import (
    Accelerator,
    Allocation,
    DecodeParameters,
    Load,
    Options,
    PerformanceProfile,
    SaturationPolicy,
    Server,
    ServiceClass,
    System,
    Target,
)
from inferno_optimizer.wire.codec import decode_solution, encode_solution, has_certificate
from inferno_optimizer.wire.plausibility import Sizes, find_doubts, mark_best_effort
from inferno_optimizer.wire.questions import convert_least_rates, reword, screen
from tests.examples import several
from tests.tiers import sampled
from tests.unit.optimizer.random_systems import Kind, random_options, random_system

JsonObject = dict[str, Any]

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
    """What is doubted of our own plan in the words of the original, without some servers."""
    answer = encode_solution(optimize(reword(system)))["allocations"]
    told = {name: untold(given) for name, given in answer.items() if name not in left_out}
    return doubts_of({"allocations": told}, system)


def untold(given: JsonObject) -> JsonObject:
    """An allocation as the original tells it."""
    return {key: value for key, value in given.items() if key not in ("reason", "message")}


def doubts_of(document: JsonObject, system: System) -> list[str]:
    """What is doubted of an answer."""
    is_ours = has_certificate(document)
    sizes = Sizes.of(system, is_ours=is_ours)
    solution = decode_solution(document, system)
    told = solution if is_ours else mark_best_effort(solution, sizes)
    return list(find_doubts(told, sizes))


MISSED = (
    "it gives nothing to server 'S', although there are cards for 2 x A, which would serve it; does"
    " the optimizer read performance data of generation 1?"
)


@pytest.mark.parametrize(("rate", "cards", "told"), [(90, 2, [MISSED]), (90, 1, []), (59.5, 1, [])])
def test_a_server_is_missed_where_all_its_replicas_fit_for_certain(
    rate: float, cards: int, told: list[str]
) -> None:
    system = one_server(rate, cards)

    assert doubts(system, "S") == told
    assert len(doubts(replace(system, options=Options(unlimited=True)), "S")) == 1


def allocation(replicas: int, **fields: Any) -> JsonObject:  # noqa: ANN401 - JSON
    """What the original gives to the server of `one_server` at 300 requests/min."""
    load = {"arrivalRate": 300, "avgLength": 1}
    numbers = {"numReplicas": replicas, "maxBatch": 1, "cost": 10.0 * replicas, "load": load}
    return {"accelerator": "A" if replicas else "", **numbers, **fields}


SIX_NEEDED = one_server(300, 8)  # 300 / 59.94 = 5.005; one replica less may be rounding


def test_what_replicas_must_carry_is_their_number_for_the_original() -> None:
    """Five of six carry 299 requests/min."""
    system = one_server(90, 8)
    current = replace(system.servers[0].current, accelerator="A", replicas=6, cost=60)
    server = replace(system.servers[0], current=current, least_rate=299)
    held = replace(system, servers=(server,))

    (told,) = reword(held).servers

    assert (told.min_replicas, told.least_rate) == (5, 0)
    assert convert_least_rates(held).servers == (replace(server, min_replicas=5, least_rate=0),)
    assert convert_least_rates(system) is system


def with_policy(system: System, policy: SaturationPolicy) -> System:
    return replace(system, options=replace(system.options, saturation_policy=policy))


@pytest.mark.parametrize(("replicas", "count"), [(6, 0), (5, 0), (4, 1), (1, 1), (0, 1)])
@pytest.mark.parametrize("certificate", [None, {"status": "Optimal"}])
def test_replicas_that_cannot_carry_the_load_are_doubted(
    replicas: int, count: int, certificate: JsonObject | None
) -> None:
    answer = {"allocations": {"S": allocation(replicas)}, "certificate": certificate}

    assert len(doubts_of(answer, SIX_NEEDED)) == count


@pytest.mark.parametrize(("batch", "count"), [(1, 1), (0, 1), (4, 0), (8, 0), (16, 0), (17, 1)])
@pytest.mark.parametrize("certificate", [None, {"status": "Optimal"}])
def test_another_batch_than_the_performance_data_let_in_is_doubted(
    batch: int, count: int, certificate: JsonObject | None
) -> None:
    profile = PerformanceProfile("M", "A", DecodeParameters(1000.0, 0.0), 8, 1)
    system = replace(SIX_NEEDED, profiles=(profile,))
    answer = {"allocations": {"S": allocation(6, maxBatch=batch)}, "certificate": certificate}

    found = doubts_of(answer, system)

    assert len(found) == count
    assert all("maxBatch" in each and "8 requests fit into a batch on A" in each for each in found)


def test_fewer_replicas_than_the_minimum_are_doubted() -> None:
    system = one_server(300, 8, floor=7)

    assert doubts_of({"allocations": {"S": allocation(7)}}, system) == []
    assert doubts_of({"allocations": {"S": allocation(6)}}, system) == [
        "allocation of server 'S': numReplicas: 6, although minNumReplicas is 7"
    ]


@pytest.mark.parametrize("reason", ["NoCapacity", "BestEffort"])
def test_a_certificate_does_not_excuse_a_server_without_replicas(reason: str) -> None:
    refusal = {"reason": reason, "message": "believe me"}
    answer = {"allocations": {}, "unserved": {"S": refusal}, "certificate": {"status": "Optimal"}}
    if reason == "BestEffort":
        answer |= {"allocations": {"S": {**allocation(0), **refusal}}, "unserved": {}}
    system = with_policy(SIX_NEEDED, SaturationPolicy.ROUND_ROBIN)

    (doubt,) = doubts_of(answer, system)

    assert "server 'S'" in doubt


@pytest.mark.parametrize(
    ("policy", "count"), [(SaturationPolicy.NONE, 1), (SaturationPolicy.ROUND_ROBIN, 0)]
)
def test_best_effort_takes_a_saturation_policy(policy: SaturationPolicy, count: int) -> None:
    given = {**allocation(4), "reason": "BestEffort", "message": "4 of 6"}
    answer = {"allocations": {"S": given}, "certificate": {"status": "Feasible"}}

    assert len(doubts_of(answer, with_policy(one_server(300, 4), policy))) == count


@pytest.mark.parametrize("policy", [*SaturationPolicy][1:])
def test_best_effort_of_the_original_is_told_with_what_to_expect(policy: SaturationPolicy) -> None:
    system = with_policy(one_server(300, 4), policy)
    (ours,) = optimize(system).decisions
    solution = decode_solution({"allocations": {"S": allocation(4, itlAverage=1.0)}}, system)

    (told,) = mark_best_effort(solution, Sizes.of(system, is_ours=False)).decisions

    assert (told.reason, told.message) == (Reason.BEST_EFFORT, ours.message)
    assert told.message.startswith("gets 4 of the 6 x A it needs: not enough cards; at")
    assert told.allocation == ours.allocation


@pytest.mark.parametrize("cards", [5, 8])
def test_too_few_replicas_are_no_best_effort_while_cards_are_left(cards: int) -> None:
    system = with_policy(one_server(300, cards), SaturationPolicy.PRIORITY_EXHAUSTIVE)

    assert len(doubts_of({"allocations": {"S": allocation(4)}}, system)) == 1


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


@pytest.mark.slow
@pytest.mark.parametrize("policy", sampled(SaturationPolicy))
@several(50)
@given(st.randoms(use_true_random=False), st.booleans(), st.booleans(), st.booleans())
def test_no_plan_of_ours_is_doubted(
    policy: SaturationPolicy, random: Random, milp: bool, delayed: bool, unlimited: bool
) -> None:
    options = replace(
        random_options(random, milp=milp, unlimited=unlimited),
        saturation_policy=policy,
        delayed_best_effort=delayed,
    )
    system = screen(random_system(random, FEW_SERVERS, options)).system

    assert doubts(system) == []
    assert doubts_of(encode_solution(optimize(system)), system) == []


@pytest.mark.extended
@several(100)
@given(st.randoms(use_true_random=False))
def test_whoever_is_left_out_of_a_plan_without_limits_is_missed(random: Random) -> None:
    options = random_options(random, unlimited=True)
    system = screen(random_system(random, FEW_SERVERS, options)).system
    plan = optimize(system)

    for server, allocation in plan.allocations.items():
        assert bool(doubts(system, server)) == bool(allocation.replicas)
