"""Writes: only while they are allowed, brought to their end, and counted."""

import asyncio
from math import inf

import pytest

from inferno_operator.resources import Server
from inferno_operator.resources.objects import Event, Kind, Manifest, Reference, kind_of
from inferno_operator.runtime.leader_election import LeadershipLostError
from inferno_operator.runtime.observer import Observer
from inferno_operator.runtime.ports import RejectedError
from inferno_operator.runtime.write_guard import GuardedCluster
from inferno_optimizer.errors import UnavailableError
from tests.controlplane.waiting import PATIENCE_S
from tests.fakes import FakeCluster
from tests.unit.operator.objects import server

SERVER = kind_of(Server)


class Slow(FakeCluster):
    """Writes when the gate is open; tells that a write has begun."""

    def __init__(self) -> None:
        super().__init__()
        self.begun = asyncio.Event()
        self.gate = asyncio.Event()

    async def apply(
        self, kind: Kind, manifest: Manifest, manager: str, *, force: bool = True
    ) -> Manifest:
        self.begun.set()
        await self.gate.wait()
        return await super().apply(kind, manifest, manager, force=force)


class Counting(Observer):
    def __init__(self) -> None:
        self.writes: list[tuple[str, str, bool]] = []

    def wrote(self, kind: Kind, part: str, *, succeeded: bool) -> None:
        self.writes.append((kind.kind, part, succeeded))


class Scene:
    """A cluster with one Server, guarded; `remaining` is for how long we may write."""

    def __init__(self, cluster: FakeCluster) -> None:
        self.cluster = cluster
        self.remaining = inf
        self.observer = Counting()
        self.time = 0.0
        self.guarded = GuardedCluster(
            cluster, lambda: self.remaining, self.observer, lambda: self.time
        )
        key = cluster.add(server())
        self.reference = Reference.of(SERVER, cluster.objects["Server", key])

    async def write(self, what: str) -> None:
        reference, guarded = self.reference, self.guarded
        if what == "spec":
            await guarded.apply(SERVER, reference.manifest(spec={"minNumReplicas": 3}), "us")
        elif what == "status":
            await guarded.apply(SERVER, reference.manifest(status={"active": True}), "us")
        elif what == "merge":
            await guarded.merge(SERVER, reference.manifest(spec={"minNumReplicas": 3}), "us")
        elif what == "finalizers":
            manifest = reference.manifest()
            manifest["metadata"]["finalizers"] = ["f"]
            await guarded.merge(SERVER, manifest, "us")
        elif what == "managers":
            await guarded.set_managers(reference, [{}])
        elif what == "deletion":
            await guarded.delete(reference)
        else:
            await guarded.publish(Event(reference, "Normal", "Allocated", "text"))


PARTS = {
    "spec": "spec",
    "status": "status",
    "merge": "spec",
    "finalizers": "metadata",
    "managers": "metadata",
    "deletion": "deletion",
    "event": "event",
}
"""What is counted for each write."""


@pytest.mark.parametrize(("what", "part"), PARTS.items())
async def test_a_write_is_made_and_counted_unless_another_may_lead(what: str, part: str) -> None:
    scene = Scene(FakeCluster())
    scene.remaining = 0.0

    with pytest.raises(LeadershipLostError, match="Server default/s"):
        await scene.write(what)

    assert (scene.cluster.writes, scene.cluster.events) == ([], [])
    scene.remaining = inf
    await scene.write(what)
    assert scene.cluster.writes or scene.cluster.events
    assert scene.observer.writes == [("Server", part, True)]


async def test_nothing_is_written_after_a_pause_between_the_check_and_the_write() -> None:
    scene = Scene(FakeCluster())
    writing = asyncio.create_task(scene.write("spec"))
    await asyncio.sleep(0)  # checked, but not begun
    scene.remaining = 0.0

    with pytest.raises(LeadershipLostError):
        await writing

    assert not scene.cluster.writes


async def test_a_write_that_fails_is_counted_and_told() -> None:
    scene = Scene(FakeCluster())
    scene.time, scene.cluster.failures = 7.0, [RejectedError("no")]

    with pytest.raises(RejectedError):
        await scene.write("spec")

    assert scene.observer.writes == [("Server", "spec", False)]
    assert scene.guarded.answered_at == 7.0  # a failure is a sign of life, too


async def test_reading_needs_no_lease() -> None:
    scene = Scene(FakeCluster())
    scene.remaining = 0.0

    assert await scene.guarded.get(SERVER, scene.reference.key)
    assert (await scene.guarded.list(SERVER, "default")).manifests


async def test_a_write_ends_before_the_lease_can_be_taken() -> None:
    cluster = Slow()
    scene = Scene(cluster)
    scene.remaining = 0.05

    with pytest.raises(UnavailableError, match="before the lease expired"):
        await scene.write("spec")

    assert not cluster.writes


async def test_a_write_that_has_begun_ends_though_the_work_is_cancelled() -> None:
    cluster = Slow()
    scene = Scene(cluster)
    working = asyncio.create_task(scene.write("spec"))
    await cluster.begun.wait()
    working.cancel()
    draining = asyncio.create_task(scene.guarded.drain())
    await asyncio.wait([working])

    cluster.gate.set()
    async with asyncio.timeout(PATIENCE_S):
        await draining

    assert cluster.writes == ["apply Server s"]


async def test_a_write_that_has_begun_is_given_up_when_another_may_lead() -> None:
    cluster = Slow()
    scene = Scene(cluster)
    working = asyncio.create_task(scene.write("spec"))
    await cluster.begun.wait()
    scene.remaining = 0.0

    await scene.guarded.drain()
    async with asyncio.timeout(PATIENCE_S):
        await asyncio.wait([working])

    assert working.cancelled()
    assert not cluster.writes
