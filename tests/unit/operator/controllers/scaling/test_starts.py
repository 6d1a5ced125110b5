"""What the pods of a ModelBooster tell of starts, in a cluster in memory and in virtual time."""

import asyncio

import pytest

from inferno_operator.resources.dialects import DIALECTS
from inferno_operator.resources.objects import POD, Key, Kind
from inferno_operator.runtime.ports import Listing, RejectedError
from tests.fakes import FakeCluster
from tests.unit.operator import objects
from tests.unit.operator.background import started
from tests.unit.operator.controllers.scaling.scene import ClusterScene, Manifest


class SlowCluster(FakeCluster):
    """Lists pods after half a minute."""

    async def list(self, kind: Kind, namespace: str) -> Listing:
        """Return the objects of a kind."""
        if kind == POD:
            await asyncio.sleep(30)
        return await super().list(kind, namespace)


class Scene(ClusterScene):
    """Server `s` on backend `a` of booster `m`, and the pods of its ModelServing."""

    def __init__(self, dialect: str = "kthena", cached: int = 60) -> None:
        super().__init__(SlowCluster())
        for manifest in objects.system(cards=9):
            self.cluster.add(manifest)
        self.dialect = DIALECTS[dialect]
        backends = [{"name": "a", "accelerator": "A"}]
        refers = {"name": "m", "dialect": dialect, "backends": backends, "target": "ModelServing"}
        body = objects.server(spec={"modelBooster": refers})
        tokens = {"avgInTokens": 100, "avgOutTokens": 1, "cachedTokens": cached}
        load = {"arrivalRate": 30, **tokens}
        measured = {"time": self.time(), "quality": "Fresh", "load": load}
        self.cluster.add({**body, "status": {"measured": measured}})
        named = {"name": "a", "minReplicas": 0, "maxReplicas": 9}
        self.cluster.add(self.made(self.dialect.booster.kind, "m", {"backends": [named]}))
        self.serve(0)

    def serve(self, available: int) -> None:
        """Have so many replicas available."""
        serving = self.made(self.dialect.serving.kind, "m-a", {"replicas": available})
        status = {"availableReplicas": available, "observedGeneration": 100}
        self.cluster.add({**serving, "status": status})

    def pod(self, name: str, group: str, started: float | None, minutes: float = 0.0) -> None:
        """Have a pod that became ready so many minutes ago, after so many seconds, if it is."""
        seconds = started or 0.0
        labels = {"name": group.rpartition("-")[0], "group-name": group}
        metadata = {
            "name": name,
            "labels": {self.dialect.pod_prefix + key: text for key, text in labels.items()},
            "creationTimestamp": self.time(-60 * minutes - seconds),
        }
        ready = {"type": "Ready", "status": str(started is not None)}
        conditions = [{**ready, "lastTransitionTime": self.time(-60 * minutes)}]
        status = {"phase": "Running", "conditions": conditions}
        self.cluster.add({"kind": "Pod", "metadata": metadata, "spec": {}, "status": status})

    @property
    def told(self) -> tuple[int, int, list[tuple[str, float, int]]]:
        """Replicas, cold replicas and lead times that the Server has."""
        server = self.server()
        current, times = server["spec"]["currentAlloc"], server["status"].get("leadTimes", ())
        found = [(t["accelerator"], t["seconds"], t["pods"]) for t in times]
        return current["numReplicas"], current.get("coldReplicas", 0), found

    def made(self, kind: str, name: str, spec: Manifest) -> Manifest:
        """An object of the dialect."""
        api_version = self.dialect.booster.api_version
        return {
            "apiVersion": api_version,
            "kind": kind,
            "metadata": {"name": name},
            "spec": spec,
        }


@pytest.mark.parametrize("dialect", sorted(DIALECTS))
@pytest.mark.parametrize("cached", [60, 0])
async def test_a_replica_has_started_when_the_last_of_its_pods_is_ready(
    dialect: str, cached: int
) -> None:
    scene = Scene(dialect, cached)
    scene.pod("p0", "m-a-0", 30, minutes=6)
    scene.pod("p1", "m-a-0", 90, minutes=5)
    scene.pod("p2", "m-a-1", 50, minutes=30)
    scene.pod("p3", "m-a-2", 30, minutes=3)
    scene.pod("p4", "m-a-2", None)
    scene.pod("p5", "other-0", 10)
    scene.serve(2)

    async with started(scene.controller()):
        await scene.until(lambda: scene.told == (2, min(cached, 1), [("A", 90.0, 2)]))
        scene.serve(3)
        scene.pod("p4", "m-a-2", 240)
        await scene.until(lambda: scene.told == (3, min(cached, 2), [("A", 240.0, 3)]))
        await asyncio.sleep(260)
        assert scene.told[:2] == (3, min(cached, 2))
        await asyncio.sleep(30)  # the first one is ready for ten minutes now
        assert scene.told[:2] == (3, min(cached, 1))
        await asyncio.sleep(320)
        assert scene.told[:2] == (3, 0)


async def test_no_more_replicas_are_cold_than_are_available() -> None:
    scene = Scene()
    scene.pod("p0", "m-a-0", 20)
    scene.pod("p1", "m-a-1", 20)
    scene.serve(1)

    async with started(scene.controller()):
        await scene.until(lambda: scene.told[0] == 1)

    assert scene.told[:2] == (1, 1)


async def test_an_operator_keeps_until_pods_are_known_what_another_one_counted() -> None:
    scene = Scene()
    scene.pod("p0", "m-a-0", 20)
    scene.serve(1)
    async with started(scene.controller()):
        await scene.until(lambda: scene.told == (1, 1, [("A", 20.0, 1)]))
    scene.cluster.writes.clear()

    async with started(scene.controller()):
        await asyncio.sleep(60)

    assert scene.told == (1, 1, [("A", 20.0, 1)])
    assert scene.cluster.writes == []


async def test_nothing_is_counted_or_scaled_where_pods_may_not_be_read() -> None:
    scene = Scene()
    scene.pod("p0", "m-a-0", 20)
    scene.serve(1)
    scene.cluster.rejected[POD.kind] = RejectedError("pods is forbidden")

    async with started(scene.controller()):
        await scene.until(lambda: bool(scene.reason()))

    assert (scene.reason(), scene.condition()["message"]) == ("Rejected", "pods is forbidden")


async def test_pods_that_end_are_not_counted_any_more() -> None:
    scene = Scene()
    for number in range(2):
        scene.pod(f"p{number}", f"m-a-{number}", 20)
    scene.serve(2)

    async with started(scene.controller()):
        await scene.until(lambda: scene.told[:2] == (2, 2))
        pod = scene.cluster.objects["Pod", Key("default", "p1")]
        pod["metadata"]["deletionTimestamp"] = scene.time(30)
        scene.cluster.add(pod)
        await scene.until(lambda: scene.told[:2] == (2, 1))
        scene.cluster.remove(POD, Key("default", "p0"))
        await scene.until(lambda: scene.told[1] != 1)

    assert scene.told[:2] == (2, 0)


async def test_while_pods_may_not_be_read_roles_are_left_alone_and_that_is_told() -> None:
    scene = Scene()
    roles = ("prefill", "A"), ("decode", "B")
    backends = [{"name": "a", "accelerator": a, "role": role.title()} for role, a in roles]
    sizes = {role: {"accelerator": a, "numReplicas": 2} for role, a in roles}
    runs = {"accelerator": "B", "numReplicas": 4, "roles": sizes}
    spec = {
        "modelBooster": {"name": "m", "backends": backends},
        "currentAlloc": {**runs, "cost": 80},
        "desiredAlloc": {
            **runs,
            "roles": {**sizes, "prefill": {**sizes["prefill"], "numReplicas": 1}},
        },
    }
    server = objects.server(spec=spec)
    conditions = [objects.condition("Allocated", "Allocated")]
    scene.cluster.add({**server, "status": {"conditions": conditions}})
    workers = [{"type": role, "replicas": 2} for role, _ in roles]
    named = {"name": "a", "type": "vLLMDisaggregated", "workers": workers}
    bounds = {"minReplicas": 1, "maxReplicas": 1}
    scene.cluster.add(
        scene.made(scene.dialect.booster.kind, "m", {"backends": [{**named, **bounds}]})
    )
    scene.cluster.rejected[POD.kind] = RejectedError("pods is forbidden")

    async with started(scene.controller()):
        await scene.until(lambda: bool(scene.reason()))

    assert (scene.reason(), scene.condition()["message"]) == ("Rejected", "pods is forbidden")
    booster = scene.cluster.objects[scene.dialect.booster.kind, Key("default", "m")]
    assert booster["spec"]["backends"][0]["workers"] == workers
    assert scene.server()["spec"]["currentAlloc"]["numReplicas"] == 4
