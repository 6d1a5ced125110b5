"""Answers of other optimizers: the same plan comes back, and what is none is refused."""

import json
from dataclasses import replace
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from inferno_optimizer.errors import InputError
from inferno_optimizer.optimize import optimize
from inferno_optimizer.solution import Gain, Reason, Solution, SolverStatus
from inferno_optimizer.system import Allocation, Load, SaturationPolicy, Server, System
from inferno_optimizer.wire.codec import (
    decode_solution,
    decode_system,
    encode_solution,
    encode_system,
)
from inferno_optimizer.wire.questions import screen
from tests.examples import several
from tests.generate import fleet
from tests.unit.optimizer.random_systems import Kind, random_options, random_system

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
