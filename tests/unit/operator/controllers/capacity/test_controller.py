"""Counts on a cluster in memory: what is written, when, and what optimizations get."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import datetime, timedelta
from typing import Any

import pytest

from inferno_operator.controllers.capacity.controller import NODES_LISTED, CapacityController
from inferno_operator.controllers.capacity.objects import select_whole_replicas
from inferno_operator.resources.dialects import KTHENA
from inferno_operator.resources.objects import NODE, POD, Key
from inferno_operator.runtime.informers import Informers
from inferno_operator.runtime.ports import RejectedError, Served
from inferno_optimizer.errors import UnavailableError
from inferno_optimizer.placement import Node
from tests.fakes import FakeCluster
from tests.unit.operator import objects
from tests.unit.operator.background import started
from tests.unit.operator.controllers.capacity.making import H100, PRODUCT, node, pod

Manifest = dict[str, Any]

QUIET_S = 120.0


class Scene:
    """A cluster with one node of eight H100, and a Capacity that counts."""

    def __init__(self, **spec: Any) -> None:  # noqa: ANN401 - YAML of any shape
        self.cluster = FakeCluster()
        self.changed: list[str] = []
        accelerator = {"name": "H100", "type": "H100", "cost": 1}
        self.cluster.add(objects.manifest("Accelerator", accelerator, name="h100"))
        self.capacity(**spec)
        self.cluster.add(node())

    def capacity(self, name: str = "cards", namespace: str = "default", **spec: Any) -> None:  # noqa: ANN401 - YAML of any shape
        manifest = objects.manifest("Capacity", {"fromNodes": True, **spec}, name=name)
        self.cluster.add(manifest, namespace)

    def deploy(self, name: str = "engine", replicas: int = 1, label: str = "app") -> None:
        """A Server on a Deployment, whose pods take two cards each."""
        workload = {"accelerator": "H100", "name": name}
        deployment = {"replicas": replicas, "selector": {"matchLabels": {label: name}}}
        header = {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name}}
        self.cluster.add({**header, "spec": deployment})
        self.cluster.add(objects.server(name, spec={"workloads": [workload]}))
        for place in range(replicas):
            pod_name = f"{name}-{label}-{place}"
            self.add_pod(pod_name, cards=2, namespace="default", labels={label: name})

    def add_pod(self, name: str, **fields: Any) -> None:  # noqa: ANN401 - handed on
        manifest = pod(name, **fields)
        self.cluster.add(manifest, manifest["metadata"]["namespace"])

    @asynccontextmanager
    async def running(self) -> AsyncIterator[CapacityController]:
        def now() -> datetime:
            return objects.NOW + timedelta(seconds=asyncio.get_running_loop().time())

        controller = CapacityController(
            self.cluster, Informers(self.cluster), now, self.changed.append
        )
        async with started(controller):
            yield controller

    def status(self, name: str = "cards", namespace: str = "default") -> Manifest:
        stored: Manifest = self.cluster.objects["Capacity", Key(namespace, name)]
        status: Manifest = stored.get("status", {})
        return status

    def cards(self, namespace: str = "default") -> Manifest:
        found = self.status(namespace=namespace).get("counted", [{}])
        cards: Manifest = found[0]
        return cards

    def condition(self, name: str = "cards") -> Manifest:
        found = (c for c in self.status(name).get("conditions", ()) if c["type"] == "Counted")
        return next(found, {"status": "", "reason": "", "message": ""})

    async def until(self, met: Callable[[], bool]) -> None:
        async with asyncio.timeout(QUIET_S):
            while not met():
                await self.cluster.something_changed()

    async def until_free(self, free: int) -> None:
        await self.until(lambda: self.cards().get("free") == free)


async def test_definitions_of_another_release_are_told_and_the_last_counts_stay() -> None:
    scene = Scene()

    async with scene.running():
        await scene.until_free(8)
        scene.cluster.undefined = {"unmatched"}
        scene.add_pod("stranger", cards=3)
        scene.cluster.add(node("strange", labels={PRODUCT: "strange"}))
        await scene.until(lambda: scene.condition()["reason"] == "Rejected")
        told = scene.condition()
        kept = scene.cards()["free"]
        scene.cluster.undefined.clear()
        await scene.until_free(5)

    assert told["status"] == "False"
    assert ".status.unmatched" in told["message"]
    assert kept == 8
    assert scene.condition()["reason"] == "Counted"


async def test_cards_of_others_of_ours_and_free_ones_are_told() -> None:
    scene = Scene()
    scene.deploy(replicas=2)
    scene.add_pod("stranger", cards=3)

    async with scene.running():
        await scene.until_free(1)

    assert scene.cards() == {
        "type": "H100",
        "total": 8,
        "others": 3,
        "ours": 4,
        "free": 1,
        "available": 5,
        "boundBy": "nodes",
    }
    assert scene.status()["nodes"] == [
        {"name": "n", "type": "H100", "total": 8, "others": 3, "ours": 4}
    ]
    assert scene.condition()["message"] == "nodes: 1"
    assert set(scene.changed) == {"default"}


async def test_nodes_and_pods_that_change_are_counted_again() -> None:
    scene = Scene()

    async with scene.running():
        await scene.until_free(8)
        scene.cluster.add(node("m", cards=4))
        await scene.until_free(12)
        scene.add_pod("stranger", cards=3)
        await scene.until_free(9)
        scene.add_pod("stranger", cards=3, phase="Succeeded")
        await scene.until_free(12)
        scene.cluster.add(node(cordoned=True))
        await scene.until_free(4)
        scene.cluster.remove(NODE, Key("default", "m"))
        await scene.until_free(0)

    assert scene.cards()["total"] == 0


async def test_nothing_is_written_while_nothing_changes() -> None:
    scene = Scene()
    scene.deploy()

    async with scene.running():
        await scene.until_free(6)
        await asyncio.sleep(QUIET_S)
        scene.cluster.writes.clear()
        scene.add_pod("web", cards=0)
        scene.cluster.add(node())  # a heartbeat
        await asyncio.sleep(QUIET_S)

    assert scene.cluster.writes == []


async def test_without_a_capacity_that_asks_for_it_no_node_is_read() -> None:
    scene = Scene()
    scene.cluster.add(objects.capacity(4))
    scene.cluster.rejected["Node"] = RejectedError("nobody may ask for nodes")

    async with scene.running() as controller:
        await asyncio.sleep(QUIET_S)

        assert await controller.nodes("default") == []
    assert scene.cluster.writes == []


async def test_counts_are_removed_when_nobody_asks_for_them_any_more() -> None:
    scene = Scene()

    async with scene.running():
        await scene.until_free(8)
        scene.cluster.add(objects.capacity(4))
        await scene.until(lambda: not scene.cards())

    assert scene.condition()["reason"] == ""


async def test_without_the_right_the_last_counts_stay_and_the_condition_names_it() -> None:
    scene = Scene()

    async with scene.running():
        await scene.until_free(8)
    before = scene.cards()
    forbidden = RejectedError("nodes of all namespaces: cannot list resource nodes")
    scene.cluster.rejected["Node"] = forbidden

    async with scene.running():
        await scene.until(lambda: scene.condition()["status"] == "False")

    assert scene.cards() == before
    assert scene.condition()["reason"] == "Rejected"
    assert scene.condition()["message"] == (
        "nodes of all namespaces: cannot list resource nodes; grant the right with the Helm value"
        " capacity.fromNodes or the component capacity; the last counts stay"
    )


@pytest.mark.parametrize("kind", ["ResourceQuota", "Deployment"])
async def test_what_cannot_be_read_changes_no_count(kind: str) -> None:
    scene = Scene()
    scene.deploy()
    scene.cluster.rejected[kind] = UnavailableError(f"{kind}: connection refused")

    async with scene.running():
        await scene.until(lambda: scene.condition()["reason"] == "Unavailable")
        told = scene.condition()["message"]
        del scene.cluster.rejected[kind]
        await scene.until_free(6)

    assert told == (f"{kind}: connection refused; nothing is planned until the cards are counted")


@pytest.mark.parametrize("share", [None, {"percent": 50}])
async def test_a_namespace_that_cannot_be_read_hinders_only_those_that_share_with_it(
    share: Manifest | None,
) -> None:
    shared: Manifest = {"share": share} if share else {}
    scene = Scene(**shared)
    scene.deploy()
    scene.capacity(namespace="team-b", **shared)
    accelerator = {"name": "H100", "type": "H100", "cost": 1}
    scene.cluster.add(objects.manifest("Accelerator", accelerator, name="h100"), "team-b")
    scene.cluster.rejected["Deployment"] = RejectedError("deployments/scale: forbidden")

    async with scene.running():
        await scene.until(lambda: scene.condition()["reason"] == "Rejected")
        await asyncio.sleep(QUIET_S)

    assert bool(scene.cards("team-b")) == (share is None)
    assert scene.cards("default") == {}


async def test_two_namespaces_share_a_pool_and_the_first_gives_up_before_the_second_takes() -> None:
    scene = Scene(share={"percent": 100})
    accelerator = {"name": "H100", "type": "H100", "cost": 1}
    scene.cluster.add(objects.manifest("Accelerator", accelerator, name="h100"), "team-b")
    sums: list[int] = []

    def is_divided() -> bool:
        found = [scene.cards(name).get("available", 0) for name in ("default", "team-b")]
        sums.append(sum(found))
        return found == [4, 4]

    async with scene.running():
        await scene.until_free(8)
        scene.capacity(share={"percent": 100}, namespace="team-b")
        await scene.until(is_divided)

    assert max(sums) == 8


async def test_who_else_uses_the_cards_and_whose_pods_are_not_known_is_told() -> None:
    scene = Scene(count=[{"type": "H100", "count": 5}])
    scene.cluster.unserved |= {"NodePool", "ClusterQueue", "LocalQueue", "ResourceFlavor"}
    scene.capacity("more")
    for place in range(7):
        scene.cluster.add(objects.server(f"s{place}"))

    async with scene.running():
        await scene.until(lambda: bool(scene.condition("more")["reason"]))
        await scene.until_free(8)
        alone = scene.condition()["message"]
        scene.capacity(namespace="team-b")
        await scene.until(lambda: "team-b" in scene.condition()["message"])

    assert alone == (
        "nodes: 1; pods of Servers that name neither workloads nor a modelBooster cannot be"
        " attributed and count as foreign: s0, s1, s2, s3, s4 and 2 more"
    )
    assert "team-b may use the same cards: set spec.share" in scene.condition()["message"]
    assert (scene.cards()["available"], scene.cards()["boundBy"]) == (5, "spec.count")
    assert scene.condition("more")["reason"] == "Conflict"  # the oldest counts
    assert "counted" not in scene.status("more")


async def test_nodes_with_other_cards_are_listed_with_what_to_write() -> None:
    scene = Scene()
    scene.cluster.add(node("strange", cards=4, labels={PRODUCT: "NVIDIA-L4"}))
    scene.cluster.add(node("away", labels=H100, taints=["dedicated"]))
    scene.cluster.add(node("vgpus", resource="volcano.sh/vgpu-number", taints=["pool"]))
    scene.cluster.add(node("by-dra", cards=0, cordoned=True))

    async with scene.running():
        await scene.until_free(8)

    (unmatched,) = scene.status()["unmatched"]
    assert (unmatched["cards"], unmatched["example"]) == (4, "strange")
    assert scene.condition()["message"] == (
        "nodes: 1; not counted: 1 cordoned, 1 tainted with dedicated, 1 tainted with pool;"
        " 4 cards match no Accelerator: see status.unmatched"
    )


async def test_2000_nodes_fit_into_a_status_and_more_are_counted_too() -> None:
    scene = Scene()
    for place in range(NODES_LISTED + 9):
        scene.cluster.add(node(f"ip-10-0-{place:04}.eu-central-1.compute.internal"))

    async with scene.running():
        await scene.until_free(8 * (NODES_LISTED + 10))

    assert scene.status()["nodesLeftOut"] == 10
    assert len(json.dumps(scene.status())) < 400_000


async def test_a_placement_gets_what_others_leave_and_who_runs_where() -> None:
    scene = Scene()
    scene.deploy(replicas=2)
    scene.add_pod("stranger", cards=3)

    async with scene.running() as controller:
        await scene.until_free(1)
        found = await controller.nodes("default")

        assert found == [Node("H100", 5, {("engine", "H100"): 4})]
        assert await controller.nodes("elsewhere") == []


async def test_pods_of_a_workload_that_is_named_no_more_are_ours() -> None:
    scene = Scene()
    scene.deploy()
    stored = scene.cluster.objects["Server", Key("default", "engine")]
    before = stored["spec"]["workloads"]
    spec = {**stored["spec"], "workloads": [{**before[0], "name": "new"}]}
    scene.cluster.add({**stored, "spec": spec, "status": {"workloads": before}})

    async with scene.running():
        await scene.until_free(6)

    assert (scene.cards()["ours"], scene.cards()["others"]) == (2, 0)


async def test_pods_of_a_workload_that_was_created_anew_with_another_selector_are_ours() -> None:
    scene = Scene()
    scene.deploy()

    async with scene.running():
        await scene.until_free(6)
        scene.cluster.remove(POD, Key("default", "engine-app-0"))
        await scene.until_free(8)
        scene.deploy(label="app.kubernetes.io/name")
        await scene.until_free(6)

    assert (scene.cards()["ours"], scene.cards()["others"]) == (2, 0)


@pytest.mark.parametrize(
    ("backend", "serving"),
    [({}, "llama-b"), ({"booster": "llama-h100"}, "llama-h100-b")],
    ids=["of the booster", "of a booster of its own"],
)
async def test_pods_of_boosters_that_servers_scale_are_ours(
    backend: Manifest, serving: str
) -> None:
    scene = Scene()
    backends = [{"name": "b", "accelerator": "H100", **backend}]
    booster = {"name": "llama", "backends": backends}
    scene.cluster.add(objects.server("llama", spec={"modelBooster": booster}))
    labels = {"modelserving.volcano.sh/name": serving}
    scene.add_pod("llama-b-0-0", cards=4, namespace="default", labels=labels)

    async with scene.running():
        await scene.until_free(4)

    assert scene.cards()["ours"] == 4


async def test_the_pods_of_each_role_of_a_serving_are_those_of_its_accelerator() -> None:
    scene = Scene()
    serving = KTHENA.serving
    scene.cluster.workloads.append(Served(serving, is_scalable=True))
    kind = {"apiVersion": serving.api_version, "kind": serving.kind, "name": "m"}
    workloads = [
        {"accelerator": "H100", "role": "Prefill", **kind},
        {"accelerator": "L40S", "role": "Decode", **kind},
    ]
    scene.cluster.add(objects.server("llama", spec={"workloads": workloads}))
    for role, cards in ("prefill", 2), ("decode", 1), ("router", 1):
        labels = {"modelserving.volcano.sh/name": "m", "modelserving.volcano.sh/role": role}
        scene.add_pod(f"m-0-{role}-0-1", cards=cards, namespace="default", labels=labels)

    async with scene.running() as controller:
        await scene.until_free(4)
        (node,) = await controller.nodes("default")

    assert node.held == {("llama", "H100"): 2, ("llama", "L40S"): 1}


async def test_the_pods_of_what_a_booster_left_are_counted_without_the_right_to_its_scale() -> None:
    scene = Scene()
    serving = KTHENA.serving
    scene.cluster.workloads.append(Served(serving, is_scalable=True))
    left = {"accelerator": "L40S", "apiVersion": serving.api_version, "kind": serving.kind}
    status = {"workloads": [{**left, "name": "m"}]}
    named = [{"accelerator": "H100", "name": "engine"}]
    scene.cluster.add({**objects.server("llama", spec={"workloads": named}), "status": status})
    labels = {"modelserving.volcano.sh/name": "m"}
    scene.add_pod("m-0", cards=2, namespace="default", labels=labels)

    async with scene.running() as controller:
        await scene.until_free(6)
        (node,) = await controller.nodes("default")

    assert node.held == {("llama", "L40S"): 2}


@pytest.mark.parametrize(
    ("selector", "whole"),
    [
        ("app=x", "app=x"),
        (
            "leaderworkerset.sigs.k8s.io/name=x,leaderworkerset.sigs.k8s.io/worker-index=0",
            "leaderworkerset.sigs.k8s.io/name=x",
        ),
        (
            "modelserving.volcano.sh/name=x,modelserving.volcano.sh/entry=true",
            "modelserving.volcano.sh/name=x",
        ),
        ("", ""),
    ],
)
def test_workers_of_a_replica_are_ours_like_its_leader(selector: str, whole: str) -> None:
    assert select_whole_replicas(selector) == whole
