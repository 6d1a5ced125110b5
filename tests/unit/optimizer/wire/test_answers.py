"""Answers of other optimizers: what is read, refused, doubted, and kept as it runs."""

import json
from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from inferno_optimizer.errors import InputError
from inferno_optimizer.optimize import optimize
from inferno_optimizer.solution import Gain, Reason, Solution, SolverStatus
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
from inferno_optimizer.wire.codec import (
    decode_solution,
    decode_system,
    encode_solution,
    encode_system,
    has_certificate,
)
from inferno_optimizer.wire.plausibility import Sizes, find_doubts, mark_best_effort
from inferno_optimizer.wire.questions import convert_least_rates, reword, screen
from inferno_optimizer.wire.retention import keep_running
from tests.examples import several
from tests.generate import fleet
from tests.rest_optimizer.optimizer import as_the_original_tells
from tests.tiers import extended, sampled
from tests.unit.optimizer.random_systems import Kind, random_options, random_system
from tests.unit.optimizer.systems import Demand, accelerators, system_of

JsonObject = dict[str, Any]

FLEET = decode_system(fleet(40, 5, seed=1, demand=2.0))
FEW_SERVERS = Kind(servers=5, batches=(4, 16))


def asked(system: System, **options: Any) -> System:  # noqa: ANN401 - options of any type
    return replace(system, options=replace(system.options, **options))


def answer_to(system: System) -> JsonObject:
    """What an optimizer answers that gets the system over the wire."""
    received = decode_system(json.loads(json.dumps(encode_system(system))))
    answer: JsonObject = json.loads(json.dumps(encode_solution(optimize(received))))
    return answer


def rows(solution: Solution) -> list[tuple[object, ...]]:
    return [
        (
            d.server,
            d.reason,
            d.message,
            d.allocation
            and (
                d.allocation.accelerator,
                d.allocation.replicas,
                d.allocation.cost,
                d.allocation.tail,
            ),
        )
        for d in solution.decisions
    ]


@pytest.mark.parametrize(
    "options",
    [
        {"unlimited": True},
        {"unlimited": False},
        {"saturation_policy": SaturationPolicy.ROUND_ROBIN},
        {"milp": True},
    ],
)
def test_a_plan_comes_back_as_it_was(options: dict[str, Any]) -> None:
    system = asked(FLEET, **options)
    here = optimize(system)

    there = decode_solution(answer_to(system), system)

    assert rows(there) == rows(here)
    assert [(u.type, u.used, u.available) for u in there.capacity] == [
        (u.type, u.used, u.available) for u in here.capacity
    ]
    assert there.certificate.status == here.certificate.status
    assert there.certificate.objective == pytest.approx(here.certificate.objective)


def test_what_one_more_card_is_worth_comes_back() -> None:
    system = asked(FLEET, milp=True)
    saves, serves = sorted({unit.type for unit in FLEET.accelerators})[:2]
    answer = answer_to(system)
    answer["certificate"]["prices"] = {saves: 12.5}
    answer["certificate"]["gains"] = {serves: {"priority": 2, "load": 30.0}}

    found = {use.type: use for use in decode_solution(answer, system).capacity}

    assert (found[saves].price, found[saves].gain) == (12.5, None)
    assert (found[serves].price, found[serves].gain) == (None, Gain(2, 30.0))
    written = encode_solution(decode_solution(answer, system))["certificate"]
    assert written["prices"] == answer["certificate"]["prices"]
    assert written["gains"] == answer["certificate"]["gains"]


def test_an_answer_of_allocations_alone_proves_nothing() -> None:
    answer = {"allocations": answer_to(FLEET)["allocations"]}

    solution = decode_solution(answer, FLEET)

    assert solution.certificate.status is SolverStatus.FEASIBLE
    assert solution.certificate.bound is None
    assert {d.reason for d in solution.unserved} <= {Reason.NO_CAPACITY, Reason.UNATTAINABLE_SLO}
    assert solution.allocations.keys() == optimize(FLEET).allocations.keys()


def given_to(answer: JsonObject) -> JsonObject:
    """One allocation of the answer, to be spoilt."""
    allocation: JsonObject = next(a for a in answer["allocations"].values() if a["numReplicas"])
    return allocation


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (lambda a: given_to(a).update(cost=-0.5), "cost: -0.5 is negative"),
        (lambda a: given_to(a).update(load=None), "load.arrivalRate: it is for 0 requests/min"),
        (lambda a: given_to(a)["load"].update(avgOutTokens=7), "load.avgOutTokens: it is for 7"),
        (
            lambda a: given_to(a)["load"].update(tokensPerStep=2.5),
            "load.tokensPerStep: it is for 2.5",
        ),
        (lambda a: a["certificate"].update(status="Perfect"), "'Perfect' is not a status"),
        (lambda a: a.update(unserved=[1]), "unserved"),
        (lambda a: a["unserved"].update({key: {} for key in a["allocations"]}), "both served and"),
    ],
)
def test_what_is_no_answer_to_this_system_is_refused(spoil: Any, words: str) -> None:  # noqa: ANN401 - a lambda
    """What else is none is in `tests/rest_optimizer/faults.py`."""
    answer = answer_to(FLEET)
    spoil(answer)

    with pytest.raises(InputError) as raised:
        decode_solution(answer, FLEET)

    assert words in str(raised.value)


def with_drafts(server: Server) -> Server:
    load = replace(server.load, tokens_per_step=2.5)
    return replace(server, current=replace(server.current, load=load))


def test_other_tokens_of_a_step_are_refused_and_those_asked_for_or_none_are_not() -> None:
    """An optimizer that does not know them leaves them out; 0 asks for one."""
    drafts = replace(FLEET, servers=tuple(map(with_drafts, FLEET.servers)))
    for system, fine, wrong in ((drafts, 2.5 * (1 + 1e-7), 1.0), (FLEET, 1.0, 2.5)):
        answer = answer_to(system)
        for told in (fine, 0.0):
            given_to(answer)["load"].update(tokensPerStep=told)
            assert decode_solution(answer, system).decisions
        given_to(answer)["load"].update(tokensPerStep=wrong)
        with pytest.raises(InputError, match=f"it is for {wrong:g} tokens, not the"):
            decode_solution(answer, system)


def test_screening_leaves_out_what_cannot_be_decided_and_nothing_else() -> None:
    lost = replace(FLEET.servers[0], model="gone")
    flood = Load(arrival_rate=1e30, tokens_per_request=512)
    flooded = replace(FLEET.servers[1], current=Allocation(load=flood))
    system = asked(replace(FLEET, servers=(lost, flooded, *FLEET.servers[2:])))

    screening = screen(system)

    assert {d.server: d.reason for d in screening.decisions} == {
        lost.name: Reason.UNKNOWN_MODEL,
        flooded.name: Reason.INVALID_SPEC,
    }
    assert screening.system.servers == FLEET.servers[2:]
    assert screening.system.profiles == FLEET.profiles


@several(60)
@given(st.randoms(use_true_random=False), st.booleans())
def test_a_screened_system_has_the_cards_that_the_whole_one_hands_out(
    random: Random, milp: bool
) -> None:
    system = random_system(random, FEW_SERVERS, random_options(random, milp=milp))

    screened = screen(system).system

    usable = {use.type: use.usable for use in optimize(system).capacity}
    assert {t: screened.capacity.get(t, 0) for t in usable} == usable


@pytest.mark.parametrize("hold", [True, False])
def test_a_screened_system_has_the_same_plan(hold: bool) -> None:
    lost = replace(FLEET.servers[0], service_class="gone")
    system = asked(replace(FLEET, servers=(lost, *FLEET.servers[1:])), hold_undecided=hold)
    screening = screen(system)

    assert rows(screening.complete(optimize(screening.system))) == rows(optimize(system))


def test_screening_a_sound_system_changes_nothing() -> None:
    screening = screen(FLEET)

    assert encode_system(screening.system) == encode_system(
        replace(FLEET, capacity=dict(sorted(FLEET.capacity.items())))
    )


# Answers that give too little: no doubt where cards are short, a name where they are not


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


# Answers of the original under the policy `Hold`: what runs stays, and no card is given twice


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
