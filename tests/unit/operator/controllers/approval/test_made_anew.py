"""A Model or an Accelerator that is made anew while no operator runs: what runs stays as it is."""

from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager

import pytest

from inferno_operator.resources import Resource
from inferno_operator.resources.objects import Key, kind_of
from tests.unit.operator import objects
from tests.unit.operator.controllers.approval.scene import Scene, scene_of
from tests.unit.operator.controllers.approval.test_doubted import plan, steps
from tests.unit.operator.controllers.approval.test_reduction import serving
from tests.unit.operator.objects import Manifest

SIX = {"s": 6, "t": 6}


@asynccontextmanager
async def made_anew(
    servers: Iterable[Manifest], made: Iterable[Manifest], *others: Manifest
) -> AsyncIterator[Scene]:
    """A scene after plans of S, and of T that is less important and loses what S gets.

    The objects of the kinds that are made anew are deleted when the first operator ends, and a
    second one makes a plan without them; they are made while none runs.
    """
    made = list(made)
    counts = [{"type": "T", "count": 18}, {"type": "U", "count": 1}]
    async with scene_of(
        objects.service_class("I", priority=1),
        objects.service_class("C", priority=2),
        objects.manifest("Capacity", {"count": counts}, name="cards"),
        *others,
        *servers,
    ) as first:
        await plan(first)
        for each in made:
            kind: type[Resource] = objects.kind_of(each)
            first.cluster.remove(kind_of(kind), Key("default", each["metadata"]["name"]))
        async with first.restarted() as between:
            await plan(between)
            async with between.restarted() as scene:
                for each in made:
                    scene.cluster.add(each)
                await plan(scene)
                await plan(scene)
                yield scene


def accelerator(**fields: object) -> Manifest:
    made = objects.accelerator()
    return {**made, "spec": {**made["spec"], **fields}}


def model(**fields: object) -> Manifest:
    return objects.model(data=[{**objects.performance(), **fields}])


def capacity(name_of_type: str) -> Manifest:
    return objects.manifest(
        "Capacity", {"count": [{"type": name_of_type, "count": 18}]}, name="cards"
    )


def typed(name: str, fields: Manifest) -> Manifest:
    return serving(name, 6, 6, fields)


def boosted(name: str, fields: Manifest) -> Manifest:
    backends = [{"accelerator": "A", "name": "a"}]
    booster = {"modelBooster": {"name": name.lower(), "backends": backends}}
    spec = {"currentAlloc": objects.running(6, 6), **booster, **fields}
    return objects.server(name, spec=spec)


def measured(name: str, fields: Manifest) -> Manifest:
    measure = {"measure": {"source": "vLLM", "labels": {"model_name": name.lower()}}}
    return serving(name, 6, 6, {**measure, **fields})


@pytest.mark.parametrize("kind_of_server", [typed, boosted, measured])
@pytest.mark.parametrize(
    "made",
    [
        [accelerator(multiplicity=2)],
        [accelerator(type="U")],
        [model(accCount=2)],
        [accelerator(), model(accCount=2)],
        [accelerator(multiplicity=2), model(accCount=2)],
    ],
    ids=["more cards", "other cards", "more accelerators", "as it was, and more", "more of both"],
)
async def test_replicas_keep_the_cards_that_they_hold(
    made: list[Manifest], kind_of_server: Callable[[str, Manifest], Manifest]
) -> None:
    """By the new ones less important T would lose replicas to S, within what the guard lets go."""
    servers = kind_of_server("S", {"class": "I"}), kind_of_server("T", {})
    async with made_anew(servers, made) as scene:
        assert scene.phases() == {}
        server = scene.cluster.objects["Server", Key("default", "t")]
        assert server["status"]["replicaCards"] == [
            {
                "model": "M",
                "acc": "A",
                "role": "Both",
                "accCount": 1,
                "type": "T",
                "multiplicity": 1,
            }
        ]


def apart(prefill_cards: int = 1, decode_cards: int = 1) -> Manifest:
    """A Model of prefill on A and decode on B, with so many accelerators for each replica."""
    prefill, decode = steps("A", "Prefill", 100.0), steps("B", "Decode", 30.0)
    return objects.model(
        data=[{**prefill, "accCount": prefill_cards}, {**decode, "accCount": decode_cards}]
    )


@pytest.mark.parametrize("made", [apart(2, 1), apart(1, 2)], ids=["prefill", "decode"])
async def test_replicas_of_both_roles_keep_the_cards_that_they_hold(made: Manifest) -> None:
    """With two accelerators for each replica of either role, the 7 cards would be too few."""
    runs = {"prefill": ("A", 3), "decode": ("B", 4)}
    roles = {role: {"accelerator": acc, "numReplicas": n} for role, (acc, n) in runs.items()}
    workloads = [
        {"accelerator": acc, "role": role.capitalize(), "name": role}
        for role, (acc, _) in runs.items()
    ]
    load = {"arrivalRate": 1200, "avgInTokens": 1000, "avgOutTokens": 100}
    current = {"accelerator": "B", "numReplicas": 7, "roles": roles, "load": load}
    server = objects.server("S", spec={"workloads": workloads, "currentAlloc": current})
    others = objects.accelerator("B"), apart(), objects.capacity(7)
    async with made_anew([server], [made], *others) as scene:
        written = scene.cluster.objects["Server", Key("default", "s")]
        held = {
            cards["role"]: (cards["acc"], cards["accCount"])
            for cards in written["status"]["replicaCards"]
        }
        assert held == {"Prefill": ("A", 1), "Decode": ("B", 1)}
        decided = written["spec"]["desiredAlloc"]["roles"]
        assert {role: (p["accelerator"], p["numReplicas"]) for role, p in decided.items()} == runs
        assert scene.phases() == {}


async def test_a_server_that_nothing_actuates_says_nothing_of_cards() -> None:
    """Replicas that the operator does not see cannot be held: its status stays small."""
    async with scene_of(objects.capacity(18), serving("S", 2, 2), objects.server("T")) as scene:
        await plan(scene)
        status = {
            name: scene.cluster.objects["Server", Key("default", name)]["status"] for name in "st"
        }
        assert [cards["acc"] for cards in status["s"]["replicaCards"]] == ["A"]
        assert status["t"]["conditions"]
        assert "replicaCards" not in status["t"]


EIGHT_AT_ONCE = {"alpha": 8 * 999, "maxBatchSize": 8}
"""Replicas that do 8 times as much in 8 times the time."""


@pytest.mark.parametrize("kind_of_server", [typed, boosted, measured])
@pytest.mark.parametrize(
    ("before", "after"),
    [
        ({}, {"alpha": 10 * 999}),
        ({}, {"beta": 10 * 999}),
        (EIGHT_AT_ONCE, EIGHT_AT_ONCE | {"maxBatchSize": 1}),
    ],
    ids=["times", "times of a batch", "a small batch"],
)
async def test_who_would_be_far_dearer_than_its_decision_says_waits_for_a_person(
    before: Manifest,
    after: Manifest,
    kind_of_server: Callable[[str, Manifest], Manifest],
) -> None:
    """S would get all cards of T, which are not more than the guard lets go."""
    servers = kind_of_server("S", {"class": "I"}), kind_of_server("T", {})
    async with made_anew(servers, [model(**after)], model(**before)) as scene:
        assert (scene.phases(), scene.desired()) == ({"inferno-1": "Proposed"}, SIX)
        assert "s would cost less than half" in scene.told("inferno-1")[1]

        scene.answer("inferno-1", "Approved")
        await scene.advance()

        assert scene.desired()["s"] > 6


@pytest.mark.parametrize(("slower", "replicas"), [(2.0, 11), (3.0, 17)])
async def test_data_that_are_somewhat_slower_wait_for_nobody(slower: float, replicas: int) -> None:
    async with made_anew([typed("S", {})], [model(alpha=slower * 999)]) as scene:
        assert scene.phases() == {"inferno-1": "Acting"}
        assert scene.desired() == {"s": replicas}


@pytest.mark.parametrize("kind_of_server", [typed, boosted])
async def test_who_loses_most_by_a_far_larger_batch_waits_for_a_person(
    kind_of_server: Callable[[str, Manifest], Manifest],
) -> None:
    """It has few of the replicas of the namespace, which the guard would let go.

    A measured one loses nothing at once, as fewer must be enough for some time.
    """
    both = objects.service_class()
    both["spec"]["data"] = [{"model": "M"}, {"model": "N"}]
    other = objects.model("N", data=[objects.performance()])
    fleet = kind_of_server("S", {}), serving("T", 16, 16, {"model": "N"})
    cards = objects.capacity(100)
    async with made_anew(fleet, [model(maxBatchSize=8)], both, other, cards) as scene:
        assert scene.phases() == {"inferno-1": "Proposed"}
        assert scene.desired() == {"s": 6, "t": 16}
        assert "s would not be served" in scene.told("inferno-1")[1]


@pytest.mark.parametrize("kind_of_server", [typed, boosted, measured])
async def test_who_runs_on_cards_that_a_capacity_names_otherwise_keeps_its_replicas(
    kind_of_server: Callable[[str, Manifest], Manifest],
) -> None:
    servers = kind_of_server("S", {"class": "I"}), kind_of_server("T", {})
    async with made_anew(servers, [capacity("t")]) as scene:
        assert (scene.phases(), scene.desired()) == ({}, SIX)
