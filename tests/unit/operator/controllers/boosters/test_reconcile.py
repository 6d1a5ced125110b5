"""Passes over a booster with a cluster in memory."""

import asyncio
from datetime import UTC, datetime
from typing import Any, Self

import pytest

from inferno_operator.controllers.boosters.controller import BoosterController
from inferno_operator.controllers.boosters.reconcile import (
    REFUSED_SECONDS,
    BoosterCache,
    Context,
    reconcile,
)
from inferno_operator.resources.dialects import DIALECTS, KTHENA, Dialect
from inferno_operator.resources.objects import Key, Kind, Place
from inferno_operator.runtime.cache import Cache, ObjectDifference
from inferno_operator.runtime.informers import Informers
from inferno_operator.runtime.ports import ObjectChange, RejectedError, StaleError
from inferno_operator.runtime.work_queue import ReconcileResult
from inferno_optimizer.errors import UnavailableError
from tests.controlplane.waiting import PATIENCE_S
from tests.fakes import FakeCluster
from tests.unit.operator.controllers.boosters.making import METRICS, Manifest, backend, manifest

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
M = Key("ns", "m")


class Scene:
    """A cluster with one booster, as the cache knows it."""

    def __init__(
        self, asked: Manifest, dialect: Dialect = KTHENA, missing: Kind | None = None
    ) -> None:
        self.cluster = FakeCluster()
        kinds = (dialect.booster, *dialect.children)
        objects = Informers(self.cluster).subscribe(kinds, self._changed)
        self.cache = BoosterCache(dialect, objects)
        self._watching: asyncio.Task[None] | None = None
        unserved = {} if missing is None else {missing: f"{missing.kind} is not served"}
        self.context = Context(self.cluster, self.cache, lambda: NOW, lambda: unserved)
        self.put(dialect.booster, asked)

    def put(self, kind: Kind, asked: Manifest) -> None:
        self.cluster.add({**asked, "kind": kind.kind})

    def _changed(self, difference: ObjectDifference) -> None:
        self.cache.noted(difference)

    async def seen(self) -> None:
        """Wait until the cache has every change."""
        self._watching = self._watching or asyncio.create_task(self.cache.objects.run())
        await self.cache.objects.complete()
        await asyncio.sleep(1)

    async def reconcile(self) -> ReconcileResult:
        await self.seen()
        self.cluster.writes.clear()
        return await reconcile(M, self.context)

    def conditions(self) -> dict[str, tuple[str, str]]:
        booster = self.cache.booster(M) or {}
        found = booster["status"]["conditions"]
        return {c["type"]: (c["status"], c["message"]) for c in found}


@pytest.mark.parametrize("dialect", DIALECTS.values(), ids=DIALECTS)
async def test_children_are_made_and_a_second_pass_writes_nothing(dialect: Dialect) -> None:
    scene = Scene(manifest(dialect=dialect), dialect)

    assert await scene.reconcile() == ReconcileResult.SETTLED

    assert scene.cluster.writes == [
        f"apply {dialect.serving.kind} m-a",
        "apply ModelServer m-a",
        "apply ModelRoute m",
        f"status {dialect.booster.kind} m",
    ]
    await scene.reconcile()
    assert scene.cluster.writes == []


async def test_what_is_done_is_told_by_events() -> None:
    scene = Scene(manifest(backend("a"), backend("b")))
    await scene.reconcile()
    scene.put(KTHENA.booster, manifest(backend("a", routeWeight=5)))
    await scene.reconcile()

    assert [(n.reason, n.message) for n in scene.cluster.events] == [
        (
            "Created",
            "ModelServing m-a, ModelServing m-b, ModelServer m-a, ModelServer m-b, ModelRoute m",
        ),
        ("Updated", "ModelRoute m"),
        ("Deleted", "ModelServer m-b, ModelServing m-b"),
    ]


async def test_a_refusal_is_told_once_and_tried_again_much_later() -> None:
    scene = Scene(manifest())
    scene.cluster.failing["ModelRoute"] = RejectedError("ModelRoute ns/m: not allowed")

    assert await scene.reconcile() == ReconcileResult.due_after(REFUSED_SECONDS)

    assert scene.conditions()["Failed"] == ("True", "ModelRoute ns/m: not allowed")
    assert scene.conditions()["Initialized"][0] == "False"
    await scene.reconcile()
    assert [n.reason for n in scene.cluster.events] == ["Created", "Failed"]
    assert scene.cluster.writes == []

    scene.cluster.failing.clear()
    await scene.reconcile()
    assert scene.conditions()["Failed"][0] == "False"


async def test_nothing_is_deleted_while_something_cannot_be_written() -> None:
    scene = Scene(manifest(backend("a"), backend("b")))
    await scene.reconcile()
    scene.put(KTHENA.booster, manifest(backend("a")))
    scene.cluster.failing["ModelRoute"] = RejectedError("no")

    await scene.reconcile()

    assert not [write for write in scene.cluster.writes if write.startswith("delete")]


async def serving_a_and_b() -> Scene:
    """A booster with two backends that serve; requests go to both."""
    scene = Scene(manifest(backend("a"), backend("b")))
    await scene.reconcile()
    for name in ("m-a", "m-b"):
        serving = scene.cluster.objects["ModelServing", Key("ns", name)]
        scene.put(KTHENA.serving, {**serving, "status": {"availableReplicas": 1}})
    await scene.reconcile()
    return scene


async def test_requests_go_elsewhere_before_a_backend_goes() -> None:
    scene = await serving_a_and_b()
    scene.put(KTHENA.booster, manifest(backend("a", 0, maxReplicas=1), backend("b")))

    await scene.reconcile()

    assert scene.cluster.writes[:2] == ["apply ModelRoute m", "apply ModelServing m-a"]
    await scene.reconcile()
    assert scene.cluster.writes == []


async def test_a_backend_stays_while_its_requests_cannot_go_elsewhere() -> None:
    scene = await serving_a_and_b()
    scene.put(KTHENA.booster, manifest(backend("a", 0, maxReplicas=1), backend("b")))
    scene.cluster.failing["ModelRoute"] = UnavailableError("away")

    assert await scene.reconcile() == ReconcileResult.FAILED

    assert "apply ModelServing m-a" not in scene.cluster.writes


@pytest.mark.parametrize("error", [UnavailableError("away"), StaleError("changed")])
async def test_what_may_succeed_later_is_tried_again(error: Any) -> None:  # noqa: ANN401 - errors
    scene = Scene(manifest())
    scene.cluster.failing["ModelServing"] = error

    assert await scene.reconcile() == ReconcileResult.FAILED


async def test_an_unsupported_backend_is_told_and_not_tried_again() -> None:
    scene = Scene(manifest(backend(type="MindIE")))

    assert await scene.reconcile() == ReconcileResult.SETTLED

    assert scene.conditions()["Failed"][0] == "True"
    assert "MindIE is not supported" in scene.conditions()["Failed"][1]


async def test_a_missing_definition_is_told() -> None:
    scene = Scene(manifest(), missing=KTHENA.route)

    await scene.reconcile()

    assert scene.conditions()["Failed"] == ("True", "ModelRoute is not served")
    assert scene.cluster.writes == ["status ModelBooster m"]


@pytest.mark.parametrize(
    ("more", "failed"), [({}, "False"), ({"autoscalingPolicy": METRICS}, "True")]
)
async def test_bindings_are_missed_only_where_something_scales(more: Manifest, failed: str) -> None:
    """Later releases of Kthena have no such kind."""
    scene = Scene(manifest(backend(**more)), missing=KTHENA.binding)

    await scene.reconcile()

    assert scene.conditions()["Failed"][0] == failed


@pytest.mark.parametrize("asked", [None, "2026-01-01T00:00:00Z"])
async def test_a_booster_that_goes_is_left_to_the_garbage_collector(asked: str | None) -> None:
    going = manifest()
    going["metadata"]["deletionTimestamp"] = asked or "2026-01-01T00:00:00Z"
    scene = Scene(going)
    if asked is None:
        scene.cluster.remove(KTHENA.booster, M)

    assert await scene.reconcile() == ReconcileResult.SETTLED
    assert scene.cluster.writes == []


def test_of_an_object_the_newest_version_counts() -> None:
    cache = Cache(KTHENA.booster)
    old = manifest()
    new = manifest(backend("b"))

    cache.apply(ObjectChange(5, new))
    cache.apply(ObjectChange(4, old))
    assert cache.get(M) == new

    cache.apply(ObjectChange(6, new, gone=True))
    cache.apply(ObjectChange(5, new))
    assert cache.get(M) is None


async def test_a_child_concerns_its_owner_and_without_one_those_that_need_its_name() -> None:
    scene = Scene(manifest())
    await scene.seen()
    place = Place(KTHENA.server, Key("ns", "m-a"))
    owner = {"kind": "ModelBooster", "name": "other", "uid": "u"}
    child = {"metadata": {"namespace": "ns", "name": "m-a", "ownerReferences": [owner]}}
    free = {"metadata": {"namespace": "ns", "name": "m-a"}}

    assert scene.cache.noted(ObjectDifference(place, None, child)) == {Key("ns", "other")}
    assert scene.cache.noted(ObjectDifference(place, child, free)) == {M}
    assert scene.cache.noted(ObjectDifference(place, free, None)) == {M}


class Running:
    """A controller at work on a cluster in memory."""

    def __init__(self, cluster: FakeCluster) -> None:
        self.cluster = cluster
        self.controller = BoosterController(cluster, Informers(cluster), KTHENA, lambda: NOW)

    async def __aenter__(self) -> Self:
        self._task = asyncio.create_task(self.controller.run())
        return self

    async def __aexit__(self, *_: object) -> None:
        self._task.cancel()
        await self.controller.stop()
        await asyncio.wait([self._task])

    async def wait_for_failed(self, status: str) -> str:
        """Wait until the booster has, or has no more, failed; return the message."""
        async with asyncio.timeout(PATIENCE_S):
            while True:
                for condition in self._conditions():
                    if (condition["type"], condition["status"]) == ("Failed", status):
                        return str(condition["message"])
                await self.cluster.something_changed()

    def _conditions(self) -> list[Manifest]:
        status = self.cluster.objects["ModelBooster", M].get("status", {})
        found: list[Manifest] = status.get("conditions", [])
        return found


async def test_a_definition_that_comes_later_is_noticed() -> None:
    cluster = FakeCluster()
    cluster.unserved.add("ModelRoute")
    cluster.add(manifest())

    async with Running(cluster) as running:
        told = await running.wait_for_failed("True")
        assert "modelroutes.networking.serving.volcano.sh is not served: install" in told
        assert ("ModelServing", Key("ns", "m-a")) not in cluster.objects
        cluster.unserved.clear()
        await running.wait_for_failed("False")

    assert ("ModelServing", Key("ns", "m-a")) in cluster.objects
