"""What Servers say without an optimization: wrong names at once, and that nobody plans any more."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import pytest

from inferno_operator.controllers.planning.controller import ServerCheck
from inferno_operator.controllers.planning.ports import OnDemand
from inferno_operator.resources import Optimizer, Server
from inferno_operator.resources.objects import Key, Manifest, kind_of
from inferno_operator.runtime.informers import Informers
from inferno_operator.runtime.work_queue import Locks
from inferno_optimizer.errors import UnavailableError
from tests.fakes import FakeCluster
from tests.unit.operator.background import started
from tests.unit.operator.controllers.planning import scene
from tests.unit.operator.controllers.planning.scene import until
from tests.unit.operator.objects import (
    NOW,
    accelerator,
    born,
    capacity,
    manifest,
    model,
    server,
    service_class,
)

S = Key("default", "s")
WITHOUT_TARGET = manifest("ServiceClass", {"name": "Empty", "priority": 1}, name="empty")
SCENE = (accelerator(), model(), service_class(), WITHOUT_TARGET, capacity(4))
OPTIMIZER = manifest("Optimizer", {"optimize": False, "interval": 60}, name="o")
PATIENCE_S = 10.0


@asynccontextmanager
async def checking(cluster: FakeCluster) -> AsyncGenerator[None]:
    check = ServerCheck(cluster, Informers(cluster), OnDemand(cluster), lambda: NOW, Locks())
    async with started(check):
        yield


def cluster_of(*manifests: Manifest) -> FakeCluster:
    return scene.cluster_of(*SCENE, *manifests)


def conditions(cluster: FakeCluster, key: Key = S) -> dict[str, tuple[str, str]]:
    status = cluster.objects["Server", key].get("status", {})
    return {c["type"]: (c["status"], c["reason"]) for c in status.get("conditions", [])}


def decided(name: str = "S") -> Manifest:
    """A Server that an optimization looked at."""
    told = {"status": "True", "reason": "Allocated", "message": "2 x A100"}
    conditions = [
        {"type": type_, **told, "lastTransitionTime": f"{NOW:%FT%TZ}"}
        for type_ in ("Ready", "Allocated")
    ]
    return {**server(name), "status": {"active": True, "conditions": conditions}}


@pytest.mark.parametrize(
    ("spec", "reason"),
    [
        ({"class": "gone"}, "UnknownClass"),
        ({"model": "gone"}, "UnknownModel"),
        ({"class": "Empty"}, "NoTarget"),
        ({"class": "gone", "currentAlloc": None, "measure": {"source": "vLLM"}}, "UnknownClass"),
    ],
)
async def test_a_new_server_with_a_wrong_name_says_so(spec: Manifest, reason: str) -> None:
    cluster = cluster_of()

    async with checking(cluster):
        cluster.add(server("S", spec={**spec, "measure": None}))
        await until(cluster, lambda: bool(conditions(cluster)))

    expected = ("False", reason)
    assert conditions(cluster) == {"Ready": expected, "Allocated": expected}
    assert [event.reason for event in cluster.events] == [reason]
    assert "desiredAlloc" not in cluster.objects["Server", S]["spec"]


async def test_a_corrected_name_waits_for_the_next_optimization() -> None:
    cluster = cluster_of(server("S", spec={"class": "gone"}))

    async with checking(cluster):
        await until(cluster, lambda: bool(conditions(cluster)))
        cluster.add(server("S"))
        await until(cluster, lambda: conditions(cluster)["Ready"] == ("Unknown", "NotOptimized"))

    assert conditions(cluster)["Allocated"] == ("False", "UnknownClass")


async def test_servers_with_known_names_are_not_written() -> None:
    cluster = cluster_of(server("S"), server("Bad", spec={"class": "gone"}))

    async with checking(cluster):
        await until(cluster, lambda: bool(conditions(cluster, Key("default", "bad"))))

    assert cluster.writes == ["status Server bad"]


async def test_a_server_that_an_optimization_looked_at_is_checked_when_its_names_change() -> None:
    """At the start it is not: that would read all objects of every namespace again."""
    known = decided()
    cluster = cluster_of(known, OPTIMIZER)

    async with checking(cluster):
        cluster.add({**known, "spec": {**known["spec"], "keepAccelerator": True}})
        await asyncio.sleep(PATIENCE_S)
        assert cluster.writes == []
        cluster.add({**known, "spec": {**known["spec"], "model": "gone"}})
        await until(cluster, lambda: conditions(cluster)["Ready"][0] == "False")

    assert conditions(cluster)["Allocated"] == ("False", "UnknownModel")


def named(name: str, minute: int, workload: str) -> Manifest:
    """A Server with a workload, and when it was made."""
    workloads = [{"accelerator": "A", "name": workload}]
    return server("S", spec={"workloads": workloads}, name=name, creationTimestamp=born(minute))


@pytest.mark.parametrize("field", ["name", "workloads"])
async def test_the_younger_of_two_servers_waits_for_a_decision_once_the_older_is_gone(
    field: str,
) -> None:
    younger = named("younger", 1, "w")
    younger["spec"]["name"] = "S" if field == "name" else "other"
    younger["spec"]["workloads"][0]["name"] = "v" if field == "name" else "w"
    cluster, key = cluster_of(named("older", 0, "w")), Key("default", "younger")

    async with checking(cluster):
        cluster.add(younger)
        await until(cluster, lambda: bool(conditions(cluster, key)))
        told = cluster.objects["Server", key]["status"]["conditions"]
        refused = conditions(cluster, key)
        cluster.remove(kind_of(Server), Key("default", "older"))
        await until(cluster, lambda: conditions(cluster, key) != refused)

    assert refused == dict.fromkeys(("Ready", "Allocated"), ("False", "InvalidSpec"))
    assert all(c["message"].startswith(f"{field}: ") and "'older'" in c["message"] for c in told)
    assert conditions(cluster, key)["Ready"] == ("Unknown", "NotOptimized")


async def test_a_server_that_names_another_workload_frees_it_for_the_younger_one() -> None:
    younger, key = named("younger", 1, "w"), Key("default", "younger")
    younger["spec"]["name"] = "other"
    cluster = cluster_of(named("older", 0, "w"), younger)

    async with checking(cluster):
        await until(cluster, lambda: bool(conditions(cluster, key)))
        cluster.add(named("older", 0, "v"))
        await until(cluster, lambda: conditions(cluster, key)["Ready"][1] == "NotOptimized")

    assert conditions(cluster, Key("default", "older")) == {}


async def test_a_failure_is_tried_again() -> None:
    cluster = cluster_of()

    async with checking(cluster):
        await asyncio.sleep(1)
        cluster.failing["Server"] = UnavailableError("connection refused")
        cluster.add(server("S", spec={"class": "gone"}))
        await asyncio.sleep(5)
        cluster.failing.clear()
        await until(cluster, lambda: bool(conditions(cluster)))

    assert conditions(cluster)["Ready"] == ("False", "UnknownClass")


async def test_servers_that_are_deleted_are_forgotten() -> None:
    cluster = cluster_of(server("S", spec={"class": "gone"}))

    async with checking(cluster):
        await until(cluster, lambda: bool(conditions(cluster)))
        cluster.remove(kind_of(Server), S)
        cluster.add(server("S", spec={"class": "gone"}, uid="another"))
        await until(cluster, lambda: bool(conditions(cluster)))

    assert conditions(cluster)["Ready"] == ("False", "UnknownClass")


async def test_servers_say_once_that_their_optimizer_is_deleted_until_there_is_another_one() -> (
    None
):
    cluster = cluster_of(decided(), server("Undecided"), OPTIMIZER)

    async with checking(cluster):
        await asyncio.sleep(PATIENCE_S)
        assert cluster.writes == []
        cluster.remove(kind_of(Optimizer), Key("default", "o"))
        await until(cluster, lambda: conditions(cluster)["Ready"] == ("Unknown", "NoOptimizer"))
        await asyncio.sleep(PATIENCE_S)
        assert cluster.writes == ["status Server s"]
        cluster.add({**OPTIMIZER, "metadata": {**OPTIMIZER["metadata"], "uid": "another"}})
        await until(cluster, lambda: conditions(cluster)["Ready"] == ("Unknown", "NotOptimized"))

    assert conditions(cluster)["Allocated"] == ("True", "Allocated")
    assert cluster.objects["Server", S]["status"]["active"]
    assert conditions(cluster, Key("default", "undecided")) == {}


async def test_an_optimizer_that_is_deleted_while_no_operator_runs_is_missed() -> None:
    cluster = cluster_of(decided())

    async with checking(cluster):
        await until(cluster, lambda: conditions(cluster)["Ready"] == ("Unknown", "NoOptimizer"))

    assert cluster.writes == ["status Server s"]


async def test_one_of_two_optimizers_is_enough() -> None:
    other = manifest("Optimizer", {"optimize": False}, name="other")
    cluster = cluster_of(decided(), OPTIMIZER, other)

    async with checking(cluster):
        await asyncio.sleep(1)
        cluster.remove(kind_of(Optimizer), Key("default", "other"))
        await asyncio.sleep(PATIENCE_S)

    assert cluster.writes == []


async def test_of_a_server_with_a_wrong_name_this_is_said_also_without_an_optimizer() -> None:
    cluster = cluster_of(decided(), OPTIMIZER)

    async with checking(cluster):
        await asyncio.sleep(1)
        cluster.remove(kind_of(Optimizer), Key("default", "o"))
        cluster.add({**decided(), "spec": {**server("S")["spec"], "model": "gone"}})
        await until(cluster, lambda: conditions(cluster)["Ready"] == ("False", "UnknownModel"))
        await asyncio.sleep(PATIENCE_S)

    assert conditions(cluster)["Ready"] == ("False", "UnknownModel")
