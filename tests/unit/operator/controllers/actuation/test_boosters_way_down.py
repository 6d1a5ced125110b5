"""How fast replicas of ModelBoosters go, on a cluster in memory."""

from collections.abc import Iterable, Mapping
from datetime import timedelta

import pytest

from inferno_operator.controllers.actuation.index import ServerIndex
from inferno_operator.controllers.actuation.reconcile import Context
from inferno_operator.resources import Resource, Server
from tests.unit.operator import objects
from tests.unit.operator.controllers.actuation.test_reconcile import SERVER, Scene

SECOND = timedelta(seconds=1)


class KnownSupplies:
    """Replicas on A carry 10 requests/min, on B 25; the load is given."""

    def __init__(self, load: float, urgent: int) -> None:
        self._load, self._urgent = load, urgent

    def rate(self, server: Server, place: str) -> float | None:
        del server
        return {"A": 10.0, "B": 25.0}[place]

    def demand(self, server: Server) -> float:
        del server
        return self._load

    def urgent_replicas(
        self, server: Server, servers: Iterable[Server], places: Iterable[str]
    ) -> Mapping[str, int]:
        del server, servers
        return dict.fromkeys(places, self._urgent)


def scene_of(load: float = 1.0, urgent: int = 0, target: str = "ModelServing") -> Scene:
    scene = Scene(target=target)

    def supplies_of(resources: Iterable[Resource]) -> KnownSupplies:
        del resources
        return KnownSupplies(load, urgent)

    scene.context = Context(scene.cluster, scene.now, ServerIndex(), supplies_of=supplies_of)
    return scene


async def steps_of(scene: Scene, seconds: int, *, restarts: bool = False) -> list[tuple[int, int]]:
    """The replicas on A and B, one after the other; pods end within a second."""
    found: list[tuple[int, int]] = []
    for _ in range(seconds):
        await scene.actuate(after=SECOND)
        a, b = scene.replicas().values()
        if (a, b) not in found[-1:]:
            found.append((a, b))
        scene.run_all()
        if restarts:
            scene.context = Context(
                scene.cluster, scene.now, ServerIndex(), supplies_of=scene.context.supplies_of
            )
    return found


async def started(scene: Scene, **replicas: int) -> None:
    scene.decide(**replicas)
    for _ in range(3):
        await scene.actuate()
        scene.run_all()
    await scene.actuate()


@pytest.mark.parametrize("restarts", [False, True], ids=["one operator", "restarted"])
async def test_half_of_the_replicas_go_each_five_minutes(*, restarts: bool) -> None:
    scene = scene_of()
    await started(scene, A=8)
    scene.decide(A=1)

    assert await steps_of(scene, 310, restarts=restarts) == [(4, 0), (2, 0)]
    assert await steps_of(scene, 310, restarts=restarts) == [(2, 0), (1, 0)]


@pytest.mark.parametrize("available", [0, 3, 5])
@pytest.mark.parametrize("restarts", [False, True], ids=["one operator", "restarted"])
async def test_replicas_that_fail_for_a_while_served_in_the_window(
    available: int, *, restarts: bool
) -> None:
    scene = scene_of()
    await started(scene, A=8)
    scene.run("m-a", available)
    if not restarts:
        await scene.actuate(after=SECOND)
    scene.decide(A=1)
    asked = []
    for second in range(230):
        await scene.actuate(after=SECOND)
        asked.append(scene.asked())
        if second > 20:
            scene.run_all()

    assert min(asked) == 4
    for _ in range(20):
        await scene.actuate(after=60 * SECOND)
        scene.run_all()
    assert scene.asked() == 1


async def test_the_condition_says_when_more_may_go_and_is_no_timeout() -> None:
    scene = scene_of()
    await started(scene, A=40)
    scene.decide(A=1)
    first = await scene.actuate(after=SECOND)
    scene.run_all()
    await scene.actuate(after=SECOND)
    second = await scene.actuate(after=SECOND)
    found = set()
    for _ in range(16):
        found.add((await scene.actuate(after=60 * SECOND))["reason"])
        scene.run_all()

    assert "now 40 -> 20 x A; more may go 300 s after these have gone" in first["message"]
    assert "more may go at 12:05:02 UTC: spec.guard.maxDecreasePercent is 50" in second["message"]
    assert found == {"Moving"}


async def test_a_more_important_server_gets_the_cards_at_once() -> None:
    scene = scene_of(urgent=6)
    await started(scene, A=8)
    scene.decide(A=1)

    assert await steps_of(scene, 1) == [(2, 0)]


async def test_what_a_person_approved_goes_at_once() -> None:
    scene = scene_of()
    await started(scene, A=8)
    scene.decide(A=1)
    status = scene.cluster.objects["Server", SERVER]["status"]
    status["approved"] = {"plan": "p", "replicas": [{"accelerator": "A", "replicas": 1}]}

    assert await steps_of(scene, 2) == [(1, 0)]


async def test_a_move_that_keeps_the_strength_is_no_reduction() -> None:
    scene = scene_of(load=90)
    await started(scene, A=10)
    scene.decide(B=4)

    assert await steps_of(scene, 5) == [(10, 4), (0, 4)]


async def test_a_move_to_far_less_goes_in_steps() -> None:
    scene = scene_of(load=20)
    await started(scene, A=10)
    scene.decide(B=1)

    assert await steps_of(scene, 5) == [(10, 1), (3, 1)]


async def test_the_old_replicas_stay_until_the_new_ones_carry_the_measured_load() -> None:
    scene = scene_of(load=120)
    await started(scene, A=10)
    scene.decide(B=4)

    assert await steps_of(scene, 400) == [(10, 4), (2, 4)]


async def test_the_guard_switches_the_rule_off() -> None:
    scene = scene_of()
    scene.cluster.add(objects.guarded({"maxDecreasePercent": 100}))
    await started(scene, A=8)
    scene.decide(A=1)

    assert await steps_of(scene, 2) == [(1, 0)]
