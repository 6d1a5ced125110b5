"""Servers that wake while an optimization runs: what each of the two writes, in any order."""

import asyncio
from collections.abc import Callable

import pytest

from inferno_operator.controllers.planning.reconcile import reconcile
from inferno_operator.controllers.planning.snapshot import build_system
from inferno_operator.controllers.planning.updates import VALID, Update, build_server_update
from inferno_operator.controllers.planning.waking import find_without_room, wake
from inferno_operator.resources import Server
from inferno_operator.resources.objects import Key, Kind, Manifest, kind_of
from inferno_operator.resources.observation import readable
from inferno_operator.runtime.ports import FieldManager
from inferno_operator.runtime.work_queue import ReconcileResult
from inferno_optimizer.errors import UnavailableError
from inferno_optimizer.solution import Decision, Reason, Solution
from inferno_optimizer.system import Allocation, System
from tests.fakes import FakeCluster, FakeOptimizer
from tests.unit.operator.controllers.planning.scene import INFERNO, context_of
from tests.unit.operator.objects import (
    accelerator,
    capacity,
    manifest,
    model,
    observed,
    observed_server,
    optimizer,
    performance,
    running,
    see_requests,
    server,
    service_class,
    sleeper,
    system,
)

STEPS = 12
"""More turns of the loop than an optimization takes until it writes."""


class Recorder(FakeCluster):
    """Notes the sum of all decided replicas after each write."""

    def __init__(self) -> None:
        super().__init__()
        self.sums: list[int] = []
        self.refuses = False

    async def apply(
        self, kind: Kind, manifest: Manifest, manager: str, *, force: bool = True
    ) -> Manifest:
        await asyncio.sleep(0)
        if self.refuses:
            raise UnavailableError("another operator leads now")
        written = await super().apply(kind, manifest, manager, force=force)
        self.sums.append(sum(decided(self, name) for name in ("a", "b", "s")))
        return written


class Turns(FakeOptimizer):
    """Holds its answer for so many turns of the loop."""

    def __init__(self, turns: int = 0) -> None:
        super().__init__()
        self._turns = turns

    async def optimize(self, system: System) -> Solution:
        solution = await super().optimize(system)
        await turns(self._turns)
        return solution


async def turns(count: int) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


def decided(cluster: FakeCluster, name: str) -> int:
    stored = cluster.objects.get(("Server", Key("default", name)), {"spec": {}})
    found: int = stored["spec"].get("desiredAlloc", {}).get("numReplicas", 0)
    return found


def scene(cards: int, *, a: int = 2, b: int = 1) -> Recorder:
    """Two Servers that want replicas, one that sleeps, and an Optimizer."""
    cluster, asked = Recorder(), optimizer()
    asked["spec"]["interval"] = 60
    servers = (server("A", wanted=a), server("B", wanted=b), sleeper())
    for each in (*system(cards), *servers, asked):
        cluster.add(each)
    see_requests(cluster, 0.0)
    return cluster


async def wake_beside_an_optimization(cluster: FakeCluster) -> "asyncio.Task[ReconcileResult]":
    """Wake a Server in the middle of an optimization, which is returned."""
    context = context_of(cluster, Turns(10 * STEPS))
    solving = asyncio.create_task(reconcile(INFERNO, context))
    await turns(5 * STEPS)
    see_requests(cluster, 1.0)
    await wake(INFERNO, context)
    return solving


@pytest.mark.parametrize("cards", [1, 2, 3])
@pytest.mark.parametrize("held", [0, STEPS])
async def test_cards_are_never_exceeded_whenever_a_server_wakes(cards: int, held: int) -> None:
    for begin in range(0, held + 4 * STEPS, 7):
        cluster = scene(cards)
        context = context_of(cluster, Turns(held))

        solving = asyncio.create_task(reconcile(INFERNO, context))
        await turns(begin)
        see_requests(cluster, 1.0)
        await asyncio.gather(solving, wake(INFERNO, context))

        assert max(cluster.sums) <= cards


async def test_an_optimization_that_ends_later_leaves_a_server_what_it_got() -> None:
    cluster = scene(4, a=1)

    solving = await wake_beside_an_optimization(cluster)
    woke = decided(cluster, "s"), solving.done()
    await solving

    assert woke == (1, False)
    assert [decided(cluster, name) for name in ("a", "b", "s")] == [1, 1, 1]


async def test_a_server_that_woke_and_was_deleted_stops_no_plan_of_others() -> None:
    cluster = scene(4, a=1)

    solving = await wake_beside_an_optimization(cluster)
    del cluster.objects["Server", Key("default", "s")]
    outcome = await solving

    assert not outcome.failed
    assert [decided(cluster, name) for name in ("a", "b")] == [1, 1]


async def test_what_does_not_fit_beside_a_server_that_woke_waits_for_the_next_plan() -> None:
    cluster = scene(2, a=1)

    await (await wake_beside_an_optimization(cluster))

    assert decided(cluster, "s") == 1
    assert decided(cluster, "a") + decided(cluster, "b") == 1


def run_on_all(cluster: FakeCluster) -> None:
    spec = cluster.objects["Server", Key("default", "a")]["spec"]
    spec["currentAlloc"] = running(2, 2)


def run_apart(cluster: FakeCluster) -> None:
    """Each role has a number of cards of its own: one decode replica takes three here."""
    cluster.add(capacity(4))
    steps = {"alpha": 9, "kappa": 0, "delta": 0.02, "ahead": 1, "budget": 8192}
    part = {"acc": "A", "maxBatchSize": 8, "atTokens": 1, "stepParms": steps}
    roles = [{**part, "role": "Prefill", "accCount": 1}, {**part, "role": "Decode", "accCount": 3}]
    cluster.add(model("P", roles))
    places = {role: {"accelerator": "A", "numReplicas": 1} for role in ("prefill", "decode")}
    apart = {**running(2, 1), "roles": places}
    cluster.add(server("X", spec={"model": "P", "currentAlloc": apart, "desiredAlloc": apart}))


def add_unreadable(cluster: FakeCluster, runs: int = 2) -> None:
    """Add a Server that runs on so many cards, and whose spec nobody can read as a whole."""
    cluster.add(server("X", spec={"currentAlloc": running(runs, runs), "maxBatchSize": -1}))


@pytest.mark.parametrize("take_cards", [run_on_all, run_apart, add_unreadable])
async def test_a_server_does_not_wake_on_cards_that_others_run_on(
    take_cards: Callable[[FakeCluster], None],
) -> None:
    cluster = scene(2, a=0, b=0)
    take_cards(cluster)
    see_requests(cluster, 1.0)

    await wake(INFERNO, context_of(cluster))

    assert decided(cluster, "s") == 0


async def test_a_server_that_finds_no_free_card_says_at_once_what_it_waits_for() -> None:
    cluster = scene(2, a=2, b=0)
    context = context_of(cluster)
    await reconcile(INFERNO, context)
    see_requests(cluster, 1.0)

    await wake(INFERNO, context)
    conditions = cluster.objects["Server", Key("default", "s")]["status"]["conditions"]
    told = {c["type"]: (c["status"], c["reason"], c["message"]) for c in conditions}

    assert decided(cluster, "s") == 0
    assert told["Ready"][:2] == ("False", "NoCapacity")
    assert "requests wait for a first replica: not enough cards: it takes 1 x A" in told["Ready"][2]


async def test_a_plan_beside_a_wake_leaves_the_cards_of_a_server_that_nobody_can_read() -> None:
    cluster = scene(3, a=1)
    add_unreadable(cluster, runs=1)

    await (await wake_beside_an_optimization(cluster))

    assert decided(cluster, "s") == 1
    assert decided(cluster, "a") + decided(cluster, "b") == 1


def test_who_was_to_grow_on_cards_that_another_server_cannot_leave_waits_too() -> None:
    leaving, growing, awake = (
        observed_server(
            server(name, spec={"desiredAlloc": running(int(card != ""), 1, card)}, uid=name)
        )
        for name, card in (("A", "A2"), ("B", ""), ("S", "A"))
    )
    other = manifest("Accelerator", {"name": "A2", "type": "U", "cost": 10}, name="a2")
    models = model(data=[performance("A"), performance("A2")])
    cards = manifest("Capacity", {"count": [{"type": t, "count": 1} for t in "TU"]}, name="cards")
    others = map(observed, (accelerator(), other, models, service_class(), cards))
    updates = [
        build_server_update(leaving, Decision("A", Reason.ALLOCATED, "", Allocation("A", 1))),
        build_server_update(growing, Decision("B", Reason.ALLOCATED, "", Allocation("A2", 1))),
        Update.of(awake, (VALID,), active=True),
    ]

    system = build_system(readable(others)).system

    assert find_without_room([leaving, growing, awake], updates, system) == {"A", "B"}


async def test_an_operator_that_no_longer_leads_wakes_nothing_and_tries_again() -> None:
    cluster = scene(4)
    see_requests(cluster, 1.0)
    cluster.refuses = True

    outcome = await wake(INFERNO, context_of(cluster))

    assert outcome.failed
    assert decided(cluster, "s") == 0


async def test_a_server_that_wakes_keeps_what_its_status_remembers() -> None:
    cluster = scene(4)
    see_requests(cluster, 1.0)
    known = cluster.objects["Server", Key("default", "s")]
    remembered = {"moved": "2026-03-01T11:30:00Z", "lastAccelerator": "A"}
    told = {"metadata": known["metadata"], "status": {"active": True, **remembered}}
    await cluster.apply(kind_of(Server), told, FieldManager.DECISIONS)

    await wake(INFERNO, context_of(cluster))

    assert decided(cluster, "s") == 1
    assert cluster.objects["Server", Key("default", "s")]["status"].items() >= remembered.items()
