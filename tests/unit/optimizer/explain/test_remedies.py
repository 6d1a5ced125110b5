"""What would serve a server: always true, and never more than it takes."""

import math
from collections.abc import Iterator
from dataclasses import replace
from itertools import count

import pytest
from hypothesis import given
from hypothesis import strategies as st

from inferno_optimizer.errors import InputError
from inferno_optimizer.explain.changes import parse_change
from inferno_optimizer.explain.remedies import Remedy, RemedyKind, least, remedies
from inferno_optimizer.optimize import optimize
from inferno_optimizer.solution import Reason, Solution
from inferno_optimizer.system import (
    Accelerator,
    Allocation,
    DecodeParameters,
    Load,
    Options,
    PerformanceProfile,
    PrefillDecodeParameters,
    SaturationPolicy,
    Server,
    System,
    Target,
)
from inferno_optimizer.wire.codec import decode_system
from inferno_optimizer.wire.what_if import apply_changes
from tests.generate import fleet
from tests.tiers import extended
from tests.unit.optimizer.systems import UNLIMITED, Demand, accelerators, one_server, system_of

MILP = Options(milp=True)
SHARED = Options(saturation_policy=SaturationPolicy.PRIORITY_EXHAUSTIVE)


def found(system: System, name: str) -> tuple[Remedy, ...]:
    return remedies(system, optimize(system), name)


def changes(system: System, name: str) -> list[str]:
    return [remedy.change for remedy in found(system, name)]


def serves(system: System, change: str, name: str) -> bool:
    """Whether a change serves a server entirely, asked as a user would."""
    decisions = optimize(apply_changes(system, [parse_change(change)]).system).decisions
    return {d.server: d.reason for d in decisions}[name] is Reason.ALLOCATED


def one_step_less(remedy: Remedy, load: float) -> str:
    """The same change, by a card, a ms or a unit of the load's fourth digit less than told."""
    field, _, _ = remedy.change.rpartition("=")
    if remedy.kind is RemedyKind.LOAD:
        return f"{field}={remedy.amount + 10 ** (math.floor(math.log10(load)) - 3)}"
    return f"{field}={remedy.amount - 1:.0f}"


@pytest.mark.parametrize("options", [Options(), MILP, SHARED])
def test_missing_cards_and_a_load_that_fits_are_told(options: Options) -> None:
    system = system_of([Demand("a", {"X": 3, "Y": 2})], accelerators(X=10, Y=40), {"X": 1}, options)

    remedy = {remedy.change: remedy for remedy in found(system, "a")}

    assert list(remedy) == ["capacity.X+=2", "capacity.Y+=2", "server.a.load.arrivalRate=20"]
    cost_now = 10 if options is SHARED else 0  # the share: one replica on the one card
    assert [r.cost for r in remedy.values()] == pytest.approx(
        [30 - cost_now, 80 - cost_now, 10 - cost_now]
    )


def test_words_say_what_to_change_and_what_it_costs() -> None:
    system = system_of([Demand("a", {"X": 3})], accelerators(X=10), {"X": 2})

    cards, load = found(system, "a")

    assert cards.message == "1 more card of X would serve it (+30.00 cents/hour)"
    assert load.message == (
        "a load of 40 requests/min instead of 60 would serve it (+20.00 cents/hour)"
    )


def test_cards_that_more_important_servers_take_first_are_counted() -> None:
    first = [Demand("a", {"X": 2}), Demand("b", {"X": 2})]
    system = system_of([*first, Demand("last", {"X": 3}, priority=2)], accelerators(X=10))

    assert changes(system, "last")[0] == "capacity.X+=7"


def test_cards_of_a_group_and_of_a_replica_are_counted_singly() -> None:
    demand = Demand("a", {"2xX": 3}, accelerators_per_replica=2)
    system = system_of([demand], [Accelerator("2xX", "X", 10, 2)], {"X": 5})

    assert changes(system, "a") == ["capacity.X+=7", "server.a.load.arrivalRate=20"]


def test_a_type_whose_cards_would_go_to_many_others_first_is_left_out() -> None:
    first = [Demand(f"{place:02}", {"X": 1}) for place in range(20)]
    system = system_of([*first, Demand("last", {"X": 1}, priority=2)], accelerators(X=10))

    assert changes(system, "last") == []


def test_the_cheapest_types_are_tried() -> None:
    needs = dict.fromkeys("ABCDE", 1)
    system = system_of([Demand("a", needs)], accelerators(A=5, B=4, C=3, D=2, E=1), {})

    assert changes(system, "a") == [f"capacity.{name}+=1" for name in "EDCB"]


def test_a_server_that_would_lose_its_cards_by_it_is_named() -> None:
    demands = [Demand("a", {"X": 3}), Demand("b", {"X": 2}, priority=2)]
    system = system_of(demands, accelerators(X=10), {"X": 2})

    cards, load = found(system, "a")

    assert (cards.displaced, load.displaced) == (("b",), ("b",))
    assert load.message.endswith("(+0.00 cents/hour; no longer served then: b)")


def chat(itl: float, wait: float = 0, cards: int = 100, load: float = 60) -> System:
    """A server with a batch of 8 on cards of one type, for these targets."""
    profile = PerformanceProfile("llm", "G2", DecodeParameters(17.15, 0.34), 8, 512)
    server = Server("chat", "Premium", "llm", Allocation(load=Load(load, 512)))
    options, capacity = Options(), {"G2": cards}
    return one_server(server, profile, target=Target(itl, wait), options=options, capacity=capacity)


def by_trying(system: System, field: str, start: int) -> int:
    """The first whole number of ms that serves the server."""
    tried = (f"class.Premium.llm.{field}={ms}" for ms in range(start, 100_000))
    change = next(change for change in tried if serves(system, change, "chat"))
    return int(change.rpartition("=")[2])


@pytest.mark.parametrize("itl", [0.5, 5, 17, 17.4])
def test_a_target_out_of_reach_is_raised_to_the_first_ms_that_will_do(itl: float) -> None:
    system = chat(itl)

    (remedy,) = found(system, "chat")

    assert remedy.kind is RemedyKind.TARGET
    assert remedy.amount == by_trying(system, "slo-itl", math.floor(itl) + 1)


def test_a_time_to_first_token_out_of_reach_is_raised_too() -> None:
    parameters = PrefillDecodeParameters(17.15, 0.34, 30, 0.05)
    profile = PerformanceProfile("llm", "G2", parameters, 8, 512)
    load = Load(60, input_tokens=200, output_tokens=512)
    server = Server("chat", "Premium", "llm", Allocation(load=load))
    system = one_server(server, profile, target=Target(ttft_ms=20), options=UNLIMITED)

    (remedy,) = found(system, "chat")

    assert remedy.change.startswith("class.Premium.llm.slo-ttft=")
    assert remedy.amount == by_trying(system, "slo-ttft", 21)


def test_the_target_that_is_in_the_way_is_raised_and_not_the_other() -> None:
    remedy = found(chat(itl=5, wait=1000), "chat")[0]

    assert remedy.change.startswith("class.Premium.llm.slo-itl=")
    assert "slo-itl of model 'llm' in class 'Premium' raised from 5 to " in remedy.message


def test_two_targets_out_of_reach_have_no_single_remedy() -> None:
    profile = PerformanceProfile("llm", "G2", DecodeParameters(17.15, 0.34), 1, 512)
    server = Server("chat", "Premium", "llm", Allocation(load=Load(60, 512)))
    system = one_server(server, profile, target=Target(17, 1), options=UNLIMITED)

    assert optimize(system).decisions[0].reason is Reason.UNATTAINABLE_SLO
    assert found(system, "chat") == ()


def test_where_cards_are_short_a_wait_that_can_be_borne_is_told() -> None:
    system = chat(itl=0, wait=100, cards=3)
    assert optimize(system).decisions[0].reason is Reason.NO_CAPACITY

    cards, wait, load = found(system, "chat")

    assert cards.change == "capacity.G2+=1"
    assert wait.amount == by_trying(system, "slo-ttw", 101)
    assert load.amount < 60


@pytest.mark.parametrize("load", [0.0123456, 1.5, 60, 1234567.8])
def test_a_lower_load_is_told_to_the_fourth_digit_and_not_one_unit_too_low(load: float) -> None:
    demand = Demand("a", {"X": 7}, load=load)
    system = system_of([demand], accelerators(X=10), {"X": 5})

    remedy = found(system, "a")[-1]

    assert remedy.amount == pytest.approx(load * 5 / 7, rel=1e-3)
    assert remedy.amount <= load * 5 / 7 * (1 + 1e-9)
    assert serves(system, remedy.change, "a")
    assert not serves(system, one_step_less(remedy, load), "a")


def short_fleets() -> Iterator[System]:
    for seed in (1, 0):
        for options in (Options(), SHARED, Options(delayed_best_effort=True)):
            system = decode_system(fleet(12, 6, seed=seed, demand=1.3))
            yield replace(system, options=options)
    yield replace(decode_system(fleet(6, 3, seed=1, demand=1.5)), options=MILP)


FLEETS = [*short_fleets()]


@pytest.mark.slow
@pytest.mark.parametrize("system", [*extended(*FLEETS[:3]), *FLEETS[3:6], *extended(*FLEETS[6:])])
def test_every_remedy_serves_and_one_step_less_does_not(system: System) -> None:
    solution = optimize(system)
    short = [d.server for d in solution.decisions if d.reason is not Reason.ALLOCATED][:2]

    loads = {server.name: server.load.arrival_rate for server in system.servers}
    told = [(name, remedy) for name in short for remedy in remedies(system, solution, name)]

    assert told
    for name, remedy in told:
        assert serves(system, remedy.change, name), remedy
        assert not serves(system, one_step_less(remedy, loads[name]), name), remedy


def test_cost_and_losers_are_those_of_the_changed_plan() -> None:
    system = replace(decode_system(fleet(12, 6, seed=2, demand=1.3)), options=SHARED)
    before = optimize(system)
    short = next(d.server for d in before.decisions if d.reason is not Reason.ALLOCATED)

    for remedy in remedies(system, before, short):
        after = optimize(apply_changes(system, [parse_change(remedy.change)]).system)
        lost = served_by(before) - served_by(after)
        assert remedy.cost == pytest.approx(after.cost - before.cost)
        assert set(remedy.displaced) == lost


def served_by(solution: Solution) -> set[str]:
    return {d.server for d in solution.decisions if d.reason is Reason.ALLOCATED}


def test_when_time_is_up_what_was_found_by_then_is_told() -> None:
    system = system_of([Demand("a", {"X": 3, "Y": 2})], accelerators(X=10, Y=40), {"X": 1})
    solution, all_of_them = optimize(system), found(system, "a")

    told = [_found_within(attempts, system, solution) for attempts in range(8)]

    assert [len(remedies) for remedies in told] == [0, 0, 1, 1, 2, 2, 3, 3]
    assert all(remedies == all_of_them[: len(remedies)] for remedies in told)


def _found_within(attempts: int, system: System, solution: Solution) -> tuple[Remedy, ...]:
    """What is found in so many attempts, each of which takes a second."""
    hurried = replace(system, options=Options(time_limit=attempts + 0.5))
    return remedies(hurried, solution, "a", clock=map(float, count()).__next__)


def test_names_in_a_remedy_are_quoted_where_they_need_it() -> None:
    demands = [Demand('a "b"=*', {"X": 3})]
    system = system_of(demands, accelerators(X=10), {"X": 2})

    for remedy in found(system, demands[0].name):
        assert serves(system, remedy.change, demands[0].name)


def test_a_server_that_gets_all_it_needs_has_no_remedies() -> None:
    assert found(system_of([Demand("a", {"X": 1})], accelerators(X=1), {"X": 1}), "a") == ()


def test_a_server_for_which_nothing_can_be_decided_has_no_remedies() -> None:
    system = replace(system_of([Demand("a", {"X": 1})], accelerators(X=1)), classes=())

    assert optimize(system).decisions[0].reason is Reason.UNKNOWN_CLASS
    assert found(system, "a") == ()


def test_an_idle_server_with_a_floor_needs_cards_and_nothing_else_helps() -> None:
    busy = system_of([Demand("a", {"X": 1}, min_replicas=2)], accelerators(X=1))
    idle = apply_changes(busy, [parse_change("server.a.load.arrivalRate=0")]).system

    assert changes(idle, "a") == ["capacity.X+=2"]


def test_an_unknown_server_is_named() -> None:
    with pytest.raises(InputError, match="no server is named 'b'"):
        found(system_of([Demand("a", {"X": 1})], accelerators(X=1)), "b")


@given(answer=st.integers(1, 10**6), guess=st.integers(-5, 10**6), most=st.integers(1, 10**6))
def test_the_search_finds_where_it_begins_to_succeed_in_few_attempts(
    answer: int, guess: int, most: int
) -> None:
    outcome = optimize(System())
    tried = []

    def attempt(number: int) -> Solution | None:
        tried.append(number)
        return outcome if number >= answer else None

    assert least(attempt, guess, most) == ((answer, outcome) if answer <= most else None)
    assert set(tried) <= set(range(1, most + 1))
    # Doubling, then steps of 1, 4, 16, ... back, then bisection of the last step.
    assert len(tried) <= 4 + (1 + 0.5 + 1) * math.log2(10**6)


@given(st.sets(st.integers(1, 60)), st.integers(1, 60))
def test_of_several_islands_the_search_ends_at_the_shore_of_one(
    islands: set[int], guess: int
) -> None:
    outcome = optimize(System())
    shores = {number for number in islands if number - 1 not in islands}

    answer = least(lambda number: outcome if number in islands else None, guess, 60)

    assert answer is None or answer[0] in shores
