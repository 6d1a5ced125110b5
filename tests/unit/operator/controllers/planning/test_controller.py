"""What the optimization controller watches, and what it asks for then."""

from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager

import pytest

from inferno_operator.controllers.planning.controller import OptimizationController, Work
from inferno_operator.controllers.planning.ports import Mirrored
from inferno_operator.resources import RESOURCES
from inferno_operator.resources.objects import Key, kind_of
from inferno_operator.runtime.finalizers import FINALIZER
from inferno_operator.runtime.informers import Informers
from inferno_optimizer.errors import UnavailableError
from inferno_optimizer.system import System
from tests.fakes import FakeCluster, FakeOptimizer
from tests.unit.operator.background import in_background, started
from tests.unit.operator.controllers.planning.scene import cluster_of, context_of, until
from tests.unit.operator.objects import optimizer, server, system

SCENE = (*system(4), server("S"))


class FakeKeeper(FakeOptimizer):
    """Remembers which servers it was sent."""

    def __init__(self) -> None:
        super().__init__()
        self.told: list[list[str]] = []

    async def replace(self, system: System) -> None:
        self.told.append([server.name for server in system.servers])


@asynccontextmanager
async def running(
    cluster: FakeCluster, *, keeper: FakeKeeper | None = None, stateful: bool = False
) -> AsyncGenerator[OptimizationController]:
    context = context_of(cluster, keeper)
    controller = OptimizationController(
        context, Informers(cluster), stateful=stateful, store=keeper
    )
    async with started(controller):
        yield controller


def is_allocated(cluster: FakeCluster, name: str) -> bool:
    spec = cluster.objects["Server", Key("default", name)]["spec"]
    return bool(spec.get("desiredAlloc", {}).get("numReplicas"))


def is_asked(cluster: FakeCluster) -> bool:
    asked: bool = cluster.objects["Optimizer", Key("default", "inferno")]["spec"]["optimize"]
    return asked


@pytest.mark.parametrize("stateful", [False, True])
async def test_a_request_that_is_there_and_one_that_comes_are_carried_out(stateful: bool) -> None:
    cluster = cluster_of(*SCENE, optimizer())

    async with running(cluster, stateful=stateful):
        await until(cluster, lambda: is_allocated(cluster, "s") and not is_asked(cluster))
        cluster.add(server("T"))
        cluster.add(optimizer())
        await until(cluster, lambda: is_allocated(cluster, "t") and not is_asked(cluster))

    assert is_allocated(cluster, "s")


@pytest.mark.parametrize("ask", [OptimizationController.plan_now, OptimizationController.wake])
async def test_a_namespace_is_planned_now_if_it_is_planned_regularly(
    ask: Callable[[OptimizationController, str], None],
) -> None:
    regular = optimizer(optimize=False)
    cluster = cluster_of(*SCENE, {**regular, "spec": {**regular["spec"], "interval": 3600}})

    async with running(cluster) as controller:
        await until(cluster, lambda: is_allocated(cluster, "s"))
        cluster.add(server("T"))
        ask(controller, "other")
        ask(controller, "default")
        await until(cluster, lambda: is_allocated(cluster, "t"))

    assert is_allocated(cluster, "s")


async def test_an_optimizer_that_is_ignored_wakes_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    """The older one needs a person; the younger one's mode counts for nothing."""
    old, young = optimizer(optimize=False), optimizer(optimize=False)
    old["spec"] |= {"interval": 3600, "mode": "Approve"}
    old["metadata"] |= {"name": "old", "creationTimestamp": "2026-01-01T00:00:00Z"}
    young["spec"]["interval"] = 3600
    young["metadata"]["creationTimestamp"] = "2026-02-01T00:00:00Z"
    cluster = cluster_of(*SCENE, old, young)

    async with running(cluster) as controller:
        await until(cluster, lambda: "status Optimizer inferno" in cluster.writes)
        asked: list[Work] = []
        monkeypatch.setattr(controller.queue, "add", asked.append)
        controller.wake("default")

    assert [work.key.name for work in asked if work.wakes] == ["old"]


async def test_it_is_not_ready_before_it_watches_and_says_why() -> None:
    cluster = cluster_of(*SCENE, optimizer(optimize=False))
    cluster.unserved.add("Optimizer")

    async with running(cluster) as controller:
        assert "not known yet: optimizers" in controller.unready()
        cluster.unserved.clear()
        await until(cluster, lambda: "status Optimizer inferno" in cluster.writes)

        assert not controller.unready()


async def test_without_a_keeper_nothing_is_held() -> None:
    cluster = cluster_of(*SCENE, optimizer())

    async with running(cluster, stateful=True):
        await until(cluster, lambda: not is_asked(cluster))

    metadata = [stored["metadata"] for stored in cluster.objects.values()]
    assert not any(item.get("finalizers") for item in metadata)


async def test_a_keeper_gets_what_changes_and_objects_are_let_go_at_the_end() -> None:
    cluster, keeper = cluster_of(*SCENE), FakeKeeper()
    server_s = cluster.objects["Server", Key("default", "s")]

    async with running(cluster, keeper=keeper, stateful=True):
        await until(cluster, lambda: bool(server_s["metadata"].get("finalizers")))
        assert server_s["metadata"]["finalizers"] == [FINALIZER]

    assert cluster.objects["Server", Key("default", "s")]["metadata"]["finalizers"] == []


async def test_a_mirror_that_misses_something_says_what_and_why() -> None:
    cluster = cluster_of(*SCENE)
    cluster.unserved.add("Server")
    objects = Informers(cluster).subscribe(map(kind_of, RESOURCES))
    mirror = Mirrored(objects, patience=0.01)
    async with in_background(objects.run()):
        with pytest.raises(UnavailableError, match=r"not known yet: servers: .*no such kind"):
            await mirror.objects("default")


async def test_an_object_that_cannot_be_read_is_mirrored_with_its_problem() -> None:
    cluster = cluster_of({**server("S"), "spec": {}})
    objects = Informers(cluster).subscribe(map(kind_of, RESOURCES))
    mirror = Mirrored(objects)
    async with in_background(objects.run()):
        (seen,) = await mirror.objects("default")

    assert seen.resource is None
    assert seen.problem
