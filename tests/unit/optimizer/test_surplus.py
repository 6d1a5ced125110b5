"""Replicas that are kept beyond what targets take, on cards that nobody else gets."""

from dataclasses import replace
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from inferno_optimizer.optimize import optimize
from inferno_optimizer.solution import Reason, Solution
from inferno_optimizer.surplus import keep_roles, with_surplus
from inferno_optimizer.system import (
    Allocation,
    Load,
    Options,
    Role,
    SaturationPolicy,
    System,
    Target,
)
from tests.unit.optimizer.apart_systems import one_server, roles_of
from tests.unit.optimizer.random_systems import Kind, random_system
from tests.unit.optimizer.systems import GREEDY, UNLIMITED, Demand, accelerators, system_of

SMALL = Kind(servers=8, batches=(1, 8))


def plan(*demands: Demand, cards: int = 10, options: Options = GREEDY) -> tuple[System, Solution]:
    asked = system_of(demands, accelerators(A=10.0, B=25.0), {"A": cards, "B": cards}, options)
    return asked, optimize(asked)


def replicas(solution: Solution) -> dict[str, int]:
    return {name: found.replicas for name, found in solution.allocations.items()}


def test_replicas_are_kept_with_what_they_cost_and_how_they_serve() -> None:
    asked, found = plan(Demand("chat", {"A": 2}))

    kept = with_surplus(asked, found, {"chat": 5})

    (decision,) = kept.decisions
    assert decision.reason is Reason.ALLOCATED
    assert decision.message == "5 x A (2 needed now; the others are removed if this lasts)"
    assert replicas(kept) == {"chat": 5}
    assert kept.cost == 50.0
    assert kept.capacity[0].used == 5
    before, after = found.allocations["chat"], kept.allocations["chat"]
    assert after.wait_ms < before.wait_ms
    assert after.load == before.load


def test_cards_are_for_what_others_need_first() -> None:
    asked, found = plan(Demand("chat", {"A": 2}), Demand("code", {"A": 7}, priority=9))

    assert replicas(with_surplus(asked, found, {"chat": 5})) == {"chat": 3, "code": 7}


def test_the_most_important_server_keeps_its_replicas_first() -> None:
    asked, found = plan(Demand("a", {"A": 2}, priority=5), Demand("b", {"A": 2}, priority=1))

    assert replicas(with_surplus(asked, found, {"a": 8, "b": 5})) == {"a": 5, "b": 5}


def apart(cards: int, least_rate: float) -> tuple[System, Solution]:
    """A server that runs nine replicas that prefill and four that decode, and its plan."""
    parts = [("L", 9, Role.PREFILL), ("H", 4, Role.DECODE)]
    roles = tuple(Allocation(name, count, role=role) for name, count, role in parts)
    runs = Allocation("H", 13, roles=roles)
    load = Load(arrival_rate=300, input_tokens=512, output_tokens=128)
    known = (roles_of("m", "L")[0], roles_of("m", "H")[1])
    asked = one_server(known, load, Target(itl_ms=30.0, ttft_ms=2000.0), runs, L=10.0, H=30.0)
    (server,) = asked.servers
    held = replace(server, least_rate=least_rate, keep_accelerator=True)
    asked = replace(asked, servers=(held,), capacity={"L": cards, "H": 100})
    return asked, optimize(asked)


@pytest.mark.parametrize(("cards", "prefill"), [(100, 9), (5, 5)])
def test_each_role_keeps_its_replicas_where_nothing_shows_that_fewer_are_enough(
    cards: int, prefill: int
) -> None:
    asked, found = apart(cards, least_rate=300.0)
    (before,) = (d.allocation for d in found.decisions)

    kept = keep_roles(asked, found)

    (decision,) = kept.decisions
    assert before is not None
    assert decision.allocation is not None
    assert before.roles[0].replicas < prefill
    assert [part.replicas for part in decision.allocation.roles] == [prefill, 4]
    assert decision.allocation.replicas == prefill + 4
    assert kept.cost == 10.0 * prefill + 30.0 * 4
    assert {use.type: use.used for use in kept.capacity} == {"L": prefill, "H": 4}
    assert f"{prefill} x L prefill + 4 x H decode (needed now: " in decision.message


def test_roles_of_a_server_that_is_measured_follow_the_plan() -> None:
    asked, found = apart(100, least_rate=0.0)

    assert keep_roles(asked, found) is found


def test_without_limits_all_are_kept() -> None:
    asked, found = plan(Demand("chat", {"A": 2}), cards=0, options=UNLIMITED)

    assert replicas(with_surplus(asked, found, {"chat": 50})) == {"chat": 50}


def test_a_replica_on_several_cards_takes_all_of_them() -> None:
    asked, found = plan(Demand("chat", {"A": 2}, accelerators_per_replica=3))

    kept = with_surplus(asked, found, {"chat": 9})

    assert replicas(kept) == {"chat": 3}
    assert kept.capacity[0].used == 9


@pytest.mark.parametrize("fewest", [0, 1, 2])
def test_what_is_enough_anyway_changes_nothing(fewest: int) -> None:
    asked, found = plan(Demand("chat", {"A": 2}))

    assert with_surplus(asked, found, {"chat": fewest, "unknown": 5}) is found


@given(st.integers(0, 2**32))
def test_nobody_gets_less_and_no_card_is_given_twice(seed: int) -> None:
    random = Random(seed)  # noqa: S311 - tests
    options = Options(saturation_policy=random.choice(list(SaturationPolicy)))
    asked = random_system(random, SMALL, options)
    found = optimize(asked)
    fewest = {server.name: random.randint(0, 40) for server in asked.servers}

    kept = with_surplus(asked, found, fewest)

    given_now, given_before = replicas(kept), replicas(found)
    assert given_now.keys() == given_before.keys()
    for decision, before in zip(kept.decisions, found.decisions, strict=True):
        assert (decision.server, decision.reason) == (before.server, before.reason)
        most = max(given_before.get(before.server, 0), fewest[before.server])
        assert given_before.get(before.server, 0) <= given_now.get(before.server, 0) <= most
    for use in kept.capacity:
        assert use.used <= max(
            use.usable, next(u.used for u in found.capacity if u.type == use.type)
        )


@given(st.integers(0, 2**32))
def test_latencies_are_those_of_a_server_that_asks_for_the_replicas(seed: int) -> None:
    random = Random(seed)  # noqa: S311 - tests
    asked = random_system(random, SMALL, UNLIMITED)
    found = optimize(asked)
    fewest = {name: random.randint(1, 40) for name in found.allocations}
    least = tuple(
        replace(server, min_replicas=max(fewest.get(server.name, 0), server.min_replicas))
        for server in asked.servers
    )

    kept = with_surplus(asked, found, fewest).allocations

    for name, allocation in optimize(replace(asked, servers=least)).allocations.items():
        if kept[name].accelerator == allocation.accelerator and kept[name].replicas:
            assert kept[name].itl_ms == pytest.approx(allocation.itl_ms)
            assert kept[name].wait_ms == pytest.approx(allocation.wait_ms)
            assert kept[name].cost == pytest.approx(allocation.cost)
