"""A Model that says all at once that replicas carry far more, or less: who is hit by it waits."""

import pytest

from inferno_operator.resources import Model
from inferno_operator.resources.objects import Key, kind_of
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
        assert "s would not be served with the trusted performance data" in message

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
        assert (
            "B: with these data a replica carries more than twice what it did in earlier plans"
            in told
        )


async def test_a_model_that_stays_is_not_blamed_where_only_the_load_falls() -> None:
    """An earlier decision had a batch of 1, as a remote optimizer answers in error."""
    eight = objects.performance("A", alpha=SLOW_MS, beta=0) | {"maxBatchSize": 8}
    async with scene_of(objects.model(data=[eight]), serving("S", 3, 24)) as scene:
        await plan(scene)
        decided = scene.cluster.objects["Server", Key("default", "s")]["spec"]["desiredAlloc"]
        single = {**decided, "maxBatch": 1}
        scene.change("Server", "s", desiredAlloc=single, currentAlloc=objects.running(3, 5))
        await plan(scene)

        reason, message = scene.told("inferno-1")
        assert (placed(scene), reason) == (("A", 3), "BeyondGuard")
        assert "its Model now says" not in message
        assert "(check its Model, and maxBatch of spec.desiredAlloc)" in message


async def test_a_guard_of_100_percent_lets_it_pass() -> None:
    async with scene_of(*fleet(serving("S", 3, 3))) as scene:
        await plan(scene)
        says(scene, a_ms=SLOW_MS / MICRO)
        scene.write_optimizer(guard={"maxServedLoadDecreasePercent": 100})
        await scene.optimize()

        assert placed(scene) == ("A", 1)


def again(scene: Scene, manifest: Manifest) -> None:
    """Delete an object and make it anew, as `kubectl replace --force` does."""
    key = Key("default", manifest["metadata"]["name"])
    known = scene.cluster.objects[manifest["kind"], key]
    scene.cluster.remove(kind_of(objects.kind_of(manifest)), key)
    metadata = {**manifest["metadata"], "uid": f"{known['metadata']['uid']}-again"}
    scene.cluster.add({**manifest, "metadata": metadata})


@pytest.mark.parametrize("times", [{"a_ms": SLOW_MS / MICRO}, {"b_ms": SLOWER_MS / MICRO}], ids=str)
async def test_a_model_that_is_made_anew_with_other_numbers_is_doubted_as_well(
    times: dict[str, float],
) -> None:
    async with scene_of(*fleet(serving("S", 3, 3))) as scene:
        await plan(scene)
        again(scene, objects.model(data=data(**times)))
        await plan(scene)
        await plan(scene)

        assert (placed(scene), scene.phases()) == (("A", 3), {"inferno-1": "Proposed"})

        scene.answer("inferno-1", "Approved")
        await scene.advance()
        await plan(scene)

        assert placed(scene)[1] == 1


@pytest.mark.parametrize("micro", [MICRO, 3.0])
async def test_an_operator_that_starts_in_between_doubts_by_what_stands(micro: float) -> None:
    """Nobody remembers the status of the Model that is gone; the Server has its last decision."""
    async with scene_of(*fleet(serving("S", 3, 3))) as first:
        await plan(first)
        first.cluster.remove(kind_of(Model), Key("default", "m"))
        async with first.restarted() as scene:
            await plan(scene)
            scene.cluster.add(objects.model(data=data(a_ms=SLOW_MS / micro)))
            await plan(scene)
            await plan(scene)

            assert (placed(scene), scene.phases()) == (("A", 3), {"inferno-1": "Proposed"})
            reason, message = scene.told("inferno-1")
            assert reason == "BeyondGuard"
            assert "s would not be served" in message

            scene.answer("inferno-1", "Approved")
            await scene.advance()
            await plan(scene)

            assert placed(scene)[1] == 1


@pytest.mark.parametrize(
    ("ms", "decided", "waits"),
    [(SLOW_MS / 10, 1, True), (SLOW_MS / 8, 1, True), (SLOW_MS / 1.9, 4, False)],
    ids=["a tenth", "an eighth", "half"],
)
async def test_a_server_that_names_another_model_keeps_most_replicas_until_a_person_says_so(
    ms: float, decided: int, *, waits: bool
) -> None:
    """It is a fifth of the replicas of the namespace, which the guard would let go."""
    other = objects.model("N", data=[objects.performance(alpha=ms, beta=0)])
    both = objects.service_class()
    both["spec"]["data"] = [{"model": "M"}, {"model": "N"}]
    servers = serving("S", 8, 8), serving("T", 16, 16), serving("U", 16, 16)
    cards = objects.capacity(100)
    async with scene_of(*fleet(*servers), other, both, cards) as scene:
        await plan(scene)
        scene.change("Server", "s", model="N")
        await plan(scene)

        assert scene.phases() == {"inferno-1": "Proposed" if waits else "Acting"}
        assert placed(scene) == ("A", 8 if waits else decided)
        if waits:
            assert "s would not be served" in scene.told("inferno-1")[1]
            scene.answer("inferno-1", "Approved")
            await scene.advance()

            assert placed(scene) == ("A", decided)


@pytest.mark.parametrize("wanted", [1, 3])
async def test_who_needs_less_because_its_load_fell_waits_for_nobody(wanted: int) -> None:
    """Its decision stands for another load, with replicas that nobody needs."""
    servers = serving("S", 8, 8, {"minNumReplicas": 7}), serving("T", 16, 16)
    async with scene_of(*fleet(*servers), objects.capacity(100)) as scene:
        await plan(scene)
        current = objects.running(8, wanted)
        scene.change("Server", "s", currentAlloc=current, minNumReplicas=0)
        async with scene.restarted() as other:
            await plan(other)

            assert (placed(other), other.phases()) == (("A", wanted), {"inferno-1": "Acting"})


async def test_data_that_were_left_out_for_a_while_are_doubted_when_they_come_back() -> None:
    async with scene_of(*fleet(serving("S", 3, 3))) as scene:
        await plan(scene)
        scene.change("Model", "m", data=data()[:1])
        await plan(scene)
        says(scene, b_ms=SLOWER_MS / MICRO)
        await plan(scene)

        assert (placed(scene), scene.phases()) == (("A", 3), {"inferno-1": "Proposed"})


async def test_a_model_that_is_made_anew_as_it_was_waits_for_nobody() -> None:
    async with scene_of(*fleet(serving("S", 3, 3))) as scene:
        await plan(scene)
        again(scene, objects.model(data=data()))
        scene.change("Server", "s", currentAlloc=objects.running(3, 2))
        await plan(scene)

        assert (placed(scene), scene.phases()) == (("A", 2), {"inferno-1": "Acting"})


async def test_an_accelerator_or_a_model_that_is_made_anew_holds_the_cards_that_it_held() -> None:
    """With 4 cards for each replica, or on other cards, S alone would take all; T would lose."""
    cards = {"count": [{"type": "T", "count": 4}, {"type": "U", "count": 0}]}
    capacity = objects.manifest("Capacity", cards, name="cards")
    important = objects.service_class("I", priority=1)
    premium = serving("S", 2, 2, {"class": "I"})
    bronze = objects.service_class("C", priority=2)
    async with scene_of(important, bronze, premium, serving("T", 2, 2), capacity) as scene:
        await plan(scene)
        again(scene, objects.model(data=[{**objects.performance(), "accCount": 4}]))
        await plan(scene)

        status = scene.cluster.objects["Model", Key("default", "m")]["status"]
        assert status["replicaCards"] == [
            {"acc": "A", "role": "Both", "accCount": 1, "type": "T", "multiplicity": 1}
        ]
        assert (placed(scene), scene.phases()) == (("A", 2), {})

        again(scene, objects.model())
        other = objects.accelerator()
        again(scene, {**other, "spec": {**other["spec"], "type": "U"}})
        await plan(scene)

        status = scene.cluster.objects["Accelerator", Key("default", "a")]["status"]
        assert (status["type"], scene.phases()) == ("T", {})
        assert placed(scene) == ("A", 2)


@pytest.mark.parametrize(
    ("times", "slower"),
    [
        ({"a_ms": 10 * SLOW_MS}, True),
        ({"a_ms": MICRO * SLOW_MS}, True),
        ({"a_ms": 3 * SLOW_MS}, False),
    ],
    ids=["ten times", "in the wrong unit", "three times"],
)
async def test_who_would_be_far_dearer_than_by_what_was_known_waits_for_a_person(
    times: dict[str, float], slower: bool
) -> None:
    async with scene_of(*fleet(serving("S", 3, 3)), objects.capacity(20_000)) as scene:
        await plan(scene)
        says(scene, **{"b_ms": 10 * MICRO * SLOWER_MS, **times})
        await plan(scene)

        assert scene.phases() == {"inferno-1": "Proposed" if slower else "Acting"}
        assert (placed(scene) == ("A", 3)) is slower
        if slower:
            reason, message = scene.told("inferno-1")
            assert reason == "BeyondGuard"
            assert "s would cost less than half with the trusted performance data" in message
            status = scene.cluster.objects["Model", Key("default", "m")]["status"]
            (told,) = (c["message"] for c in status["conditions"] if c["type"] == "Warnings")
            assert "A: with these data a replica carries less than a quarter of what it did" in told

            scene.answer("inferno-1", "Approved")
            await scene.advance()

            assert placed(scene)[1] >= 25


async def test_less_important_servers_lose_nothing_to_one_whose_times_are_mistyped() -> None:
    """T has 4 of 14 replicas, which would go to S: that is within all limits of the guard."""
    classes = objects.service_class("I", priority=1), objects.service_class("C", priority=2)
    for each in classes:
        each["spec"]["data"] = [{"model": "M"}, {"model": "N"}]
    servers = (
        serving("S", 2, 2, {"class": "I"}),
        serving("T", 4, 4, {"model": "N"}),
        serving("U", 8, 8, {"model": "N", "class": "I"}),
    )
    other = objects.model("N", data=[objects.performance()])
    async with scene_of(*classes, other, *servers, objects.capacity(14)) as scene:
        await plan(scene)
        scene.change("Model", "m", data=[objects.performance(alpha=10 * SLOW_MS, beta=0)])
        await plan(scene)

        assert scene.phases() == {"inferno-1": "Proposed"}
        assert scene.desired() == {"s": 2, "t": 4, "u": 8}


async def test_a_server_that_misses_its_targets_gets_what_the_new_data_say() -> None:
    async with scene_of(*fleet(serving("S", 3, 3)), objects.capacity(100)) as scene:
        await plan(scene)
        stored = scene.cluster.objects["Server", Key("default", "s")]
        measured = {
            "time": "2026-03-01T12:00:00Z",
            "quality": "Fresh",
            "missesTargets": ["slo-itl"],
        }
        scene.cluster.add({**stored, "status": {**stored["status"], "measured": measured}})
        says(scene, a_ms=10 * SLOW_MS, b_ms=10 * SLOWER_MS)
        await plan(scene)

        assert (placed(scene), scene.phases()) == (("A", 25), {"inferno-1": "Acting"})


async def test_who_grows_by_its_load_does_not_wait_for_one_that_grows_by_mistyped_times() -> None:
    other = objects.model("N", data=[objects.performance()])
    both = objects.service_class()
    both["spec"]["data"] = [{"model": "M"}, {"model": "N"}]
    first, second = serving("S", 3, 3), serving("T", 2, 2, {"model": "N"})
    async with scene_of(both, other, first, second, objects.capacity(100)) as scene:
        await plan(scene)
        scene.change("Model", "m", data=[objects.performance(alpha=10 * SLOW_MS, beta=0)])
        scene.change("Server", "t", currentAlloc=objects.running(2, 5))
        await plan(scene)

        assert scene.phases() == {"inferno-1": "Proposed"}
        assert scene.desired() == {"s": 3, "t": 5}


async def test_a_guard_on_the_cost_alone_decides_where_somebody_wrote_one() -> None:
    async with scene_of(*fleet(serving("S", 3, 3)), objects.capacity(100)) as scene:
        await plan(scene)
        says(scene, a_ms=10 * SLOW_MS, b_ms=10 * SLOWER_MS)
        scene.write_optimizer(guard={"maxCostIncreasePercent": 2000})
        await scene.optimize()

        assert placed(scene) == ("A", 25)


def steps(acc: str, role: str, milliseconds: float) -> Manifest:
    """What a role does in a step of so many milliseconds, and little more for its tokens."""
    times = {"alpha": milliseconds, "kappa": 0, "delta": milliseconds / 1000}
    size = {"maxBatchSize": 8, "atTokens": 256}
    return {"acc": acc, "role": role, "accCount": 1, "stepParms": times, **size}


@pytest.mark.parametrize("role", ["Prefill", "Decode"])
@pytest.mark.parametrize("anew", [False, True], ids=["changed", "made anew"])
async def test_times_of_one_role_are_doubted_as_those_of_whole_replicas(
    role: str, anew: bool
) -> None:
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

        assert list(scene.phases().values())[-1] == "Proposed"
        assert "s would not be served with the trusted performance data" in "".join(
            scene.told(name)[1] for name in scene.phases()
        )
