"""A Server that wakes while a Plan waits for a person."""

import asyncio
from collections.abc import Sequence

import pytest

from inferno_operator.controllers.optimization.ports import TypedLoads
from inferno_operator.resources.observation import Observation
from tests.unit.operator.controllers.approval.scene import scene_of
from tests.unit.operator.objects import capacity, see_requests, server, sleeper

SERVERS = (server("A", wanted=2), server("B", wanted=1), sleeper())


async def test_in_mode_approve_nothing_wakes_and_the_plan_goes_on_waiting() -> None:
    async with scene_of(*SERVERS) as scene:
        see_requests(scene.cluster, 0.0)
        scene.write_optimizer(mode="Approve", interval=60, optimize=False)
        await scene.optimize()
        await scene.advance()
        see_requests(scene.cluster, 1.0)
        await scene.wake()

        assert scene.desired() == {"s": 0}
        assert scene.phases() == {"inferno-1": "Proposed"}


async def test_within_the_guard_a_server_wakes_and_the_plan_beyond_it_goes_on_waiting() -> None:
    async with scene_of(*SERVERS) as scene:
        see_requests(scene.cluster, 0.0)
        scene.write_optimizer(guard={"maxServersChanged": 0}, interval=60, optimize=False)
        await scene.optimize()
        await scene.advance()
        scene.write_optimizer(guard={"maxServersChanged": 1}, interval=60, optimize=False)
        see_requests(scene.cluster, 1.0)
        await scene.wake()

        assert scene.desired()["s"] == 1
        assert scene.phases() == {"inferno-1": "Proposed"}


async def test_beyond_the_guard_a_server_does_not_wake() -> None:
    async with scene_of(*SERVERS) as scene:
        see_requests(scene.cluster, 1.0)
        scene.write_optimizer(guard={"maxServersChanged": 0}, interval=60, optimize=False)
        await scene.wake()

        assert scene.desired() == {"s": 0}


@pytest.mark.parametrize(("cards", "phase", "replicas"), [(3, "Superseded", 1), (4, "Acting", 4)])
async def test_a_plan_is_not_carried_out_on_cards_that_a_server_that_woke_has_got(
    cards: int, phase: str, replicas: int
) -> None:
    async with scene_of(*SERVERS, capacity(cards)) as scene:
        see_requests(scene.cluster, 0.0)
        scene.write_optimizer(guard={"maxServersChanged": 0}, interval=60, optimize=False)
        await scene.optimize()
        await scene.advance()
        scene.write_optimizer(guard={"maxServersChanged": 1}, interval=60, optimize=False)
        see_requests(scene.cluster, 1.0)
        await scene.wake()
        scene.answer("inferno-1", "Approved")
        await scene.advance()

        assert scene.phases() == {"inferno-1": phase}
        assert sum(scene.desired().values()) == replicas


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
    async with scene_of(*SERVERS, loads=loads) as scene:
        see_requests(scene.cluster, 0.0)
        scene.write_optimizer(guard={"maxServersChanged": 0}, interval=60, optimize=False)
        await scene.optimize()
        await scene.advance()
        scene.write_optimizer(guard={"maxServersChanged": 1}, interval=60, optimize=False)
        see_requests(scene.cluster, 1.0)
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
