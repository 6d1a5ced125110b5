"""When an Optimizer optimizes by itself, and which one of several may."""

from datetime import timedelta
from functools import partial
from typing import Any

import pytest

from inferno_operator.controllers.planning.reconcile import (
    find_rival,
    find_seconds_until_due,
    reconcile,
)
from inferno_operator.resources import Optimizer
from inferno_operator.resources.objects import Key
from inferno_operator.resources.observation import observe
from inferno_operator.runtime.work_queue import ReconcileResult
from inferno_optimizer.errors import UnavailableError
from tests.fakes import FakeCluster, FakeOptimizer
from tests.unit.operator.controllers.planning.scene import INFERNO, cluster_of, context_of
from tests.unit.operator.objects import NOW, Manifest, born, optimizer, server, system

INTERVAL = 60


def regular(name: str = "inferno", *, asked: bool = False, **metadata: object) -> Manifest:
    made = optimizer(name, optimize=asked)
    spec = {**made["spec"], "interval": INTERVAL}
    return {**made, "spec": spec, "metadata": {**made["metadata"], **metadata}}


def after(manifest: Manifest, seconds_ago: float) -> Manifest:
    """With a status that tells of an optimization so long ago."""
    time = (NOW - timedelta(seconds=seconds_ago)).strftime("%Y-%m-%dT%H:%M:%SZ")
    last = {"time": time, "requestedGeneration": 1, "servers": 0, "allocated": 0, "cost": 0}
    return {**manifest, "status": {"done": True, "lastOptimization": last}}


@pytest.mark.parametrize(
    ("manifest", "due"),
    [
        pytest.param(optimizer(optimize=True), 0, id="asked"),
        pytest.param(optimizer(optimize=False), None, id="not asked"),
        pytest.param(after(optimizer(optimize=False), 999), None, id="once is enough"),
        pytest.param(regular(), 0, id="never yet"),
        pytest.param(after(regular(), 20), 40, id="in a while"),
        pytest.param(after(regular(), 60), 0, id="now"),
        pytest.param(after(regular(), 999), 0, id="overdue"),
        pytest.param(after(regular(asked=True), 20), 0, id="asked in between"),
        pytest.param(after(regular(), -3600), 0, id="the clock was set back by an hour"),
    ],
)
def test_an_optimizer_is_due_after_its_interval(manifest: Manifest, due: float | None) -> None:
    assert find_seconds_until_due(observe(Optimizer, manifest), NOW) == due


def test_the_oldest_one_with_an_interval_goes_on() -> None:
    old = observe(Optimizer, regular("old", creationTimestamp=born(1)))
    young = observe(Optimizer, regular("young", creationTimestamp=born(2)))
    oldest = observe(Optimizer, optimizer("oldest", creationTimestamp=born(0)))
    everyone = [old, young, oldest]

    assert find_rival(old, everyone) is None
    assert find_rival(young, everyone) == old.resource


def test_one_that_goes_is_no_rival() -> None:
    going = observe(
        Optimizer,
        regular("old", creationTimestamp=born(1), deletionTimestamp=born(9), finalizers=["f"]),
    )
    young = observe(Optimizer, regular("young", creationTimestamp=born(2)))

    assert find_rival(young, [going, young]) is None


def scene(*manifests: Manifest) -> FakeCluster:
    return cluster_of(*system(4), server("S"), *manifests)


async def reconciled(
    cluster: FakeCluster, solver: FakeOptimizer, *, later: float = 0, key: Key = INFERNO
) -> ReconcileResult:
    now = NOW + timedelta(seconds=later)
    return await reconcile(key, context_of(cluster, solver, lambda: now))


def conditions(cluster: FakeCluster, name: str) -> dict[str, tuple[str, str]]:
    status: dict[str, Any] = cluster.objects["Optimizer", Key("default", name)]["status"]
    return {item["type"]: (item["status"], item["reason"]) for item in status["conditions"]}


async def test_an_interval_optimizes_again_and_again_without_being_asked() -> None:
    cluster, solver = scene(regular()), FakeOptimizer()

    outcomes = [await reconciled(cluster, solver, later=later) for later in (0, 20, 60, 90, 120)]

    assert [outcome.again_after for outcome in outcomes] == [60, 40, 60, 30, 60]
    assert len(solver.systems) == 3
    assert conditions(cluster, "inferno")["Optimized"] == ("True", "Optimized")


async def test_what_is_urgent_does_not_wait_for_the_interval_once() -> None:
    cluster, solver = scene(regular()), FakeOptimizer()
    context = context_of(cluster, solver)
    await reconcile(INFERNO, context)

    context.memories["default"].urgent_optimizers.add("inferno")
    outcomes = [await reconcile(INFERNO, context) for _ in range(2)]

    assert len(solver.systems) == 2
    assert [outcome.again_after for outcome in outcomes] == [60, 60]


async def test_what_is_urgent_is_so_after_a_failure_too() -> None:
    cluster, solver = scene(regular()), FakeOptimizer()
    context = context_of(cluster, solver)
    await reconcile(INFERNO, context)
    solver.failures = [UnavailableError("busy")]

    context.memories["default"].urgent_optimizers.add("inferno")
    outcome = await reconcile(INFERNO, context)

    assert outcome.failed
    assert context.memories["default"].urgent_optimizers == {"inferno"}


async def test_what_is_urgent_does_not_concern_who_has_no_interval() -> None:
    cluster, solver = scene(optimizer(optimize=False)), FakeOptimizer()
    context = context_of(cluster, solver)
    context.memories["default"].urgent_optimizers.add("inferno")

    await reconcile(INFERNO, context)

    assert not solver.systems


async def test_a_clock_that_is_set_back_delays_nothing() -> None:
    cluster, solver = scene(regular()), FakeOptimizer()

    outcomes = [await reconciled(cluster, solver, later=later) for later in (3600, 0, 60, 120)]

    assert [outcome.again_after for outcome in outcomes] == [60, 60, 60, 60]
    assert len(solver.systems) == 4


async def test_an_interval_with_nothing_changed_writes_the_time_only() -> None:
    cluster, solver = scene(regular()), FakeOptimizer()
    await reconciled(cluster, solver)
    cluster.writes.clear()
    cluster.events.clear()

    await reconciled(cluster, solver, later=60)

    assert cluster.writes == ["status Optimizer inferno"]
    assert not cluster.events


async def test_asking_in_between_begins_the_interval_anew() -> None:
    cluster, solver = scene(regular()), FakeOptimizer()
    await reconciled(cluster, solver)
    cluster.add(regular(asked=True))

    outcome = await reconciled(cluster, solver, later=20)

    assert outcome.again_after == 60
    assert (await reconciled(cluster, solver, later=60)).again_after == 20
    assert len(solver.systems) == 2


async def test_a_failure_in_between_is_told_and_tried_again() -> None:
    cluster, solver = scene(regular()), FakeOptimizer()
    await reconciled(cluster, solver)
    solver.failures = [UnavailableError("connection refused")]

    assert (await reconciled(cluster, solver, later=60)).failed
    assert conditions(cluster, "inferno")["Optimized"] == ("False", "Unavailable")

    assert (await reconciled(cluster, solver, later=61)).again_after == 60
    assert conditions(cluster, "inferno")["Optimized"] == ("True", "Optimized")


async def test_a_second_interval_is_refused_by_a_condition() -> None:
    old = regular("old", creationTimestamp=born(1))
    young = regular("young", creationTimestamp=born(2))
    cluster, solver = scene(old, young), FakeOptimizer()

    outcome = await reconciled(cluster, solver, key=Key("default", "young"))

    assert outcome.again_after == INTERVAL
    assert not solver.systems
    assert conditions(cluster, "young")["Ready"] == ("False", "SeveralIntervals")
    assert not cluster.events  # what would be refused is no advice

    await reconciled(cluster, solver, key=Key("default", "old"))
    assert conditions(cluster, "old")["Ready"] == ("True", "Valid")
    assert len(solver.systems) == 1


@pytest.mark.parametrize("interval", [True, False])
async def test_a_request_waits_where_another_one_would_undo_it(interval: bool) -> None:
    born_later = {"creationTimestamp": born(2)}
    make = partial(regular, asked=True) if interval else partial(optimizer, optimize=True)
    asked = make("asked", **born_later)
    cluster, solver = scene(regular("old", creationTimestamp=born(1)), asked), FakeOptimizer()
    key = Key("default", "asked")

    outcome = await reconciled(cluster, solver, key=key)

    assert outcome.again_after == INTERVAL
    assert not solver.systems
    told: dict[str, Any] = cluster.objects["Optimizer", key]
    assert told["spec"]["optimize"]
    assert conditions(cluster, "asked")["Ready"] == ("False", "SeveralIntervals")
    assert "'old'" in told["status"]["conditions"][0]["message"]

    del cluster.objects["Optimizer", Key("default", "old")]
    await reconciled(cluster, solver, key=key)

    assert len(solver.systems) == 1
    assert conditions(cluster, "asked")["Ready"] == ("True", "Valid")


async def test_who_is_not_to_optimize_is_not_told_of_others() -> None:
    old, idle = regular("old", creationTimestamp=born(1)), optimizer("idle", optimize=False)
    cluster = scene(old, idle)

    await reconciled(cluster, FakeOptimizer(), key=Key("default", "idle"))

    assert conditions(cluster, "idle")["Ready"] == ("True", "Valid")


async def test_a_finalizer_that_the_original_left_is_taken_off() -> None:
    finalizers = ["inferno.platform.ai/finalizer"]
    going = optimizer(deletionTimestamp=born(9), finalizers=finalizers)
    cluster, solver = scene(going), FakeOptimizer()

    assert await reconciled(cluster, solver) is ReconcileResult.SETTLED

    assert ("Optimizer", INFERNO) not in cluster.objects
    assert not solver.systems
