"""No decision follows from a faulty answer of an optimizer, and one line says why."""

import asyncio
import copy
import subprocess
import sys
from datetime import datetime

import pytest

from inferno_operator.adapters.optimizers.endpoint import Endpoint
from inferno_operator.adapters.optimizers.remote import MARGIN, RemoteOptimizer
from inferno_operator.controllers.planning.reconcile import reconcile
from inferno_operator.resources.objects import Key
from tests.fakes import FakeCluster
from tests.memory import peak_mib
from tests.rest_optimizer.faults import FAULTS, TOO_LITTLE, Fault, changed, serving
from tests.unit.operator.controllers.planning.scene import context_of
from tests.unit.operator.objects import (
    NOW,
    Manifest,
    accelerator,
    capacity,
    model,
    optimizer,
    performance,
    running,
    server,
    service_class,
)

INFERNO = Key("default", "inferno")
PATIENCE = 1.5
"""How long the operator waits for an answer that is too late [s]."""

LONG_PATIENCE = 60.0
"""How long it waits for other answers, on a busy machine [s]."""

LONGEST = 600
"""Characters of a message that a person reads."""

MOST_MEMORY = 512
"""What all faults together may take [MiB], with the optimizer that commits them."""

MANIFESTS = (
    accelerator(),
    accelerator("B"),
    model("M", [performance(), performance("B")]),
    service_class(),
    capacity(12),
    server("S", wanted=2, spec={"currentAlloc": running(2, 2)}),
    server("T", wanted=1, spec={"currentAlloc": running(1, 1), "keepAccelerator": True}),
    server("floor", wanted=1, spec={"currentAlloc": running(3, 1), "minNumReplicas": 3}),
    optimizer(parameters={"saturationPolicy": "None"}),
)


def cluster() -> FakeCluster:
    """Three servers that run, and a request."""
    filled = FakeCluster()
    for item in MANIFESTS:
        filled.add(copy.deepcopy(item))
    return filled


async def ask(fakes: FakeCluster, fault: Fault) -> None:
    """Reconcile a request at an optimizer with a fault."""
    with serving(fault) as faulty:
        patience = PATIENCE if "no answer within" in fault.words else LONG_PATIENCE
        remote = RemoteOptimizer(Endpoint("127.0.0.1", faulty.port), patience - MARGIN)
        await reconcile(INFERNO, context_of(fakes, remote, now))
        assert not faulty.followed.is_set()


def now() -> datetime:
    return NOW


def servers(fakes: FakeCluster) -> list[Manifest]:
    return [copy.deepcopy(item) for key, item in fakes.objects.items() if key[0] == "Server"]


@pytest.mark.parametrize("name", [*FAULTS, *TOO_LITTLE])
async def test_no_decision_follows_from_a_faulty_answer_and_a_line_says_why(name: str) -> None:
    fault = {**FAULTS, **TOO_LITTLE}[name]
    fakes = cluster()
    before = servers(fakes)

    await ask(fakes, fault)

    assert servers(fakes) == before
    status = fakes.objects["Optimizer", INFERNO]["status"]
    told = {condition["type"]: condition for condition in status["conditions"]}["Optimized"]
    assert told["status"] == "False"
    assert told["reason"] in ("SolverFailed", "Unavailable")
    assert fault.words in told["message"]
    assert told["message"].startswith("http://127.0.0.1:")
    assert "\n" not in told["message"]
    assert len(told["message"].encode()) < LONGEST


async def test_the_right_answer_is_taken() -> None:
    fakes = cluster()

    await ask(fakes, Fault(changed(lambda _: None), ""))

    given = {s["spec"]["name"]: s["spec"]["desiredAlloc"] for s in servers(fakes)}
    replicas = {name: desired["numReplicas"] for name, desired in given.items()}
    assert replicas == {"S": 2, "T": 1, "floor": 3}


@pytest.mark.extended
@pytest.mark.slow
def test_faulty_answers_take_little_memory() -> None:
    code = "from tests.unit.operator.adapters.optimizers.test_faulty_answers import most_memory"
    child = subprocess.run(
        [sys.executable, "-c", f"{code}; print(most_memory())"],
        capture_output=True,
        text=True,
        check=True,
    )

    assert int(child.stdout) < MOST_MEMORY


def most_memory() -> int:
    """The most memory that this process took after all faulty answers [MiB]."""
    for fault in {**FAULTS, **TOO_LITTLE}.values():
        asyncio.run(ask(cluster(), fault))
    return peak_mib()
