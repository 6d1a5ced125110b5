"""48 wrong manifests: what ran before runs afterwards, and a condition names the mistake.

Capacity, Accelerator, Model and ServiceClass, each deleted, renamed and mistyped, in each mode.
"""

import asyncio
from collections.abc import AsyncGenerator, Iterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import pytest

from inferno_operator.adapters.optimizers.endpoint import Endpoint
from inferno_operator.adapters.optimizers.remote import RemoteOptimizer, StatefulRemoteOptimizer
from inferno_operator.controllers.planning.controller import OptimizationController
from inferno_operator.controllers.planning.ports import SystemOptimizer
from inferno_operator.controllers.scaling.decision import read_decision
from inferno_operator.controllers.scaling.publication import publish
from inferno_operator.resources import Server
from inferno_operator.resources.objects import Key, kind_of
from inferno_operator.resources.observation import observe
from inferno_operator.runtime.informers import Informers
from tests.controlplane.waiting import PATIENCE_S
from tests.fakes import FakeCluster, FakeOptimizer
from tests.rest_optimizer import RestOptimizer
from tests.unit.operator import objects
from tests.unit.operator.controllers.planning.scene import context_of
from tests.unit.operator.objects import (
    Manifest,
    manifest,
    model,
    optimizer,
    performance,
    running,
    server,
    service_class,
)


def cards(name: str, card_type: str, cost: float) -> Manifest:
    spec = {"name": name, "type": card_type, "cost": cost}
    return manifest("Accelerator", spec, name=name.lower())


def workload(server_name: str, accelerator: str) -> Manifest:
    return {"accelerator": accelerator, "name": f"{server_name}-{accelerator.lower()}"}


def anywhere(name: str, runs: Manifest) -> Manifest:
    """A Server with a workload on each accelerator."""
    workloads = [workload(name, "A100"), workload(name, "H100")]
    return server(name, spec={"currentAlloc": runs, "workloads": workloads})


SCENE = (
    cards("A100", "A100", 10),
    cards("H100", "H100", 30),
    model(data=[performance("A100"), performance("H100")]),
    service_class(),
    manifest(
        "Capacity",
        {"count": [{"type": "A100", "count": 3}, {"type": "H100", "count": 8}]},
        name="cards",
    ),
    anywhere("chat", running(3, 3, "A100")),
    anywhere("mail", running(2, 2, "H100")),
)
"""3 of 3 A100 and 2 of 8 H100 are in use; nothing is to be changed."""

BEFORE = {"chat": {"A100": 3}, "mail": {"H100": 2}}


CHANGED = {"Capacity": "cards", "Accelerator": "a100", "Model": "m", "ServiceClass": "c"}
"""The object of each kind in which the mistake is made."""

KINDS = {
    "cards": "Capacity",
    "chat": "Server",
    "mail": "Server",
    "m": "Model",
    "inferno": "Optimizer",
}
"""The kinds of the objects that say what is wrong."""

NO_CARDS, NO_UNIT = "no Capacity lists card type '{}'", "no accelerator is named '{}'"
NO_TYPE, NO_CLASS = "no accelerator has type '{}'", "no service class is named 'C'"
NO_MODEL = "no model with performance data is named"
NEAR = "; did you mean {}?"


def counts(**cards: int) -> Manifest:
    return {"count": [{"type": name, "count": count} for name, count in cards.items()]}


MISTYPED = {"data": [performance("A10O"), performance("H100")]}
A100, H100 = NO_CARDS.format("A100"), NO_CARDS.format("H100")
GONE, GONE_O = NO_UNIT.format("A100"), NO_UNIT.format("A10O")
MISTAKES: dict[str, tuple[Manifest | None, dict[str, str]]] = {
    "Capacity deleted": (None, {"chat": A100, "mail": H100, "inferno": A100}),
    "Capacity renamed": (
        counts(A100=3, Hopper=8),
        {"cards": NO_TYPE.format("Hopper"), "mail": H100, "inferno": H100},
    ),
    "Capacity mistyped": (
        counts(a100=3, h100=8),
        {
            "cards": NO_TYPE.format("a100") + NEAR.format("A100"),
            "chat": A100 + NEAR.format("a100"),
            "mail": H100 + NEAR.format("h100"),
            "inferno": H100 + NEAR.format("h100"),
        },
    ),
    "Accelerator deleted": (None, {"chat": GONE, "inferno": GONE}),
    "Accelerator renamed": (
        {"name": "a100"},
        {"chat": GONE + NEAR.format("a100"), "inferno": GONE},
    ),
    "Accelerator mistyped": (
        {"type": "a100"},
        {
            "chat": NO_CARDS.format("a100") + NEAR.format("A100"),
            "cards": NO_TYPE.format("A100") + NEAR.format("a100"),
            "inferno": NO_TYPE.format("A100") + NEAR.format("a100"),
        },
    ),
    "Model deleted": (None, {"chat": NO_MODEL}),
    "Model renamed": ({"name": "m"}, {"chat": f"{NO_MODEL} 'M'"}),
    "Model mistyped": (MISTYPED, {"chat": GONE_O, "m": GONE_O, "inferno": GONE_O}),
    "ServiceClass deleted": (None, {"chat": NO_CLASS}),
    "ServiceClass renamed": ({"name": "Gold"}, {"chat": NO_CLASS, "inferno": NO_CLASS}),
    "ServiceClass mistyped": (
        {"data": [{"model": "m"}]},
        {"chat": "class 'C' has no targets for model 'M'"},
    ),
}
"""What a person deletes (None) or writes, and words of what objects say of it."""


def find(cluster: FakeCluster, kind: str, name: str) -> dict[str, Any]:
    return cluster.objects[kind, Key("default", name)]


def make(mistake: str, cluster: FakeCluster) -> None:
    """Make a mistake in the objects of a cluster."""
    kind, _, _ = mistake.partition(" ")
    changes, _ = MISTAKES[mistake]
    stored = find(cluster, kind, CHANGED[kind])
    if changes is None:
        stored["metadata"]["finalizers"] = []
        cluster.remove(kind_of(objects.kind_of(stored)), Key("default", CHANGED[kind]))
    else:
        cluster.add({**stored, "spec": {**stored["spec"], **changes}})


@pytest.fixture
def rest() -> Iterator[RestOptimizer]:
    with RestOptimizer() as optimizer:
        yield optimizer


def local(_rest: RestOptimizer) -> SystemOptimizer:
    return FakeOptimizer()


def remote(rest: RestOptimizer) -> SystemOptimizer:
    return RemoteOptimizer(Endpoint("127.0.0.1", rest.port), time_limit=5.0)


def stateful_remote(rest: RestOptimizer) -> SystemOptimizer:
    return StatefulRemoteOptimizer(Endpoint("127.0.0.1", rest.port), time_limit=5.0)


MODES = {
    "stateless local": (local, False),
    "stateless remote": (remote, False),
    "stateful local": (local, True),
    "stateful remote": (stateful_remote, True),
}


@asynccontextmanager
async def operated(
    cluster: FakeCluster, solver: SystemOptimizer, *, stateful: bool
) -> AsyncGenerator[None]:
    context = context_of(cluster, solver)
    store = solver if isinstance(solver, StatefulRemoteOptimizer) else None
    controller = OptimizationController(context, Informers(cluster), stateful=stateful, store=store)
    task = asyncio.create_task(controller.run())
    try:
        yield
    finally:
        await controller.stop()
        task.cancel()
        await asyncio.wait([task])


async def optimized(cluster: FakeCluster) -> None:
    """Ask for an optimization, and wait until it is done."""
    cluster.add({**optimizer(), "status": {}})
    async with asyncio.timeout(PATIENCE_S):
        while find(cluster, "Optimizer", "inferno")["spec"]["optimize"]:
            await cluster.something_changed()


def replicas(cluster: FakeCluster) -> dict[str, Mapping[str, int]]:
    """What `desiredAlloc` of each Server says; actuation and autoscalers must not differ."""
    found: dict[str, Mapping[str, int]] = {}
    for name, before in BEFORE.items():
        observation = observe(Server, find(cluster, "Server", name))
        assert isinstance(observation.resource, Server)
        desired = observation.resource.spec.desired_alloc
        assert desired is not None
        found[name] = {part.accelerator: part.num_replicas for part in desired.parts}
        assert read_decision(observation.resource).replicas in (None, before)
        assert publish(observation, None).replicas in (None, before)
    return found


def said(cluster: FakeCluster, kind: str, name: str) -> str:
    """The messages of the conditions that are not true, or of the Optimizer."""
    conditions = find(cluster, kind, name).get("status", {}).get("conditions", [])
    return "; ".join(
        c["message"] for c in conditions if c["status"] != "True" or kind == "Optimizer"
    )


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("mistake", MISTAKES)
async def test_what_runs_stays_and_a_condition_names_the_mistake(
    mistake: str, mode: str, rest: RestOptimizer
) -> None:
    cluster = FakeCluster()
    for item in SCENE:
        cluster.add(item)
    solver, stateful = MODES[mode]

    async with operated(cluster, solver(rest), stateful=stateful):
        await optimized(cluster)
        assert replicas(cluster) == BEFORE
        make(mistake, cluster)
        await optimized(cluster)
        await optimized(cluster)

    assert replicas(cluster) == BEFORE
    for name, words in MISTAKES[mistake][1].items():
        assert words in said(cluster, KINDS[name], name)
