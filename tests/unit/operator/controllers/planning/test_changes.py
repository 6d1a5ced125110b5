"""From an optimization to what is written on each object: only what differs."""

import json
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from inferno_operator.controllers.planning.conversions import build_desired
from inferno_operator.controllers.planning.snapshot import build_system
from inferno_operator.controllers.planning.updates import Update, list_troubles, plan_updates
from inferno_operator.resources import Optimizer
from inferno_operator.resources.allocation import ServerAllocation
from inferno_operator.resources.objects import Key
from inferno_operator.resources.observation import readable, still_running
from inferno_optimizer.optimize import optimize
from inferno_optimizer.solution import Certificate, Decision, Reason, Solution, SolverStatus
from inferno_optimizer.system import Allocation, Load
from tests.unit.operator.objects import (
    LATER,
    NOW,
    Manifest,
    accelerator,
    born,
    capacity,
    guarded,
    is_cleared,
    manifest,
    model,
    observed,
    optimizer,
    performance,
    running,
    server,
    service_class,
    system,
)

SCENE = (*system(4), optimizer(optimize=False))
TWO = Allocation("A", 2, 1, 20.0, 999.0, 0.25, Load(90.0, 1))
CERTIFICATE = Certificate("greedy", SolverStatus.FEASIBLE, 0.0, None, 0.0)


def plan(*manifests: Manifest) -> dict[str, Update]:
    """What each object is to say after an optimization, by its metadata.name."""
    observations = [observed(item) for item in manifests]
    snapshot = build_system([*readable(observations), *still_running(observations)])
    updates = plan_updates(observations, snapshot, optimize(snapshot.system))
    return {update.reference.key.name: update for update in updates}


def decide(subject: Manifest, decision: Decision) -> Update:
    """What a Server is to say after a decision."""
    observation = observed(subject)
    solution = Solution((decision,), CERTIFICATE, ())
    (update,) = plan_updates([observation], build_system(readable([observation])), solution)
    return update


def allocated(allocation: Allocation = TWO, message: str = "2 x A") -> Decision:
    return Decision("S", Reason.ALLOCATED, message, allocation)


def carried_out(subject: Manifest, update: Update) -> Manifest:
    """The object afterwards, as the API server has it: whole numbers without a fraction."""
    generation = subject["metadata"].get("generation", 1) + (update.spec is not None)
    status = update.status_at(generation, NOW) or subject.get("status", {})
    written = {
        **subject,
        "metadata": {**subject["metadata"], "generation": generation},
        "spec": {**subject["spec"], **(update.spec or {})},
        "status": {**subject.get("status", {}), **status},
    }
    text = json.dumps(written)
    stored: Manifest = json.loads(
        text, parse_float=lambda number: int(n) if (n := float(number)).is_integer() else n
    )
    return stored


def said(update: Update) -> dict[str, tuple[bool | None, str, str]]:
    return {v.type: (v.holds, v.reason, v.message) for v in update.verdicts}


def news(update: Update) -> list[tuple[str, str, str]]:
    return [(event.type, event.reason, event.message) for event in update.events()]


def test_a_decision_is_written_with_every_number_and_its_load() -> None:
    update = decide(server(), allocated())

    assert update.spec is not None
    assert update.spec.keys() == {"desiredAlloc"}
    assert (
        update.spec["desiredAlloc"].items()
        >= {
            "accelerator": "A",
            "numReplicas": 2,
            "maxBatch": 1,
            "cost": 20,
            "itlAverage": 999,
            "waitAverage": 0.25,
        }.items()
    )
    load = {"arrivalRate": 90, "avgLength": 1, "arrivalCOV": 0, "serviceCOV": 0}
    assert update.spec["desiredAlloc"]["load"].items() >= load.items()
    assert update.active
    assert said(update) == {
        "Ready": (True, "Allocated", "2 x A"),
        "Allocated": (True, "Allocated", "2 x A"),
    }


def test_warnings_are_a_condition_of_their_own_which_goes_with_them() -> None:
    warned = replace(allocated(), warnings=("a large batch", "no input"))
    update = decide(server(), warned)

    assert said(update)["Warnings"] == (True, "Implausible", "a large batch; no input")
    assert update.main.type == "Allocated"

    after = carried_out(server(), update)
    assert decide(after, warned).status_at(2, LATER) is None

    cured = decide(after, allocated()).status_at(2, LATER)
    assert cured is not None
    assert [condition["type"] for condition in cured["conditions"]] == ["Ready", "Allocated"]


def test_an_update_is_about_the_object_that_was_read() -> None:
    subject = server(name="chat", namespace="prod", uid="1-2-3", generation=8)

    update = decide(subject, allocated())

    assert (update.reference.kind.kind, update.reference.key, update.reference.uid) == (
        "Server",
        Key("prod", "chat"),
        "1-2-3",
    )
    assert update.generation == 8


def test_the_status_says_for_which_generation_it_is() -> None:
    status = decide(server(), allocated()).status_at(9, NOW)

    assert status is not None
    assert status["active"] is True
    assert status["observedGeneration"] == 9
    assert [c["observedGeneration"] for c in status["conditions"]] == [9, 9]
    assert {c["lastTransitionTime"] for c in status["conditions"]} == {"2026-03-01T12:00:00Z"}


numbers = st.floats(0, 1e9, allow_subnormal=False)
allocations = st.builds(
    Allocation,
    accelerator=st.sampled_from(["A", "2xH100", "é"]),
    replicas=st.integers(0, 10_000),
    max_batch_size=st.integers(0, 4096),
    cost=numbers,
    itl_ms=numbers,
    wait_ms=numbers,
    load=st.builds(Load, numbers, st.integers(0, 100_000), numbers, numbers),
)


@given(allocations)
def test_any_decision_made_twice_is_written_once(allocation: Allocation) -> None:
    decision = allocated(allocation)
    second = carried_out(server(), decide(server(), decision))

    again = decide(second, decision)

    assert again.spec is None
    assert again.status_at(again.generation, LATER) is None


def test_a_new_generation_with_the_same_outcome_moves_the_observed_one_only() -> None:
    second = carried_out(server(), decide(server(), allocated()))

    update = decide(second, allocated())
    status = update.status_at(update.generation + 1, LATER)

    assert update.spec is None
    assert status is not None
    assert status["observedGeneration"] == 3
    assert {c["lastTransitionTime"] for c in status["conditions"]} == {"2026-03-01T12:00:00Z"}


def test_conditions_of_others_neither_count_nor_are_written() -> None:
    foreign = {
        "type": "Audited",
        "status": "True",
        "reason": "Fine",
        "message": "",
        "lastTransitionTime": "2026-02-01T00:00:00Z",
    }
    second = carried_out(server(), decide(server(), allocated()))
    second["status"]["conditions"].insert(0, foreign)

    update = decide(second, allocated())
    later = decide(second, allocated(message="2 x A, still")).status_at(2, LATER)

    assert update.status_at(2, LATER) is None
    assert later is not None
    assert [condition["type"] for condition in later["conditions"]] == ["Ready", "Allocated"]


@pytest.mark.parametrize("had", [True, False], ids=["lost", "never had"])
def test_without_an_allocation_all_is_cleared_to_the_last_number(*, had: bool) -> None:
    before = carried_out(server(), decide(server(), allocated())) if had else server()

    update = decide(before, Decision("S", Reason.NO_CAPACITY, "so it is"))

    assert update.spec is not None
    assert is_cleared(update.spec["desiredAlloc"])
    assert said(update)["Allocated"] == (False, "NoCapacity", "so it is")
    assert said(update)["Ready"] == (False, "NoCapacity", "so it is")
    assert news(update) == [("Warning", "NoCapacity", "so it is")]


@pytest.mark.parametrize("reason", [r for r in Reason if not r.decided])
def test_where_no_decision_is_possible_the_last_one_stands(reason: Reason) -> None:
    second = carried_out(server(), decide(server(), allocated()))

    update = decide(second, Decision("S", reason, "so it is"))

    assert update.spec is None
    assert said(update)["Allocated"] == (False, reason, "so it is")
    assert said(update)["Ready"] == (False, reason, "so it is")
    assert news(update) == [("Warning", reason, "so it is")]


def test_what_others_filled_in_beside_our_numbers_is_cleared_too() -> None:
    foreign = {"ttftAverage": 50, "mix": [{"accelerator": "A", "numReplicas": 2}]}
    before = {**build_desired(TWO), **foreign}

    update = decide(server(spec={"desiredAlloc": before}), Decision("S", Reason.NO_CAPACITY, ""))

    assert update.spec is not None  # applied: fields that it doesn't name stay as they are
    assert is_cleared({**before, **update.spec["desiredAlloc"]})


@pytest.mark.parametrize(
    ("reason", "active"),
    [
        ("Allocated", True),
        ("BestEffort", True),
        ("NoCapacity", True),
        ("UnattainableSLO", False),
        ("NoPerformanceData", False),
        ("NoTarget", False),
        ("UnknownModel", False),
        ("UnknownClass", False),
        ("InvalidSpec", False),
    ],
)
def test_a_server_is_active_when_something_could_be_decided(reason: str, active: bool) -> None:
    assert decide(server(), Decision("S", Reason(reason), "")).active is active


def test_best_effort_is_an_allocation_but_not_ready() -> None:
    update = decide(server(), Decision("S", Reason.BEST_EFFORT, "1 of 2", TWO))

    assert said(update)["Allocated"][0] is True
    assert said(update)["Ready"][0] is False


def test_a_new_reason_for_the_same_allocation_is_told_without_touching_the_spec() -> None:
    second = carried_out(server(), decide(server(), allocated()))

    update = decide(second, Decision("S", Reason.BEST_EFFORT, "of 3", TWO))
    status = update.status_at(update.generation, LATER)

    assert update.spec is None
    assert status is not None
    assert [(c["status"], c["reason"], c["lastTransitionTime"]) for c in status["conditions"]] == [
        ("False", "BestEffort", "2026-03-01T13:30:00Z"),
        ("True", "BestEffort", "2026-03-01T12:00:00Z"),
    ]
    assert news(update) == [("Normal", "BestEffort", "of 3")]


def test_a_new_allocation_is_news_even_if_its_message_is_the_same() -> None:
    second = carried_out(server(), decide(server(), allocated()))
    larger = Allocation("A", 2, 7, 20.0, 999.0, 0.25, TWO.load)

    assert news(decide(second, allocated(larger))) == [("Normal", "Allocated", "2 x A")]


@pytest.mark.parametrize("wanted", [2, 9])
def test_an_allocation_and_its_loss_are_told_once_each(wanted: int) -> None:
    first = [*SCENE, server(wanted=wanted)]
    updates = plan(*first)

    assert [event.about.key.name for update in updates.values() for event in update.events()] == [
        "s"
    ]


def test_of_the_other_kinds_only_bad_news_is_told() -> None:
    good, bad = plan(accelerator()), plan(accelerator(cost=-1))

    assert said(good["a"]) == {"Ready": (True, "Valid", "")}
    assert not news(good["a"])
    assert news(bad["a"]) == [("Warning", "InvalidSpec", said(bad["a"])["Ready"][2])]
    assert "cost" in said(bad["a"])["Ready"][2]


HELD = {"acc": "A", "role": "Both", "accCount": 1, "type": "T", "multiplicity": 1}

OF_BEFORE: dict[str, Manifest] = {
    "a": {"type": "T", "multiplicity": 1},
    "m": {"replicaCards": [HELD], "performance": [performance()]},
    "s": {"replicaCards": [{"model": "M", **HELD}], "lastAccelerator": "A"},
}
"""Statuses with the fields of the version before, by name of the object."""


@pytest.mark.parametrize("name", OF_BEFORE)
def test_a_status_of_the_version_before_is_read_and_its_old_fields_are_not_written(
    name: str,
) -> None:
    subjects = [accelerator(name="a"), model(name="m"), server("S"), service_class(), capacity(4)]
    old = [{**s, "status": OF_BEFORE.get(s["metadata"]["name"], {})} for s in subjects]

    (read,) = (observed(each) for each in old if each["metadata"]["name"] == name)
    written = plan(*old)[name].status_at(1, NOW)

    assert (read.resource is not None, read.problem) == (True, "")
    assert written is not None
    assert not {"type", "multiplicity", "replicaCards", "performance"} & written.keys()
    assert name != "s" or written["lastAccelerator"] == "A"


def test_an_optimizer_with_limits_of_the_version_before_is_read() -> None:
    limits = {"maxReplicasDecreasePercent": 10, "maxServedLoadDecreasePercent": 10}
    with_limits = guarded({**limits, "maxServersChanged": 2})

    found = observed(with_limits).resource

    assert isinstance(found, Optimizer)
    assert found.spec.guard is not None
    assert found.spec.guard.max_servers_changed == 2


def test_an_object_with_several_problems_names_them_all() -> None:
    updates = plan(model(data=[performance("gone"), performance("A", alpha=-1, beta=0)]))

    holds, reason, message = said(updates["m"])["Ready"]

    assert (holds, reason) == (False, "UnknownAccelerator")
    assert "gone" in message
    assert "alpha" in message
    assert not updates["m"].active


def test_a_younger_server_of_the_same_name_gets_no_allocation() -> None:
    older, younger = (
        server(name=name, creationTimestamp=born(minute)) for minute, name in ((1, "a"), (2, "b"))
    )

    updates = plan(*SCENE, older, younger)

    assert said(updates["a"])["Allocated"][:2] == (True, "Allocated")
    holds, reason, message = said(updates["b"])["Allocated"]
    assert (holds, reason) == (False, "InvalidSpec")
    assert "'S'" in message
    assert "'a'" in message
    assert updates["b"].spec is None


def test_a_younger_object_of_another_kind_says_so_itself() -> None:
    updates = plan(
        accelerator(name="a", creationTimestamp=born(1)),
        accelerator(name="b", creationTimestamp=born(2)),
    )

    holds, reason, message = said(updates["b"])["Ready"]

    assert said(updates["a"])["Ready"][0] is True
    assert (holds, reason) == (False, "DuplicateName")
    assert "'a'" in message


@pytest.mark.parametrize(
    "kind", ["Accelerator", "Model", "ServiceClass", "Server", "Capacity", "Optimizer"]
)
def test_an_object_without_a_spec_says_so_and_hurts_nobody_else(kind: str) -> None:
    updates = plan(*SCENE, server(), manifest(kind, None, name="broken"))

    assert said(updates["broken"])["Ready"] == (False, "InvalidSpec", "spec is missing")
    assert updates["broken"].spec is None
    assert not updates["broken"].active
    assert news(updates["broken"]) == [("Warning", "InvalidSpec", "spec is missing")]
    assert said(updates["s"])["Allocated"] == (True, "Allocated", "2 x A")


@pytest.mark.parametrize(
    "bad", [accelerator(cost=-1), manifest("Server", None, name="broken")], ids=["number", "spec"]
)
def test_bad_news_is_told_once(bad: Manifest) -> None:
    name = bad["metadata"]["name"]
    status = json.loads(json.dumps(plan(bad)[name].status_at(1, NOW)))

    again = plan({**bad, "status": status})[name]

    assert again.status_at(1, LATER) is None
    assert not news(again)


def test_a_server_that_is_mended_says_so() -> None:
    broken = carried_out(server(), decide(server(), Decision("S", Reason.UNKNOWN_CLASS, "no C")))

    update = decide(broken, allocated())
    status = update.status_at(3, LATER)

    assert status is not None
    assert {(c["status"], c["lastTransitionTime"]) for c in status["conditions"]} == {
        ("True", "2026-03-01T13:30:00Z")
    }
    assert news(update) == [("Normal", "Allocated", "2 x A")]


def cards_used(updates: Iterable[Update], asked: dict[str, Manifest]) -> int:
    """Cards in use if every server with a decision follows it and the others stay as they are."""
    return sum(
        update.spec["desiredAlloc"]["numReplicas"]
        if update.active and update.spec
        else asked[update.reference.key.name]["spec"]["currentAlloc"]["numReplicas"]
        for update in updates
        if update.reference.kind.kind == "Server"
    )


@pytest.mark.parametrize(
    "trouble",
    [
        pytest.param({"class": "gone"}, id="unknown class"),
        pytest.param({"name": "S"}, id="name taken by an older server"),
        pytest.param({"minNumReplicas": "2"}, id="spec that cannot be read"),
        pytest.param(
            {"currentAlloc": {**running(2, 2), "load": {"arrivalRate": 60}}},
            id="load that cannot be read",
        ),
    ],
)
def test_what_an_undecided_server_runs_on_is_given_to_nobody_else(trouble: dict[str, Any]) -> None:
    fine = server(wanted=2, creationTimestamp=born(1))
    spec = {"currentAlloc": running(2, 2), **trouble}
    undecided = server("U", spec=spec, creationTimestamp=born(2))
    scene = (*system(3), optimizer())

    updates = plan(*scene, fine, undecided)

    assert said(updates["u"])["Allocated"][0] is False
    assert not updates["u"].active
    assert cards_used(updates.values(), {"s": fine, "u": undecided}) <= 3


def test_a_server_that_cannot_be_read_is_told_once() -> None:
    torn = server(spec={"currentAlloc": running(2, 2), "minNumReplicas": "2"})
    observations = [observed(item) for item in (*SCENE, torn)]
    snapshot = build_system([*readable(observations), *still_running(observations)])

    (trouble,) = list_troubles(observations, snapshot)

    assert "spec.minNumReplicas" in trouble


@pytest.mark.parametrize("current", [None, {"accelerator": "A", "numReplicas": 2}])
def test_a_server_whose_load_is_not_given_is_not_silently_idle(current: Manifest | None) -> None:
    spec = {"name": "S", "class": "C", "model": "M"}
    known = spec if current is None else {**spec, "currentAlloc": current}

    update = plan(*SCENE, manifest("Server", known, name="s"))["s"]

    assert "load" in said(update)["Allocated"][2]


def test_a_load_comes_back_in_the_words_in_which_it_was_given() -> None:
    load = Load(arrival_rate=60, input_tokens=100, output_tokens=200)

    written = build_desired(Allocation("A", 1, load=load))["load"]

    assert written.items() >= {"arrivalRate": 60, "avgInTokens": 100, "avgOutTokens": 200}.items()
    assert "avgLength" not in written


def test_each_accelerator_of_a_mix_is_written_with_its_share_of_the_load() -> None:
    parts = (
        Allocation("A", 2, cost=20, load=Load(40, 512)),
        Allocation("B", 1, cost=30, load=Load(20, 512)),
    )
    mixed = Allocation("A", 3, cost=50, load=Load(60, 512), mix=parts)

    written = build_desired(mixed)

    assert (written["accelerator"], written["numReplicas"], written["cost"]) == ("A", 3, 50)
    assert [(p["accelerator"], p["numReplicas"], p["cost"]) for p in written["mix"]] == [
        ("A", 2, 20),
        ("B", 1, 30),
    ]
    assert [part["load"]["arrivalRate"] for part in written["mix"]] == [40, 20]


def test_a_mix_is_read_by_the_resource_as_it_was_written() -> None:
    parts = (Allocation("A", 2, cost=20), Allocation("B", 1, cost=30))
    written = build_desired(Allocation("A", 3, cost=50, mix=parts))

    read = ServerAllocation.model_validate(written)

    assert read.to_json() == written


@pytest.mark.parametrize("priority", [0, 101])
def test_a_priority_that_counts_as_the_lowest_is_warned_of(priority: int) -> None:
    updates = plan(*SCENE, service_class("Gold", priority=priority))

    assert said(updates["gold"])["Ready"][:2] == (True, "Valid")
    holds, reason, message = said(updates["gold"])["Warnings"]
    assert (holds, reason) == (True, "Implausible")
    assert message.startswith(f"priority: {priority} counts as 100, the least important")
    assert "Warnings" not in said(updates["c"])


def test_numbers_that_are_absurd_for_their_unit_are_warned_of_on_their_objects() -> None:
    target = {"model": "M", "slo-itl": 1.5}
    in_seconds = manifest("ServiceClass", {"name": "C", "priority": 1, "data": [target]}, name="c")
    dear = accelerator(cost=9)
    updates = plan(dear, model(), in_seconds, capacity(4), server())

    assert said(updates["c"])["Warnings"] == (
        True,
        "Implausible",
        (
            "slo-itl of M: 1.5 ms, where the shortest step takes 999 ms; targets are in ms: if it"
            " is in seconds, write 1500"
        ),
    )
    assert said(updates["a"])["Warnings"][2].startswith("cost: 9 cents/hour for a card is less")
    assert "Warnings" not in said(updates["m"])


def test_a_load_that_hardly_uses_what_runs_is_warned_of_unless_it_is_measured() -> None:
    load = {"arrivalRate": 3, "avgLength": 1}
    current = {"accelerator": "A", "numReplicas": 4, "cost": 40, "load": load}
    measured = {"currentAlloc": current, "measure": {"source": "vLLM", "labels": {"a": "b"}}}
    typed = plan(*SCENE, server(spec={"currentAlloc": current}))["s"]
    known = plan(*SCENE, server(spec=measured))["s"]

    assert said(typed)["Warnings"][2] == (
        "currentAlloc.load.arrivalRate: the load is below 2 % of what its replicas carry; rates are"
        " in requests/min: if it is per second, write 60 times as much"
    )
    assert "Warnings" not in said(known)


def test_where_predictions_come_from_is_written_and_taken_away_again() -> None:
    estimated = performance(alpha=999, beta=0, origin="estimated", errorPercent=20)
    others = (accelerator(), service_class(), capacity(4))
    first = plan(*others, model("M", [estimated]), server())["s"].spec
    assert first is not None
    known = server(spec={**first})
    same = plan(*others, model("M", [estimated]), known)["s"].spec
    unknown = plan(*others, model(), known)["s"].spec

    desired = first["desiredAlloc"]
    assert (desired["origin"], desired["errorPercent"]) == ("estimated", 20)
    assert same is None
    assert unknown is not None
    assert "origin" not in unknown["desiredAlloc"]


@pytest.mark.parametrize("counted", [{"cached_tokens": 1200}, {"tokens_per_step": 2.5}], ids=str)
def test_a_decision_tells_the_tokens_that_it_counts_on(counted: dict[str, Any]) -> None:
    load = Load(60, input_tokens=2000, output_tokens=128, **counted)

    manifest = build_desired(Allocation("H100", 2, load=load))

    read = ServerAllocation.model_validate(manifest).load
    assert {name: getattr(read, name) for name in counted} == counted


def test_a_decision_without_cached_tokens_says_nothing_of_them() -> None:
    manifest = build_desired(Allocation("H100", 2, load=Load(60, output_tokens=128)))

    assert "cachedTokens" not in manifest["load"]
