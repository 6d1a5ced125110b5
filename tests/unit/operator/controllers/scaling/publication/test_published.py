"""What is published of a Server, from the states in which the operator writes it."""

from datetime import timedelta
from typing import Any

import pytest

from inferno_operator.controllers.scaling.publication import Published, publish
from inferno_operator.runtime.ports import GoneError
from inferno_optimizer.errors import UnavailableError
from inferno_optimizer.solution import IDLE
from inferno_optimizer.way_down import HALF
from tests.unit.operator import objects

Manifest = dict[str, Any]

NAMED = [{"accelerator": "A", "name": "on-a"}, {"accelerator": "B", "name": "on-b"}]
NOTHING = {"accelerator": "", "numReplicas": 0}


def server(
    desired: Manifest | None = None,
    reason: str | None = None,
    message: str = "",
    *,
    about: int = 1,
    **spec: object,
) -> Manifest:
    """A Server with a decision and the reason of its condition, about so old a generation."""
    decided = {} if desired is None else {"desiredAlloc": desired}
    manifest = objects.server("S", spec={"workloads": NAMED, **decided, **spec}, generation=1)
    if reason is None:
        return manifest
    status = "True" if reason in ("Allocated", "BestEffort") else "False"
    condition = objects.condition(
        "Allocated", reason, status=status, message=message, observedGeneration=about
    )
    return {**manifest, "status": {"conditions": [condition]}}


def published(manifest: Manifest, before: Published | None = None) -> Published:
    return publish(objects.observed_server(manifest), before)


def on(count: int, accelerator: str = "A") -> Manifest:
    return {"accelerator": accelerator, "numReplicas": count}


def test_a_decision_is_published_by_accelerator() -> None:
    found = published(server(on(3), "Allocated"))

    assert (found.on("A"), found.on("B")) == (3, 0)
    assert dict(found.parts()) == {"A": 3, "B": 0}


def published_at(manifest: Manifest, seconds: float = 0.0) -> dict[str, int]:
    """What an autoscaler reads, so long after the time of the tests."""
    whole = publish(objects.observed_server(manifest), None, "", HALF)
    return dict(whole.limited(objects.NOW + timedelta(seconds=seconds)).parts())


def went(seconds: int, **served: int) -> Manifest:
    """A reduction before the time of the tests, and what served before it."""
    time = f"{(objects.NOW - timedelta(seconds=seconds)).isoformat()[:19]}Z"
    replicas = [{"accelerator": a, "replicas": n} for a, n in served.items()]
    return {"time": time, "replicas": replicas}


def published_with(manifest: Manifest, **status: object) -> Manifest:
    return {**manifest, "status": {**manifest["status"], **status}}


def test_replicas_that_others_scale_go_by_half_within_five_minutes() -> None:
    whole = server(on(1), "Allocated", currentAlloc=on(8), actuation="Publish")
    half = server(on(1), "Allocated", currentAlloc=on(4), actuation="Publish")
    half = published_with(half, reductions=[went(100, A=8)])

    assert published_at(whole) == {"A": 4, "B": 0}
    assert published_at(half, 199) == {"A": 4, "B": 0}
    assert published_at(half, 200) == {"A": 2, "B": 0}


def test_what_starts_is_published_at_once_and_what_it_replaces_goes_by_half() -> None:
    moves = server(on(6, "B"), "Allocated", currentAlloc=on(8), actuation="Publish")

    assert published_at(moves) == {"A": 4, "B": 6}


@pytest.mark.parametrize("ready", [0, 1, 5])
def test_replicas_that_are_not_ready_for_a_while_go_by_half_too(ready: int) -> None:
    current = on(ready) if ready else NOTHING
    fallen = server(on(1), "Allocated", currentAlloc=current, actuation="Publish")
    fallen = published_with(fallen, reductions=[went(100, A=8)])

    assert published_at(fallen, 199) == {"A": 4, "B": 0}


def test_a_number_that_grows_is_published_beside_reductions() -> None:
    grows = server(on(9), "Allocated", currentAlloc=on(4), actuation="Publish")

    assert published_at(published_with(grows, reductions=[went(1, A=8)])) == {"A": 9, "B": 0}


def test_what_a_person_approved_is_published_at_once() -> None:
    whole = server(on(1), "Allocated", currentAlloc=on(8), actuation="Publish")
    approved = {"plan": "p", "replicas": [{"accelerator": "A", "replicas": 1}]}

    assert published_at(published_with(whole, approved=approved)) == {"A": 1, "B": 0}


def test_the_decision_is_published_where_the_operator_scales() -> None:
    assert published_at(server(on(1), "Allocated", currentAlloc=on(8))) == {"A": 1, "B": 0}


def test_the_parts_of_a_mix_come_with_the_largest_first() -> None:
    mix = [on(1, "A"), on(4, "B")]

    found = published(server({**on(5, "B"), "mix": mix}, "Allocated"))

    assert list(found.decided.items()) == [("B", 4), ("A", 1)]
    assert (found.on("A"), found.on("B")) == (1, 4)


@pytest.mark.parametrize(("reason", "message"), [("Allocated", IDLE), ("NoCapacity", "no cards")])
def test_a_decision_for_nothing_is_a_number_too(reason: str, message: str) -> None:
    found = published(server(NOTHING, reason, message))

    assert (found.on("A"), found.decided) == (0, {})


@pytest.mark.parametrize(
    ("manifest", "why"),
    [
        (server(), "nothing was decided yet"),
        (server(NOTHING, "InvalidSpec", "bad class"), "InvalidSpec: bad class"),
        (server(on(3), "UnknownModel", "no model 'M'"), "UnknownModel: no model 'M'"),
        (server(NOTHING, "Allocated", about=0), "being written"),
        (server(on(3), "NoCapacity"), "being written"),
    ],
)
def test_without_a_decision_there_is_no_number(manifest: Manifest, why: str) -> None:
    found = published(manifest)

    with pytest.raises(UnavailableError, match=f"Server default/s: no decision stands: .*{why}"):
        found.on("A")


def test_while_a_decision_is_written_the_one_before_stands() -> None:
    before = published(server(on(3), "Allocated"))

    cleared = published(server(NOTHING, "Allocated", about=0), before)
    undecided = published(server(NOTHING, "UnknownModel"), cleared)

    assert cleared.on("A") == 3
    assert undecided.replicas is None


def test_an_accelerator_that_nobody_named_is_no_decision_for_nothing() -> None:
    found = published(server(on(3), "Allocated"))

    with pytest.raises(
        GoneError, match=r"Server default/s: spec.workloads: .*'a'; known: 'A', 'B'"
    ):
        found.on("a")


def test_the_backends_of_a_booster_count_as_named() -> None:
    booster: Manifest = {"name": "m", "backends": [{"name": "x", "accelerator": "B"}]}

    booster["backends"].append({"name": "y", "accelerator": "A"})
    found = published(server(on(2), "Allocated", workloads=[], modelBooster=booster))

    assert dict(found.parts()) == {"A": 2, "B": 0}


def test_a_decision_for_an_accelerator_without_a_workload_does_not_stop_the_others() -> None:
    found = published(server(on(2, "C"), "Allocated"))

    with pytest.raises(UnavailableError, match="no item runs on accelerator 'C': add one"):
        found.on("A")


def test_without_workloads_the_decision_alone_names_accelerators() -> None:
    found = published(server(on(2, "C"), "Allocated", workloads=[]))

    assert found.on("C") == 2
    with pytest.raises(GoneError, match="no item runs on accelerator 'A'; known: 'C'"):
        found.on("A")
