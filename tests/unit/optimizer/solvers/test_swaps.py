"""Greedy plans that follow each other: equal servers do not take the last card in turn."""

from dataclasses import replace
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from inferno_optimizer.optimize import optimize
from inferno_optimizer.solution import Reason
from inferno_optimizer.system import Allocation, Options, SaturationPolicy, System
from tests.examples import several
from tests.unit.optimizer.systems import Demand, accelerators, system_of

POLICIES = (
    SaturationPolicy.PRIORITY_EXHAUSTIVE,
    SaturationPolicy.PRIORITY_ROUND_ROBIN,
    SaturationPolicy.ROUND_ROBIN,
)
CALM = [Options(saturation_policy=policy, no_swaps=True) for policy in POLICIES]
BOTH = pytest.mark.parametrize("options", CALM, ids=lambda options: options.saturation_policy)


def runs(accelerator: str, replicas: int) -> Allocation:
    """What a server runs now."""
    return Allocation(accelerator, replicas, cost=10 * replicas)


def replicas(system: System) -> dict[str, int]:
    """The replicas of a plan, by server."""
    return {name: given.replicas for name, given in optimize(system).allocations.items()}


def rivals(has: str, lacks: str, options: Options, priority: int = 1) -> System:
    """Two servers that need two replicas each, where there are three cards."""
    demands = [
        Demand(has, {"X": 2}, current=runs("X", 2)),
        Demand(lacks, {"X": 2}, load=900, priority=priority, current=runs("X", 1)),
    ]
    return system_of(demands, accelerators(X=10), {"X": 3}, options)


@BOTH
def test_whoever_of_two_equal_servers_has_the_last_card_keeps_it(options: Options) -> None:
    assert replicas(rivals("a", "b", options)) == {"a": 2, "b": 1}
    assert replicas(rivals("b", "a", options)) == {"b": 2, "a": 1}


def test_as_in_the_original_the_card_changes_hands_where_nobody_asks_for_less() -> None:
    options = replace(CALM[0], no_swaps=False)

    assert replicas(rivals("a", "b", options)) == {"a": 1, "b": 2}


@pytest.mark.parametrize("options", CALM[:2], ids=lambda options: options.saturation_policy)
def test_a_more_important_server_takes_the_card(options: Options) -> None:
    low = Demand("low", {"X": 2}, priority=2, current=runs("X", 2))
    high = Demand("high", {"X": 2}, current=runs("X", 1))

    assert replicas(system_of([low, high], accelerators(X=10), {"X": 3}, options)) == {
        "low": 1,
        "high": 2,
    }


@BOTH
def test_a_server_that_runs_nothing_takes_no_card_of_an_equal_one(options: Options) -> None:
    demands = [Demand("runs", {"X": 3}, current=runs("X", 3)), Demand("new", {"X": 2}, load=900)]

    assert replicas(system_of(demands, accelerators(X=10), {"X": 3}, options))["runs"] == 3


@BOTH
def test_a_server_still_moves_to_where_it_gets_all(options: Options) -> None:
    moves = Demand("moves", {"X": 3, "Y": 2}, current=runs("X", 2))
    grows = Demand("grows", {"X": 2}, current=runs("X", 1))
    system = system_of([moves, grows], accelerators(X=10, Y=10), {"X": 3, "Y": 2}, options)

    placed = {name: given.placement for name, given in optimize(system).allocations.items()}
    assert placed == {"moves": "2 x Y", "grows": "2 x X"}


def random_scene(random: Random, options: Options) -> System:
    """Servers of two priorities that run within the capacity, and want more than there is."""
    cards = {"X": 9, "Y": 5}
    left, demands = dict(cards), []
    for name in "abcdef":
        takes = {unit: random.randint(1, 6) for unit in random.sample("XY", random.randint(1, 2))}
        on = random.choice([*takes])
        count = random.randint(0, min(left[on], 3))
        left[on] -= count
        current = runs(on, count) if count else Allocation()
        priority, load = random.randint(1, 2), random.choice((60, 300, 900))
        demands.append(Demand(name, takes, load=load, priority=priority, current=current))
    return system_of(demands, accelerators(X=10, Y=12), cards, options)


@pytest.mark.slow
@several(200)
@given(st.randoms(use_true_random=False), st.sampled_from(CALM))
def test_no_server_gets_more_of_a_card_where_an_equal_one_is_short_and_gets_less(
    random: Random, options: Options
) -> None:
    system = random_scene(random, options)
    usual = optimize(replace(system, options=replace(options, no_swaps=False)))

    calm = optimize(system)

    before = {use.type: use.used for use in usual.capacity}
    assert all(use.used <= before[use.type] for use in calm.capacity)
    priority = {c.name: c.priority for c in system.classes}
    entire = {d.server for d in calm.decisions if d.reason is Reason.ALLOCATED}
    more, less = set(), set()
    for server in system.servers:
        now, after = server.current, calm.allocations.get(server.name, Allocation())
        peers = priority[server.service_class], after.accelerator or now.accelerator
        if after.accelerator not in ("", now.accelerator or after.accelerator):
            continue
        if after.replicas > now.replicas:
            more.add(peers)
        elif after.replicas < now.replicas and server.name not in entire:
            less.add(peers)
    assert not more & less
