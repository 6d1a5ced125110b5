"""How workloads are read, also before the watch has caught up."""

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from inferno_operator.controllers.scaling.reading import read_scaled_servers
from inferno_operator.controllers.scaling.scaled_server import ScaledServer
from inferno_operator.controllers.scaling.world import WorkloadObjects
from inferno_operator.controllers.scaling.writers import WriteMemory
from inferno_operator.resources.conditions import ALLOCATED
from inferno_operator.resources.dialects import KTHENA
from inferno_operator.resources.objects import POD, Key, Place
from inferno_operator.runtime.informers import Informers
from inferno_operator.runtime.ports import FieldManager
from tests.fakes import DEPLOYMENT, FakeCluster
from tests.unit.operator import objects
from tests.unit.operator.controllers.scaling.workloads.late import LateCluster

Manifest = dict[str, Any]

PLACE = Place(DEPLOYMENT, Key("default", "a"))


def decided(replicas: int) -> Manifest:
    """A Server with a workload on accelerator A, and a decision for so many replicas."""
    spec = {
        "workloads": [{"accelerator": "A", "name": "a"}],
        "desiredAlloc": {"accelerator": "A", "numReplicas": replicas},
    }
    condition = {
        "type": ALLOCATED,
        "status": "True",
        "reason": "Allocated",
        "message": "",
        "lastTransitionTime": objects.born(0),
    }
    return {**objects.server("S", spec=spec), "status": {"conditions": [condition]}}


def deployment(manager: str = "", replicas: int = 0) -> Manifest:
    """A Deployment whose number of replicas a manager has set, or nobody knows who."""
    fields: Manifest = {"f:spec": {"f:replicas": {}}} if manager else {}
    entry = {"manager": manager, "fieldsV1": fields}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "a", "managedFields": [entry]},
        "spec": {"replicas": replicas},
    }


async def watched(cluster: FakeCluster) -> WorkloadObjects:
    """The workloads and their pods, as a watch shows them."""
    world = WorkloadObjects(cluster, Informers(cluster), lambda _: None)
    world.watch([DEPLOYMENT, POD])
    await asyncio.sleep(1)
    return world


async def read(cluster: FakeCluster, world: WorkloadObjects, memory: WriteMemory) -> ScaledServer:
    """The only Server, which is to have two replicas."""
    server = objects.observed_server(decided(2))
    found = await read_scaled_servers([server], world, cluster, memory, objects.NOW)
    assert found is not None
    return found[0]


async def test_an_own_write_that_the_watch_has_not_shown_yet_is_no_foreign_one() -> None:
    cluster, memory = FakeCluster(), WriteMemory()
    cluster.add(deployment("kubectl"))
    world = await watched(cluster)
    await world.read_scales([PLACE])
    scale = world.scale_of(PLACE)
    assert scale is not None
    world.note_scale(await cluster.set_scale(scale, 1, FieldManager.ACTUATION))
    memory[PLACE].note_write(1)

    scaled = await read(cluster, world, memory)

    assert (scaled.foreign_writer, scaled.named[0].replicas) == (None, 1)
    await world.stop()


async def test_a_write_of_a_whole_serving_leaves_its_selector_as_it_was() -> None:
    """What its status tells is that of all pods, and nothing before its controller has run."""
    cluster, place = FakeCluster(), Place(KTHENA.serving, Key("default", "m"))
    header = {"apiVersion": KTHENA.serving.api_version, "kind": KTHENA.serving.kind}
    cluster.add({**header, "metadata": {"name": "m"}, "spec": {"replicas": 1}})
    world = WorkloadObjects(cluster, Informers(cluster), lambda _: None)
    world.watch([KTHENA.serving])
    await asyncio.sleep(1)
    await world.read_scales([place])
    scale = world.scale_of(place)
    assert scale is not None
    written = await cluster.set_scale(scale, 2, FieldManager.ACTUATION)

    world.note_scale(replace(written, selector=""))

    after = world.scale_of(place)
    assert after is not None
    assert (after.replicas, after.selector) == (2, scale.selector)
    assert scale.selector
    await world.stop()


async def test_a_write_that_the_watch_has_not_shown_yet_is_waited_for() -> None:
    """As after a write that was refused because another manager wrote in between."""
    cluster, memory = LateCluster(), WriteMemory()
    cluster.add(deployment(FieldManager.ACTUATION))
    world = await watched(cluster)
    memory[PLACE].note_write(1)
    cluster.delay = 60.0
    cluster.add(deployment("kubectl"))
    world.forget_scale(PLACE)

    early = await read(cluster, world, memory)
    await asyncio.sleep(61)
    late = await read(cluster, world, memory)

    assert (early.is_known, early.foreign_writer) == (False, None)
    assert late.is_known
    assert late.foreign_writer is not None
    assert late.foreign_writer.name == "field manager 'kubectl'"
    await world.stop()


@pytest.mark.parametrize(
    ("written", "fails", "is_foreign"), [(1, False, False), (2, False, True), (2, True, False)]
)
async def test_a_number_that_the_operator_has_not_written_is_foreign_if_nobody_is_named(
    written: int, *, fails: bool, is_foreign: bool
) -> None:
    """As after a number of 0; a write that failed may have arrived."""
    cluster, memory = FakeCluster(), WriteMemory()
    cluster.add(deployment(replicas=1))
    world = await watched(cluster)
    memory[PLACE].note_write(written)
    if fails:
        memory[PLACE].note_failure("no answer", objects.NOW)

    scaled = await read(cluster, world, memory)

    assert (scaled.foreign_writer is not None) is is_foreign
    await world.stop()
