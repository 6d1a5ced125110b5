"""Plans that the operator did not make: none is carried out, and none stops others."""

import gzip
import json
import tracemalloc
import zlib
from base64 import b64decode, b64encode
from collections.abc import Callable, Mapping
from copy import deepcopy
from functools import partial
from typing import Any

import pytest

from inferno_operator.controllers.planning.ports import OPTIMIZER
from inferno_operator.controllers.planning.proposal import (
    DigestCheck,
    UnreadablePlanError,
    pack,
    unpack,
)
from inferno_operator.resources import Plan, parse
from inferno_operator.resources.objects import Key, Kind
from inferno_operator.runtime.ports import RejectedError
from tests.calls import calls
from tests.unit.operator import objects
from tests.unit.operator.controllers.planning.scene import (
    INFERNO,
    NAMESPACE,
    MortalCluster,
    Scene,
    scene_of,
    signed,
)
from tests.unit.operator.objects import Manifest

BOMB_BYTES = 256 * 2**20


async def propose(scene: Scene) -> Manifest:
    """A Plan that waits for a person: S gets 2 replicas, T gets 1."""
    await scene.propose()
    await scene.advance()
    return deepcopy(scene.plans()["inferno-1"])


def copy_of(plan: Manifest, name: str, **spec: object) -> Manifest:
    """The same Plan under another name, and with other fields."""
    copied = {**plan["metadata"], "name": name, "creationTimestamp": objects.born(1), "uid": name}
    whole = {"apiVersion": plan["apiVersion"], "kind": "Plan", "metadata": copied}
    return {**whole, "spec": {**plan["spec"], **spec}}


def decisions_of(plan: Manifest) -> list[dict[str, Any]]:
    return list(json.loads(gzip.decompress(b64decode(plan["spec"]["decisions"]))))


def changed(plan: Manifest, **fields: object) -> str:
    """The decisions of a Plan with other fields of the first."""
    first, *others = decisions_of(plan)
    return pack([{**first, **fields}, *others])


def desired(plan: Manifest, **fields: object) -> str:
    """The decisions of a Plan with another `desiredAlloc` of the first."""
    allocation = decisions_of(plan)[0]["spec"]["desiredAlloc"]
    return changed(plan, spec={"desiredAlloc": {**allocation, **fields}})


def spec_of(_: Manifest, **spec: object) -> Manifest:
    return spec


def with_allocation(plan: Manifest, **fields: object) -> Manifest:
    return {"decisions": desired(plan, **fields)}


def with_fields(plan: Manifest, **fields: object) -> Manifest:
    return {"decisions": changed(plan, **fields)}


def bomb() -> str:
    """A little text that unpacks to very much."""
    packer = zlib.compressobj(9, wbits=31)
    parts = [packer.compress(bytes(2**20)) for _ in range(BOMB_BYTES // 2**20)]
    return b64encode(b"".join(parts) + packer.flush()).decode()


async def test_who_may_create_plans_cannot_scale_in_mode_auto() -> None:
    async with scene_of() as scene:
        plan = await propose(scene)
        forged = copy_of(plan, "inferno-2", decisions=desired(plan, numReplicas=8))
        scene.change("Optimizer", "inferno", mode="Auto", guard={"maxServersChanged": 0})
        scene.cluster.add(forged)
        await scene.advance()

        assert scene.desired() == {}
        assert scene.phases() == {"inferno-1": "Proposed", "inferno-2": "Superseded"}
        assert scene.told("inferno-2")[0] == "NotSigned"


async def test_what_was_written_for_an_approval_is_carried_out_only_if_it_is_what_was_shown() -> (
    None
):
    async with scene_of() as scene:
        plan = await propose(scene)
        scene.cluster.remove(Kind("", "Plan", "plans"), Key(NAMESPACE, "inferno-1"))
        scene.cluster.add({**plan, "spec": {**plan["spec"], "decisions": desired(plan, cost=0)}})
        scene.answer("inferno-1", "Approved")
        await scene.advance()

        assert scene.desired() == {}
        assert scene.phases() == {"inferno-1": "Superseded"}


@pytest.mark.parametrize(
    "place", [{"name": "inferno-2"}, {"namespace": "other"}], ids=["name", "namespace"]
)
async def test_a_copy_of_a_plan_counts_for_nothing(place: dict[str, str]) -> None:
    async with scene_of() as scene:
        plan = await propose(scene)
        copied = copy_of(plan, "inferno-1")
        copied["metadata"].update(place)
        key = scene.cluster.add(copied)
        scene.change("Optimizer", "inferno", mode="Auto", guard={"maxServersChanged": 0})
        await scene.advance(key.namespace)
        status = scene.cluster.objects["Plan", key]["status"]

        assert status["phase"] == "Superseded"
        assert scene.desired() == {}


def replace_optimizer(scene: Scene) -> None:
    """Delete the Optimizer, and create one of the same name that carries Plans out."""
    scene.cluster.remove(OPTIMIZER, INFERNO)
    manifest = objects.optimizer(optimize=False, uid="later")
    manifest["spec"]["mode"] = "Auto"
    scene.cluster.add(manifest)


async def test_a_later_optimizer_of_the_same_name_has_plans_of_its_own() -> None:
    async with scene_of() as scene:
        await propose(scene)
        replace_optimizer(scene)
        await scene.advance()
        before = scene.desired()
        scene.change("Optimizer", "inferno", optimize=True)
        await scene.optimize()
        await scene.advance()

        assert before == {}
        assert scene.desired() == {"s": 2, "t": 1}
        assert scene.phases() == {"inferno-1": "Superseded", "inferno-2": "Written"}


async def test_a_rejection_for_an_earlier_optimizer_of_the_same_name_is_none_for_a_later_one() -> (
    None
):
    async with scene_of() as scene:
        await propose(scene)
        scene.answer("inferno-1", "Rejected")
        await scene.advance()
        replace_optimizer(scene)
        scene.change("Optimizer", "inferno", interval=60)
        await scene.optimize()

        assert scene.desired() == {"s": 2, "t": 1}


async def test_a_plan_that_is_given_to_a_later_optimizer_is_not_signed() -> None:
    async with scene_of() as scene:
        plan = await propose(scene)
        replace_optimizer(scene)
        owner = {**plan["metadata"]["ownerReferences"][0], "uid": "later"}
        scene.cluster.add({**plan, "metadata": {**plan["metadata"], "ownerReferences": [owner]}})
        await scene.advance()

        assert scene.desired() == {}
        assert scene.told("inferno-1")[0] == "NotSigned"


async def test_a_plan_of_an_earlier_release_is_superseded_with_words_and_proposed_again() -> None:
    async with scene_of() as scene:
        plan = await propose(scene)
        del plan["spec"]["signature"]
        scene.cluster.add(plan)
        scene.answer("inferno-1", "Approved")
        await scene.advance()
        told = scene.told("inferno-1")
        scene.change("Optimizer", "inferno", optimize=True)
        await scene.optimize()
        await scene.advance()

        assert told[0] == "NotSigned"
        assert "before an upgrade" in told[1]
        assert "spec.optimize" in told[1]
        assert scene.phases() == {"inferno-1": "Superseded", "inferno-2": "Proposed"}
        assert scene.desired() == {}


async def test_a_foreign_plan_supersedes_none_and_takes_no_place_in_the_history() -> None:
    async with scene_of() as scene:
        scene.write_optimizer(mode="Approve", history=1)
        await scene.optimize()
        plan = deepcopy(scene.plans()["inferno-1"])
        for number in (2, 3, 4):
            scene.cluster.add(copy_of(plan, f"inferno-{number}"))
        await scene.advance()
        await scene.advance()

        assert scene.phases() == {"inferno-1": "Proposed", "inferno-4": "Superseded"}


async def test_a_foreign_plan_with_the_highest_number_keeps_none_from_being_proposed() -> None:
    async with scene_of() as scene:
        scene.write_optimizer(mode="Approve")
        spec = {"optimizer": "inferno", "digest": "x", "inputsDigest": "x"}
        totals = {"totals": {"servers": 0, "costBefore": 0, "costAfter": 0}}
        for name in ("inferno-" + "9" * 240, "inferno-1"):
            scene.cluster.add(objects.manifest("Plan", {**spec, **totals}, name=name))
        await scene.seen()
        await scene.optimize()
        await scene.advance()

        assert scene.phases()["inferno-2"] == "Proposed"


@pytest.mark.parametrize(
    "approval",
    [
        {"until": "0001-01-01T00:00:00+14:00"},
        {"until": "9999-12-31T23:59:59-14:00", "digest": "x"},
        {"until": "soon"},
        {"until": [1]},
        {"state": "Perhaps"},
    ],
    ids=["before the first year", "after the last year", "no time", "a list", "no state"],
)
async def test_an_answer_that_makes_no_sense_stops_no_other_plan(approval: Manifest) -> None:
    async with scene_of() as scene:
        await scene.propose()
        scene.answer("inferno-1", **{"state": "Approved", **approval})
        await scene.advance()
        await scene.advance()
        writes = len(scene.cluster.writes)
        await scene.advance()
        assert len(scene.cluster.writes) == writes, "it is told once"

        scene.change("Server", "s", currentAlloc=objects.running(0, 5))
        scene.change("Optimizer", "inferno", optimize=True)
        await scene.optimize()
        scene.answer("inferno-2", "Approved")
        await scene.advance()

        assert scene.desired() == {"s": 5, "t": 1}
        assert scene.phases()["inferno-1"] in ("Expired", "Superseded", "Failed")


NONSENSE = {
    "no list": pack({"server": "s"}),
    "200,000 brackets": b64encode(gzip.compress(b"[" * 200_000)).decode(),
    "not compressed": b64encode(b"[]").decode(),
    "cut off": pack([{"a": 1}])[:-8],
    "two members": b64encode(gzip.compress(b"[") + gzip.compress(b"]")).decode(),
    "no base64": "a b",
    "no text": b64encode(gzip.compress(b"\xff\xfe")).decode(),
    "not ASCII": "ä" * 8,
    "not a number": b64encode(gzip.compress(b"[NaN]")).decode(),
}


OUT_OF_RANGE: list[dict[str, Any]] = [
    {"numReplicas": -7},
    {"numReplicas": 2**31},
    {"numReplicas": 1.5},
    {"numReplicas": "2"},
    {"numReplicas": None},
    {"accelerator": ""},
    {"accelerator": ["A"]},
    {"cost": -1},
    {"maxBatch": -1},
    {"itlAverage": "fast"},
    {"load": {"arrivalRate": -1, "avgLength": 1}},
    {"mix": [{"accelerator": "A", "numReplicas": 50}]},
    {"mix": [{"accelerator": "A", "numReplicas": 1}] * 2},
]

MISSHAPEN: list[dict[str, Any]] = [
    {"server": ["s"]},
    {"server": "../s"},
    {"server": "t"},
    {"verdicts": []},
    {"verdicts": [{"type": "Allocated", "holds": True, "reason": "UnknownModel"}]},
    {"verdicts": [{"type": "Ready", "holds": True, "reason": "Allocated"}]},
    {"before": [{"accelerator": "A", "replicas": -1}]},
    {"active": "yes"},
    {"spec": None},
]

OTHER_SPECS: list[dict[str, Any]] = [
    {"totals": {"servers": 1, "costBefore": 0, "costAfter": 30}},
    {"totals": {"servers": 2, "costBefore": 30, "costAfter": 30}},
    {"steps": []},
    {"stepsOmitted": 1},
]

FORGED: list[tuple[str, Callable[[Manifest], Manifest]]] = [
    # Decisions that cannot be read.
    *(("Unreadable", partial(spec_of, decisions=packed)) for packed in NONSENSE.values()),
    *(("Unreadable", partial(with_allocation, **allocation)) for allocation in OUT_OF_RANGE),
    *(("Unreadable", partial(with_fields, **fields)) for fields in MISSHAPEN),
    # Decisions that are not what the Plan says.
    *(
        ("Contradiction", partial(with_allocation, **allocation))
        for allocation in ({"numReplicas": 50}, {"cost": 0}, {"accelerator": "B"})
    ),
    *(("Contradiction", partial(spec_of, **spec)) for spec in OTHER_SPECS),
]
"""Why a Plan fails that somebody changed who had stolen the key, and what is changed."""


@pytest.mark.parametrize(("reason", "forge"), FORGED)
async def test_what_is_forged_with_a_stolen_key_fails_alone_and_is_not_carried_out(
    reason: str, forge: Callable[[Manifest], Manifest]
) -> None:
    async with scene_of() as scene:
        plan = await propose(scene)
        scene.forge("inferno-1", **forge(plan))
        scene.answer("inferno-1", "Approved")
        outcome = await scene.advance()

        assert not outcome.failed
        assert scene.phases() == {"inferno-1": "Failed"}
        assert scene.told("inferno-1")[0] == reason
        assert scene.desired() == {}


def test_a_bomb_takes_no_more_memory_than_the_largest_plan() -> None:
    packed = bomb()
    tracemalloc.start()
    try:
        with pytest.raises(UnreadablePlanError, match="larger than"):
            unpack(packed)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    assert peak < BOMB_BYTES / 3


async def test_a_foreign_bomb_is_never_unpacked() -> None:
    async with scene_of() as scene:
        plan = await propose(scene)
        scene.change("Optimizer", "inferno", mode="Auto")
        scene.cluster.add(copy_of(plan, "inferno-2", decisions=bomb()))
        tracemalloc.start()
        try:
            await scene.advance()
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()

        assert peak < 2**24
        assert scene.phases()["inferno-2"] == "Superseded"


async def test_a_plan_whose_inputs_changed_is_superseded_before_it_is_unpacked() -> None:
    async with scene_of() as scene:
        await propose(scene)
        scene.forge("inferno-1", decisions=NONSENSE["200,000 brackets"])
        scene.change("Capacity", "cards", count=[{"type": "T", "count": 19}])
        scene.answer("inferno-1", "Approved")
        await scene.advance()

        assert scene.phases() == {"inferno-1": "Superseded"}


class Picky(MortalCluster):
    """Refuses the status of one Plan, or breaks with it."""

    error: Exception = RejectedError("an admission policy says no")

    async def apply(
        self, kind: Kind, manifest: Mapping[str, Any], manager: str, *, force: bool = True
    ) -> Mapping[str, Any]:
        if manifest["metadata"]["name"] == "a-1" and "status" in manifest:
            raise self.error
        return await super().apply(kind, manifest, manager, force=force)


@pytest.mark.parametrize("error", [RejectedError("no"), ValueError("a bug")], ids=["told", "a bug"])
async def test_a_plan_that_cannot_be_advanced_stops_no_other(error: Exception) -> None:
    cluster = Picky()
    cluster.error = error
    async with scene_of(cluster=cluster) as scene:
        plan = await propose(scene)
        other = copy_of(plan, "a-1")
        other["metadata"]["creationTimestamp"] = objects.born(0)
        cluster.add(signed(other))
        scene.answer("inferno-1", "Approved")
        outcome = await scene.advance()

        assert outcome.failed
        assert scene.desired() == {"s": 2, "t": 1}
        assert scene.phases()["inferno-1"] == "Acting"


def read(manifest: Manifest) -> Plan:
    plan = parse(manifest)
    assert isinstance(plan, Plan)
    return plan


async def test_the_digest_of_a_spec_that_was_read_is_computed_once() -> None:
    async with scene_of() as scene:
        manifest, check = await propose(scene), DigestCheck()
    plan, newer = read(manifest), read(manifest)

    first, again, of_newer = (calls(partial(check.is_right, p)) for p in (plan, plan, newer))

    assert again < first / 10
    assert of_newer == first


async def test_another_spec_of_a_plan_that_was_right_is_looked_at() -> None:
    async with scene_of() as scene:
        manifest, check = await propose(scene), DigestCheck()
    plan = read(manifest)
    forged = read({**manifest, "spec": {**manifest["spec"], "stepsOmitted": 7}})

    answers = [check.is_right(each) for each in (plan, forged, forged, plan)]

    assert answers == [True, False, False, True]
