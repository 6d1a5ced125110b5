"""Objects are held until the optimizer was told, but not for ever."""

import asyncio
from datetime import datetime, timedelta

import pytest

from inferno_operator.controllers.planning.controller import PATIENCE, Synchronization
from inferno_operator.resources import RESOURCES
from inferno_operator.resources.objects import Key, kind_of
from inferno_operator.runtime.finalizers import FINALIZER, clean_up
from inferno_operator.runtime.informers import Informers
from inferno_operator.runtime.work_queue import ReconcileResult
from inferno_optimizer.errors import InfernoError, UnavailableError
from inferno_optimizer.system import System
from tests.controlplane.waiting import wait_until
from tests.fakes import FakeCluster
from tests.unit.operator.controllers.planning.scene import TypedLoads, cluster_of
from tests.unit.operator.objects import NOW, Manifest, optimizer, server, system

SCENE = (*system(4), server("S"), optimizer())

T = ("Server", Key("default", "t"))


def going(name: str) -> Manifest:
    """A Server that is to go, and is held."""
    return server(name, deletionTimestamp=NOW.isoformat(), finalizers=[FINALIZER])


class FakeKeeper:
    """Remembers what it was told; `failures` are raised by the next calls, one each.

    While `hangs` is set a call has no end.
    """

    def __init__(self) -> None:
        self.told: list[list[str]] = []
        self.failures: list[InfernoError] = []
        self.hangs = False

    async def replace(self, system: System) -> None:
        if self.hangs:
            await asyncio.Event().wait()
        if self.failures:
            raise self.failures.pop(0)
        self.told.append([server.name for server in system.servers])


async def synchronization(
    cluster: FakeCluster, keeper: FakeKeeper, now: datetime = NOW
) -> Synchronization:
    objects = Informers(cluster).subscribe(map(kind_of, RESOURCES))
    watching = asyncio.create_task(objects.run())
    await objects.complete()
    assert not watching.done()
    return Synchronization(objects, keeper, TypedLoads(), cluster, lambda: now)


async def reconcile(cluster: FakeCluster, keeper: FakeKeeper) -> ReconcileResult:
    return await (await synchronization(cluster, keeper)).synchronize("default")


def finalizers(cluster: FakeCluster) -> dict[str, list[str]]:
    return {
        kind: manifest["metadata"].get("finalizers", [])
        for (kind, _), manifest in cluster.objects.items()
    }


async def test_objects_are_held_and_the_optimizer_is_told() -> None:
    cluster, keeper = cluster_of(*SCENE), FakeKeeper()

    assert await reconcile(cluster, keeper) is ReconcileResult.SETTLED

    held = {kind: [] if kind == "Optimizer" else [FINALIZER] for kind in finalizers(cluster)}
    assert finalizers(cluster) == held
    assert keeper.told == [["S"]]


async def test_telling_again_writes_nothing() -> None:
    cluster, keeper = cluster_of(*SCENE), FakeKeeper()
    await reconcile(cluster, keeper)
    cluster.writes.clear()

    await reconcile(cluster, keeper)

    assert not cluster.writes


async def test_finalizers_of_others_stay() -> None:
    cluster, keeper = cluster_of(server("S", finalizers=["other"])), FakeKeeper()

    await reconcile(cluster, keeper)

    assert finalizers(cluster) == {"Server": ["other", FINALIZER]}


async def test_an_object_goes_when_the_optimizer_was_told() -> None:
    cluster, keeper = cluster_of(*SCENE, going("T")), FakeKeeper()

    await reconcile(cluster, keeper)

    assert keeper.told == [["S"]]
    assert T not in cluster.objects


async def test_an_object_stays_while_the_optimizer_does_not_answer() -> None:
    cluster, keeper = cluster_of(*SCENE, going("T")), FakeKeeper()
    keeper.failures = [UnavailableError("connection refused")]

    assert await reconcile(cluster, keeper) is ReconcileResult.FAILED
    assert T in cluster.objects

    assert await reconcile(cluster, keeper) is ReconcileResult.SETTLED
    assert T not in cluster.objects


@pytest.mark.parametrize(("seconds", "goes"), [(9.9, False), (10.0, True), (3600.0, True)])
async def test_an_object_waits_ten_seconds_for_an_optimizer_that_does_not_answer(
    seconds: float, goes: bool
) -> None:
    cluster, now = cluster_of(*SCENE, going("T")), NOW + timedelta(seconds=seconds)

    outcome = await (await synchronization(cluster, FakeKeeper(), now)).release_overdue("default")

    assert outcome.again_after == (None if goes else pytest.approx(0.1))
    assert (T in cluster.objects) is not goes


async def test_an_object_goes_in_time_while_a_request_to_the_optimizer_hangs() -> None:
    cluster, keeper = cluster_of(*SCENE, going("T")), FakeKeeper()
    keeper.hangs = True
    work = await synchronization(cluster, keeper, NOW + PATIENCE)

    work.add("default")
    await asyncio.to_thread(
        wait_until, lambda: [*cluster.objects], lambda there: T not in there, "no T", 5.0
    )
    await work.close()

    assert not keeper.told


async def test_an_object_that_cannot_be_written_on_is_tried_again() -> None:
    cluster = cluster_of(*SCENE, going("T"))
    work = await synchronization(cluster, FakeKeeper(), NOW + PATIENCE)
    cluster.failures = [UnavailableError("connection refused")]

    outcome = await work.release_overdue("default")

    assert outcome is ReconcileResult.FAILED


async def test_of_several_namespaces_none_is_told_before_its_turn() -> None:
    cluster, keeper = cluster_of(*SCENE), FakeKeeper()
    cluster.add(server("X"), "other")

    assert await reconcile(cluster, keeper) is ReconcileResult.SETTLED
    assert not keeper.told

    cluster.add(going("T"))
    await reconcile(cluster, keeper)
    assert keeper.told == [["S"]]


async def test_a_conflict_is_tried_again_with_the_newest_version() -> None:
    cluster = cluster_of(server("S"))
    seen = await synchronization(cluster, FakeKeeper())
    cluster.add(server("S", finalizers=["other"]))

    assert await seen.synchronize("default") is ReconcileResult.SETTLED

    assert finalizers(cluster) == {"Server": ["other", FINALIZER]}


async def test_objects_stay_while_their_definition_is_being_deleted() -> None:
    cluster, keeper = cluster_of(*SCENE, going("T")), FakeKeeper()
    cluster.terminating = {"servers"}

    assert await reconcile(cluster, keeper) is ReconcileResult.FAILED

    assert ("Server", Key("default", "t")) in cluster.objects
    assert finalizers(cluster)["Model"] == []


@pytest.mark.parametrize("namespaces", [(), ("default",)])
async def test_what_others_left_is_taken_off(namespaces: tuple[str, ...]) -> None:
    left = [FINALIZER, "other"]
    cluster = cluster_of(server("S", finalizers=left), optimizer(finalizers=[FINALIZER]))
    cluster.add(going("T"))

    await clean_up(RESOURCES, namespaces, cluster)

    assert finalizers(cluster) == {"Server": ["other"], "Optimizer": []}


async def test_other_namespaces_are_left_alone() -> None:
    cluster = cluster_of(server("S", finalizers=[FINALIZER]), namespace="foreign")

    await clean_up(RESOURCES, ["default"], cluster)

    assert finalizers(cluster) == {"Server": [FINALIZER]}


async def test_what_others_left_stays_while_a_definition_is_being_deleted_and_it_is_said(
    caplog: pytest.LogCaptureFixture,
) -> None:
    cluster = cluster_of(server("S", finalizers=[FINALIZER]), going("T"))
    cluster.terminating = {"models"}
    cleaning = asyncio.create_task(clean_up(RESOURCES, (), cluster))
    await asyncio.wait([cleaning], timeout=0.1)

    assert not cluster.writes
    assert "save them, then run 'make release'" in caplog.text

    cluster.terminating.clear()
    await cleaning
    assert finalizers(cluster) == {"Server": []}
