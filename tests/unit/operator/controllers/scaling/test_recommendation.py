"""Mode Recommend is seen at once, in its namespace, and leaves ModelBoosters as they are."""

import asyncio
from typing import Any

import pytest

from inferno_operator.controllers.planning.snapshot import build_system
from inferno_operator.controllers.scaling.controller import ScalingController
from inferno_operator.controllers.scaling.decision import OPTIMIZER, explain_recommendation
from inferno_operator.controllers.scaling.world import WorkloadObjects
from inferno_operator.resources.objects import Key
from inferno_operator.runtime.informers import Informers
from tests.fakes import FakeCluster
from tests.unit.operator import objects
from tests.unit.operator.background import started
from tests.unit.operator.objects import Manifest

TARGETS = ("ModelBooster", "ModelServing")
WORKLOAD = "workload.serving.volcano.sh/v1alpha1"


def optimizer(mode: str, name: str = "inferno", **spec: object) -> Manifest:
    manifest = objects.optimizer(name, optimize=False)
    manifest["spec"].update(mode=mode, **spec)
    return manifest


@pytest.mark.parametrize(
    ("optimizers", "told"),
    [
        ([], None),
        ([optimizer("Auto"), optimizer("Approve", "other")], ""),
        ([optimizer("Auto"), optimizer("Recommend", "other")], "Optimizer 'other'"),
        ([optimizer("Recommend", interval="bad")], "Optimizer 'inferno'"),
    ],
    ids=["none", "other modes", "one of several", "an invalid spec"],
)
def test_one_optimizer_that_recommends_is_enough(
    optimizers: list[Manifest], told: str | None
) -> None:
    found = explain_recommendation(optimizers)

    assert (found and found.partition(" has")[0]) == told


async def test_only_changes_of_the_mode_are_reported() -> None:
    cluster, reported = FakeCluster(), list[str]()
    cluster.add(objects.server(spec={"workloads": [{"accelerator": "A", "name": "a"}]}))
    world = WorkloadObjects(cluster, Informers(cluster), reported.append)
    watch = asyncio.create_task(world.run())

    async def after(manifest: Manifest | None) -> list[str]:
        reported.clear()
        if manifest is None:
            cluster.remove(OPTIMIZER, Key("default", "inferno"))
        else:
            cluster.add(manifest)
        await asyncio.sleep(1)
        return list(reported)

    await asyncio.sleep(1)
    seen = [
        await after(optimizer("Auto")),
        await after(optimizer("Recommend")),
        await after(optimizer("Recommend", interval=5)),
        await after(optimizer("Auto")),
        await after(optimizer("Recommend")),
        await after(None),
    ]
    watch.cancel()
    await asyncio.wait([watch])

    assert seen == [[], ["default"], [], ["default"], ["default"], ["default"]]


def boosted(target: str) -> FakeCluster:
    """A Server on a ModelBooster with one backend, for which 2 replicas are decided."""
    cluster = FakeCluster()
    for manifest in objects.system(cards=4):
        cluster.add(manifest)
    backend = {"name": "a", "minReplicas": 1, "maxReplicas": 1}
    backends = [{"name": "a", "accelerator": "A"}]
    reference = {"name": "m", "backends": backends, "target": target}
    desired = {"accelerator": "A", "numReplicas": 2}
    server = objects.server("S", spec={"modelBooster": reference, "desiredAlloc": desired})
    told = {
        "type": "Allocated",
        "status": "True",
        "reason": "Allocated",
        "message": "",
        "observedGeneration": 1,
        "lastTransitionTime": "2026-03-01T12:00:00Z",
    }
    cluster.add({**server, "status": {"conditions": [told]}})
    for kind, name, spec in (
        ("ModelBooster", "m", {"backends": [backend]}),
        ("ModelServing", "m-a", {"replicas": 1}),
    ):
        header: dict[str, Any] = {"apiVersion": WORKLOAD, "kind": kind}
        cluster.add({**header, "metadata": {"name": name}, "spec": spec})
    return cluster


@pytest.mark.parametrize("target", TARGETS)
async def test_a_model_booster_is_written_in_mode_auto_and_left_alone_in_mode_recommend(
    target: str,
) -> None:
    writes = {}
    for mode in ("Auto", "Recommend"):
        cluster = boosted(target)
        cluster.add(optimizer(mode))
        controller = ScalingController(
            cluster, Informers(cluster), lambda r: build_system(r).system, lambda: objects.NOW
        )
        async with started(controller):
            await asyncio.sleep(5)
        writes[mode] = {write for write in cluster.writes if "Server s" not in write}
        conditions = cluster.objects["Server", Key("default", "s")]["status"]["conditions"]

    assert len(writes["Auto"]) == 1
    assert writes["Recommend"] == set()
    assert "Recommended" in {condition["reason"] for condition in conditions}
