"""48 wrong manifests: what ran before runs afterwards, and a condition names the mistake.

Capacity, Accelerator, Model and ServiceClass, each deleted, renamed and mistyped, in each mode.
"""

import asyncio
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import pytest

from inferno_operator.adapters.optimizers.endpoint import Endpoint
from inferno_operator.adapters.optimizers.remote import RemoteOptimizer, StatefulRemoteOptimizer
from inferno_operator.controllers.planning.controller import OptimizationController
from inferno_operator.controllers.planning.ports import Context, OnDemand, SystemOptimizer
from inferno_operator.controllers.scaling.decision import read_decision
from inferno_operator.controllers.scaling.publication import publish
from inferno_operator.resources import RESOURCES, Server
from inferno_operator.resources.objects import Key, kind_of
from inferno_operator.resources.observation import observe
from inferno_operator.runtime.informers import Informers
from tests.controlplane.waiting import PATIENCE_S
from tests.fakes import FakeCluster, FakeOptimizer
from tests.rest_optimizer import RestOptimizer
from tests.unit.operator.objects import (
    NOW,
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


@dataclass(frozen=True)
class Mistake:
    """A wrong manifest, and what a condition of an object says about it.

    `spec` is None if the object is deleted, else what it has instead.
    """

    kind: str
    name: str
    spec: Callable[[Manifest], Manifest] | None
    told: Mapping[tuple[str, str], str]


def having(**fields: object) -> Callable[[Manifest], Manifest]:
    return lambda spec: {**spec, **fields}


def counting(**counts: int) -> Callable[[Manifest], Manifest]:
    return having(count=[{"type": name, "count": count} for name, count in counts.items()])


CHAT, MAIL, INFERNO, CARDS = (
    ("Server", "chat"),
    ("Server", "mail"),
    ("Optimizer", "inferno"),
    ("Capacity", "cards"),
)
MISTAKES = {
    "Capacity deleted": Mistake(
        "Capacity",
        "cards",
        None,
        {
            CHAT: "no Capacity lists card type 'A100'",
            MAIL: "no Capacity lists card type 'H100'",
            INFERNO: "no Capacity lists card type 'A100'",
        },
    ),
    "Capacity renamed": Mistake(
        "Capacity",
        "cards",
        counting(A100=3, Hopper=8),
        {
            CARDS: "no accelerator has type 'Hopper'",
            MAIL: "no Capacity lists card type 'H100'",
            INFERNO: "no Capacity lists card type 'H100'",
        },
    ),
    "Capacity mistyped": Mistake(
        "Capacity",
        "cards",
        counting(a100=3, h100=8),
        {
            CARDS: "no accelerator has type 'a100'; did you mean A100?",
            CHAT: "no Capacity lists card type 'A100'; did you mean a100?",
            MAIL: "no Capacity lists card type 'H100'; did you mean h100?",
            INFERNO: "no Capacity lists card type 'H100'; did you mean h100?",
        },
    ),
    "Accelerator deleted": Mistake(
        "Accelerator",
        "a100",
        None,
        {CHAT: "no accelerator is named 'A100'", INFERNO: "no accelerator is named 'A100'"},
    ),
    "Accelerator renamed": Mistake(
        "Accelerator",
        "a100",
        having(name="a100"),
        {
            CHAT: "no accelerator is named 'A100'; did you mean a100?",
            INFERNO: "no accelerator is named 'A100'",
        },
    ),
    "Accelerator mistyped": Mistake(
        "Accelerator",
        "a100",
        having(type="a100"),
        {
            CHAT: "no Capacity lists card type 'a100'; did you mean A100?",
            CARDS: "no accelerator has type 'A100'; did you mean a100?",
            INFERNO: "no accelerator has type 'A100'; did you mean a100?",
        },
    ),
    "Model deleted": Mistake("Model", "m", None, {CHAT: "no model with performance data is named"}),
    "Model renamed": Mistake(
        "Model", "m", having(name="m"), {CHAT: "no model with performance data is named 'M'"}
    ),
    "Model mistyped": Mistake(
        "Model",
        "m",
        having(data=[performance("A10O"), performance("H100")]),
        {
            CHAT: "no accelerator is named 'A10O'",
            ("Model", "m"): "no accelerator is named 'A10O'",
            INFERNO: "no accelerator is named 'A10O'",
        },
    ),
    "ServiceClass deleted": Mistake(
        "ServiceClass", "c", None, {CHAT: "no service class is named 'C'"}
    ),
    "ServiceClass renamed": Mistake(
        "ServiceClass",
        "c",
        having(name="Gold"),
        {CHAT: "no service class is named 'C'", INFERNO: "no service class is named 'C'"},
    ),
    "ServiceClass mistyped": Mistake(
        "ServiceClass",
        "c",
        having(data=[{"model": "m"}]),
        {CHAT: "class 'C' has no targets for model 'M'"},
    ),
}


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
    context = Context(cluster, OnDemand(cluster), solver, lambda: NOW, lambda: NOW)
    store = solver if isinstance(solver, StatefulRemoteOptimizer) else None
    controller = OptimizationController(context, Informers(cluster), stateful=stateful, store=store)
    task = asyncio.create_task(controller.run())
    try:
        yield
    finally:
        await controller.stop()
        task.cancel()
        await asyncio.wait([task])


def find(cluster: FakeCluster, kind: str, name: str) -> dict[str, Any]:
    return cluster.objects[kind, Key("default", name)]


async def optimized(cluster: FakeCluster) -> None:
    """Ask for an optimization, and wait until it is done."""
    cluster.add({**optimizer(), "status": {}})
    async with asyncio.timeout(PATIENCE_S):
        while find(cluster, "Optimizer", "inferno")["spec"]["optimize"]:
            await cluster.something_changed()


def make(mistake: Mistake, cluster: FakeCluster) -> None:
    """Make a mistake in the objects of a cluster."""
    stored = find(cluster, mistake.kind, mistake.name)
    if mistake.spec is None:
        stored["metadata"]["finalizers"] = []
        kind = next(kind for kind in RESOURCES if kind.kind == mistake.kind)
        cluster.remove(kind_of(kind), Key("default", mistake.name))
    else:
        cluster.add({**stored, "spec": mistake.spec(stored["spec"])})


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
        c["message"] for c in conditions if c["status"] != "True" or kind == INFERNO[0]
    )


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("mistake", MISTAKES.values(), ids=MISTAKES)
async def test_what_runs_stays_and_a_condition_names_the_mistake(
    mistake: Mistake, mode: str, rest: RestOptimizer
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
    for (kind, name), words in mistake.told.items():
        assert words in said(cluster, kind, name)
