"""What changes the inputs of a Plan, and what does not."""

import pytest

from inferno_operator.controllers.planning.proposal import (
    StoredDecision,
    compute_inputs_digest,
    find_missing_cards,
    find_moved_load,
)
from inferno_operator.resources import Count, Optimizer, Resource, parse
from tests.unit.operator import objects
from tests.unit.operator.objects import Manifest

WORKLOADS = {"workloads": [{"accelerator": "A", "name": "w"}]}
MEASURE = {"measure": {"source": "vLLM", "labels": {"model_name": "m"}}}


def server(status: Manifest | None = None, **spec: object) -> Resource:
    manifest = objects.server("S", spec=spec)
    return parse({**manifest, "status": status or {}})


def counted_cards(available: int) -> Manifest:
    counts = dict.fromkeys(("total", "others", "ours", "free"), 0)
    return {"type": "T", **counts, "available": available, "boundBy": "nodes"}


def digest(*resources: Resource) -> str:
    optimizer = parse(objects.optimizer())
    assert isinstance(optimizer, Optimizer)
    return compute_inputs_digest(resources, optimizer)


@pytest.mark.parametrize(
    ("fields", "change"),
    [
        ({}, {"desiredAlloc": {"accelerator": "A", "numReplicas": 7}}),
        (WORKLOADS, {"currentAlloc": objects.running(1, 2)}),
        (MEASURE, {"currentAlloc": objects.running(0, 9)}),
        ({}, {"currentAlloc": {**objects.running(0, 2), "itlAverage": 12.5}}),
    ],
    ids=["the decision", "what runs on workloads", "a measured load", "a measured latency"],
)
def test_what_the_operator_writes_or_measures_is_no_input(
    fields: Manifest, change: Manifest
) -> None:
    assert digest(server(**fields)) == digest(server(**{**fields, **change}))


@pytest.mark.parametrize(
    ("fields", "change"),
    [
        ({}, {"currentAlloc": objects.running(1, 2)}),
        ({}, {"currentAlloc": objects.running(0, 3)}),
        (WORKLOADS, {"currentAlloc": objects.running(0, 3)}),
        (MEASURE, {"minNumReplicas": 1}),
    ],
    ids=["what runs, typed", "a typed load", "a typed load with workloads", "another field"],
)
def test_what_a_person_writes_is_an_input(fields: Manifest, change: Manifest) -> None:
    assert digest(server(**fields)) != digest(server(**{**fields, **change}))


def test_the_order_of_objects_and_their_status_are_no_input() -> None:
    one, other = server(), parse(objects.accelerator())

    assert digest(one, other) == digest(other, server({"active": True}))


def test_declared_cards_are_an_input() -> None:
    assert digest(parse(objects.capacity(4))) != digest(parse(objects.capacity(5)))


def test_counted_cards_are_no_input_but_a_plan_must_fit_into_them() -> None:
    few, many = (
        parse({**objects.capacity(9), "status": {"counted": [counted_cards(n)]}}) for n in (2, 5)
    )
    cards = [Count(type="T", count=3)]

    assert digest(few) == digest(many)
    assert find_missing_cards(cards, {"T": 3}) == ""
    assert find_missing_cards(cards, {"T": 2}) == "there are 2 cards of type T, and it takes 3"
    assert find_missing_cards(cards, {}) == "there are 0 cards of type T, and it takes 3"


@pytest.mark.parametrize(
    ("rate", "moved"), [(100, ""), (125, ""), (75, ""), (126, "126 now"), (74, "74 now")]
)
def test_a_measured_load_may_move_by_a_quarter(rate: float, moved: str) -> None:
    decided = {"arrivalRate": 100, "avgLength": 1}
    decision = StoredDecision("s", {}, (), active=True, load=decided)
    load = {"arrivalRate": rate, "avgLength": 1}
    current = {"accelerator": "", "numReplicas": 0, "load": load}

    told = find_moved_load([decision], [server(currentAlloc=current, **MEASURE)])

    assert told.endswith(moved)
    assert bool(told) == bool(moved)


def test_a_server_that_is_not_measured_any_more_counts_as_moved() -> None:
    load = {"arrivalRate": 100, "avgLength": 1}
    decision = StoredDecision("s", {}, (), active=True, load=load)

    assert "not measured any more" in find_moved_load(
        [decision], [server(currentAlloc=None, **MEASURE)]
    )
