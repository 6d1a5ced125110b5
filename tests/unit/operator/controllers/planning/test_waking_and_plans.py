"""A Server that wakes while a Plan waits for a person."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import pytest

from inferno_operator.controllers.planning.ports import READ, Loads
from inferno_operator.resources.observation import Observation
from tests.unit.operator.controllers.planning.scene import Scene, TypedLoads, scene_of
from tests.unit.operator.objects import Manifest, capacity, see_requests, server, sleeper


@asynccontextmanager
async def plan_waits(
    cards: int = 20, loads: Loads | None = None, **spec: object
) -> AsyncIterator[Scene]:
    """A Plan of two Servers waits for a person, and then requests come for one that sleeps.

    The Optimizer has these fields from then on.
    """
    servers = server("A", wanted=2), server("B", wanted=1), sleeper()
    async with scene_of(*servers, capacity(cards), loads=loads) as scene:
        see_requests(scene.cluster, 0.0)
        scene.write_optimizer(guard={"maxServersChanged": 0}, interval=60, optimize=False)
        await scene.optimize()
        await scene.advance()
        assert scene.phases() == {"inferno-1": "Proposed"}
        scene.write_optimizer(interval=60, optimize=False, **spec)
        see_requests(scene.cluster, 1.0)
        yield scene


@pytest.mark.parametrize(
    ("spec", "replicas"),
    [
        ({"mode": "Approve"}, 0),
        ({"guard": {"maxServersChanged": 1}}, 1),
        ({"guard": {"maxServersChanged": 0}}, 0),
    ],
    ids=["mode Approve", "within the guard", "beyond the guard"],
)
async def test_a_server_wakes_within_the_guard_and_the_plan_goes_on_waiting(
    spec: Manifest, replicas: int
) -> None:
    async with plan_waits(**spec) as scene:
        await scene.wake()

        assert scene.desired()["s"] == replicas
        assert scene.phases() == {"inferno-1": "Proposed"}


@pytest.mark.parametrize(("cards", "phase", "replicas"), [(3, "Superseded", 1), (4, "Acting", 4)])
async def test_a_plan_is_not_carried_out_on_cards_that_a_server_that_woke_has_got(
    cards: int, phase: str, replicas: int
) -> None:
    async with plan_waits(cards, guard={"maxServersChanged": 1}) as scene:
        await scene.wake()
        scene.answer("inferno-1", "Approved")
        await scene.advance()

        assert scene.phases() == {"inferno-1": phase}
        assert sum(scene.desired().values()) == replicas


async def test_a_plan_that_is_carried_out_reads_the_objects_once() -> None:
    async with plan_waits(guard={"maxServersChanged": 1}) as scene:
        scene.answer("inferno-1", "Approved")
        scene.cluster.listed.clear()
        await scene.advance()

        assert scene.phases() == {"inferno-1": "Acting"}
        assert sorted(scene.cluster.listed) == sorted(kind.kind for kind in READ)


class SlowLoads(TypedLoads):
    """Waits for a load until it comes."""

    def __init__(self) -> None:
        self.asked, self.came = asyncio.Event(), asyncio.Event()
        self.came.set()

    async def with_loads(self, observations: Sequence[Observation]) -> Sequence[Observation]:
        self.asked.set()
        await self.came.wait()
        return observations


async def test_a_server_wakes_while_an_approved_plan_waits_for_a_first_load() -> None:
    loads = SlowLoads()
    async with plan_waits(loads=loads, guard={"maxServersChanged": 1}) as scene:
        scene.answer("inferno-1", "Approved")
        loads.came.clear()
        loads.asked.clear()

        async with asyncio.timeout(30), asyncio.TaskGroup() as tasks:
            tasks.create_task(scene.advance())
            await loads.asked.wait()
            await scene.wake()
            woken = scene.desired()["s"]
            loads.came.set()

        assert woken == 1
