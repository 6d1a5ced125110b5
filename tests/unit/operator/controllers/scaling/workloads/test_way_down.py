"""How fast replicas go, with a cluster in memory, pods that start and end, and virtual time."""

import asyncio
from collections.abc import Iterator
from datetime import timedelta
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from inferno_operator.controllers.scaling.reductions import Guards
from inferno_operator.resources.objects import Key
from inferno_optimizer.way_down import WayDown
from tests.examples import several
from tests.unit.operator import objects
from tests.unit.operator.background import in_background
from tests.unit.operator.controllers.scaling.workloads.test_controller import (
    Scene,
    one_server,
    running,
    workload,
)

WINDOW_S = 300.0


def fewest(replicas: int) -> int:
    """The fewest that may be left of so many within a window."""
    return replicas - max(1, replicas // 2)


class Watched(Scene):
    """A scene that notes what serves, and what is asked for, each second."""

    def __init__(self, *args: object, **kwargs: object) -> None:
        super().__init__(*args, **kwargs)  # type: ignore[arg-type]
        self.history: dict[str, list[tuple[float, int, int]]] = {}
        """Time, ready pods and replicas asked for, by Deployment."""

    def note(self) -> None:
        """Note what serves now."""
        now = asyncio.get_running_loop().time()
        for name in [key.name for kind, key in self.cluster.objects if kind == "Deployment"]:
            ready = sum(
                "deletionTimestamp" not in pod["metadata"]
                and pod["status"]["conditions"][0]["status"] == "True"
                for pod in self.pods(name)
            )
            self.history.setdefault(name, []).append((now, ready, self.replicas(name)))

    async def watch(self) -> None:
        """Note what serves, each second."""
        while True:
            self.note()
            await asyncio.sleep(1)

    def fail(self, name: str, count: int) -> None:
        """Let some pods of a Deployment be ready no more, until `recover`."""
        self.unstarted.add(name)
        for pod in self.pods(name)[:count]:
            pod["status"]["conditions"][0] |= {"status": "False", "lastTransitionTime": self.time()}
            self.cluster.add(pod)

    def recover(self, name: str) -> None:
        """Let all pods of a Deployment be ready."""
        self.unstarted.discard(name)

    def falls(self, name: str) -> list[tuple[float, int, float, int]]:
        """Moments of a window of which the later one has less than half."""
        return list(self._falls(name))

    def _falls(self, name: str) -> Iterator[tuple[float, int, float, int]]:
        history = self.history[name]
        for place, (begin, ready, _) in enumerate(history):
            for time, later, asked in history[place:]:
                if time - begin < WINDOW_S and min(later, asked) < fewest(ready):
                    yield begin, ready, time, min(later, asked)

    def reductions(self, name: str) -> list[int]:
        """The numbers that were asked for, one after the other."""
        asked = [n for _, _, n in self.history[name]]
        return [n for n, before in zip(asked, [None, *asked], strict=False) if n != before]


def watched(replicas: int, decided: int, load: int = 1, a: int = 20) -> Watched:
    """A server with replicas that are ready, of which fewer are decided."""
    scene = Watched(a)
    scene.add("S", workload("A", "a"), load=load)
    scene.deploy("a", replicas)
    scene.decide("S", A=decided)
    return scene


async def test_a_large_reduction_goes_in_steps_of_half_and_five_minutes_apart() -> None:
    scene = watched(17, 1)

    async with running(scene), in_background(scene.watch()):
        await scene.until(lambda: scene.replicas("a") == 1)
        await scene.until(lambda: scene.reason() == "Actuated")

    assert scene.reductions("a") == [17, 9, 5, 3, 2, 1]
    assert scene.falls("a") == []


async def test_the_condition_says_what_stands_and_when_more_may_go() -> None:
    scene = watched(8, 1)

    async with running(scene):
        await scene.until(lambda: scene.replicas("a") == 4)
        await scene.until(lambda: "now 8 -> 4 x A" in scene.condition()["message"])
        first = scene.condition()
        await scene.until(lambda: "UTC" in scene.condition()["message"])
        gone = scene.now()
        second = scene.condition()

    assert (first["status"], first["reason"]) == ("Unknown", "Moving")
    assert first["message"] == (
        "8 x A (1 wanted); now 8 -> 4 x A; more may go 300 s after these have gone:"
        " spec.guard.maxDecreasePercent is 50"
    )
    at = second["message"].partition("more may go at ")[2][:8]
    assert second["message"] == (
        f"4 x A (1 wanted); more may go at {at} UTC: spec.guard.maxDecreasePercent is 50"
    )
    assert 299 <= (scene.now().fromisoformat(f"{gone.date()}T{at}+00:00") - gone).seconds <= 302


async def test_small_steps_one_after_the_other_are_no_way_around() -> None:
    scene = watched(4, 3)

    async with running(scene), in_background(scene.watch()):
        for wanted in (3, 2, 1):
            scene.decide("S", A=wanted)
            await asyncio.sleep(5)
        await scene.until(lambda: scene.replicas("a") == 1)

    assert scene.falls("a") == []


async def test_a_restart_in_between_changes_nothing() -> None:
    scene = watched(8, 1)
    async with in_background(scene.watch()):
        while scene.replicas("a") > 1:
            async with running(scene):
                await asyncio.sleep(7)

    assert scene.reductions("a") == [8, 4, 2, 1]
    assert scene.falls("a") == []


def remember(scene: Scene, **status: object) -> None:
    """Have the status of the Server say something more."""
    stored = scene.server()
    scene.cluster.add({**stored, "status": {**stored["status"], **status}})


@pytest.mark.parametrize("replicas", [8, 40])
async def test_an_operator_whose_clock_was_ahead_holds_nothing_up_for_longer_than_a_window(
    replicas: int,
) -> None:
    scene = watched(8, 1)
    served = [{"accelerator": "A", "replicas": replicas}]
    remember(scene, reductions=[{"time": scene_time(86400), "replicas": served}])

    async with running(scene), in_background(scene.watch()):
        await scene.until(lambda: scene.replicas("a") == 4)
        assert asyncio.get_running_loop().time() < 310
        await scene.until(lambda: scene.replicas("a") == 2)

    assert scene.falls("a") == []


@pytest.mark.parametrize("failing", [3, 5, 8])
@pytest.mark.parametrize("restarts", [False, True], ids=["one operator", "restarted"])
async def test_replicas_that_fail_for_a_while_served_in_the_window(
    failing: int, *, restarts: bool
) -> None:
    scene = watched(8, 8)

    async with in_background(scene.watch()):
        async with running(scene):
            await scene.until(lambda: scene.reason() == "Actuated")
            if not restarts:
                scene.fail("a", failing)
                await asyncio.sleep(2)
                scene.decide("S", A=1)
                await asyncio.sleep(30)
        if restarts:
            scene.fail("a", failing)
            scene.decide("S", A=1)
        async with running(scene):
            await asyncio.sleep(30)
            scene.recover("a")
            await asyncio.sleep(200)
            assert scene.reductions("a") == [8, 4]
            await scene.until(lambda: scene.replicas("a") == 1)


async def test_replicas_that_never_served_go_at_once() -> None:
    scene = watched(2, 12)

    async with running(scene), in_background(scene.watch()):
        await scene.until(lambda: scene.replicas("a") == 12)
        await asyncio.sleep(10)
        scene.decide("S", A=2)
        await scene.until(lambda: scene.reason() == "Actuated")

    assert scene.reductions("a") == [2, 12, 2]
    assert "reductions" not in scene.server()["status"]


async def test_a_decision_that_flaps_within_the_window_takes_no_more() -> None:
    scene = watched(8, 8)

    async with running(scene), in_background(scene.watch()):
        for wanted in (4, 8, 4, 2, 8, 1):
            scene.decide("S", A=wanted)
            await asyncio.sleep(45)
        await scene.until(lambda: scene.replicas("a") == 1)

    assert scene.falls("a") == []


async def test_a_move_that_is_taken_back_at_once_takes_no_more() -> None:
    scene = Watched(20, 20)
    scene.add("S", workload("A", "a"), workload("B", "b"), load=1)
    scene.deploy("a", 8)
    scene.deploy("b", 0)
    scene.decide("S", A=8)

    async with running(scene), in_background(scene.watch()):
        await scene.until(lambda: scene.reason() == "Actuated")
        scene.decide("S", B=8)
        await scene.until(lambda: scene.replicas("a") == 0)
        scene.decide("S", A=1)
        await scene.until(lambda: scene.replicas("b") == 0)

    serving = [
        (now, min(ready_a, asked_a) + min(ready_b, asked_b))
        for (now, ready_a, asked_a), (_, ready_b, asked_b) in zip(
            scene.history["a"], scene.history["b"], strict=True
        )
    ]
    assert min(left for now, left in serving if now < WINDOW_S) >= 4
    falls = [
        (begin, before, now, left)
        for place, (begin, before) in enumerate(serving)
        for now, left in serving[place:]
        if now - begin < WINDOW_S and left < fewest(min(before, 8))
    ]
    assert falls == []


def scene_time(seconds: int) -> str:
    return f"{(objects.NOW + timedelta(seconds=seconds)).isoformat()[:19]}Z"


@pytest.mark.parametrize(
    ("guard", "steps"),
    [
        ({"maxDecreasePercent": 100}, [8, 1]),
        ({"maxDecreasePercent": 75}, [8, 2, 1]),
        ({"maxDecreasePercent": 0}, [8, 7, 6, 5, 4, 3, 2, 1]),
        ({"window": 60}, [8, 4, 2, 1]),
    ],
)
async def test_the_guard_of_the_optimizer_says_how_fast(
    guard: dict[str, int], steps: list[int]
) -> None:
    scene = watched(8, 1)
    scene.cluster.add(objects.guarded(guard))

    async with running(scene), in_background(scene.watch()):
        begin = asyncio.get_running_loop().time()
        await scene.until(lambda: scene.replicas("a") == 1)
        seconds = asyncio.get_running_loop().time() - begin
        scene.note()

    assert scene.reductions("a") == steps
    assert (len(steps) - 2) * guard.get("window", 300) <= seconds <= len(steps) * 320


@pytest.mark.parametrize(
    "mistake",
    [{"interval": "often"}, {"guard": {"window": "long"}}, {"guard": "no"}],
    ids=["elsewhere", "in the guard", "no guard"],
)
async def test_the_last_guard_that_could_be_read_stays_in_force(mistake: dict[str, object]) -> None:
    scene = watched(8, 1)
    optimizer = objects.guarded({"window": 900})
    scene.cluster.add(optimizer)

    async with running(scene), in_background(scene.watch()):
        await scene.until(lambda: scene.replicas("a") == 4)
        begin = asyncio.get_running_loop().time()
        scene.cluster.add({**optimizer, "spec": {**optimizer["spec"], **mistake}})
        await scene.until(lambda: scene.replicas("a") == 1)

    assert asyncio.get_running_loop().time() - begin >= 2 * 900


@pytest.mark.parametrize(
    ("fields", "window_s"),
    [
        ({"interval": "often", "guard": {"window": 900}}, 900),
        ({"guard": {"window": 900, "maxServersChanged": "few"}}, 900),
        ({"guard": {"window": "long"}}, WINDOW_S),
    ],
)
def test_of_an_optimizer_that_was_never_right_what_can_be_read_is_in_force(
    fields: dict[str, object], window_s: float
) -> None:
    optimizer = objects.optimizer()
    manifest = {**optimizer, "spec": {**optimizer["spec"], **fields}}

    assert Guards().way_down("default", [manifest]).window_s == window_s


@pytest.mark.parametrize(("approved", "after"), [(1, [8, 1]), (2, [8, 4])])
async def test_what_a_person_approved_goes_at_once_and_no_other_decision(
    approved: int, after: list[int]
) -> None:
    scene = watched(8, 1)
    replicas = [{"accelerator": "A", "replicas": approved}]
    remember(scene, approved={"plan": "p-1", "replicas": replicas})

    async with running(scene), in_background(scene.watch()):
        await scene.until(lambda: scene.replicas("a") < 8)
        scene.note()

    assert scene.reductions("a") == after


async def test_a_person_who_scales_down_is_not_held() -> None:
    scene = one_server(8, decided=8, a=20)

    async with running(scene):
        await scene.until(lambda: scene.reason() == "Actuated")
        stored = scene.cluster.objects["Deployment", Key("default", "a")]
        scene.cluster.add({**stored, "spec": {**stored["spec"], "replicas": 1}})
        scene.decide("S", A=1)
        await asyncio.sleep(20)

    assert scene.replicas("a") == 1


async def test_what_others_scale_is_remembered_too() -> None:
    scene = one_server(8, a=20)
    stored = scene.server()
    scene.cluster.add({**stored, "spec": {**stored["spec"], "actuation": "Publish"}})
    scene.decide("S", A=1)

    async with running(scene):
        await scene.until(lambda: scene.server()["spec"]["currentAlloc"]["numReplicas"] == 8)
        stored = scene.cluster.objects["Deployment", Key("default", "a")]
        scene.cluster.add({**stored, "spec": {**stored["spec"], "replicas": 4}})
        await scene.until(lambda: scene.server()["spec"]["currentAlloc"]["numReplicas"] == 4)

    (reduction,) = scene.server()["status"]["reductions"]
    assert reduction["replicas"] == [{"accelerator": "A", "replicas": 8}]


@several(30)
@given(st.integers(0, 10**9), st.sampled_from([0, 25, 50, 80]))
async def test_random_decisions_restarts_and_loads_never_take_more_than_the_share(
    seed: int, percent: int
) -> None:
    chance = Random(seed)  # noqa: S311 - the same decisions each time
    scene = watched(chance.randint(1, 12), 1)
    scene.cluster.add(objects.guarded({"maxDecreasePercent": percent}))
    rule = WayDown(percent / 100)

    async with in_background(scene.watch()):
        for _ in range(12):
            async with running(scene):
                for _ in range(chance.randint(1, 3)):
                    scene.decide("S", A=chance.randint(1, 12))
                    await asyncio.sleep(chance.choice([1, 5, 60, 250, 301]))

    history = scene.history["a"]
    falls = [
        (begin, ready, time, later)
        for place, (begin, ready, _) in enumerate(history)
        for time, later, _ in history[place:]
        if time - begin < WINDOW_S and later < rule.count_fewest(ready)
    ]
    assert falls == []


async def test_a_replica_is_lent_for_a_swap_as_soon_as_the_way_down_permits() -> None:
    """Nothing else happens meanwhile, so that the end of the window has to be looked at."""
    scene = Scene(a=4, b=2)
    scene.deploy("u-a", 4)
    scene.add("U", workload("A", "u-a"))
    scene.decide("U", A=2)
    for name, runs in (("S", "A"), ("T", "B")):
        places = {place: f"{name.lower()}-{place.lower()}" for place in "AB"}
        items = [workload(place, each) for place, each in places.items()]
        scene.add(name, *items, currentAlloc=objects.running(2, 2, runs))
        for place, each in places.items():
            scene.deploy(each, 2 if place == runs else 0)
    scene.decide("S", B=2)
    scene.decide("T", A=2)

    async with running(scene):
        await scene.until(lambda: all(scene.reason(each) == "Actuated" for each in "stu"))
        seconds = asyncio.get_running_loop().time()

    assert WINDOW_S < seconds < 2 * WINDOW_S
