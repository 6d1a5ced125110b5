"""The controller of workloads with a cluster in memory and pods that start and end."""

import asyncio
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from datetime import timedelta
from functools import partial
from typing import Any

import pytest

from inferno_operator.controllers.planning.snapshot import build_system
from inferno_operator.controllers.scaling.controller import ScalingController
from inferno_operator.controllers.scaling.reconcile import Context, reconcile
from inferno_operator.controllers.scaling.scaled_server import Supply
from inferno_operator.controllers.scaling.world import WorkloadObjects
from inferno_operator.resources import Optimizer
from inferno_operator.resources.conditions import ALLOCATED
from inferno_operator.resources.dialects import DIALECTS, Dialect
from inferno_operator.resources.objects import EVENTS, POD, Key, Kind, kind_of
from inferno_operator.runtime.informers import Informers
from inferno_operator.runtime.ports import RejectedError, Scale, Served, StaleError
from inferno_optimizer.solution import IDLE
from tests.fakes import DEPLOYMENT, FakeCluster
from tests.unit.operator import objects
from tests.unit.operator.background import in_background, started
from tests.unit.operator.controllers.scaling.scene import PATIENCE_S, ClusterScene
from tests.unit.operator.controllers.scaling.workloads.late import LateCluster

Manifest = dict[str, Any]

START_SECONDS = 60.0
END_SECONDS = 10.0
NO_NODE = {
    "type": "PodScheduled",
    "status": "False",
    "reason": "Unschedulable",
    "message": "0/4 nodes are available: 4 Insufficient nvidia.com/gpu.",
}


def deployment(name: str, replicas: int = 0, **metadata: object) -> Manifest:
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name, **metadata},
        "spec": {"replicas": replicas, "selector": {"matchLabels": {"app": name}}},
    }


def workload(accelerator: str, name: str, **fields: str) -> Manifest:
    return {"accelerator": accelerator, "name": name, **fields}


class Scene(ClusterScene):
    """A namespace with cards of types A and B, and servers on Deployments."""

    def __init__(self, a: int = 4, b: int = 4, cluster: FakeCluster | None = None) -> None:
        super().__init__(cluster)
        for name in ("A", "B"):
            self.add_accelerator(name)
        self.cluster.add(objects.model("M", [objects.performance("A"), objects.performance("B")]))
        self.cluster.add(objects.service_class())
        self.add_cards(A=a, B=b)
        self.unstarted: set[str] = set()
        """Deployments whose pods find no node."""
        self.refused: set[str] = set()
        """Deployments whose pods the API server refuses."""
        self.gated: dict[str, str] = {}
        """The scheduling gate of the pods of Deployments."""
        self.surplus: dict[str, int] = {}
        """Pods that rollouts create in addition, by Deployment."""
        self._count = 0

    def add(self, name: str, *workloads: Manifest, load: int = 1, **spec: object) -> None:
        """A Server whose present load takes so many replicas."""
        current = objects.running(0, load)
        fields = {"workloads": list(workloads), "currentAlloc": current, **spec}
        self.cluster.add(objects.server(name, spec=fields))

    def decide(self, server: str, reason: str = "Allocated", **replicas: int) -> None:
        """Write the decision on a Server."""
        stored = self.server(server.lower())
        mix = [{"accelerator": a, "numReplicas": n} for a, n in replicas.items() if n]
        whole = {"accelerator": "", "numReplicas": 0, **(mix[0] if mix else {}), "mix": mix}
        condition = {
            "type": ALLOCATED,
            "status": "True" if mix else "False",
            "reason": reason,
            "message": "" if mix else IDLE,
            "observedGeneration": stored["metadata"]["generation"] + 1,
            "lastTransitionTime": self.time(),
        }
        others = [
            c for c in stored.get("status", {}).get("conditions", ()) if c["type"] != ALLOCATED
        ]
        spec = {**stored["spec"], "desiredAlloc": whole}
        status = {**stored.get("status", {}), "conditions": [*others, condition]}
        self.cluster.add({**stored, "spec": spec, "status": status})

    def deploy(self, name: str, replicas: int = 0) -> None:
        """A Deployment whose pods are all ready."""
        self.cluster.add(deployment(name, replicas))
        for _ in range(replicas):
            self._pod(name, ready=True)

    def pods(self, name: str) -> list[Manifest]:
        return [
            pod
            for (kind, _), pod in self.cluster.objects.items()
            if kind == "Pod" and pod["metadata"]["labels"]["app"] == name
        ]

    def replicas(self, name: str) -> int:
        replicas: int = self.cluster.objects["Deployment", Key("default", name)]["spec"]["replicas"]
        return replicas

    def is_moving(self, server: str) -> bool:
        return self.reason(server) == "Moving"

    async def live(self) -> None:
        """Create and delete pods as the Deployments ask, start them, and let them end."""
        while True:
            for (kind, key), stored in list(self.cluster.objects.items()):
                if kind == "Deployment" and key.name not in self.refused:
                    more = self.surplus.get(key.name, 0)
                    self._synchronize(key.name, stored["spec"]["replicas"] + more)
            for pod in [p for k, p in self.cluster.objects.items() if k[0] == "Pod"]:
                self._advance(pod)
            await asyncio.sleep(1)

    def _synchronize(self, name: str, wanted: int) -> None:
        live = [p for p in self.pods(name) if "deletionTimestamp" not in p["metadata"]]
        for _ in range(wanted - len(live)):
            self._pod(name, ready=False)
        for pod in sorted(live, key=_is_ready)[: max(len(live) - wanted, 0)]:
            pod["metadata"]["deletionTimestamp"] = self.time(END_SECONDS)
            self.cluster.add(pod)

    def _advance(self, pod: Manifest) -> None:
        metadata = pod["metadata"]
        if metadata.get("finalizers"):
            return
        if "deletionTimestamp" in metadata and metadata["deletionTimestamp"] < self.time():
            self.cluster.remove(POD, Key.of(pod))
        elif (
            metadata["labels"]["app"] in self.unstarted | self.gated.keys()
            or _is_ready(pod)
            or not pod["spec"].get("nodeName")
        ):
            return
        elif metadata["creationTimestamp"] < self.time(-START_SECONDS):
            pod["status"] = _status(ready=True, since=self.time())
            self.cluster.add(pod)

    def add_waiting(self, name: str, **metadata: object) -> None:
        """Add a pod of a Deployment that finds no node."""
        self._pod(name, ready=False, **metadata)

    def _pod(self, name: str, *, ready: bool, **more: object) -> None:
        self._count += 1
        metadata = {
            **more,
            "name": f"{name}-{self._count}",
            "labels": {"app": name},
            "creationTimestamp": self.time(),
            "uid": f"{name}-{self._count}",
        }
        status = _status(ready=ready, since=self.time())
        spec: Manifest = {"nodeName": "n"}
        if ready:
            pass
        elif name in self.gated:
            spec = {"schedulingGates": [{"name": self.gated[name]}]}
            status["conditions"].append({**NO_NODE, "reason": "SchedulingGated"})
        elif name in self.unstarted:
            spec = {}
            status["conditions"].append(NO_NODE)
        self.cluster.add({"kind": "Pod", "metadata": metadata, "spec": spec, "status": status})


def one_server(
    replicas: int,
    *,
    decided: int | None = None,
    load: int = 1,
    a: int = 4,
    cluster: FakeCluster | None = None,
    **spec: object,
) -> Scene:
    """Server S on Deployment a, which has replicas that are ready, and so many are decided."""
    scene = Scene(a, cluster=cluster)
    scene.add("S", workload("A", "a"), load=load, **spec)
    scene.deploy("a", replicas)
    if decided is not None:
        scene.decide("S", A=decided)
    return scene


def _status(*, ready: bool, since: str) -> Manifest:
    condition = {"type": "Ready", "status": str(ready), "lastTransitionTime": since}
    return {"phase": "Running", "conditions": [condition]}


def _is_ready(pod: Manifest) -> bool:
    return bool(pod["status"]["conditions"][0]["status"] == "True")


@asynccontextmanager
async def running(scene: Scene) -> AsyncGenerator[ScalingController]:
    controller = scene.controller()
    async with in_background(scene.live()), started(controller):
        yield controller


async def test_a_decision_reaches_the_deployment_and_what_runs_comes_back() -> None:
    scene = one_server(0, decided=2)

    async with running(scene):
        await scene.until(lambda: scene.reason() == "Moving")
        await scene.until(lambda: scene.reason() == "Actuated")
        await scene.until(lambda: len(scene.cluster.events) == 2)
    current = scene.server()["spec"]["currentAlloc"]

    assert scene.replicas("a") == 2
    assert (current["accelerator"], current["numReplicas"], current["cost"]) == ("A", 2, 20)
    assert [event.reason for event in scene.cluster.events] == ["Moving", "Actuated"]


def reported(scene: Scene, server: str = "s") -> dict[str, int]:
    """The replicas that run by accelerator, as the Server has them."""
    current = scene.server(server)["spec"]["currentAlloc"]
    return {part["accelerator"]: part["numReplicas"] for part in current.get("mix") or [current]}


def names_no_more(scene: Scene, *workloads: Manifest) -> None:
    """Change the workloads of the Server."""
    stored = scene.server()
    generation = stored["metadata"]["generation"] + 1
    metadata = {**stored["metadata"], "generation": generation}
    spec = {**stored["spec"], "workloads": list(workloads)}
    scene.cluster.add({**stored, "metadata": metadata, "spec": spec})


async def test_pods_that_the_api_server_refuses_are_told_in_its_words() -> None:
    scene = one_server(1, decided=3)
    words = "exceeded quota: q"
    refusal = f'pods "a-2" is forbidden: {words}'
    failure = {"type": "ReplicaFailure", "status": "True", "message": refusal}
    stored = scene.cluster.objects["Deployment", Key("default", "a")]
    scene.cluster.add({**stored, "status": {"conditions": [failure]}})
    scene.refused.add("a")

    async with running(scene):
        await scene.until(lambda: words in scene.condition()["message"])
        await scene.until(lambda: scene.reason() == "Blocked")

    assert f"1 x A (3 wanted); not ready: 2 x {words}" in scene.condition()["message"]
    assert scene.replicas("a") == 3


@pytest.mark.parametrize("is_running", [True, False], ids=["at once", "after a restart"])
async def test_a_workload_that_is_named_no_more_is_counted_until_it_has_no_replicas(
    is_running: bool,
) -> None:
    scene = one_server(3, decided=3)
    scene.deploy("b")
    other = {"kind": "Deployment", "name": "a", "accelerator": "A"}

    async with running(scene):
        await scene.until(lambda: scene.reason() == "Actuated")
        assert [w["name"] for w in scene.server()["status"]["workloads"]] == ["a"]
        if is_running:
            names_no_more(scene, workload("B", "b"))
            await scene.until(lambda: "spec.workloads any more" in scene.condition()["message"])
    if not is_running:
        names_no_more(scene, workload("B", "b"))
    scene.add("T", workload("A", "t"), load=1)
    scene.deploy("t")
    scene.decide("T", A=2)

    async with running(scene):
        await scene.until(lambda: scene.reason("t") == "NoRoom")
        assert scene.replicas("t") == 1  # of four cards
        assert reported(scene) == {"A": 3}
        stored = scene.cluster.objects["Deployment", Key("default", other["name"])]
        scene.cluster.add({**stored, "spec": {**stored["spec"], "replicas": 0}})
        await scene.until(lambda: scene.replicas("t") == 2)
        await scene.until(lambda: "any more" not in scene.condition()["message"])

    assert not sum(reported(scene).values())


async def test_a_workload_that_another_server_names_is_of_that_server() -> None:
    scene = one_server(3, decided=3)
    scene.deploy("b")

    async with running(scene):
        await scene.until(lambda: scene.reason() == "Actuated")
        names_no_more(scene, workload("B", "b"))
        scene.add("T", workload("A", "a"), load=3)
        scene.decide("T", A=3)
        await scene.until(lambda: scene.reason("t") == "Actuated")
        await scene.until(lambda: "any more" not in scene.condition()["message"])

    assert reported(scene, "t") == {"A": 3}
    assert not sum(reported(scene).values())


async def test_a_workload_in_place_of_another_one_gets_the_replicas_beside_it() -> None:
    scene = one_server(1, decided=1)
    scene.deploy("new")

    async with running(scene):
        await scene.until(lambda: scene.reason() == "Actuated")
        names_no_more(scene, workload("A", "new"))
        await scene.until(lambda: reported(scene) == {"A": 2})

    assert (scene.replicas("a"), scene.replicas("new")) == (1, 1)


@pytest.mark.parametrize("cached", [60, 0])
async def test_replicas_that_have_just_started_are_told_where_prompts_are_cached(
    cached: int,
) -> None:
    scene = Scene()
    load = {"arrivalRate": 30, "avgInTokens": 100, "avgOutTokens": 1, "cachedTokens": cached}
    scene.add("S", workload("A", "a"))
    stored = scene.server()
    measured = {"time": scene.time(), "quality": "Fresh", "load": load}
    scene.cluster.add({**stored, "status": {"measured": measured}})
    scene.deploy("a", 1)
    scene.decide("S", A=1)

    def told() -> tuple[int, int]:
        current = scene.server()["spec"]["currentAlloc"]
        return current["numReplicas"], current.get("coldReplicas", 0)

    async with running(scene):
        await scene.until(lambda: told() == (1, 1 if cached else 0))
        await asyncio.sleep(590)
        assert told() == (1, 1 if cached else 0)
        scene.decide("S", A=2)
        await scene.until(lambda: told()[0] == 2)
        assert told() == (2, 1 if cached else 0)  # the first one is warm
        started = scene.now()
        await scene.until(lambda: told() == (2, 0))

    assert not cached or scene.now() - started == pytest.approx(
        timedelta(minutes=10), abs=timedelta(seconds=5)
    )


@pytest.mark.extended
async def test_of_very_many_servers_that_move_no_one_gets_an_event() -> None:
    scene = Scene(a=2 * EVENTS)
    for number in range(EVENTS + 1):
        scene.add(f"S{number}", workload("A", f"a{number}"))
        scene.deploy(f"a{number}")
        scene.decide(f"S{number}", A=1)

    async with running(scene):
        await scene.until(lambda: scene.reason(f"s{EVENTS}") == "Actuated")

    assert not any(event.reason == "Moving" for event in scene.cluster.events)


async def test_numbers_of_replicas_are_written_before_reports_while_a_plan_arrives() -> None:
    scene = Scene()
    for name in ("S", "T"):
        scene.add(name, workload("A", name.lower()))
        scene.deploy(name.lower())
    scene.decide("S", A=2)
    undecided = scene.server("t")
    allocation = {"accelerator": "A", "numReplicas": 1}
    stale = {"type": ALLOCATED, "status": "False", "reason": "NoCapacity", "message": ""}
    stale["lastTransitionTime"] = scene.time()
    spec = {**undecided["spec"], "desiredAlloc": allocation}
    scene.cluster.add({**undecided, "spec": spec, "status": {"conditions": [stale]}})

    async with running(scene):
        await scene.until(lambda: scene.replicas("s") == 2)
        first = list(scene.cluster.writes)
        await scene.until(lambda: scene.reason() == "Moving")

    assert not [write for write in first if "Server" in write]


@pytest.mark.extended
async def test_a_plan_of_very_many_servers_that_arrives_in_parts_makes_no_event_for_each() -> None:
    scene = Scene(a=2 * EVENTS)
    first = [f"s{number}" for number in range(EVENTS - 100)]
    second = [f"t{number}" for number in range(200)]
    for name in (*first, *second):
        scene.add(name.upper(), workload("A", f"d-{name}"))
        scene.deploy(f"d-{name}")

    async with running(scene):
        for names in (first, second):
            for name in names:
                scene.decide(name.upper(), A=1)
            await scene.until(partial(scene.is_moving, names[-1]))
        await scene.until(lambda: scene.reason(second[-1]) == "Actuated")

    moving = [e.about.key.name for e in scene.cluster.events if e.reason == "Moving"]
    assert sorted(moving) == sorted(first)


class ReadCluster(FakeCluster):
    """Counts the scale subresources that are read."""

    scales = 0

    async def scale(self, kind: Kind, key: Key) -> Scale:
        """Return the scale subresource."""
        self.scales += 1
        return await super().scale(kind, key)


@pytest.mark.parametrize(("expressions", "is_read"), [([], False), (["tier"], True)])
async def test_the_number_of_a_deployment_is_read_only_if_its_watch_does_not_tell_it(
    expressions: list[str], *, is_read: bool
) -> None:
    cluster = ReadCluster()
    scene = one_server(1, cluster=cluster)
    stored = cluster.objects["Deployment", Key("default", "a")]
    keys = [{"key": key, "operator": "DoesNotExist"} for key in expressions]
    stored["spec"]["selector"]["matchExpressions"] = keys
    scene.decide("S", A=3)

    async with running(scene):
        await scene.until(lambda: scene.reason() == "Actuated")
    current = scene.server()["spec"]["currentAlloc"]

    assert current["numReplicas"] == 3
    assert (cluster.scales > 0) == is_read


async def test_servers_are_sized_again_only_if_the_system_is_another_one() -> None:
    scene = one_server(1)
    world = WorkloadObjects(scene.cluster, Informers(scene.cluster), lambda _: None)
    context = Context(
        scene.cluster, world, lambda resources: build_system(resources).system, scene.now
    )

    async def supply() -> Supply:
        for _ in range(3):  # the first one begins to watch Deployments, the second one counts
            await asyncio.sleep(1)
            await reconcile("default", context)
        return context.supplies["default"]

    async with in_background(world.run()):
        first = await supply()
        scene.decide("S", A=2)
        decided = await supply()
        scene.add_accelerator("A", cost=20)
        dearer = await supply()
        await world.stop()

    assert decided is first
    assert (first.unit_costs("M")["A"], dearer.unit_costs("M")["A"]) == (10, 20)


class BusyCluster(FakeCluster):
    """Somebody changes the Server while its workload is scaled, and the watch shows it."""

    refused = 0

    async def set_scale(self, scale: Scale, replicas: int, manager: str) -> Scale:
        """Set the number of replicas, and change the Server."""
        written = await super().set_scale(scale, replicas, manager)
        stored = self.objects["Server", Key("default", "s")]
        self.add({**stored, "metadata": {**stored["metadata"], "labels": {"by": "somebody"}}})
        await asyncio.sleep(1)
        return written

    async def apply(
        self, kind: Kind, manifest: Mapping[str, Any], manager: str, *, force: bool = True
    ) -> Mapping[str, Any]:
        """Apply, and count what is refused because the object changed."""
        try:
            return await super().apply(kind, manifest, manager, force=force)
        except StaleError:
            self.refused += 1
            raise


async def test_a_server_that_changes_while_it_is_scaled_is_reported_as_it_is_then() -> None:
    cluster = BusyCluster()
    scene = Scene(cluster=cluster)
    scene.add("S", workload("A", "a"))
    scene.deploy("a")
    scene.decide("S", A=2)

    async with running(scene):
        await scene.until(lambda: scene.reason() == "Actuated")

    assert cluster.refused == 0


async def test_a_mistyped_accelerator_does_not_replace_the_one_that_holds_the_cards() -> None:
    scene = one_server(2, decided=2)

    async with running(scene):
        await scene.until(lambda: scene.server()["spec"]["currentAlloc"]["numReplicas"] == 2)
        stored = scene.server()
        spec = {**stored["spec"], "workloads": [workload("Z", "a")]}
        scene.cluster.add({**stored, "spec": spec})
        await scene.until(lambda: scene.reason() == "NotFound")
        await asyncio.sleep(60)
        current = scene.server()["spec"]["currentAlloc"]

    assert (current["accelerator"], current["numReplicas"], current["cost"]) == ("A", 2, 20)
    assert scene.replicas("a") == 2


async def test_nothing_is_written_once_everything_has_arrived() -> None:
    scene = one_server(2, decided=2)

    async with running(scene):
        await scene.until(lambda: scene.reason() == "Actuated")
        await asyncio.sleep(5)
        scene.cluster.writes.clear()
        await asyncio.sleep(3600)

    assert scene.cluster.writes == []


async def test_mode_recommend_stops_all_writes_to_workloads_and_its_end_resumes_them() -> None:
    scene = one_server(0)
    recommending, auto = objects.optimizer(optimize=False), objects.optimizer(optimize=False)
    recommending["spec"]["mode"] = "Recommend"
    scene.cluster.add(recommending)
    scene.decide("S", A=2)

    async with running(scene):
        await scene.until(lambda: scene.reason() == "Recommended")
        message = scene.condition()["message"]
        held = scene.replicas("a")
        scene.cluster.add(auto)
        await scene.until(lambda: scene.reason() == "Actuated")
        resumed = scene.replicas("a")
        scene.cluster.add(recommending)
        scene.decide("S", A=4)
        await scene.until(lambda: scene.reason() == "Recommended")
        scene.cluster.remove(kind_of(Optimizer), Key("default", "inferno"))
        await asyncio.sleep(3600)

    assert (held, resumed, scene.replicas("a")) == (0, 2, 2)
    assert "Optimizer 'inferno' has mode Recommend" in message
    assert "was deleted" in scene.condition()["message"]


PUBLISHES = {"actuation": "Publish"}


@pytest.mark.parametrize(
    ("scene", "decision", "reason", "replicas", "message"),
    [
        ({"replicas": 0, "a": 2}, {"A": 3}, "NoRoom", 2, "cards that are not free: 1 x A"),
        ({"replicas": 1}, {"B": 1}, "NotFound", 1, "runs on accelerator 'B'"),
        ({"replicas": 1, **PUBLISHES}, {"A": 3}, "Published", 1, "3 x A; spec.actuation is"),
        ({"replicas": 1, **PUBLISHES}, {"B": 3}, "NotFound", 1, "accelerator 'B'"),
        ({"replicas": 2}, None, "Held", 2, "nothing was decided yet"),
        ({"replicas": 2, "load": 2}, {"reason": "NoCapacity"}, "Actuated", 0, "no replicas"),
    ],
    ids=[
        "without room",
        "without a workload",
        "published",
        "published, without a workload",
        "nothing is decided",
        "not to be served",
    ],
)
async def test_what_becomes_of_a_decision_is_told(
    scene: Manifest, decision: Manifest | None, reason: str, replicas: int, message: str
) -> None:
    asked = one_server(**scene)
    if decision is not None:
        asked.decide("S", **decision)

    async with running(asked):
        await asked.until(lambda: asked.reason() == reason)

    assert asked.replicas("a") == replicas
    assert message in asked.condition()["message"]


async def test_pods_without_a_node_are_given_up_and_tried_again_later() -> None:
    scene = one_server(1)
    scene.unstarted.add("a")
    scene.decide("S", A=2)

    async with running(scene):
        await scene.until(lambda: scene.reason() == "Blocked")
        await asyncio.sleep(60)
        given_up, told = scene.replicas("a"), scene.condition()["message"]
        scene.unstarted.clear()
        await scene.until(lambda: scene.reason() == "Actuated")

    assert (given_up, scene.replicas("a")) == (1, 2)
    assert told == (  # the words of the scheduler stay after its pods were given up
        "1 x A (2 wanted); pods found no node and were given up: 0/4 nodes are available:"
        " 4 Insufficient nvidia.com/gpu; the operator tries again"
    )


async def test_a_gated_pod_keeps_its_place_and_its_gate_is_named() -> None:
    scene = one_server(1)
    scene.gated["a"] = "kueue.x-k8s.io/admission"
    scene.decide("S", A=2)

    async with running(scene):
        await scene.until(lambda: scene.reason() == "Blocked")
        await asyncio.sleep(3600)
        told, replicas = scene.condition()["message"], scene.replicas("a")
        scene.gated.clear()
        (waiting,) = (pod for pod in scene.pods("a") if not pod["spec"].get("nodeName"))
        waiting["spec"], waiting["status"]["conditions"][-1] = {}, NO_NODE
        scene.cluster.add(waiting)
        await asyncio.sleep(200)
        early = scene.replicas("a")
        await scene.until(lambda: scene.replicas("a") == 1)

    assert replicas == 2
    assert told == (
        "1 x A (2 wanted); not ready: 1 x gated by Kueue (kueue.x-k8s.io/admission);"
        " no progress for too long"
    )
    assert early == 2  # it was looked at a while ago only


async def test_a_gated_pod_holds_no_card() -> None:
    scene = Scene(a=2)
    scene.gated["a"] = "kueue.x-k8s.io/admission"
    for name in ("s", "t"):
        deployed = {"s": "a", "t": "b2"}[name]
        scene.add(name.upper(), workload("A", deployed))
        scene.deploy(deployed)
    scene.decide("S", A=2)

    async with running(scene):
        await scene.until(lambda: scene.replicas("a") == 2)
        scene.decide("S", A=1)
        scene.decide("T", A=1)
        await scene.until(lambda: scene.reason("t") == "Actuated")
        await scene.until(lambda: scene.replicas("a") == 1)

    assert (scene.replicas("a"), scene.replicas("b2")) == (1, 1)


@pytest.mark.parametrize("most", [0, "0%", None])
async def test_a_rollout_that_waits_for_a_card_says_so_and_nothing_is_given_up(
    most: object,
) -> None:
    """Two cards, two ready pods, and a new one; 25 % of two replicas are none."""
    scene = one_server(2, decided=2, load=2, a=2)
    stored = scene.cluster.objects["Deployment", Key("default", "a")]
    strategy = (
        {"rollingUpdate": {"maxSurge": 1, "maxUnavailable": most}} if most is not None else {}
    )
    stored["spec"]["strategy"] = strategy
    scene.unstarted.add("a")
    scene.surplus["a"] = 1
    ending = {"deletionTimestamp": scene.time(), "finalizers": ["kueue.x-k8s.io/managed"]}
    scene.add_waiting("a", **ending)  # of an earlier revision: it is no pod that waits

    async with running(scene):
        await scene.until(lambda: scene.reason() == "Moving")
        early = scene.condition()["message"]
        await asyncio.sleep(3600)

    assert early.startswith(
        "2 x A; not ready: 1 x the rollout of Deployment 'a' waits for a card: its maxUnavailable"
    )
    assert "4 Insufficient nvidia.com/gpu" in early
    assert scene.replicas("a") == 2
    assert "given up" not in scene.condition()["message"]
    assert "no progress for too long" in scene.condition()["message"]


@pytest.mark.parametrize(
    ("now", "reason", "replicas"), [(61, "Actuated", 1), (74, "Actuated", 1), (76, "Blocked", 2)]
)
async def test_a_load_that_moved_within_the_tolerance_blocks_no_reduction(
    now: float, reason: str, replicas: int
) -> None:
    scene = one_server(2, decided=1)  # for 60 requests/min, which one replica carries just
    stored = scene.server()
    spec = stored["spec"]
    spec["desiredAlloc"]["load"] = {"arrivalRate": 60, "avgLength": 1}
    spec["currentAlloc"]["load"] = {"arrivalRate": now, "avgLength": 1}

    async with running(scene):
        await scene.until(lambda: scene.reason() == reason)

    assert scene.replicas("a") == replicas


@pytest.mark.parametrize(
    ("named", "told"),
    [
        ("InferenceService", "name the Deployment that it owns"),
        ("ModelBooster", "name spec.modelBooster in place of workloads"),
        ("Widget", "name an object that has one"),
    ],
)
async def test_a_kind_without_a_scale_is_refused_with_what_to_name_instead(
    named: str, told: str
) -> None:
    scene = Scene()
    kind = Kind("example.com", named, f"{named.lower()}s", "v1")
    scene.cluster.workloads.append(Served(kind, is_scalable=False))
    scene.add("S", workload("A", "a", apiVersion="example.com/v1", kind=named))
    scene.decide("S", A=3)

    async with running(scene):
        await scene.until(lambda: scene.reason() == "NoScale")

    assert told in scene.condition()["message"]


class UnreadableCluster(FakeCluster):
    """Refuses to show the scale subresources of some kinds: the operator has no right to them."""

    unreadable: frozenset[str] = frozenset()

    async def scale(self, kind: Kind, key: Key) -> Scale:
        """Return the scale subresource, if that is allowed."""
        if kind.kind in self.unreadable:
            raise RejectedError(f"{kind.plural}/scale is forbidden")
        return await super().scale(kind, key)


def no_right_to(kind: Kind, *, is_scalable: bool = True) -> UnreadableCluster:
    """A cluster in which the numbers of a kind cannot be read."""
    cluster = UnreadableCluster()
    cluster.unreadable = frozenset({kind.kind})
    cluster.workloads.append(Served(kind, is_scalable=is_scalable))
    return cluster


async def test_a_number_that_may_not_be_read_stops_only_the_server_that_names_it() -> None:
    kind = Kind("example.com", "EngineSet", "enginesets", "v1")
    cluster = no_right_to(kind)
    scene = Scene(cluster=cluster)
    cluster.add(engine_set("EngineSet"))
    scene.add("S", workload("A", "e", apiVersion="example.com/v1", kind="EngineSet"))
    scene.decide("S", A=2)
    scene.add("T", workload("B", "t"))
    scene.deploy("t")
    scene.decide("T", B=2)

    async with running(scene):
        await scene.until(lambda: scene.reason("t") == "Actuated")
        await scene.until(lambda: scene.reason() == "Rejected")
        cluster.unreadable = frozenset()
        await scene.until(lambda: scene.reason() not in ("Rejected", ""))

    assert scene.replicas("t") == 2


async def test_a_number_that_is_left_and_may_not_be_read_stops_nothing() -> None:
    kind = Kind("example.com", "EngineSet", "enginesets", "v1")
    scene = Scene(cluster=no_right_to(kind))
    scene.cluster.add({**engine_set("EngineSet"), "metadata": {"name": "m-b"}})
    left_on_b(scene, {"apiVersion": kind.api_version, "kind": kind.kind})

    async with running(scene):
        await scene.until(lambda: scene.reason() == "Actuated")

    assert scene.replicas("a") == 2
    told = "the replicas of EngineSet 'm-b', which is not in spec.workloads any more, are not"
    assert f"{told} known: enginesets/scale is forbidden" in scene.condition()["message"]


def left_on_b(scene: Scene, header: Manifest) -> None:
    """A Server that had an object `m-b` for accelerator B, and names a Deployment for A now."""
    scene.add("S", workload("A", "a"))
    recorded = {**header, "name": "m-b", "accelerator": "B"}
    scene.cluster.add({**scene.server(), "status": {"workloads": [recorded]}})
    scene.deploy("a")
    scene.decide("S", A=2)


@pytest.mark.parametrize("dialect", DIALECTS.values(), ids=DIALECTS)
@pytest.mark.parametrize("is_scalable", [True, False], ids=["later release", "v0.1"])
async def test_what_a_booster_left_is_counted_without_the_right_to_its_scale(
    dialect: Dialect, *, is_scalable: bool
) -> None:
    serving = dialect.serving
    cluster = no_right_to(serving, is_scalable=is_scalable)
    scene = Scene(cluster=cluster)
    header = {"apiVersion": serving.api_version, "kind": serving.kind}
    cluster.add({**header, "metadata": {"name": "m-b"}, "spec": {"replicas": 1}})
    labels = {dialect.pod_label("name"): "m-b", dialect.pod_label("entry"): "true", "app": ""}
    born = {"name": "m-b-0", "uid": "m-b-0", "labels": labels, "creationTimestamp": scene.time()}
    status = _status(ready=True, since=scene.time())
    pod = {"kind": "Pod", "metadata": born, "spec": {"nodeName": "n"}, "status": status}
    cluster.add(pod)
    left_on_b(scene, header)

    async with running(scene):
        await scene.until(lambda: scene.reason() == "Actuated")

    told = f"; {serving.kind} 'm-b' has 1 replicas on B and is not in spec.workloads any more"
    assert told in scene.condition()["message"]
    assert reported(scene) == {"A": 2, "B": 1}


def engine_set(kind: str, created: float = -600, **spec: object) -> Manifest:
    """An object of a kind with a scale subresource, whose selector follows from the spec."""
    born = f"{(objects.NOW + timedelta(seconds=created)).isoformat()[:19]}Z"
    return {
        "apiVersion": GROUPS[kind],
        "kind": kind,
        "metadata": {"name": "e", "creationTimestamp": born},
        "spec": {"replicas": 0, **spec},
    }


GROUPS = {"EngineSet": "example.com/v1", "LeaderWorkerSet": "leaderworkerset.x-k8s.io/v1"}


@pytest.mark.parametrize(
    ("kind", "remedy"),
    [
        ("EngineSet", "add labelSelectorPath to the definition of EngineSet, and fill that field"),
        ("LeaderWorkerSet", "check that its controller runs, which fills that field"),
    ],
)
async def test_a_scale_without_a_selector_is_no_scale_as_its_pods_cannot_be_seen(
    kind: str, remedy: str
) -> None:
    scene = Scene()
    group, _, version = GROUPS[kind].partition("/")
    scene.cluster.workloads.append(Served(Kind(group, kind, "es", version), is_scalable=True))
    scene.add("S", workload("A", "e", apiVersion=GROUPS[kind], kind=kind))
    scene.cluster.add(engine_set(kind))
    scene.decide("S", A=1)

    async with running(scene):
        await scene.until(lambda: scene.reason() == "NoScale")
        message = scene.condition()["message"]
        scene.cluster.add(engine_set(kind, selector={"matchLabels": {"app": "e"}}))
        await scene.until(lambda: scene.reason() == "Moving")

    assert message == (
        f"the scale subresource of {kind} 'e' has no selector (status.selector), so its pods"
        f" cannot be seen: {remedy}"
    )


async def test_the_selector_of_a_new_leader_worker_set_is_waited_for() -> None:
    kind = "LeaderWorkerSet"
    scene = Scene()
    group, _, version = GROUPS[kind].partition("/")
    scene.cluster.workloads.append(Served(Kind(group, kind, "es", version), is_scalable=True))
    scene.add("S", workload("A", "e", apiVersion=GROUPS[kind], kind=kind))
    scene.cluster.add(engine_set(kind, created=-1))
    scene.decide("S", A=1)

    async with running(scene):
        await asyncio.sleep(30)
        early = scene.reason()
        await scene.until(lambda: scene.reason() == "NoScale")

    assert early == ""


async def test_a_workload_that_does_not_exist_is_named_until_it_does() -> None:
    scene = Scene()
    scene.add("S", workload("A", "a"))
    scene.decide("S", A=1)

    async with running(scene):
        await scene.until(lambda: scene.reason() == "NotFound")
        message = scene.condition()["message"]
        scene.deploy("a")
        await scene.until(lambda: scene.reason() == "Actuated")

    assert "Deployment 'a' does not exist" in message


async def test_a_workload_of_two_servers_runs_the_older_one() -> None:
    scene = Scene()
    scene.deploy("a")
    for minute, name in enumerate(("S", "T")):
        scene.add(name, workload("A", "a"))
        scene.server(name.lower())["metadata"]["creationTimestamp"] = objects.born(minute)
        scene.decide(name, A=minute + 1)

    async with running(scene):
        await scene.until(lambda: scene.reason("s") == "Actuated")
        await scene.until(lambda: scene.reason("t") == "Conflict")

    assert scene.replicas("a") == 1


@pytest.mark.parametrize("owners", [[], [{"kind": "ScaledObject", "name": "o"}]])
async def test_an_autoscaler_on_the_workload_is_named_and_left_alone(
    owners: list[Manifest],
) -> None:
    scene = one_server(1)
    scene.cluster.add(objects.autoscaler("h", "a", ownerReferences=owners))
    scene.decide("S", A=2)

    async with running(scene):
        await scene.until(lambda: scene.reason() == "ForeignWriter")
        await asyncio.sleep(3600)

    assert scene.replicas("a") == 1
    assert ("ScaledObject 'o' with " if owners else "") + (
        "HorizontalPodAutoscaler 'h'"
    ) in scene.condition()["message"]


async def test_an_autoscaler_that_appears_during_a_move_leaves_the_old_replicas() -> None:
    scene = Scene()
    scene.add("S", workload("A", "a"), workload("B", "b"), load=2)
    scene.deploy("a", 2)
    scene.deploy("b")
    scene.decide("S", B=2)

    async with running(scene):
        await scene.until(lambda: scene.replicas("b") == 2)
        scene.cluster.add(objects.autoscaler("h", "b"))
        set_by_hand(scene, "b", 1)  # as the autoscaler would
        await scene.until(lambda: scene.reason() == "ForeignWriter")
        await asyncio.sleep(3600)

    assert (scene.replicas("a"), scene.replicas("b")) == (2, 1)


async def test_a_workload_that_was_created_again_gets_its_replicas_without_a_pause() -> None:
    """Whoever creates it sets the number of the manifest; that is no fight."""
    scene = one_server(1, decided=3, load=2)

    async with running(scene):
        await scene.until(lambda: scene.reason() == "Actuated")
        for again in range(3):
            scene.cluster.remove(DEPLOYMENT, Key("default", "a"))
            manager = [written_by("kubectl")]
            scene.cluster.add(deployment("a", 1, uid=f"uid-{again}", managedFields=manager))
            await asyncio.sleep(30)  # the pods of the one before end
            assert scene.replicas("a") == 3


async def test_a_workload_that_is_being_deleted_replaces_no_other() -> None:
    scene = Scene()
    scene.add("S", workload("A", "a"), workload("B", "b"), load=2)
    scene.deploy("a", 2)
    scene.deploy("b", 1)
    scene.decide("S", B=2)

    async with running(scene):
        await scene.until(lambda: scene.replicas("b") == 2)
        stored = scene.cluster.objects["Deployment", Key("default", "b")]
        scene.cluster.add(
            {**stored, "metadata": {**stored["metadata"], "deletionTimestamp": scene.time()}}
        )
        await scene.until(lambda: scene.reason() == "NotFound")
        message = scene.condition()["message"]
        await asyncio.sleep(600)

    assert scene.replicas("a") == 2
    assert "Deployment 'b' is being deleted" in message


async def test_a_workload_of_another_name_gets_the_replicas_and_the_old_one_keeps_its_own() -> None:
    scene = one_server(2, load=2)
    scene.deploy("new", 1)
    scene.decide("S", A=2)

    async with running(scene):
        await scene.until(lambda: scene.reason() == "Actuated")
        stored = scene.server()
        spec = {**stored["spec"], "workloads": [workload("A", "new")]}
        scene.cluster.add({**stored, "spec": spec})
        scene.decide("S", A=2)
        await scene.until(lambda: scene.replicas("new") == 2)
        await scene.until(lambda: scene.reason() == "Actuated")

    assert scene.replicas("a") == 2


async def test_a_number_that_is_changed_back_is_set_once_in_five_minutes() -> None:
    scene = one_server(1, decided=2)

    async with running(scene):
        await scene.until(lambda: scene.reason() == "Actuated")
        scene.cluster.writes.clear()
        for _ in range(3600):
            await asyncio.sleep(1)
            if scene.replicas("a") != 1:
                set_by_hand(scene, "a", 1)
        told = scene.condition()

    writes = scene.cluster.writes.count("scale Deployment a")
    assert 10 <= writes <= 12
    assert told["reason"] == "ForeignWriter"
    assert "field manager 'kubectl'" in told["message"]


def written_by(manager: str) -> Manifest:
    return {"manager": manager, "fieldsV1": {"f:spec": {"f:replicas": {}}}}


def set_by_hand(scene: Scene, name: str, replicas: int, manager: str = "kubectl") -> None:
    managers = [written_by(manager)] if manager else []
    scene.cluster.add(deployment(name, replicas, managedFields=managers))


@pytest.mark.parametrize("delay", [0.5, 5.0, 100.0])
async def test_a_number_set_by_hand_stays_also_if_the_watch_shows_it_late(delay: float) -> None:
    """The operator writes at the same time, is refused, and reads the number before its writer."""
    cluster = LateCluster()
    scene = one_server(1, decided=2, cluster=cluster)

    async with running(scene):
        await scene.until(lambda: scene.reason() == "Actuated")
        cluster.delay = delay
        set_by_hand(scene, "a", 1)
        scene.decide("S", A=3)
        cluster.writes.clear()
        await asyncio.sleep(delay + 200)

    assert scene.replicas("a") == 1
    assert "scale Deployment a" not in cluster.writes
    assert scene.reason() == "ForeignWriter"


@pytest.mark.parametrize("manager", ["kubectl", ""])  # "": nobody is named after a number of 0
@pytest.mark.parametrize("restarts", [False, True])
async def test_a_number_set_by_hand_stays_for_five_minutes_where_the_operator_never_wrote_it(
    manager: str, *, restarts: bool
) -> None:
    scene = one_server(2, decided=2)

    async with running(scene):
        await scene.until(lambda: scene.reason() == "Actuated")
        if not restarts:
            set_by_hand(scene, "a", 3, manager)
            await asyncio.sleep(290)
            early, told = scene.replicas("a"), scene.condition()
            await asyncio.sleep(60)
    if restarts:
        set_by_hand(scene, "a", 3, manager)
        async with running(scene):
            await asyncio.sleep(150)
        async with running(scene):  # which does not begin the pause anew
            await asyncio.sleep(140)
            early, told = scene.replicas("a"), scene.condition()
            await asyncio.sleep(60)

    assert (early, told["reason"]) == (3, "ForeignWriter")
    assert (manager or "an unknown writer") in told["message"]
    assert scene.replicas("a") == 2


async def test_a_number_set_by_hand_while_no_operator_ran_stays_after_a_new_decision() -> None:
    scene = one_server(1, decided=2)

    async with running(scene):
        await scene.until(lambda: scene.reason() == "Actuated")
    set_by_hand(scene, "a", 1)
    scene.decide("S", A=3)
    async with running(scene):
        await asyncio.sleep(200)
        early = scene.replicas("a")
        await scene.until(lambda: scene.replicas("a") == 3)

    assert early == 1


@pytest.mark.parametrize("uid", ["", "another"])
async def test_a_decision_is_carried_out_at_once_where_nobody_changed_what_was_seen(
    uid: str,
) -> None:
    """A manifest names its manager, and an object that was created again has its number."""
    scene = Scene()
    scene.add("S", workload("A", "a"))
    scene.deploy("a", 2)
    set_by_hand(scene, "a", 2)
    scene.decide("S", A=2)

    async with running(scene):
        await scene.until(lambda: scene.reason() == "Actuated")
    if uid:
        managers = [written_by("kubectl")]
        scene.cluster.add(deployment("a", 1, uid=uid, managedFields=managers))
    scene.decide("S", A=3)
    async with running(scene):
        await asyncio.sleep(5)

    assert scene.replicas("a") == 3


async def test_a_foreign_number_that_is_the_wanted_one_is_no_conflict() -> None:
    scene = one_server(1, decided=2)

    async with running(scene):
        await scene.until(lambda: scene.reason() == "Actuated")
        set_by_hand(scene, "a", 3)
        await scene.until(lambda: scene.reason() == "ForeignWriter")
        scene.decide("S", A=3)
        await scene.until(lambda: scene.reason() == "Actuated")

    assert scene.replicas("a") == 3


async def test_writes_that_fail_three_times_block_the_server_until_they_succeed() -> None:
    scene = one_server(1, decided=2)
    scene.cluster.failing["Deployment"] = RejectedError("no right to patch")

    async with running(scene):
        await scene.until(lambda: scene.reason() == "Blocked")
        message = scene.condition()["message"]
        del scene.cluster.failing["Deployment"]
        await scene.until(lambda: scene.reason() == "Actuated")

    assert "no right to patch" in message


async def test_an_idle_server_loses_its_replicas_also_if_its_spec_changes_meanwhile() -> None:
    scene = one_server(2, load=2)
    scene.decide("S")

    async with running(scene):
        await scene.until(lambda: scene.reason() == "Blocked")  # its load is still there
        server = scene.server()
        idle = {"arrivalRate": 0, "avgLength": 1}
        current = {**server["spec"]["currentAlloc"], "load": idle}
        scene.cluster.add({**server, "spec": {**server["spec"], "currentAlloc": current}})
        await scene.until(lambda: scene.reason() == "Actuated")

    assert scene.replicas("a") == 0


async def test_a_server_that_names_no_workload_any_more_says_that_they_are_released() -> None:
    scene = one_server(1, decided=1)

    async with running(scene):
        await scene.until(lambda: scene.reason() == "Actuated")
        server = scene.server()
        scene.cluster.add({**server, "spec": {**server["spec"], "workloads": []}})
        scene.decide("S", A=3)
        await scene.until(lambda: scene.reason() == "Released")
        await asyncio.sleep(60)

    assert scene.replicas("a") == 1


@pytest.mark.parametrize(
    "others",
    [
        pytest.param({}, id="no workloads"),
        pytest.param({"workloads": "o"}, id="spec that cannot be read"),
    ],
)
async def test_cards_of_servers_that_are_not_scaled_are_not_used(others: Manifest) -> None:
    scene = Scene(a=3)
    spec = {"currentAlloc": objects.running(2, 2), **others}
    scene.cluster.add(objects.server("O", spec=spec))
    scene.add("S", workload("A", "a"))
    scene.deploy("a")
    scene.decide("S", A=2)

    async with running(scene):
        await scene.until(lambda: scene.reason() == "NoRoom")

    assert scene.replicas("a") == 1


def counted(available: int) -> Manifest:
    """A Capacity whose cards of type A were counted."""
    numbers = dict.fromkeys(("total", "others", "ours", "free"), 0)
    cards = {"type": "A", **numbers, "available": available, "boundBy": "nodes"}
    capacity = objects.manifest("Capacity", {"fromNodes": True}, name="cards")
    return {**capacity, "status": {"counted": [cards]}}


async def test_replicas_wait_for_counted_cards_and_start_when_there_are_more() -> None:
    scene = Scene()
    scene.cluster.add(counted(1))
    scene.add("S", workload("A", "a"))
    scene.deploy("a")
    scene.decide("S", A=2)

    async with running(scene) as workloads:
        await scene.until(lambda: scene.reason() == "NoRoom")
        assert scene.replicas("a") == 1

        scene.cluster.add(counted(2))
        workloads.recheck("default")
        await scene.until(lambda: scene.reason() == "Actuated")

    assert scene.replicas("a") == 2


async def test_nothing_is_scaled_before_the_cards_are_counted() -> None:
    scene = Scene()
    scene.cluster.add(objects.manifest("Capacity", {"fromNodes": True}, name="cards"))
    scene.add("S", workload("A", "a"))
    scene.deploy("a", replicas=2)
    scene.decide("S", A=1)

    async with running(scene):
        await asyncio.sleep(PATIENCE_S)

    assert scene.replicas("a") == 2


@pytest.mark.parametrize("writers", [("k9s", "kubectl-edit"), ("helm", "helm"), ("", "argocd")])
async def test_a_number_set_by_hand_again_stays_for_five_minutes_from_then_on(
    writers: tuple[str, str],
) -> None:
    scene = one_server(2, decided=2)

    async with running(scene):
        await scene.until(lambda: scene.reason() == "Actuated")
        set_by_hand(scene, "a", 3, writers[0])
        await asyncio.sleep(200)
        set_by_hand(scene, "a", 4, writers[1])
        await asyncio.sleep(290)
        early = scene.replicas("a")
        await asyncio.sleep(60)

    assert early == 4
    assert scene.replicas("a") == 2


async def test_a_number_that_changes_all_the_time_is_set_after_ten_minutes() -> None:
    scene = one_server(2, decided=2)

    async with running(scene):
        await scene.until(lambda: scene.reason() == "Actuated")
        for minute in range(9):
            set_by_hand(scene, "a", 3 + minute % 2)
            await asyncio.sleep(60)
            assert scene.replicas("a") > 2
        await scene.until(lambda: scene.replicas("a") == 2)


@pytest.mark.parametrize("restarts", [False, True])
async def test_a_number_set_by_hand_to_the_wanted_one_hinders_nobody(*, restarts: bool) -> None:
    scene = one_server(2, decided=2)

    async with running(scene):
        await scene.until(lambda: scene.reason() == "Actuated")
        set_by_hand(scene, "a", 3)
        await scene.until(lambda: scene.reason() == "ForeignWriter")
        set_by_hand(scene, "a", 2)
        await scene.until(lambda: scene.reason() == "Actuated")
        if not restarts:
            scene.decide("S", A=4)
            await scene.until(lambda: scene.replicas("a") == 4)
    if restarts:
        scene.decide("S", A=4)
        async with running(scene):
            await asyncio.sleep(10)

    assert scene.replicas("a") == 4
