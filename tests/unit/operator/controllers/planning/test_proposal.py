"""What counts as a change, and that the largest fleet fits into one object."""

import json
from collections.abc import Iterable

import pytest

from inferno_operator.controllers.planning.plans import read_decisions
from inferno_operator.controllers.planning.ports import Optimization
from inferno_operator.controllers.planning.proposal import (
    MAX_INPUTS,
    MAX_LISTED,
    Proposal,
    Seal,
    UnreadablePlanError,
    build_proposal,
    build_spec_manifest,
    pack,
    unpack,
    unpack_decisions,
)
from inferno_operator.controllers.planning.snapshot import build_system
from inferno_operator.controllers.planning.updates import plan_updates
from inferno_operator.resources import Optimizer, Plan, parse
from inferno_operator.resources.objects import Key
from inferno_operator.resources.observation import readable
from inferno_optimizer.optimize import optimize
from inferno_optimizer.wire.codec import decode_system
from tests.unit.operator import objects
from tests.unit.operator.objects import Manifest, observed

OBJECT_LIMIT = 1536 * 1024
"""Most bytes of an object, by default of etcd."""


def proposed(servers: Iterable[Manifest], cards: int = 20) -> Proposal | None:
    """What an optimization of these Servers proposes."""
    return build_proposal(optimization_of(servers, cards))


def made(place: Key) -> Manifest:
    """A Plan as an operator makes it, with some key: S gets 2 replicas."""
    found = proposed([objects.server("S")])
    assert found is not None
    signature = Seal(b"a key").signature(place, "", found.spec.digest)
    spec = {**build_spec_manifest(found.spec), "signature": signature}
    return objects.manifest("Plan", spec, name=place.name, namespace=place.namespace)


def optimization_of(manifests: Iterable[Manifest], cards: int) -> Optimization:
    """An optimization of these objects, and of others where there are none of their name."""
    system = (
        objects.accelerator(),
        objects.model(),
        objects.service_class(),
        objects.capacity(cards),
    )
    named = {(m["kind"], m["metadata"]["name"]): m for m in (*system, *manifests)}
    observations = [observed(manifest) for manifest in named.values()]
    optimizer = parse(objects.optimizer())
    assert isinstance(optimizer, Optimizer)
    snapshot = build_system(readable(observations), optimizer)
    solution = optimize(snapshot.system)
    updates = plan_updates(observations, snapshot, solution)
    return Optimization(optimizer, observations, updates, snapshot, solution, True)


def decision(replicas: int, batch: int = 1) -> Manifest:
    allocation = {"numReplicas": replicas, "maxBatch": batch, "cost": 10 * replicas}
    return {"desiredAlloc": {"accelerator": "A", **allocation}}


@pytest.mark.parametrize(
    ("spec", "step"),
    [
        ({}, ([], 2, 20.0)),
        (decision(3), ([3], 2, -10.0)),
        ({"currentAlloc": objects.running(1, 2)}, ([1], 2, 10.0)),
    ],
    ids=["a first decision", "another number", "from what runs"],
)
def test_a_step_tells_what_there_was_and_what_is_decided(
    spec: Manifest, step: tuple[list[int], int, float]
) -> None:
    proposal = proposed([objects.server("S", spec=spec)])
    assert proposal is not None
    (found,) = proposal.spec.steps
    before = [placement.replicas for placement in found.before]

    assert (before, found.after[0].replicas, found.cost_change) == step


@pytest.mark.parametrize(
    "spec",
    [decision(2), decision(2, batch=8), {**decision(2), "model": "typo"}],
    ids=["only other latencies", "another batch size", "no decision is possible"],
)
def test_what_changes_no_replicas_is_no_plan(spec: Manifest) -> None:
    assert proposed([objects.server("S", spec=spec)]) is None


def test_the_end_of_a_typing_error_is_no_change_if_the_same_replicas_run_still() -> None:
    told = {
        "type": "Allocated",
        "status": "False",
        "reason": "UnknownModel",
        "message": "",
        "lastTransitionTime": "2026-03-01T12:00:00Z",
    }
    cleared = {"desiredAlloc": {"accelerator": "", "numReplicas": 0, "cost": 0}}
    server = objects.server("S", spec={**cleared, "currentAlloc": objects.running(2, 2)})

    assert proposed([server]) is not None
    assert proposed([{**server, "status": {"conditions": [told]}}]) is None


@pytest.mark.extended
def test_ten_thousand_changes_fit_into_one_object_and_are_all_carried_out() -> None:
    servers = [objects.server(f"S{n:05}", wanted=1 + n % 7) for n in range(10_000)]
    proposal = proposed(servers, cards=10**6)
    assert proposal is not None
    manifest = build_spec_manifest(proposal.spec)
    plan = parse(objects.manifest("Plan", dict(manifest), name="p"))
    assert isinstance(plan, Plan)

    assert len(json.dumps(manifest)) < OBJECT_LIMIT * 0.9
    assert (len(plan.spec.steps), plan.spec.steps_omitted) == (1000, 9000)
    assert len(read_decisions(plan)) == len(unpack_decisions(plan.spec.decisions)) == 10_000
    assert not plan.spec.omitted
    assert len(decode_system(json.loads(unpack(plan.spec.inputs))).servers) == 10_000


def test_long_reasons_do_not_make_a_plan_too_large() -> None:
    name = "n" * 250
    servers = [objects.server(f"S{n}", name=f"{name}{n:03}") for n in range(999)]

    proposal = proposed(servers, cards=10_000)

    assert proposal is not None
    assert len(json.dumps(build_spec_manifest(proposal.spec)["steps"])) < MAX_LISTED * 1.05
    assert 0 < len(proposal.spec.steps) < 999
    assert len(proposal.spec.steps) + proposal.spec.steps_omitted == 999


def test_inputs_that_are_too_large_are_left_out_and_it_says_so() -> None:
    noise = "".join(f"{n * 2654435761 % 2**32:08x}" for n in range(200_000))
    names = [noise[i : i + 250] for i in range(0, len(noise), 250)]
    servers = [objects.server(name, name=f"s{i}") for i, name in enumerate(names)]

    proposal = proposed(servers, cards=100_000)

    assert proposal is not None
    assert len(proposal.spec.inputs) <= MAX_INPUTS
    assert proposal.spec.inputs == ""
    assert "inputs" in proposal.spec.omitted


@pytest.mark.parametrize("damaged", ["", "x", "H4sI", pack({"a": 1})[:-8], pack([{"server": "s"}])])
def test_damaged_decisions_are_an_error_of_ours(damaged: str) -> None:
    with pytest.raises(UnreadablePlanError):
        unpack_decisions(damaged)


def test_a_plan_says_where_its_predictions_come_from() -> None:
    estimated = objects.performance(alpha=999, beta=0, origin="estimated", errorPercent=20)
    found = proposed([objects.model("M", [estimated]), objects.server("S")])

    assert found is not None
    (step,) = found.spec.steps
    assert (step.origin, step.error_percent) == ("estimated", 20)
    (decision,) = unpack_decisions(found.spec.decisions)
    assert decision.step == step
