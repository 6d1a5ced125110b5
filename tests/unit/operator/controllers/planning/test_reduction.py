"""What a plan takes away, in numbers and in steps, and what of it waits for a person."""

import math

import pytest

from inferno_operator.controllers.planning.proposal import Proposal, build_proposal
from inferno_operator.resources import ManifestError, Reduction, parse
from tests.conftest import ROOT
from tests.unit.operator import objects
from tests.unit.operator.controllers.planning.scene import MortalCluster, Scene, scene_of
from tests.unit.operator.controllers.planning.test_proposal import optimization_of
from tests.unit.operator.objects import Manifest

FAST = (
    objects.accelerator("B", cost=15),
    objects.model(data=[objects.performance(), objects.performance("B", alpha=333, beta=0)]),
)
"""One replica on B carries three times as much as one on A, and costs half as much more."""


def serving(name: str, runs: int, wanted: int, fields: Manifest | None = None) -> Manifest:
    """A Server with a workload on which so many replicas run, under a load that takes others."""
    workloads = [
        {"accelerator": accelerator, "name": f"{name}-{accelerator}".lower()}
        for accelerator in "AB"
    ]
    spec = {
        "workloads": workloads,
        "currentAlloc": objects.running(runs, wanted),
        **(fields or {}),
    }
    return objects.server(name, spec=spec)


def idle(runs: int) -> Manifest:
    return {
        "currentAlloc": {**objects.running(runs, 1), "load": {"arrivalRate": 0, "avgLength": 1}}
    }


def reduction(*manifests: Manifest, cards: int = 100) -> Reduction:
    """What the plan of these objects takes away."""
    found: Proposal | None = build_proposal(optimization_of(manifests, cards))
    assert found is not None
    assert found.spec.totals.reduction is not None
    return found.spec.totals.reduction


def test_replicas_that_run_are_counted_and_those_that_are_taken() -> None:
    found = reduction(serving("S", 8, 3), serving("T", 4, 4))

    assert (found.replicas, found.replicas_taken) == (12, 5)
    assert (found.load, found.load_lost, found.emptied) == (150 + 210, 0, ())


def test_what_is_added_elsewhere_makes_up_for_nothing() -> None:
    found = reduction(serving("S", 8, 1), serving("T", 1, 9))

    assert (found.replicas, found.replicas_taken) == (9, 7)


def test_a_move_takes_nothing_as_replicas_stay_until_the_new_ones_serve() -> None:
    """8 on A carry 480/min as do 8/3 on B; 150/min take 1 on B."""
    assert reduction(serving("S", 8, 8), *FAST).replicas_taken == 0
    assert reduction(serving("S", 8, 3), *FAST).replicas_taken == 0


def test_servers_for_which_only_a_number_is_written_have_nothing_to_lose() -> None:
    decided = {"desiredAlloc": {"accelerator": "A", "numReplicas": 9, "cost": 90}}
    found = build_proposal(optimization_of([objects.server("S", wanted=1, spec=decided)], 100))

    assert found is not None
    assert found.spec.totals.reduction is None


def test_what_is_published_counts_as_it_was_decided() -> None:
    decided = {"desiredAlloc": {"accelerator": "A", "numReplicas": 9, "cost": 90}}
    published = {**decided, "actuation": "Publish"}
    found = reduction(objects.server("S", wanted=1, spec=published))

    assert (found.replicas, found.replicas_taken) == (9, 8)


def test_a_server_that_gets_nothing_loses_its_load() -> None:
    found = reduction(serving("S", 1, 1), serving("T", 1, 1), cards=1)

    assert found.load == 30 + 30
    assert found.load_lost == 30
    assert found.emptied == ("t",)


def test_what_a_more_important_server_gets_is_not_lost() -> None:
    gold = objects.service_class("G", priority=1)
    bronze = objects.service_class("C", priority=2)
    found = reduction(
        *(gold, bronze, serving("S", 2, 4, {"class": "G"}), serving("T", 2, 2)), cards=4
    )

    assert (found.load_lost, found.emptied) == (0, ())
    assert found.replicas_taken == 2


def test_an_idle_server_loses_no_load() -> None:
    found = reduction(serving("S", 4, 1, idle(4)), serving("T", 1, 2))

    assert (found.load_lost, found.emptied) == (0, ())


async def carried_out(scene: Scene, **optimizer: object) -> str:
    """What becomes of the Plan of a scene."""
    scene.write_optimizer(**optimizer)
    await scene.optimize()
    await scene.advance()
    return scene.phases()["inferno-1"]


@pytest.mark.parametrize(
    ("runs", "wanted", "via"),
    [(6, 3, []), (7, 3, [4]), (3, 1, [2]), (4, 1, [2]), (8, 1, [4, 2]), (1, 7, [])],
    ids=["half", "more than half", "two of three", "three of four", "most", "on the way up"],
)
async def test_more_than_half_of_the_replicas_goes_in_steps(
    runs: int, wanted: int, via: list[int]
) -> None:
    async with scene_of(serving("S", runs, wanted)) as scene:
        assert await carried_out(scene) == "Acting"
        (step,) = scene.plans()["inferno-1"]["spec"]["steps"]
        assert (scene.desired(), step.get("via", [])) == ({"s": wanted}, via)


async def test_the_condition_names_the_servers_and_the_command() -> None:
    async with scene_of(serving("S", 1, 1), serving("T", 1, 1), objects.capacity(0)) as scene:
        assert await carried_out(scene) == "Proposed"

        reason, message = scene.told("inferno-1")
        assert reason == "BeyondGuard"
        assert message == (
            "s, t would lose the last replica under load, spec.guard.maxDecreasePercent is 50;"
            " review: kubectl inferno diff inferno-1; approve: kubectl inferno approve inferno-1;"
            " reject: kubectl inferno reject inferno-1"
        )
        (event,) = (e for e in scene.cluster.events if e.about.kind.kind == "Plan")
        assert event.message == message
        page = (ROOT / "docs" / "guides" / "plans.md").read_text()
        assert f"inferno-1: {message}" in " ".join(page.split())

        scene.answer("inferno-1", "Approved")
        await scene.advance()

        assert scene.desired() == {"s": 0, "t": 0}


async def test_the_last_replica_under_load_waits_for_a_person() -> None:
    many = [serving(f"S{n}", 1, 1) for n in range(9)]
    async with scene_of(*many, serving("T", 1, 1), objects.capacity(10)) as scene:
        scene.cluster.add(objects.capacity(9))
        assert await carried_out(scene) == "Proposed"
        assert "t would lose the last replica under load" in scene.told("inferno-1")[1]
        assert "t" not in scene.desired()


async def test_the_last_replica_is_the_last_one_also_while_it_is_unready() -> None:
    starting = {**objects.running(0, 1), "accelerator": "A", "startingReplicas": 1}
    many = [serving(f"S{n}", 1, 1) for n in range(9)]
    unready = serving("T", 0, 1, {"currentAlloc": starting, "desiredAlloc": objects.running(1, 1)})
    async with scene_of(*many, unready, objects.capacity(10)) as scene:
        scene.cluster.add(objects.capacity(9))
        scene.write_optimizer()
        await scene.optimize()
        await scene.advance()

        assert "t would lose the last replica under load" in scene.told("inferno-1")[1]


async def test_a_capacity_that_is_gone_takes_no_server_out_of_service() -> None:
    async with scene_of(serving("S", 2, 2), serving("T", 1, 1)) as scene:
        scene.cluster.add(objects.capacity(0))
        scene.write_optimizer()
        await scene.optimize()
        await scene.advance()

        assert scene.desired() == {}
        assert set(scene.phases().values()) <= {"Proposed"}


@pytest.mark.parametrize(
    ("guard", "via"),
    [
        ({}, [4, 2]),
        ({"maxDecreasePercent": 25}, [6, 5, 4, 3, 2]),
        ({"maxDecreasePercent": 100}, []),
    ],
    ids=str,
)
async def test_the_share_in_the_guard_counts(guard: Manifest, via: list[int]) -> None:
    async with scene_of(serving("S", 8, 1)) as scene:
        assert await carried_out(scene, guard=guard) == "Acting"
        (step,) = scene.plans()["inferno-1"]["spec"]["steps"]
        assert step.get("via", []) == via


async def test_the_last_replica_goes_where_the_rule_is_switched_off() -> None:
    async with scene_of(serving("S", 1, 1), objects.capacity(0)) as scene:
        assert await carried_out(scene, guard={"maxDecreasePercent": 100}) == "Acting"
        assert scene.desired() == {"s": 0}


@pytest.mark.extended
async def test_a_day_of_a_small_namespace_waits_for_nobody() -> None:
    """A load that rises and falls within a day, planned every ten minutes, 1 to 9 replicas."""
    async with scene_of(serving("S", 1, 1), serving("T", 1, 1)) as scene:
        scene.write_optimizer(optimize=False, interval=600)
        for step in range(144):
            wave = 1 - math.cos(2 * math.pi * step / 144)
            for name in ("s", "t"):
                now = scene.desired().get(name, 1)
                rate = {"arrivalRate": 30 + 240 * wave, "avgLength": 1}
                current = {"accelerator": "A", "numReplicas": now, "cost": 10 * now, "load": rate}
                scene.change("Server", name, currentAlloc=current)
            await scene.optimize()
            await scene.advance()
            scene.later(seconds=601)

        assert "Proposed" not in scene.phases().values()
        assert scene.desired() == {"s": 1, "t": 1}


async def test_without_plans_the_last_replica_is_held_and_it_says_so() -> None:
    cluster = MortalCluster()
    cluster.unserved.add("Plan")
    async with scene_of(serving("S", 1, 1), objects.capacity(0), cluster=cluster) as scene:
        scene.write_optimizer()
        await scene.optimize()

        assert scene.desired() == {}
        assert "not carried out: s would lose the last replica under load" in scene.optimized()
        assert "not recorded as Plans" in scene.optimized()

        scene.cluster.add(objects.capacity(1))
        scene.change("Server", "s", currentAlloc=objects.running(7, 1))
        scene.change("Optimizer", "inferno", optimize=True)
        await scene.optimize()

        assert scene.desired() == {"s": 1}


@pytest.mark.parametrize(
    ("cards", "optimizer", "desired"),
    [
        (20, {}, {"t": 3, "u": 2}),
        (17, {}, {"t": 3, "u": 2}),
        (16, {}, {"t": 3}),
        (15, {}, {"u": 2}),
        (14, {}, {}),
        (20, {"mode": "Approve"}, {}),
        (20, {"guard": {"maxServersChanged": 1}}, {}),
        (20, {"guard": {"maxServersChanged": 2, "maxCostIncreasePercent": 0}}, {}),
        (20, {"guard": {"freeze": [{"start": "0 11 * * *", "duration": "2h"}]}}, {}),
    ],
    ids=str,
)
async def test_who_only_gets_replicas_on_free_cards_does_not_wait_with_the_others(
    cards: int, optimizer: Manifest, desired: dict[str, int]
) -> None:
    async with scene_of(serving("S", 12, 1), serving("T", 1, 3), serving("U", 1, 2)) as scene:
        scene.cluster.add(objects.capacity(cards))
        guard = {"guard": {"maxServersChanged": 2}}
        assert await carried_out(scene, **{**guard, **optimizer}) == "Proposed"
        assert scene.desired() == desired
        assert ("do not wait" in scene.optimized()) is bool(desired)

        scene.change("Optimizer", "inferno", optimize=True)
        await scene.optimize()
        await scene.advance()

        assert scene.phases() == {"inferno-1": "Proposed"}

        scene.answer("inferno-1", "Approved")
        await scene.advance()

        assert scene.desired() == {"s": 1, "t": 3, "u": 2}


@pytest.mark.parametrize(("cards", "desired"), [(18, {"t": 3}), (17, {})])
async def test_nobody_gets_cards_of_a_server_that_nobody_can_read_before_others_leave_theirs(
    cards: int, desired: dict[str, int]
) -> None:
    async with scene_of(serving("S", 12, 1), serving("T", 1, 3)) as scene:
        scene.cluster.add(objects.capacity(cards))
        unreadable = {"currentAlloc": objects.running(3, 3), "maxBatchSize": -1}
        scene.cluster.add(objects.server("X", spec=unreadable))

        assert await carried_out(scene, guard={"maxServersChanged": 1}) == "Proposed"
        assert scene.desired() == desired


async def test_in_mode_recommend_nothing_waits() -> None:
    async with scene_of(serving("S", 7, 1)) as scene:
        assert await carried_out(scene, mode="Recommend") == "Written"
        assert scene.desired() == {"s": 1}


@pytest.mark.parametrize("percent", [-1, 101, "half"])
def test_a_limit_is_a_percentage(percent: object) -> None:
    manifest = objects.optimizer()
    manifest["spec"]["guard"] = {"maxDecreasePercent": percent}

    with pytest.raises(ManifestError, match="maxDecreasePercent"):
        parse(manifest)
