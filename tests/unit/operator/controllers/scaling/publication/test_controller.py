"""The decisions of all Servers, as they change on a cluster in memory."""

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from inferno_operator.controllers.scaling.publication import Publication
from inferno_operator.resources import Server
from inferno_operator.resources.objects import Key, Kind, kind_of
from inferno_operator.runtime.informers import Informers
from inferno_operator.runtime.ports import GoneError, ObjectChange, RejectedError
from inferno_optimizer.errors import UnavailableError
from tests.fakes import FakeCluster
from tests.unit.operator import objects
from tests.unit.operator.background import in_background

SERVER = kind_of(Server)
S = Key("default", "s")
NOT_YET = "their list is awaited"


class CutCluster(FakeCluster):
    """A cluster whose watches can be cut."""

    def __init__(self) -> None:
        super().__init__()
        self.cut = asyncio.Event()

    async def watch(
        self, kind: Kind, namespace: str, since: int
    ) -> AsyncGenerator[ObjectChange, None]:
        watched = super().watch(kind, namespace, since)
        while not self.cut.is_set():
            change = asyncio.ensure_future(anext(watched))
            cut = asyncio.ensure_future(self.cut.wait())
            await asyncio.wait([change, cut], return_when=asyncio.FIRST_COMPLETED)
            for task in (change, cut):
                task.cancel()
            if change.done() and not change.cancelled():
                yield change.result()
        raise UnavailableError("a watch was interrupted: reset")


def decided(replicas: int, name: str = "S") -> dict[str, Any]:
    desired = {"accelerator": "A", "numReplicas": replicas}
    manifest = objects.server(name, spec={"desiredAlloc": desired})
    return {**manifest, "status": {"conditions": [objects.condition("Allocated", "Allocated")]}}


@asynccontextmanager
async def watching(publication: Publication) -> AsyncGenerator[None, None]:
    async with in_background(publication.run()):
        await until(lambda: not publication.unready())
        yield


async def until(met: Callable[[], bool]) -> None:
    """Wait for a condition, for a minute of virtual time."""
    for _ in range(600):
        if met():
            return
        await asyncio.sleep(0.1)
    raise TimeoutError


async def test_before_the_first_list_nothing_is_known() -> None:
    publication = Publication(FakeCluster(), Informers(FakeCluster()))

    with pytest.raises(UnavailableError, match=NOT_YET):
        publication.decision(S)
    assert NOT_YET in publication.unready()


async def test_the_newest_decision_is_published() -> None:
    cluster = FakeCluster()
    cluster.add(decided(2))
    publication = Publication(cluster, Informers(cluster))

    async with watching(publication):
        assert publication.decision(S).on("A") == 2

        cluster.add(decided(5))
        await until(lambda: publication.decision(S).on("A") == 5)


async def test_a_server_that_is_gone_is_not_published() -> None:
    cluster = FakeCluster()
    cluster.add(decided(2))
    cluster.add(decided(1, "T"))
    publication = Publication(cluster, Informers(cluster))

    async with watching(publication):
        cluster.remove(SERVER, S)
        await until(lambda: [item.key.name for item in publication.decisions()] == ["t"])

        with pytest.raises(GoneError, match="Server default/s does not exist"):
            publication.decision(S)


async def test_a_lost_watch_is_told_until_servers_are_listed_again() -> None:
    cluster = CutCluster()
    cluster.add(decided(2))
    publication = Publication(cluster, Informers(cluster))

    async with watching(publication):
        cluster.failures = [UnavailableError("the API server does not answer")] * 3
        cluster.cut.set()
        await until(lambda: bool(publication.unready()))

        with pytest.raises(UnavailableError, match=r"interrupted|does not answer"):
            publication.decision(S)
        assert [item.on("A") for item in publication.decisions()] == [2]

        cluster.cut.clear()
        cluster.remove(SERVER, S)
        await until(lambda: not publication.unready())
        assert list(publication.decisions()) == []


async def test_a_namespace_without_rights_does_not_silence_the_others() -> None:
    class Closed(FakeCluster):
        async def list(self, kind: Kind, namespace: str) -> Any:  # noqa: ANN401 - as the fake's
            if namespace == "closed":
                raise RejectedError("servers is forbidden")
            return await super().list(kind, namespace)

    cluster = Closed()
    cluster.add(decided(2))
    publication = Publication(cluster, Informers(cluster, ("closed", "default")))

    async with in_background(publication.run()):
        await until(lambda: bool(list(publication.decisions())))
        with pytest.raises(UnavailableError, match="servers is forbidden"):
            publication.decision(Key("closed", "s"))
        assert publication.decision(S).on("A") == 2


def autoscaler(
    name: str, target: str, metadata: dict[str, Any] | None = None, kind: str = "Deployment"
) -> dict[str, Any]:
    reference = {"apiVersion": "apps/v1", "kind": kind, "name": target}
    return {
        "apiVersion": "autoscaling/v2",
        "kind": "HorizontalPodAutoscaler",
        "metadata": {"name": name, **(metadata or {})},
        "spec": {"scaleTargetRef": reference},
    }


async def test_a_variant_has_the_name_of_its_annotated_autoscaler() -> None:
    managed: dict[str, Any] = {"annotations": {"llm-d.ai/managed": "true"}}
    owner: dict[str, Any] = {"ownerReferences": [{"kind": "ScaledObject", "name": "scaled"}]}
    cluster = FakeCluster()
    workloads = [{"accelerator": name, "name": f"on-{name.lower()}"} for name in "ABCD"]
    cluster.add(decided(2) | {"spec": decided(2)["spec"] | {"workloads": workloads}})
    cluster.add(autoscaler("of-a", "on-a", managed))
    cluster.add(autoscaler("keda-hpa-scaled", "on-b", managed | owner))
    cluster.add(autoscaler("of-c", "on-c"))
    cluster.add(autoscaler("of-d", "on-d", managed, kind="StatefulSet"))
    publication = Publication(cluster, Informers(cluster), names_variants=True)

    async with watching(publication):
        decision = publication.decision(S)
        await until(lambda: publication.variant(decision, "A") == "of-a")

        names = [publication.variant(decision, name) for name in "BCDX"]
        assert names == ["scaled", "on-c", "on-d", "s"]


async def test_without_the_right_to_list_autoscalers_a_variant_has_the_name_of_its_workload() -> (
    None
):
    cluster = FakeCluster()
    workloads = [{"accelerator": "A", "name": "on-a"}]
    cluster.add(decided(2) | {"spec": decided(2)["spec"] | {"workloads": workloads}})
    cluster.unserved.add("HorizontalPodAutoscaler")
    publication = Publication(cluster, Informers(cluster), names_variants=True)

    async with watching(publication):
        await asyncio.sleep(61)
        assert publication.variant(publication.decision(S), "A") == "on-a"


def optimizer(mode: str) -> dict[str, Any]:
    manifest = objects.optimizer("plan")
    return {**manifest, "spec": {**manifest["spec"], "mode": mode}}


async def test_a_recommendation_is_not_published() -> None:
    cluster = FakeCluster()
    cluster.add(decided(2))
    cluster.add(optimizer("Recommend"))
    publication = Publication(cluster, Informers(cluster))

    async with watching(publication):
        with pytest.raises(UnavailableError, match="no decision stands: Optimizer 'plan' has mode"):
            publication.decision(S).on("A")

        cluster.add(optimizer("Auto"))
        await until(lambda: publication.decision(S).replicas is not None)
        assert publication.decision(S).on("A") == 2
