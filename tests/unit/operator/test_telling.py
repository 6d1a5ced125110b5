"""Objects are held until the optimizer was told, but not for ever."""

import asyncio
import copy
from datetime import datetime, timedelta

import pytest

from inferno_operator.fakes import FakeCluster
from inferno_operator.ports import Key
from inferno_operator.resources import RESOURCES
from inferno_operator.runtime.finalizers import FINALIZER, clean_up
from inferno_operator.runtime.mirror import Mirror
from inferno_operator.runtime.work_queue import Outcome
from inferno_operator.telling import PATIENCE, Telling, reconcile_namespace
from inferno_optimizer.errors import InfernoError, UnavailableError
from inferno_optimizer.system import System
from tests.unit.operator.objects import (
    NOW,
    Manifest,
    accelerator,
    capacity,
    kind_of,
    model,
    optimizer,
    server,
    service_class,
)

SCENE = (accelerator(), model(), service_class(), capacity(4), server("S"), optimizer())


def going(name: str) -> Manifest:
    """A Server that is to go, and is held."""
    return server(name, deletionTimestamp=NOW.isoformat(), finalizers=[FINALIZER])


class FakeKeeper:
    """Remembers what it was told; `failures` are raised by the next calls, one each."""

    def __init__(self) -> None:
        self.told: list[list[str]] = []
        self.failures: list[InfernoError] = []

    async def tell(self, system: System) -> None:
        if self.failures:
            raise self.failures.pop(0)
        self.told.append([server.name for server in system.servers])


def cluster_of(*manifests: Manifest, namespace: str = "default") -> FakeCluster:
    cluster = FakeCluster()
    for manifest in manifests:
        cluster.add(manifest, namespace)
    return cluster


def mirror_of(cluster: FakeCluster) -> Mirror:
    mirror = Mirror()
    for manifest in cluster.objects.values():
        mirror.put(kind_of(manifest), copy.deepcopy(manifest))
    return mirror


async def reconcile(
    cluster: FakeCluster, keeper: FakeKeeper, now: datetime = NOW, namespace: str = "default"
) -> Outcome:
    mirror = mirror_of(cluster)
    return await reconcile_namespace(namespace, Telling(mirror, keeper, cluster, lambda: now))


def finalizers(cluster: FakeCluster) -> dict[str, list[str]]:
    return {
        kind: manifest["metadata"].get("finalizers", [])
        for (kind, _), manifest in cluster.objects.items()
    }


async def test_objects_are_held_and_the_optimizer_is_told() -> None:
    cluster, keeper = cluster_of(*SCENE), FakeKeeper()

    assert await reconcile(cluster, keeper) is Outcome.SETTLED

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
    assert ("Server", Key("default", "t")) not in cluster.objects


async def test_an_object_stays_while_the_optimizer_does_not_answer() -> None:
    cluster, keeper = cluster_of(*SCENE, going("T")), FakeKeeper()
    keeper.failures = [UnavailableError("connection refused")]

    assert await reconcile(cluster, keeper) is Outcome.FAILED
    assert ("Server", Key("default", "t")) in cluster.objects

    assert await reconcile(cluster, keeper) is Outcome.SETTLED
    assert ("Server", Key("default", "t")) not in cluster.objects


async def test_an_object_does_not_wait_for_ever() -> None:
    cluster, keeper = cluster_of(*SCENE, going("T")), FakeKeeper()
    keeper.failures = [UnavailableError("connection refused")]

    outcome = await reconcile(cluster, keeper, NOW + PATIENCE + timedelta(seconds=1))

    assert outcome is Outcome.FAILED
    assert ("Server", Key("default", "t")) not in cluster.objects


async def test_of_several_namespaces_none_is_told_before_its_turn() -> None:
    cluster, keeper = cluster_of(*SCENE), FakeKeeper()
    cluster.add(server("X"), "other")

    assert await reconcile(cluster, keeper) is Outcome.SETTLED
    assert not keeper.told

    cluster.add(going("T"))
    await reconcile(cluster, keeper)
    assert keeper.told == [["S"]]


async def test_a_conflict_is_tried_again_with_the_newest_version() -> None:
    cluster = cluster_of(server("S"))
    telling = Telling(mirror_of(cluster), FakeKeeper(), cluster, lambda: NOW)
    cluster.add(server("S", finalizers=["other"]))

    assert await reconcile_namespace("default", telling) is Outcome.SETTLED

    assert finalizers(cluster) == {"Server": ["other", FINALIZER]}


async def test_objects_stay_while_their_definition_is_being_deleted() -> None:
    cluster, keeper = cluster_of(*SCENE, going("T")), FakeKeeper()
    cluster.deleted_definitions = {"servers"}

    assert await reconcile(cluster, keeper) is Outcome.FAILED

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
    cluster.deleted_definitions = {"models"}
    cleaning = asyncio.create_task(clean_up(RESOURCES, (), cluster))
    await asyncio.wait([cleaning], timeout=0.1)

    assert not cluster.writes
    assert "save them, then run 'make release'" in caplog.text

    cluster.deleted_definitions.clear()
    await cleaning
    assert finalizers(cluster) == {"Server": []}
