"""A Model that says all at once that replicas carry far more: who would lose by it waits."""

import pytest

from inferno_operator.resources.objects import Key
from tests.unit.operator import objects
from tests.unit.operator.controllers.approval.scene import Scene, scene_of
from tests.unit.operator.controllers.approval.test_reduction import serving
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
    """Servers, on cards of which B costs nearly as much as A: what runs is right."""
    return (objects.accelerator("B", cost=9), objects.model(data=data()), *servers)


async def plan(scene: Scene) -> None:
    """Optimize once more, and let the Plans take their steps."""
    scene.write_optimizer()
    await scene.optimize()
    await scene.advance()


def says(scene: Scene, **times: float) -> None:
    """Write other times in the Model, as a person does."""
    scene.change("Model", "m", data=data(**times))


def placed(scene: Scene) -> tuple[str, int]:
    """What is decided for S; what runs, as long as nothing is."""
    spec = scene.cluster.objects["Server", Key("default", "s")]["spec"]
    found = spec.get("desiredAlloc") or spec["currentAlloc"]
    return found["accelerator"], found["numReplicas"]


@pytest.mark.parametrize(
    ("times", "decided"),
    [
        ({"a_ms": SLOW_MS / MICRO}, ("A", 1)),
        ({"b_ms": SLOWER_MS / MICRO}, ("B", 1)),
        ({"a_ms": SLOW_MS / 2.6}, ("A", 1)),
    ],
    ids=["fewer on its cards", "a move to other cards", "nearly three times as fast"],
)
async def test_whoever_would_not_be_served_by_what_was_known_waits_for_a_person(
    times: dict[str, float], decided: tuple[str, int]
) -> None:
    async with scene_of(*fleet(serving("S", 3, 3))) as scene:
        await plan(scene)
        assert scene.phases() == {}

        says(scene, **times)
        await plan(scene)

        assert (placed(scene), scene.phases()) == (("A", 3), {"inferno-1": "Proposed"})
        reason, message = scene.told("inferno-1")
        assert reason == "BeyondGuard"
        assert "by the performance data that plans trust, s would not be served" in message

        scene.answer("inferno-1", "Approved")
        await scene.advance()

        assert placed(scene) == decided


@pytest.mark.parametrize("faster", [1.05, 1.3, 1.6])
async def test_what_calibration_finds_waits_for_nobody(faster: float) -> None:
    async with scene_of(*fleet(serving("S", 7, 7))) as scene:
        await plan(scene)
        says(scene, a_ms=SLOW_MS / faster, b_ms=SLOWER_MS / faster)
        await plan(scene)

        assert "Proposed" not in scene.phases().values()
        assert placed(scene)[1] < 7 or faster < 1.1


async def test_a_first_plan_trusts_what_the_models_say() -> None:
    async with scene_of(*fleet(serving("S", 3, 3))) as scene:
        says(scene, a_ms=SLOW_MS / MICRO)
        await plan(scene)

        assert placed(scene) == ("A", 1)


async def test_a_mistake_that_is_corrected_leaves_what_runs() -> None:
    async with scene_of(*fleet(serving("S", 3, 3))) as scene:
        await plan(scene)
        says(scene, b_ms=SLOWER_MS / MICRO)
        await plan(scene)
        says(scene)
        await plan(scene)

        assert (placed(scene), scene.phases()) == (("A", 3), {"inferno-1": "Superseded"})


async def test_plans_of_others_do_not_make_a_mistake_trusted() -> None:
    async with scene_of(*fleet(serving("S", 3, 3), serving("T", 1, 1))) as scene:
        scene.change("Server", "s", minNumReplicas=3)
        await plan(scene)
        says(scene, a_ms=SLOW_MS / MICRO)
        scene.change("Server", "t", minNumReplicas=2)
        await plan(scene)
        assert scene.phases() == {"inferno-1": "Acting"}

        scene.change("Server", "s", minNumReplicas=0)
        await plan(scene)

        assert (placed(scene), scene.phases()["inferno-2"]) == (("A", 3), "Proposed")


async def test_what_a_person_approved_is_trusted_from_then_on() -> None:
    async with scene_of(*fleet(serving("S", 3, 3))) as scene:
        await plan(scene)
        says(scene, a_ms=SLOW_MS / MICRO)
        await plan(scene)
        scene.answer("inferno-1", "Approved")
        await scene.advance()
        assert placed(scene) == ("A", 1)

        scene.change("Server", "s", currentAlloc=objects.running(3, 3), minNumReplicas=3)
        await plan(scene)
        scene.change("Server", "s", minNumReplicas=0)
        await plan(scene)

        assert (placed(scene), scene.phases()["inferno-3"]) == (("A", 1), "Acting")


async def test_who_only_gets_replicas_does_not_wait() -> None:
    async with scene_of(*fleet(serving("S", 3, 3), serving("T", 1, 1))) as scene:
        await plan(scene)
        says(scene, a_ms=SLOW_MS / MICRO)
        scene.change("Server", "t", minNumReplicas=2)
        await plan(scene)

        assert scene.phases() == {"inferno-1": "Proposed"}
        assert scene.desired() == {"s": 3, "t": 2}


async def test_the_model_says_that_it_is_doubted() -> None:
    async with scene_of(*fleet(serving("S", 3, 3))) as scene:
        await plan(scene)
        says(scene, b_ms=SLOWER_MS / MICRO)
        await plan(scene)

        status = scene.cluster.objects["Model", Key("default", "m")]["status"]
        (told,) = (c["message"] for c in status["conditions"] if c["type"] == "Warnings")
        assert "B: a replica is to carry more than twice what it did in earlier plans" in told


async def test_a_guard_of_100_percent_lets_it_pass() -> None:
    async with scene_of(*fleet(serving("S", 3, 3))) as scene:
        await plan(scene)
        says(scene, a_ms=SLOW_MS / MICRO)
        scene.write_optimizer(guard={"maxServedLoadDecreasePercent": 100})
        await scene.optimize()

        assert placed(scene) == ("A", 1)
