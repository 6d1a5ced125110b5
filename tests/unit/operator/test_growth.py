"""The work of all controllers together grows with the number of objects, not with its square."""

import asyncio
import sys
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from datetime import datetime, timedelta
from math import inf
from types import FrameType
from typing import Any

import pytest

from inferno_operator.adapters.http.metrics import OperatorMetrics
from inferno_operator.composition import Components, compose
from inferno_operator.controllers.scaling.publication import Publication
from inferno_operator.controllers.scaling.steps import ReplicaTarget, ServerTargets, next_steps
from inferno_operator.resources import Optimizer, Server
from inferno_operator.resources.objects import Kind
from inferno_operator.runtime.informers import Informers
from inferno_operator.runtime.manager import Watcher
from inferno_operator.runtime.observer import Observer
from inferno_operator.runtime.ports import Listing
from inferno_operator.runtime.write_guard import GuardedCluster
from inferno_operator.settings import Settings
from tests import fakes
from tests.bench.library import SEED
from tests.bench.manifests import manifests
from tests.controlplane.deployments import deployment
from tests.fakes import FakeCluster, FakeOptimizer
from tests.generate import fleet
from tests.unit.operator import objects
from tests.unit.operator.objects import NOW, Manifest

TIMES = 10
"""How many times as many Servers there are."""

LIMIT = 1.2 * TIMES
"""How many times as much work that may be; the square would be 100 times as much."""

OF_PLAN, OF_CHANGES = 120.0, 60.0
"""Seconds of virtual time in which everything has settled."""

OPERATOR = "inferno_operator"


ACCELERATORS = tuple(
    item["name"] for item in fleet(1, 4, SEED, 1.5)["system"]["acceleratorData"]["accelerators"]
)
"""The names of the accelerators of a fleet."""


class Work:
    """Counts what the operator's own code does: calls, and lines that are run."""

    def __init__(self) -> None:
        self.steps = 0

    def start(self, frame: FrameType, event: str, argument: object) -> Any:  # noqa: ANN401
        """Count a call, and ask for the lines of the function if it is the operator's."""
        del event, argument
        name = str(frame.f_globals.get("__name__"))
        if not name.startswith(OPERATOR) or name == fakes.__name__:
            return None
        self.steps += 1
        return self._line

    def _line(self, frame: FrameType, event: str, argument: object) -> Any:  # noqa: ANN401
        del frame, event, argument
        self.steps += 1
        return self._line


@contextmanager
def counted() -> Iterator[Work]:
    """Count what is done meanwhile."""
    work, before = Work(), sys.gettrace()
    sys.settrace(work.start)
    try:
        yield work
    finally:
        sys.settrace(before)


def bare(name: str) -> Manifest:
    """What a Server names besides its class and its model: nothing."""
    del name
    return {}


def booster(name: str) -> Manifest:
    """A ModelBooster of its own, which does not exist."""
    return {"modelBooster": {"name": name, "backends": [{"name": "b", "accelerator": "L4"}]}}


def workload(name: str) -> Manifest:
    """A workload of its own, which does not exist."""
    return {"workloads": [{"name": name, "accelerator": "L4"}]}


def deployed(name: str) -> Manifest:
    """A Deployment of its own on each accelerator."""
    accelerators = enumerate(ACCELERATORS)
    return {"workloads": [{"name": f"{name}-{n}", "accelerator": a} for n, a in accelerators]}


def autoscaled(name: str) -> Manifest:
    """A Deployment of its own on each accelerator, which an autoscaler scales."""
    return deployed(name)


def one_workload(name: str) -> Manifest:
    """A workload, if it is the first Server."""
    return workload(name) if name == "server-00000" else {}


def measured(name: str) -> Manifest:
    """Labels of its own, without a Prometheus."""
    return {"measure": {"source": "vLLM", "labels": {"model_name": name}}}


class CountingCluster(FakeCluster):
    """Counts what a real API server would be asked for.

    Attributes
    ----------
    lists
        How many objects were listed, by kind.
    """

    def __init__(self) -> None:
        super().__init__()
        self.lists: Counter[str] = Counter()

    async def list(self, kind: Kind, namespace: str) -> Listing:
        found = await super().list(kind, namespace)
        self.lists[kind.kind] += len(found.manifests)
        return found


class Scene:
    """All controllers at work on a fleet.

    Attributes
    ----------
    cluster
        The API server.
    """

    def __init__(self, servers: int, names: Callable[[str], Manifest], environment: str) -> None:
        self.cluster = CountingCluster()
        document = fleet(servers, 4, SEED, 1.5)
        document["system"]["optimizerData"] = {"optimizer": {"unlimited": True}}
        for manifest in manifests(document):
            more = names(manifest["metadata"]["name"]) if manifest["kind"] == Server.kind else {}
            place = self.cluster.add({**manifest, "spec": {**manifest["spec"], **more}})
            for item in more.get("workloads", ()) if names in (deployed, autoscaled) else ():
                self.cluster.add(deployment(item["name"]), place.namespace)
                if names is autoscaled:
                    self.cluster.add(
                        objects.autoscaler(item["name"], item["name"]), place.namespace
                    )
        guard = GuardedCluster(self.cluster, lambda: inf, Observer(), lambda: 0.0)
        informers = Informers(guard)
        parts = Components(
            guard, informers, FakeOptimizer(), OperatorMetrics(), None, None, now, now, key
        )
        settings = Settings.from_environment({"INFERNO_STATELESS": environment})
        self._controllers = compose(settings, parts).all
        self._publication = Publication(guard, informers)

    async def work(self) -> None:
        """Optimize, and then change each Server from outside."""
        async with self.running():
            await self.optimize()
            for server in self._stored(Server.kind):
                self._change(server, minNumReplicas=1)
                await asyncio.sleep(0)  # a change of its own for all who watch
            await asyncio.sleep(OF_CHANGES)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Run all controllers meanwhile."""
        watchers: tuple[Watcher, ...] = (*self._controllers, self._publication)
        tasks = [asyncio.create_task(watcher.run()) for watcher in watchers]
        try:
            yield
        finally:
            for controller in self._controllers:
                await controller.stop()
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)

    async def optimize(self) -> None:
        """Ask for a plan, and wait until it is carried out."""
        await asyncio.sleep(OF_CHANGES)
        (optimizer,) = self._stored(Optimizer.kind)
        self._change(optimizer, optimize=True)
        await asyncio.sleep(OF_PLAN)
        (optimizer,) = self._stored(Optimizer.kind)
        assert not optimizer["spec"]["optimize"]

    def _stored(self, kind: str) -> list[Manifest]:
        return [stored for stored in self.cluster.objects.values() if stored["kind"] == kind]

    def _change(self, stored: Manifest, **spec: object) -> None:
        self.cluster.add({**stored, "spec": {**stored["spec"], **spec}})


def now() -> datetime:
    """A clock that moves with the loop."""
    return NOW + timedelta(seconds=asyncio.get_running_loop().time())


async def key() -> bytes:
    return b"the key of the test"


async def work_of(scene: Scene) -> int:
    """How much all controllers do."""
    with counted() as work:
        await scene.work()
    return work.steps


@pytest.mark.slow
@pytest.mark.parametrize(
    ("few", "names", "stateless"),
    [
        pytest.param(100, bare, "true", id="stateless", marks=pytest.mark.extended),
        pytest.param(20, bare, "false", id="stateful"),
        pytest.param(10, booster, "true", id="boosters", marks=pytest.mark.extended),
        pytest.param(10, workload, "true", id="workloads", marks=pytest.mark.extended),
        pytest.param(10, deployed, "true", id="deployments", marks=pytest.mark.extended),
        pytest.param(10, autoscaled, "true", id="autoscalers", marks=pytest.mark.extended),
        pytest.param(20, one_workload, "true", id="one workload", marks=pytest.mark.extended),
        pytest.param(20, measured, "true", id="measured", marks=pytest.mark.extended),
    ],
)
async def test_ten_times_the_servers_are_ten_times_the_work(
    few: int, names: Callable[[str], Manifest], stateless: str
) -> None:
    work = await work_of(Scene(few, names, stateless))
    more = await work_of(Scene(few * TIMES, names, stateless))

    assert more < LIMIT * work


def test_the_next_steps_of_ten_times_the_servers_that_shrink_are_ten_times_the_work() -> None:
    target = ReplicaTarget("A", "A", cards=1, wanted=0, spec=1, live=1, ready=1)

    def work_of_steps(servers: int) -> int:
        shrinking = [ServerTargets(f"s{n}", 1, 0.0, (target,)) for n in range(servers)]
        with counted() as work:
            assert len(next_steps(shrinking, {"A": servers}).replicas) == servers
        return work.steps

    assert work_of_steps(100 * TIMES) < LIMIT * work_of_steps(100)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("names", "most"),
    [
        pytest.param(bare, 2, id="decided"),  # the decision, and what is said of it
        pytest.param(deployed, 5, id="scaled"),  # and: scaled, how far it is, what runs
    ],
)
async def test_a_plan_takes_few_writes_and_reads_of_each_server(
    names: Callable[[str], Manifest], most: int
) -> None:
    servers = 50
    scene = Scene(servers, names, "true")
    async with scene.running():
        await asyncio.sleep(OF_CHANGES)
        scene.cluster.writes.clear()
        scene.cluster.lists.clear()
        await scene.optimize()

    about = [write for write in scene.cluster.writes if " server-" in write]
    assert 2 * servers <= len(about) <= most * servers
    assert scene.cluster.lists[Server.kind] <= 4 * servers
