"""Answers of the original under the policy `Hold`: what runs stays, and no card is given twice."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from inferno_optimizer.optimize import optimize
from inferno_optimizer.solution import Reason, Solution
from inferno_optimizer.system import Allocation, Options, SaturationPolicy, Server, System
from inferno_optimizer.wire.codec import decode_solution
from inferno_optimizer.wire.plausibility import Sizes, mark_best_effort
from inferno_optimizer.wire.retention import keep_running
from tests.examples import several
from tests.rest_optimizer.optimizer import as_the_original_tells
from tests.tiers import extended
from tests.unit.optimizer.systems import Demand, accelerators, system_of

HOLD = Options(saturation_policy=SaturationPolicy.HOLD)
KNOWN = [SaturationPolicy.NONE, SaturationPolicy.PRIORITY_EXHAUSTIVE]
CAPACITY = {"X": 6, "Y": 4}


def runs(accelerator: str, replicas: int) -> Allocation:
    """What a server runs now."""
    return Allocation(accelerator, replicas, cost=10 * replicas)


def answered(system: System, policy: SaturationPolicy) -> Solution:
    """What an optimizer decides that knows this policy and gives no reasons."""
    options = replace(system.options, saturation_policy=policy)
    document = as_the_original_tells(optimize(replace(system, options=options)))
    sizes = Sizes.of(system, is_ours=False)
    return mark_best_effort(decode_solution(document, system), sizes)


def held(system: System, policy: SaturationPolicy) -> Solution:
    """The same, with what runs kept."""
    return keep_running(answered(system, policy), Sizes.of(system, is_ours=False))


def replicas(solution: Solution) -> dict[str, int]:
    return {name: given.replicas for name, given in solution.allocations.items()}


def scarce(cards: int, *demands: Demand) -> System:
    """Servers that all want cards of one type."""
    return system_of(demands, accelerators(X=10), {"X": cards}, HOLD)


@pytest.mark.parametrize("policy", KNOWN)
@pytest.mark.parametrize("cards", [3, 4])
def test_a_server_that_needs_more_than_there_is_keeps_what_runs_and_takes_the_rest(
    policy: SaturationPolicy, cards: int
) -> None:
    solution = held(scarce(cards, Demand("premium", {"X": 5}, current=runs("X", 3))), policy)

    (decision,) = solution.decisions
    assert replicas(solution) == {"premium": cards}
    assert [(use.used, use.available) for use in solution.capacity] == [(cards, cards)]
    assert decision.reason is Reason.BEST_EFFORT
    assert decision.message.startswith(f"gets {cards} of the 5 x X it needs: not enough cards")


@pytest.mark.parametrize("policy", KNOWN)
def test_an_equal_server_gets_no_card_of_one_that_runs(policy: SaturationPolicy) -> None:
    runs_three = Demand("a", {"X": 5}, current=runs("X", 3))
    wants_four = Demand("b", {"X": 4}, load=900)

    found = replicas(held(scarce(4, runs_three, wants_four), policy))

    assert found["a"] >= 3
    assert sum(found.values()) == 4


@pytest.mark.parametrize("policy", KNOWN)
def test_a_more_important_server_gets_the_cards(policy: SaturationPolicy) -> None:
    low = Demand("low", {"X": 4}, priority=2, current=runs("X", 4))
    high = Demand("high", {"X": 3})

    assert replicas(held(scarce(5, low, high), policy)) == {"low": 2, "high": 3}


def test_a_server_that_moves_leaves_its_cards_to_others() -> None:
    moves = Demand("a", {"X": 5, "Y": 3}, current=runs("X", 3))
    grows = Demand("b", {"X": 3}, current=runs("X", 1))
    short = Demand("c", {"X": 9}, priority=2, current=runs("X", 1))
    system = system_of([moves, grows, short], accelerators(X=10, Y=10), {"X": 4, "Y": 3}, HOLD)

    found = held(system, SaturationPolicy.NONE).allocations

    placed = {name: given.placement for name, given in found.items()}
    assert placed == {"a": "3 x Y", "b": "3 x X", "c": "1 x X"}


@pytest.mark.parametrize("policy", [p for p in SaturationPolicy if p is not SaturationPolicy.HOLD])
def test_nothing_is_kept_where_the_policy_is_another(policy: SaturationPolicy) -> None:
    system = scarce(4, Demand("a", {"X": 5}, current=runs("X", 3)))
    system = replace(system, options=Options(saturation_policy=policy))

    solution = answered(system, policy)

    assert keep_running(solution, Sizes.of(system, is_ours=False)) is solution


def random_scene(random: Random) -> System:
    """Servers of three priorities that run within the capacity, and want more than there is."""
    left = dict(CAPACITY)
    demands = []
    for name in "abcde":
        takes = {unit: random.randint(1, 6) for unit in random.sample("XY", random.randint(1, 2))}
        on = random.choice("XY")
        count = random.randint(0, min(left[on], 3))
        left[on] -= count
        current = runs(on, count) if count else Allocation()
        demands.append(Demand(name, takes, priority=random.randint(1, 3), current=current))
    return system_of(demands, accelerators(X=10, Y=12), CAPACITY, HOLD)


@pytest.mark.slow
@pytest.mark.parametrize("policy", [KNOWN[0], *extended(*KNOWN[1:])])
@several(150)
@given(st.randoms(use_true_random=False))
def test_whatever_is_answered_only_a_more_important_server_takes_cards_of_what_runs(
    policy: SaturationPolicy, random: Random
) -> None:
    system = random_scene(random)
    priority = {c.name: c.priority for c in system.classes}

    solution = held(system, policy)

    assert fits(solution.allocations.values())
    for level in {*priority.values()}:
        above = [s.name for s in system.servers if priority[s.service_class] < level]
        equal = [s for s in system.servers if priority[s.service_class] == level]
        taken = [solution.allocations.get(name, Allocation()) for name in above]
        if fits([*taken, *(server.current for server in equal)]):
            reduced = [server.name for server in equal if is_reduced(server, solution, system)]
            assert not reduced


def fits(allocations: Iterable[Allocation]) -> bool:
    """Whether allocations, of one card for each replica, fit into the capacity."""
    counts = Counter[str]()
    for allocation in allocations:
        counts[allocation.accelerator] += allocation.replicas
    return all(counts[name] <= count for name, count in CAPACITY.items())


def is_reduced(server: Server, solution: Solution, system: System) -> bool:
    """Whether a server gets less than what runs, and less than it needs."""
    (decision,) = (d for d in solution.decisions if d.server == server.name)
    given = decision.allocation or Allocation()
    if decision.reason is Reason.ALLOCATED or given.placement == server.current.placement:
        return False
    sizes = Sizes.of(system, is_ours=False)
    if not sizes.parts(server.name, server.current):  # it runs where it has no data
        return server.current.replicas > 0
    now = min(sizes.share(server.name, server.current), 1.0)
    return sizes.share(server.name, given) < now - 1e-6
