"""Plans while a Server with a typed load moves: what it moves to is where it stays for now."""

from datetime import timedelta

from inferno_operator.resources.objects import Key
from tests.unit.operator import objects
from tests.unit.operator.controllers.planning.scene import Scene, scene_of
from tests.unit.operator.objects import Manifest

INTERVAL_S = 2
"""Seconds between two plans, many of which are made during one move."""

BIG = (
    objects.accelerator("B", cost=70),
    objects.model(data=[objects.performance(), objects.performance("B", alpha=99.9, beta=0)]),
)
"""One replica on B carries ten times as much as one on A, and costs seven times as much."""

WORKLOADS = [{"accelerator": name, "name": f"s-{name.lower()}"} for name in "AB"]


class Move:
    """A Server on A that moves to B as Deployments do: first come replicas on B, then A ends."""

    def __init__(self, scene: Scene) -> None:
        self._scene = scene
        self.runs = {"A": 10}
        self.decided: list[str] = []

    async def plan(self, rate: float) -> None:
        """Plan for a load [requests/min], in the place that it has now."""
        parts = [_part(name, count) for name, count in self.runs.items() if count]
        load = {"arrivalRate": rate, "avgLength": 1}
        whole = {**parts[0], "numReplicas": sum(self.runs.values())}
        mix = {"mix": parts} if len(parts) > 1 else {}
        self._scene.change("Server", "s", currentAlloc={**whole, **mix, "load": load})
        await self._scene.seen()
        await self._scene.optimize()
        await self._scene.advance()
        self._scene.later(seconds=INTERVAL_S)
        self.decided.append(self.place())

    def place(self) -> str:
        """Return the accelerator that is decided."""
        spec = self._scene.cluster.objects["Server", Key("default", "s")]["spec"]
        accelerator: str = spec["desiredAlloc"]["accelerator"]
        return accelerator


def _part(name: str, replicas: int) -> Manifest:
    cost = {"A": 10, "B": 70}[name] * replicas
    return {"accelerator": name, "numReplicas": replicas, "cost": cost}


def typed() -> Manifest:
    """The Server that moves."""
    return objects.server("S", spec={"workloads": WORKLOADS})


async def begun(scene: Scene) -> Move:
    """A move that has begun: it is decided, and the first replica on B starts."""
    scene.write_optimizer(optimize=False, interval=INTERVAL_S, guard={})
    move = Move(scene)
    await move.plan(590)
    assert move.decided == ["B"]
    move.runs = {"A": 10, "B": 1}
    return move


async def test_a_load_that_rises_during_a_move_turns_it_back_by_no_plan() -> None:
    """At 610/min two on B cost 140 and eleven on A 110; halfway the move would be turned back."""
    async with scene_of(*BIG, typed(), objects.capacity(100)) as scene:
        move = await begun(scene)
        for rate in (600, 610, 620, 640, 650):
            await move.plan(rate)

        assert set(move.decided) == {"B"}


async def test_a_server_that_has_arrived_goes_where_it_costs_less() -> None:
    async with scene_of(*BIG, typed(), objects.capacity(100)) as scene:
        move = await begun(scene)
        await move.plan(610)
        move.runs = {"B": 2}
        await move.plan(610)

        assert move.decided == ["B", "B", "A"]


async def test_a_move_that_does_not_end_holds_a_server_only_for_the_time_of_a_payback() -> None:
    async with scene_of(*BIG, typed(), objects.capacity(100)) as scene:
        move = await begun(scene)
        await move.plan(610)
        scene.now += timedelta(hours=3)
        await move.plan(610)

        assert move.decided == ["B", "B", "A"]


async def test_a_move_to_what_costs_far_more_now_is_turned_back() -> None:
    """A price that was wrong is corrected while the move goes on."""
    async with scene_of(*BIG, typed(), objects.capacity(100)) as scene:
        move = await begun(scene)
        scene.change("Accelerator", "b", cost=7000)
        await move.plan(590)

        assert move.decided == ["B", "A"]
