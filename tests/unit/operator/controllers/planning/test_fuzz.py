"""10,000 mutations of a real Plan: none is carried out, none raises, none stops a good one."""

import gzip
import json
import random
from base64 import b64decode, b64encode
from collections.abc import Callable, Iterator
from copy import deepcopy
from typing import Any

import pytest
from pydantic import ValidationError

from inferno_operator.controllers.planning.proposal import (
    find_contradiction,
    pack,
    unpack_decisions,
)
from inferno_operator.resources import ManifestError, Plan, parse
from inferno_operator.resources.objects import Key
from tests.tiers import extended
from tests.unit.operator import objects
from tests.unit.operator.controllers.planning.scene import NAMESPACE, Scene, scene_of, signed
from tests.unit.operator.objects import Manifest

BATCH = 50
"""Mutations beside one good Plan."""

SEEDS = (*range(20), *extended(*range(20, 200)))
"""A batch each: 10,000 mutations, 1,000 of them in `make test`."""

STOLEN_SEEDS = (*range(4), *extended(*range(4, 40)))
"""Those of 2,000 that are signed with a stolen key."""

GOOD = {"s": 2, "t": 1}
"""What the good Plan decides."""

ODD: tuple[object, ...] = (
    *(None, True, False, "", "x", "\ud800", "a" * 5000, [], {}, [[]], [1, "2"], {"a": {"b": []}}),
    *(0, -1, -7, 1, 2, 3, 50, 999, 2**31, 2**63, 10**30, 0.5, -0.0, 1e300),
    *("0001-01-01T00:00:00+14:00", "9999-12-31T23:59:59-14:00", "sha256:0", "B", "t", "s"),
)
"""Values that fit nowhere, or that fit too well."""

Mutation = Callable[[random.Random, Manifest], Manifest]


def paths(value: object, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The places in a document, whatever is there."""
    yield path
    if isinstance(value, dict):
        for key, item in value.items():
            yield from paths(item, (*path, key))
    elif isinstance(value, list):
        for place, item in enumerate(value):
            yield from paths(item, (*path, place))


def altered(rng: random.Random, document: object) -> object:
    """A document with one to three other values, or without some."""
    result: Any = deepcopy(document)
    for _ in range(rng.randint(1, 3)):
        path = rng.choice(list(paths(result)))
        if not path:
            continue
        parent = result
        for key in path[:-1]:
            parent = parent[key]
        action = rng.randrange(4)
        if action == 0:
            del parent[path[-1]]
        elif action == 1 and isinstance(parent, list):
            parent.append(deepcopy(parent[path[-1]]))
        elif action == 2 and isinstance(parent[path[-1]], int | float):
            parent[path[-1]] *= rng.choice((-1, 2, 10, 0.5))
        else:
            parent[path[-1]] = deepcopy(rng.choice(ODD))
    return result


def other_fields(rng: random.Random, plan: Manifest) -> Manifest:
    return {**plan, "spec": altered(rng, plan["spec"])}


def other_decisions(rng: random.Random, plan: Manifest) -> Manifest:
    """Other decisions, packed as the operator packs them."""
    decisions = json.loads(gzip.decompress(b64decode(plan["spec"]["decisions"])))
    text = json.dumps(altered(rng, decisions))
    packed = b64encode(gzip.compress(text.encode(), mtime=0)).decode()
    return {**plan, "spec": {**plan["spec"], "decisions": packed}}


def other_bytes(rng: random.Random, plan: Manifest) -> Manifest:
    """Bits, lengths and ends of the compressed bytes that are not as they were."""
    data = bytearray(b64decode(plan["spec"]["decisions"]))
    action = rng.randrange(4)
    if action == 0:
        for _ in range(rng.randint(1, 4)):
            data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
    elif action == 1:
        del data[rng.randrange(len(data)) :]
    elif action == 2:
        data += data[: rng.randrange(1, len(data))]
    else:
        deep = b"[" * rng.choice((100, 10_000, 200_000))
        data = bytearray(gzip.compress(deep, mtime=0))
    packed = b64encode(data).decode()
    return {**plan, "spec": {**plan["spec"], "decisions": packed}}


def other_text(rng: random.Random, plan: Manifest) -> Manifest:
    """Characters of one text that are not as they were."""
    spec = dict(plan["spec"])
    name = rng.choice([key for key, value in spec.items() if isinstance(value, str) and value])
    text = list(spec[name])
    text[rng.randrange(len(text))] = rng.choice("0af=Z\nä ")
    return {**plan, "spec": {**spec, name: "".join(text)}}


def another_place(rng: random.Random, plan: Manifest) -> Manifest:
    """The same Plan under a name that is not its own."""
    del rng
    return deepcopy(plan)


MUTATIONS: tuple[Mutation, ...] = (
    other_fields,
    other_decisions,
    other_bytes,
    other_text,
    another_place,
)


def mutant(rng: random.Random, plan: Manifest, name: str) -> Manifest:
    """A mutation of a Plan under another name, approved by somebody."""
    changed = rng.choice(MUTATIONS)(rng, plan)
    metadata = {"name": name, "namespace": NAMESPACE}
    if rng.random() < 0.5:  # the others are the newest
        metadata["creationTimestamp"] = objects.born(1)
    spec = changed["spec"] if isinstance(changed["spec"], dict) else {}
    approval = {"state": "Approved", "digest": spec.get("digest", "x"), "by": "mallory"}
    if rng.random() < 0.2:
        approval = altered(rng, approval)  # type: ignore[assignment]  # whatever that is
    whole = {"apiVersion": plan["apiVersion"], "kind": "Plan", "metadata": metadata}
    return {**whole, "spec": changed["spec"], "status": {"approval": approval}}


async def propose(scene: Scene) -> Manifest:
    await scene.propose()
    await scene.advance()
    return deepcopy(scene.plans()["inferno-1"])


@pytest.mark.parametrize("seed", SEEDS)
async def test_no_mutation_is_carried_out_and_none_stops_the_good_plan(seed: int) -> None:
    rng = random.Random(seed)  # noqa: S311 - reproducible
    async with scene_of() as scene:
        plan = await propose(scene)
        for number in range(BATCH):
            scene.cluster.add(mutant(rng, plan, f"mutant-{number}"))
        before = scene.desired()
        await scene.advance()
        for name, phase in scene.phases().items():
            assert phase in ("Superseded", "Failed", "Proposed"), name
        assert scene.desired() == before == {}

        scene.answer("inferno-1", "Approved")
        outcome = await scene.advance()

        assert not outcome.failed
        assert scene.desired() == GOOD
        assert scene.phases()["inferno-1"] == "Acting"


def stolen(plan: Manifest) -> Manifest | None:
    """A mutation that is signed with a stolen key; None if nobody can sign it."""
    try:
        return dict(signed(plan))
    except (ManifestError, ValidationError, UnicodeEncodeError):
        return None


@pytest.mark.parametrize("seed", STOLEN_SEEDS)
async def test_with_a_stolen_key_only_what_a_plan_shows_is_carried_out(seed: int) -> None:
    rng = random.Random(1000 + seed)  # noqa: S311 - reproducible
    async with scene_of() as scene:
        plan = await propose(scene)
        for _ in range(BATCH):
            forged = stolen(mutant(rng, plan, "inferno-1"))
            if forged is None:
                continue
            scene.cluster.objects["Plan", Key(NAMESPACE, "inferno-1")] = {}
            scene.cluster.objects.pop(("Plan", Key(NAMESPACE, "inferno-1")))
            scene.cluster.add(forged)
            scene.answer("inferno-1", "Approved")
            outcome = await scene.advance()

            assert not outcome.failed
            if scene.desired():
                shown = parse(forged)
                assert isinstance(shown, Plan)
                decisions = unpack_decisions(shown.spec.decisions)
                assert find_contradiction(shown.spec, decisions) == ""
                assert scene.desired() == {d.server: d.after.num_replicas for d in decisions}
                for name in ("s", "t"):
                    scene.cluster.objects["Server", Key(NAMESPACE, name)]["spec"].pop(
                        "desiredAlloc", None
                    )


def test_the_same_document_is_packed_to_the_same_text() -> None:
    assert pack({"b": 1, "a": [2]}) == pack({"a": [2], "b": 1})
