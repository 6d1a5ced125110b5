"""What was decided for a Server, what runs for it, its cards, and who owns which field."""

from collections import Counter
from typing import Any

import pytest

from inferno_operator.controllers.planning.snapshot import build_system
from inferno_operator.controllers.scaling.boosters import (
    backend_key,
    has_more_fields,
    has_own_fields,
    list_entries_of_others,
)
from inferno_operator.controllers.scaling.decision import (
    PlacedReplicas,
    WantedReplicas,
    build_current_alloc,
    has_changed,
    is_mistyped,
    read_decision,
)
from inferno_operator.controllers.scaling.pods import PodCounts
from inferno_operator.controllers.scaling.scaled_server import (
    ObservedWorkload,
    ScaledServer,
    Supply,
)
from inferno_operator.resources import Server, Workload
from inferno_operator.resources.observation import readable
from inferno_optimizer.system import Role
from tests.unit.operator import objects

Manifest = dict[str, Any]


def read(manifest: Manifest) -> Server:
    """The Server as the operator reads it."""
    found = objects.observed_server(manifest).resource
    assert found
    return found


def with_decision(allocated: Manifest, desired: Manifest, generation: int = 3) -> Manifest:
    manifest = objects.server(spec={"desiredAlloc": desired}, generation=generation)
    time = "2026-01-01T00:00:00Z"
    told = {"type": "Allocated", "lastTransitionTime": time, "message": "", **allocated}
    return {**manifest, "status": {"conditions": [told]}}


NOTHING = {"accelerator": "", "numReplicas": 0}
SOME = {"accelerator": "A", "numReplicas": 2}


@pytest.mark.parametrize(
    ("status", "reason", "observed", "desired", "replicas", "fresh"),
    [
        ("True", "Allocated", 3, SOME, {"A": 2}, True),
        ("True", "Allocated", 2, SOME, {"A": 2}, True),
        ("True", "Allocated", 3, NOTHING, {}, True),
        ("True", "Allocated", 2, NOTHING, None, False),
        ("False", "NoCapacity", 2, NOTHING, {}, True),
        ("False", "NoCapacity", 2, SOME, None, False),
        ("False", "UnknownModel", 3, NOTHING, None, True),
        ("False", "InvalidSpec", 2, NOTHING, None, True),
    ],
)
def test_a_decision_counts_when_what_is_told_of_it_belongs_to_it(
    status: str,
    reason: str,
    observed: int,
    desired: Manifest,
    replicas: dict[str, int] | None,
    *,
    fresh: bool,
) -> None:
    told = {"status": status, "reason": reason, "observedGeneration": observed}

    decision = read_decision(read(with_decision(told, desired)))

    assert (decision.replicas, decision.is_written) == (replicas, fresh)


def test_a_server_that_was_never_optimized_is_held() -> None:
    decision = read_decision(read(objects.server()))

    assert decision.replicas is None
    assert "nothing was decided yet" in decision.why


def test_the_parts_of_a_mix_are_what_is_wanted() -> None:
    mix = [{"accelerator": "A", "numReplicas": 2}, {"accelerator": "B", "numReplicas": 1}]
    desired = {"accelerator": "A", "numReplicas": 3, "mix": mix}
    told = {"status": "True", "reason": "Allocated", "observedGeneration": 3}

    assert read_decision(read(with_decision(told, desired))).replicas == {"A": 2, "B": 1}


COSTS = {"A": 10.0, "B": 30.0}


def server(**spec: object) -> Server:
    return read(objects.server(spec=spec))


def on(**replicas: int | tuple[int, int] | tuple[int, int, int]) -> list[PlacedReplicas]:
    """Replicas by accelerator: those that are ready, of them cold, and starting."""
    return [
        PlacedReplicas(name, *((counts,) if isinstance(counts, int) else counts))
        for name, counts in replicas.items()
    ]


@pytest.mark.parametrize(
    ("counts", "accelerator", "replicas", "cost"),
    [
        ({"A": 2, "B": 0}, "A", 2, 20),
        ({"A": 1, "B": 3}, "B", 4, 100),
        ({"A": 2, "B": 2}, "A", 4, 80),
        ({"A": 0, "B": 0}, "", 0, 0),
    ],
)
def test_the_accelerator_with_most_replicas_names_the_whole(
    counts: dict[str, int], accelerator: str, replicas: int, cost: float
) -> None:
    found = build_current_alloc(server(), on(**counts), COSTS)

    assert (found["accelerator"], found["numReplicas"], found["cost"]) == (
        accelerator,
        replicas,
        cost,
    )
    assert "load" not in found


def test_each_of_several_accelerators_is_told_the_largest_first() -> None:
    decided = server(desiredAlloc={"accelerator": "B", "numReplicas": 3, "maxBatch": 7})

    found = build_current_alloc(decided, on(A=1, B=3), COSTS)

    assert found["mix"] == [
        {"accelerator": "B", "numReplicas": 3, "maxBatch": 7, "cost": 90},
        {"accelerator": "A", "numReplicas": 1, "maxBatch": 0, "cost": 10},
    ]
    assert not has_changed(server(currentAlloc=found), on(A=1, B=3))
    assert has_changed(server(currentAlloc=found), on(A=2, B=2))


def test_cold_replicas_are_told_of_each_accelerator_and_of_all() -> None:
    found = build_current_alloc(server(), on(A=(2, 1), B=(3, 2)), COSTS)

    assert found["coldReplicas"] == 3
    assert {part["accelerator"]: part["coldReplicas"] for part in found["mix"]} == {"A": 1, "B": 2}
    assert build_current_alloc(server(), on(A=(2, 1), B=0), COSTS)["coldReplicas"] == 1
    assert "coldReplicas" not in build_current_alloc(server(), on(A=2, B=3), COSTS)
    assert not has_changed(server(currentAlloc=found), on(A=(2, 1), B=(3, 2)))
    assert has_changed(server(currentAlloc=found), on(A=2, B=3))
    assert has_changed(server(currentAlloc=found), on(A=(2, 1), B=(3, 1)))


def test_replicas_that_start_are_told_beside_those_that_serve() -> None:
    found = build_current_alloc(server(), on(A=2, B=(0, 0, 3)), COSTS)

    assert (found["accelerator"], found["numReplicas"], found["cost"]) == ("A", 2, 20)
    assert found["startingReplicas"] == 3
    assert [(part["accelerator"], part["numReplicas"]) for part in found["mix"]] == [
        ("A", 2),
        ("B", 0),
    ]
    assert not has_changed(server(currentAlloc=found), on(A=2, B=(0, 0, 3)))
    assert has_changed(server(currentAlloc=found), on(A=2, B=0))
    assert has_changed(server(currentAlloc=found), on(A=2, B=3))


def test_a_server_whose_replicas_all_start_is_where_they_start() -> None:
    found = build_current_alloc(server(), on(A=0, B=(0, 0, 1)), COSTS)

    assert (found["accelerator"], found["numReplicas"], found["startingReplicas"]) == ("B", 0, 1)
    assert not has_changed(server(currentAlloc=found), on(A=0, B=(0, 0, 1)))
    assert has_changed(server(currentAlloc=found), on(A=0, B=0))


def test_replicas_of_two_roles_are_told_by_role_and_decode_names_the_whole() -> None:
    replicas = [
        PlacedReplicas("A", 3, cold=2, role=Role.PREFILL),
        PlacedReplicas("B", 1, starting=1, role=Role.DECODE),
    ]
    costs = {"A prefill": 10.0, "B decode": 30.0, "A": 1.0, "B": 1.0}

    found = build_current_alloc(server(), replicas, costs)

    assert {name: found[name] for name in ("accelerator", "numReplicas", "cost")} == {
        "accelerator": "B",
        "numReplicas": 4,
        "cost": 60,
    }
    assert (found["coldReplicas"], found["startingReplicas"]) == (2, 1)
    prefill, decode = found["roles"]["prefill"], found["roles"]["decode"]
    assert (prefill["accelerator"], prefill["coldReplicas"], prefill["cost"]) == ("A", 2, 30)
    assert (decode["accelerator"], decode["startingReplicas"], decode["cost"]) == ("B", 1, 30)
    assert not has_changed(server(currentAlloc=found), replicas)
    assert has_changed(server(currentAlloc=found), replicas[1:])
    assert has_changed(server(currentAlloc=found), on(A=3, B=(1, 0, 1)))
    assert not is_mistyped(server(currentAlloc=found), replicas, {"A prefill": 10.0})
    assert is_mistyped(server(currentAlloc=objects.running(2, 2)), replicas, {"A prefill": 10.0})


@pytest.mark.parametrize(
    ("before", "counts", "mistyped"),
    [
        (2, {"A": 2}, False),
        (2, {"Z": 2}, True),
        (2, {"A": 1, "Z": 1}, True),
        (2, {"A": 2, "Z": 0}, False),
        (0, {"Z": 2}, False),  # nothing else is known of it
    ],
)
def test_a_mistyped_accelerator_is_told_from_one_that_was_reported(
    before: int, counts: dict[str, int], mistyped: bool
) -> None:
    reported = server(currentAlloc=objects.running(before, 2))

    assert is_mistyped(reported, on(**counts), COSTS) is mistyped
    assert not is_mistyped(server(currentAlloc=objects.running(2, 2, "Z")), on(Z=3), COSTS)


@pytest.mark.parametrize("counts", [{"A": 2, "B": 0}, {"A": 0, "B": 0}])
def test_one_accelerator_or_none_is_no_mix(counts: dict[str, int]) -> None:
    assert "mix" not in build_current_alloc(server(), on(**counts), COSTS)


def test_who_keeps_an_accelerator_keeps_its_name_when_nothing_is_up() -> None:
    kept = server(keepAccelerator=True, currentAlloc=objects.running(2, 2))

    assert build_current_alloc(kept, on(A=0, B=0), COSTS)["accelerator"] == "A"


def test_the_batch_is_that_of_the_decision_for_the_accelerator() -> None:
    desired = {"accelerator": "A", "numReplicas": 2, "maxBatch": 7}
    decided = server(desiredAlloc=desired)

    assert build_current_alloc(decided, on(A=2, B=0), COSTS)["maxBatch"] == 7
    assert build_current_alloc(decided, on(A=0, B=2), COSTS)["maxBatch"] == 0


@pytest.mark.parametrize(
    "before",
    [
        {"numReplicas": 3, "maxBatch": 7, "mix": [
            {"accelerator": "A", "numReplicas": 2}, {"accelerator": "B", "numReplicas": 1}
        ]},
        {"numReplicas": 3, "roles": {
            "prefill": {"accelerator": "A", "numReplicas": 1, "maxBatch": 4},
            "decode": {"accelerator": "A", "numReplicas": 2, "maxBatch": 7},
        }},
    ],
    ids=["mix", "roles"],
)  # fmt: skip
def test_the_batch_of_the_whole_or_of_a_role_stays(before: dict[str, object]) -> None:
    running = server(currentAlloc={"accelerator": "A", **before})

    assert build_current_alloc(running, on(A=2, B=0), COSTS)["maxBatch"] == 7


def test_a_server_that_tells_what_runs_is_left_alone() -> None:
    told = server(currentAlloc=objects.running(2, 2))

    assert not has_changed(told, on(A=2, B=0))
    assert has_changed(told, on(A=1, B=0))
    assert has_changed(server(currentAlloc=None), on(A=0, B=0))


def entry(manager: str, *backends: str, subresource: str = "") -> Manifest:
    fields: Manifest = {backend_key(name): {"f:minReplicas": {}} for name in backends}
    found: Manifest = {"manager": manager, "fieldsV1": {"f:spec": {"f:backends": fields}}}
    return found | ({"subresource": subresource} if subresource else {})


def owned_by(*entries: Manifest) -> Manifest:
    return {"metadata": {"managedFields": list(entries)}}


def test_only_our_entry_of_the_spec_is_given_up() -> None:
    theirs, status = entry("kubectl"), entry("inferno-actuation", subresource="status")
    manifest = owned_by(theirs, entry("inferno-actuation", "a", "b"), status)

    assert has_own_fields(manifest)
    assert not has_own_fields(owned_by(theirs, status))
    assert list_entries_of_others(manifest) == [theirs, status]
    assert list_entries_of_others(owned_by(entry("inferno-actuation"))) == [{}]


@pytest.mark.parametrize(
    ("spec", "more"),
    [
        ({"backends": [{"name": "b", "minReplicas": 1}, {"name": "a", "minReplicas": 2}]}, False),
        ({"backends": [{"name": "a", "minReplicas": 1}]}, True),
        ({"backends": [{"name": "a"}, {"name": "b", "minReplicas": 1}]}, True),
        ({"replicas": 1}, True),
    ],
)
def test_what_an_apply_leaves_out_is_known_before(*, spec: Manifest, more: bool) -> None:
    assert has_more_fields(owned_by(entry("inferno-actuation", "a", "b")), spec) == more
    assert not has_more_fields(owned_by(entry("kubectl", "a", "b")), spec)


def workload(name: str, accelerator: str, role: str, ready: int, starting: int) -> ObservedWorkload:
    named = Workload.model_validate({"name": name, "accelerator": accelerator, "role": role})
    return ObservedWorkload(named, pods=PodCounts(ready=ready, starting=starting))


def placed(*found: ObservedWorkload, left: ObservedWorkload) -> list[PlacedReplicas]:
    observation = objects.observed_server(objects.server())
    assert observation.resource
    wanted = WantedReplicas(None, "nothing is decided")
    scaled = ScaledServer(observation, observation.resource, wanted, found, (left,))
    return [*scaled.list_placed({"A prefill": 1})]


def test_the_replicas_of_a_renamed_workload_count_with_those_of_its_successor() -> None:
    prefill, decode = workload("p", "A", "Prefill", 2, 0), workload("d", "B", "Decode", 1, 1)

    assert placed(prefill, decode, left=workload("old", "A", "Prefill", 3, 1)) == [
        PlacedReplicas("B", 1, cold=0, starting=1, role=Role.DECODE),
        PlacedReplicas("A", 5, cold=1, starting=1, role=Role.PREFILL),
    ]


def test_while_replicas_that_do_both_are_left_they_are_what_runs() -> None:
    prefill, decode = workload("p", "A", "Prefill", 2, 0), workload("d", "B", "Decode", 1, 1)

    assert placed(prefill, decode, left=workload("old", "C", "Both", 0, 1)) == [
        PlacedReplicas("C", 0, starting=1)
    ]


STEPS = {"alpha": 9, "kappa": 0.00006, "delta": 0.02, "ahead": 1, "budget": 8192}


def supply() -> Supply:
    """A replica that does both has 8 cards, one for prompts 2, and one for answers 4."""
    counts = {"Both": 8, "Prefill": 2, "Decode": 4}
    data = [
        {**objects.performance("A", stepParms=STEPS), "role": role, "accCount": count}
        for role, count in counts.items()
    ]
    found = [objects.accelerator("A"), objects.model("M", data)]
    return Supply(build_system(readable(map(objects.observed, found))).system)


def roles(prefill: int, decode: int) -> objects.Manifest:
    parts = {"prefill": prefill, "decode": decode}
    each = {role: {"accelerator": "A", "numReplicas": n} for role, n in parts.items()}
    return {"accelerator": "A", "numReplicas": prefill + decode, "roles": each}


def test_the_more_of_what_runs_and_what_was_decided_counts_in_each_role() -> None:
    runs, decided = roles(prefill=3, decode=1), roles(prefill=1, decode=2)
    apart = server(currentAlloc=runs, desiredAlloc=decided)
    moves = server(currentAlloc={"accelerator": "A", "numReplicas": 2}, desiredAlloc=decided)

    assert supply().count_cards(apart) == Counter(T=3 * 2 + 2 * 4)
    assert supply().count_cards(moves) == Counter(T=2 * 8 + 1 * 2 + 2 * 4)
