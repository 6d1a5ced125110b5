"""Data that are wrong take replicas away: by how many at most, and what is said of it.

No Plan waits for a person because its data look wrong: whatever the mistake, a Server loses at most
half of its replicas within a window, the targets that it misses then hold what is left, and what
was mistyped may be corrected meanwhile.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

import pytest

from inferno_operator.resources import Model
from inferno_operator.resources.objects import Key, kind_of
from tests.unit.operator import objects
from tests.unit.operator.controllers.planning.scene import Scene, scene_of
from tests.unit.operator.controllers.planning.test_reduced_roles import steps
from tests.unit.operator.controllers.planning.test_reduction import serving
from tests.unit.operator.objects import Manifest

SLOW_MS, SLOWER_MS = 999.0, 1998.0
"""Of a request on A, which then carries 60/min, and on B, which carries half."""

MICRO = 1000.0
"""How many times too fast a replica is whose times are written in the wrong unit."""


def data(a_ms: float = SLOW_MS, b_ms: float = SLOWER_MS) -> list[Manifest]:
    """What the Model says of A and B."""
    times = {"A": a_ms, "B": b_ms}
    return [objects.performance(name, alpha=ms, beta=0) for name, ms in times.items()]


def fleet(*servers: Manifest) -> tuple[Manifest, ...]:
    """Servers, on cards of which B costs nearly as much as A, and what they need."""
    both = objects.service_class(priority=2)
    both["spec"]["data"] = [{"model": "M"}, {"model": "N"}]
    tenth = objects.model("N", data=[objects.performance(alpha=SLOW_MS / 10, beta=0)])
    return (
        *(objects.accelerator("B", cost=9), objects.model(data=data()), tenth),
        *(both, objects.service_class("I", priority=1), objects.capacity(100), *servers),
    )


async def plan(scene: Scene) -> None:
    """Optimize once more, and let the Plans take their steps."""
    scene.write_optimizer()
    await scene.optimize()
    await scene.advance()


def says(scene: Scene, **times: float) -> None:
    """Write other times in the Model, as a person does."""
    scene.change("Model", "m", data=data(**times))


def again(scene: Scene, manifest: Manifest) -> None:
    """Delete an object and make it anew, as `kubectl replace --force` does."""
    key = Key("default", manifest["metadata"]["name"])
    known = scene.cluster.objects[manifest["kind"], key]
    scene.cluster.remove(kind_of(objects.kind_of(manifest)), key)
    metadata = {**manifest["metadata"], "uid": f"{known['metadata']['uid']}-again"}
    scene.cluster.add({**manifest, "metadata": metadata})


def placed(scene: Scene, name: str = "s") -> tuple[str, int]:
    """What is decided for a Server; what runs, as long as nothing is."""
    spec = scene.cluster.objects["Server", Key("default", name)]["spec"]
    found = spec.get("desiredAlloc") or spec["currentAlloc"]
    return found["accelerator"], found["numReplicas"]


def via(scene: Scene, server: str = "s") -> list[int]:
    """The replicas in between, of the newest Plan."""
    *_, newest = scene.plans().values()
    (step,) = (s for s in newest["spec"]["steps"] if s["server"] == server)
    found: list[int] = step.get("via", [])
    return found


@dataclass(frozen=True)
class Mistake:
    """What a person does while 8 replicas of S run on A, and what the Plan does.

    `via` are the replicas in between; each step takes half at most, and waits for the window.
    """

    make: Callable[[Scene], None]
    ends: tuple[str, int]
    via: list[int] = field(default_factory=list)


MISTAKES = {
    # Waited for a person before: of 8 replicas 4 are left for five minutes, then 2, then 1.
    "times in the wrong unit": Mistake(
        lambda s: says(s, a_ms=SLOW_MS / MICRO, b_ms=SLOWER_MS / MICRO), ("A", 1), [4, 2]
    ),
    # Waited for a person before: 8 to 4 is within the rule, so the last one goes in a second step.
    "nearly three times as fast": Mistake(
        lambda s: says(s, a_ms=SLOW_MS / 2.6, b_ms=SLOWER_MS / 2.6), ("A", 3), [4]
    ),
    # Waited for a person before: on A all stay until B serves; see the way down of a move.
    "a move to cards that are not so fast": Mistake(
        lambda s: says(s, b_ms=SLOWER_MS / MICRO), ("B", 1)
    ),
    # Waited for a person before: a Model that comes back is taken as it is, by half.
    "a Model made anew in the wrong unit": Mistake(
        lambda s: again(s, objects.model(data=data(SLOW_MS / MICRO, SLOWER_MS / MICRO))),
        ("A", 1),
        [4, 2],
    ),
    # Waited for a person before: another Model is taken as it is, by half.
    "the Server names a Model that is ten times as fast": Mistake(
        lambda s: s.change("Server", "s", model="N"), ("A", 1), [4, 2]
    ),
    # Took 4 of 8 at once before, and still does: that is half.
    "half of the time": Mistake(
        lambda s: says(s, a_ms=SLOW_MS / 1.9, b_ms=SLOWER_MS / 1.9), ("A", 4)
    ),
    # Waited for a person before: nothing is taken away; the cost may be limited by the guard.
    "ten times as slow": Mistake(
        lambda s: says(s, a_ms=10 * SLOW_MS, b_ms=10 * SLOWER_MS), ("A", 75)
    ),
    # Waited for a person before: a batch that is not there takes half, as a time does.
    "a batch of 64": Mistake(
        lambda s: s.change(
            "Model", "m", data=[{**d, "maxBatchSize": 64, "atTokens": 1} for d in data()]
        ),
        ("A", 1),
        [4, 2],
    ),
}


@pytest.mark.parametrize("what", MISTAKES)
@pytest.mark.parametrize("restarts", [False, True], ids=["running", "started in between"])
async def test_a_mistake_takes_half_within_a_window(what: str, restarts: bool) -> None:
    mistake = MISTAKES[what]
    async with scene_of(*fleet(serving("S", 8, 8), serving("T", 2, 2))) as first:
        await plan(first)
        assert first.phases() == {}
        mistake.make(first)
        async with first.restarted() as other:
            scene = other if restarts else first
            await plan(scene)

            assert (placed(scene), scene.phases()) == (mistake.ends, {"inferno-1": "Acting"})
            assert via(scene) == mistake.via


async def test_a_mistake_that_is_corrected_in_time_goes_back_to_what_runs() -> None:
    async with scene_of(*fleet(serving("S", 8, 8))) as scene:
        await plan(scene)
        says(scene, a_ms=SLOW_MS / MICRO)
        await plan(scene)
        assert placed(scene) == ("A", 1)

        says(scene)
        await plan(scene)

        assert placed(scene) == ("A", 8)


@pytest.mark.parametrize("faster", [1.05, 1.3, 1.6])
async def test_what_calibration_finds_waits_for_nobody(faster: float) -> None:
    async with scene_of(*fleet(serving("S", 7, 7))) as scene:
        await plan(scene)
        says(scene, a_ms=SLOW_MS / faster, b_ms=SLOWER_MS / faster)
        await plan(scene)

        assert "Proposed" not in scene.phases().values()
        assert placed(scene)[1] < 7 or faster < 1.1


async def test_a_limit_of_the_cost_holds_times_that_are_ten_times_as_long() -> None:
    async with scene_of(*fleet(serving("S", 3, 3))) as scene:
        await plan(scene)
        says(scene, a_ms=10 * SLOW_MS, b_ms=10 * SLOWER_MS)
        scene.write_optimizer(guard={"maxCostIncreasePercent": 100})
        await scene.optimize()
        await scene.advance()

        assert placed(scene) == ("A", 3)
        assert "maxCostIncreasePercent is 100" in scene.told("inferno-1")[1]


async def test_a_more_important_server_may_take_what_a_less_important_one_has() -> None:
    """The exception of the rule: it waited for a person while the times looked wrong."""
    servers = serving("S", 2, 2, {"class": "I"}), serving("T", 4, 4, {"model": "N"})
    async with scene_of(*fleet(*servers), objects.capacity(6)) as scene:
        scene.change("Model", "n", data=[objects.performance()])
        await plan(scene)
        says(scene, a_ms=3 * SLOW_MS, b_ms=3 * SLOWER_MS)
        await plan(scene)

        assert scene.phases() == {"inferno-1": "Acting"}
        assert (placed(scene, "s")[1], placed(scene, "t")[1]) == (5, 1)


@pytest.mark.parametrize("anew", [False, True], ids=["changed", "made anew"])
@pytest.mark.parametrize("role", ["Prefill", "Decode"])
async def test_times_of_one_role_take_half_of_it_within_a_window(role: str, anew: bool) -> None:
    """Of the Plan that waited for a person before; the scaler counts each role by itself."""
    workloads = [
        {"accelerator": acc, "role": r, "name": f"s-{acc.lower()}"}
        for acc, r in (("A", "Prefill"), ("B", "Decode"))
    ]
    runs = [("prefill", "A", 5), ("decode", "B", 8)]
    current = {
        "accelerator": "B",
        "numReplicas": 13,
        "roles": {r: {"accelerator": acc, "numReplicas": n} for r, acc, n in runs},
        "load": {"arrivalRate": 1200, "avgInTokens": 1000, "avgOutTokens": 100},
    }
    server = objects.server("S", spec={"workloads": workloads, "currentAlloc": current})
    right = [steps("A", "Prefill", 100.0), steps("B", "Decode", 30.0)]
    wrong = [
        {**d, "stepParms": steps("", "", 0.1)["stepParms"]} if d["role"] == role else d
        for d in right
    ]
    model = objects.model(data=right)
    async with scene_of(objects.accelerator("B"), model, server, objects.capacity(50)) as scene:
        await plan(scene)
        await scene.advance()
        decided = scene.cluster.objects["Server", Key("default", "s")]["spec"]["desiredAlloc"]
        scene.change("Server", "s", currentAlloc={**current, "roles": decided["roles"]})
        if anew:
            again(scene, objects.model(data=wrong))
        else:
            scene.change("Model", "m", data=wrong)
        await plan(scene)

        assert list(scene.phases().values())[-1] == "Acting"
        assert via(scene) == {"Prefill": [6], "Decode": [5]}[role]


async def test_cards_of_an_accelerator_made_anew_take_no_last_replica_of_an_equal_server() -> None:
    """On other cards S does not fit; what nobody could serve then waits for a person."""
    cards = {"count": [{"type": "T", "count": 4}, {"type": "U", "count": 0}]}
    capacity = objects.manifest("Capacity", cards, name="cards")
    async with scene_of(serving("S", 2, 2), serving("T", 2, 2), capacity) as scene:
        await plan(scene)
        other = objects.accelerator()
        again(scene, {**other, "spec": {**other["spec"], "type": "U"}})
        await plan(scene)

        assert (placed(scene, "s"), placed(scene, "t")) == (("A", 2), ("A", 2))
        assert scene.phases() == {"inferno-1": "Proposed"}
        assert "s, t would lose the last replica under load" in scene.told("inferno-1")[1]


async def test_a_model_that_is_gone_leaves_what_runs() -> None:
    async with scene_of(*fleet(serving("S", 8, 8))) as scene:
        await plan(scene)
        scene.cluster.remove(kind_of(Model), Key("default", "m"))
        await plan(scene)

        assert (placed(scene), scene.phases()) == (("A", 8), {})
