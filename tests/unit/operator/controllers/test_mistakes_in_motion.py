"""A person makes a mistake while replicas move: what serves stays, and somebody says what to do."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta

import pytest

from inferno_operator.controllers.planning.controller import (
    OptimizationController,
    PlansController,
    ServerCheck,
)
from inferno_operator.controllers.planning.ports import OnDemand
from inferno_operator.controllers.planning.snapshot import build_system
from inferno_operator.controllers.scaling.controller import ScalingController
from inferno_operator.resources.objects import Key, Kind, Manifest, kind_of
from inferno_operator.runtime.informers import Informers
from inferno_operator.runtime.steady_clock import SteadyClock
from tests.fakes import DEPLOYMENT, FakeCluster
from tests.tiers import extended
from tests.unit.operator import objects
from tests.unit.operator.background import in_background, started
from tests.unit.operator.controllers.planning.scene import TypedLoads, context_of
from tests.unit.operator.controllers.scaling.workloads.test_controller import (
    Scene,
    reported,
    set_by_hand,
    workload,
)

RUNS, GOES_TO = 6, 3
"""Replicas on A, and those on B that carry as much."""

INTERVAL_S = 30
PATIENCE_S = 240.0
"""How long the operator waits for a pod that finds no node."""

LATE_S = 60.0
"""How long a pod waits for a node that comes."""

LONG_S = 700.0
"""Longer than any pause of the operator."""


async def key() -> bytes:
    """The key of the operator."""
    return b"k"


class Cluster(FakeCluster):
    """A cluster in which the load stays that a person typed in `currentAlloc`, as of an apply."""

    async def apply(
        self, kind: Kind, manifest: Manifest, manager: str, *, force: bool = True
    ) -> Manifest:
        current = manifest.get("spec", {}).get("currentAlloc")
        if current is not None:
            typed = self.objects[kind.kind, Key.of(manifest)]["spec"]["currentAlloc"]["load"]
            spec = {**manifest["spec"], "currentAlloc": {"load": typed, **current}}
            manifest = {**manifest, "spec": spec}
        return await super().apply(kind, manifest, manager, force=force)


class Moving(Scene):
    """Server S runs on A, and is to move to B, where a replica carries twice and costs less."""

    def __init__(self) -> None:
        super().__init__(a=8, b=4, cluster=Cluster())
        self.ahead_h = 0.0
        """By how much the clock of the operator is ahead of that of the cluster."""
        data = [objects.performance("A"), objects.performance("B", alpha=499.5, beta=0)]
        self.cluster.add(objects.model("M", data))
        self.add("S", workload("A", "a"), workload("B", "b"), load=RUNS)
        self.deploy("a", RUNS)
        self.deploy("b")
        optimizer = objects.optimizer(optimize=False)
        optimizer["spec"]["interval"] = INTERVAL_S
        self.cluster.add(optimizer)
        self.least = RUNS

    def operators_time(self) -> datetime:
        """The time of day as the operator has it."""
        return self.now() + timedelta(hours=self.ahead_h)

    def ready(self, name: str) -> int:
        """The pods that serve."""
        return sum(
            pod["status"]["conditions"][0]["status"] == "True"
            for pod in self.pods(name)
            if "deletionTimestamp" not in pod["metadata"]
        )

    def start(self, pods: Iterable[Manifest]) -> None:
        """Let pods be ready now."""
        for pod in pods:
            ready = {"type": "Ready", "status": "True", "lastTransitionTime": self.time()}
            self.cluster.add({**pod, "status": {"phase": "Running", "conditions": [ready]}})

    async def watch(self) -> None:
        """Note the least that serves at any time, in replicas on A."""
        while True:
            self.least = min(self.least, self.ready("a") + 2 * self.ready("b"))
            await asyncio.sleep(0.5)

    def told(self) -> str:
        """All that the conditions and events of all objects say that is not well."""
        statuses = (m.get("status", {}) for m in self.cluster.objects.values())
        found = (c for s in statuses for c in s.get("conditions", ()))
        conditions = (c for c in found if {"reason", "message"} <= c.keys())
        events = [event.message for event in self.cluster.events]
        return "\n".join(
            [*(f"{c['type']} {c['reason']} {c['message']}" for c in conditions), *events]
        )

    def change(self, kind: str, name: str, **spec: object) -> None:
        """Change fields of a spec, as a person does."""
        stored = self.cluster.objects[kind, Key("default", name)]
        self.cluster.add({**stored, "spec": {**stored["spec"], **spec}})

    def delete(self, kind: str, name: str) -> None:
        """Delete an object, as a person does."""
        stored = self.cluster.objects[kind, Key("default", name)]
        self.cluster.remove(kind_of(objects.kind_of(stored)), Key("default", name))

    def ask(self, *requests: bool) -> None:
        """Ask for a plan, or take it back, again and again."""
        for optimize in requests:
            self.change("Optimizer", "inferno", optimize=optimize)

    def places(self) -> tuple[int, int]:
        """The replicas that both Deployments ask for; -1 for one that does not exist."""
        known = self.cluster.objects
        a, b = (
            self.replicas(name) if ("Deployment", Key("default", name)) in known else -1
            for name in "ab"
        )
        return a, b


@asynccontextmanager
async def half_done(
    serving: int = 0, ahead_h: float = 0.0, scene: Moving | None = None
) -> AsyncGenerator[Moving]:
    """A move for which the new pods have just been created, and so many of them serve.

    The clock of the operator is so many hours ahead of that of the cluster.
    """
    scene = scene or Moving()
    scene.ahead_h = ahead_h
    async with in_background(scene.live(), scene.watch()), operator(scene):
        await scene.until(lambda: scene.replicas("b") == GOES_TO)
        await scene.until(lambda: len(scene.pods("b")) == GOES_TO)
        scene.start(scene.pods("b")[:serving])
        await scene.until(lambda: reported(scene).get("B", 0) == serving)
        assert (scene.replicas("a"), scene.ready("b")) == (RUNS, serving)
        yield scene


@asynccontextmanager
async def operator(scene: Moving) -> AsyncGenerator[None]:
    """An operator on a scene."""
    cluster, now = scene.cluster, scene.operators_time
    steady = SteadyClock(now, asyncio.get_running_loop().time)
    informers, source, loads = Informers(cluster), OnDemand(cluster), TypedLoads()
    plans = PlansController(cluster, informers, source, loads, now, key)
    context = context_of(
        cluster,
        now=now,
        steady=steady,
        approver=plans.approver,
        locks=plans.locks,
        writes=plans.writes,
    )
    controllers = (
        plans,
        OptimizationController(context, informers),
        ServerCheck(cluster, informers, source, now, plans.locks),
        ScalingController(cluster, informers, lambda r: build_system(r).system, steady),
    )
    async with started(*controllers):
        yield


def cards(a: int, b: int) -> list[Manifest]:
    """The counts of a Capacity."""
    return [{"type": "A", "count": a}, {"type": "B", "count": b}]


@dataclass(frozen=True)
class Mistake:
    """What a person does, what is told of it, and where the Server ends.

    `ends` has the replicas on A and B after a long time, `least` the fewest that served at any
    time, in replicas on A. Without `undo` nothing is to be corrected.
    """

    make: Callable[[Moving], object]
    words: str
    ends: tuple[int, int]
    undo: Callable[[Moving], object] | None = None
    least: int = RUNS


STAYS, ARRIVES, TURNS_BACK = (RUNS, GOES_TO), (0, GOES_TO), (RUNS, 0)

MISTAKES = {
    "the Server is deleted": Mistake(
        lambda s: s.delete("Server", "s"),
        "its Servers were deleted: s; their replicas stay as they are",
        STAYS,
    ),
    "the Server names another model": Mistake(
        lambda s: s.change("Server", "s", model="N"),
        "no model with performance data is named 'N'; correct it or add the model",
        STAYS,
        lambda s: s.change("Server", "s", model="M"),
    ),
    "the accelerator is deleted": Mistake(
        lambda s: s.delete("Accelerator", "b"),
        "no accelerator is named 'B' (known: A); what runs stays",
        STAYS,
        lambda s: s.add_accelerator("B"),
    ),
    "one card fewer than the move takes": Mistake(
        lambda s: s.change("Capacity", "cards", count=cards(8, GOES_TO - 1)),
        "Allocated 6 x A",
        TURNS_BACK,
        lambda s: s.change("Capacity", "cards", count=cards(8, 4)),
    ),
    "the type of the cards is mistyped": Mistake(
        lambda s: s.change("Capacity", "cards", count=[{"type": "A", "count": 8}]),
        "no Capacity lists card type 'B'",
        STAYS,
        lambda s: s.change("Capacity", "cards", count=cards(8, 4)),
    ),
    "what is left is scaled up by hand": Mistake(
        lambda s: set_by_hand(s, "a", RUNS + 1), "Actuated 3 x B", ARRIVES
    ),
    "the Deployment that it goes to is deleted": Mistake(
        lambda s: s.cluster.remove(DEPLOYMENT, Key("default", "b")),
        "Deployment 'b' does not exist: create it, or correct spec.workloads",
        (RUNS, -1),
        lambda s: s.deploy("b"),
    ),
    "the model of a target is mistyped": Mistake(
        lambda s: s.change("ServiceClass", "c", data=[{"model": "m"}]),
        "class 'C' has no targets for model 'M'; add them; did you mean m?",
        STAYS,
        lambda s: s.change("ServiceClass", "c", data=[{"model": "M"}]),
    ),
    "a target is out of reach": Mistake(
        lambda s: s.change("ServiceClass", "c", data=[{"model": "M", "slo-itl": 0.01}]),
        "slo-itl of 0.01 ms is out of reach at any number of replicas",
        STAYS,
        lambda s: s.change("ServiceClass", "c", data=[{"model": "M"}]),
    ),
    "a priority is mistyped": Mistake(
        lambda s: s.change("ServiceClass", "c", priority=0),
        "priority: 0 counts as 100, the least important; give 1 (the most important) to 100",
        ARRIVES,
    ),
    "the Optimizer is deleted": Mistake(
        lambda s: s.delete("Optimizer", "inferno"),
        "the last decision stays in force; create an Optimizer to resume planning",
        ARRIVES,
    ),
    "a plan is asked for twice": Mistake(
        lambda s: s.ask(True, False, True),
        "Actuated 3 x B",
        ARRIVES,
    ),
    "the Plan is deleted": Mistake(lambda s: s.delete("Plan", "inferno-1"), "3 x B", ARRIVES),
}


@pytest.mark.parametrize("ahead_h", [-1.0, 0.0, 1.0])
async def test_without_a_mistake_the_server_arrives_whatever_the_clock_of_the_operator(
    ahead_h: float,
) -> None:
    async with half_done(ahead_h=ahead_h) as scene:
        await scene.until(lambda: scene.places() == ARRIVES)
        await scene.until(lambda: scene.reason() == "Actuated")
        assert scene.least == RUNS


async def get_a_node_late(scene: Moving) -> None:
    """Nobody gives up the pods on B, which get a node after some time; then all have moved."""
    await asyncio.sleep(LATE_S)
    assert scene.replicas("b") == GOES_TO
    scene.unstarted.clear()
    for pod in scene.pods("b"):
        scene.cluster.add({**pod, "spec": {"nodeName": "n"}})
    await scene.until(lambda: scene.places() == ARRIVES)


@pytest.mark.parametrize("ahead_h", [-1.0, 0.0, 1.0])
async def test_pods_that_get_a_node_late_are_not_given_up_by_a_clock_that_is_ahead(
    ahead_h: float,
) -> None:
    """As with a scheduler that is busy, or a node that comes."""
    scene = Moving()
    scene.unstarted.add("b")
    async with half_done(ahead_h=ahead_h, scene=scene):
        await get_a_node_late(scene)

        assert scene.least == RUNS


@pytest.mark.parametrize("ahead_h", [-1.0, 0.0, 1.0])
async def test_pods_that_get_no_node_are_given_up_whatever_the_clock_of_the_operator(
    ahead_h: float,
) -> None:
    scene = Moving()
    scene.unstarted.add("b")
    async with half_done(ahead_h=ahead_h, scene=scene):
        await asyncio.sleep(PATIENCE_S - 10)
        assert scene.replicas("b") == GOES_TO
        await asyncio.sleep(20)

        assert scene.replicas("b") == 0
        assert scene.reason() == "Blocked"
        assert scene.least == RUNS


@pytest.mark.parametrize(
    "serving", [0, *extended(1)], ids=["none serves yet", "the first one serves"]
)
@pytest.mark.parametrize("what", MISTAKES)
async def test_a_mistake_takes_nothing_away_that_serves_and_is_told(
    what: str, serving: int
) -> None:
    await endures(MISTAKES[what], serving)


async def endures(mistake: Mistake, serving: int) -> None:
    """A mistake while so many of the new pods serve: nothing goes, it is told, and mended."""
    async with half_done(serving) as scene:
        mistake.make(scene)
        await asyncio.sleep(LONG_S)

        assert mistake.words in scene.told()
        assert (scene.places(), scene.least) == (mistake.ends, mistake.least)

        if mistake.undo is not None:
            mistake.undo(scene)
            await scene.until(lambda: scene.places() == ARRIVES)
            await scene.until(lambda: scene.reason() == "Actuated")

            assert scene.least == mistake.least
