"""What Servers keep while they miss targets: what their replicas carry, on whatever they run."""

from collections.abc import Sequence

import numpy as np
import pytest

from inferno_operator.controllers.measurement.load import add_planned_load, apply_measurement
from inferno_operator.controllers.planning.snapshot import Inputs, take_snapshot
from inferno_operator.resources import Measured, Resource, Server
from inferno_operator.resources.measurement import Quality
from inferno_optimizer.optimize import optimize
from inferno_optimizer.system import Allocation, System
from tests.unit.operator import objects
from tests.unit.operator.objects import NOW, Manifest

SLOW, FAST = objects.performance(), objects.performance("B", alpha=99.9, beta=0)
"""A replica on A carries 60 requests/min, one on B ten times as much."""


def others(price: float, *data: Manifest) -> list[Resource]:
    """Accelerator A for 10 and B for a price, with performance data, and cards for all."""
    manifests = (
        objects.accelerator("A"),
        objects.accelerator("B", cost=price),
        objects.model(data=data or (SLOW, FAST)),
        objects.service_class(),
        objects.capacity(1000),
    )
    return [found for each in manifests if (found := objects.observed(each).resource) is not None]


def on(accelerator: str, replicas: int, price: float = 10) -> Manifest:
    """Replicas on an accelerator."""
    return {"accelerator": accelerator, "numReplicas": replicas, "cost": price * replicas}


def server(runs: Manifest, decided: Manifest | None = None, **spec: object) -> Server:
    """A measured Server with replicas, as decided if nothing else is."""
    measure = {"source": "vLLM", "labels": {"model_name": "m"}}
    fields = {"measure": measure, "currentAlloc": runs, "desiredAlloc": decided or runs, **spec}
    found = objects.observed(objects.server("S", spec=fields)).resource
    assert isinstance(found, Server)
    return found


def system_of(
    subject: Server, rate: float, rest: Sequence[Resource], quality: Quality = "Fresh"
) -> System:
    """The system of an optimization while targets are missed at a load [requests/min]."""
    missed = ("slo-ttft",) if quality == "Fresh" else ()
    found = Measured(
        time=NOW, quality=quality, arrival_rate=rate, avg_out_tokens=1, misses_targets=missed
    )
    loaded = apply_measurement(subject, add_planned_load(found, subject, None, None, NOW))
    return take_snapshot(Inputs([*rest, loaded], stored=[subject], now=NOW)).system


def decided(
    subject: Server, rate: float, rest: Sequence[Resource], quality: Quality = "Fresh"
) -> tuple[str, int]:
    """Where an optimization puts the Server, and with how many replicas."""
    allocation: Allocation = optimize(system_of(subject, rate, rest, quality)).allocations["S"]
    return allocation.accelerator, allocation.replicas


def test_a_server_that_misses_targets_moves_to_fewer_faster_replicas() -> None:
    """17 on A cost 170; two on B cost 100 and carry more, 17 on B would cost 850."""
    assert decided(server(on("A", 17)), 900, others(50)) == ("B", 2)


def test_it_keeps_what_its_replicas_carry_where_others_are_slower() -> None:
    """Two on B carry as much as 20 on A: two on A would be hardly anything, and not cheaper."""
    assert decided(server(on("B", 2, 90)), 70, others(90)) == ("B", 2)
    assert decided(server(on("B", 2, 900)), 70, others(900)) == ("A", 20)


def test_it_keeps_the_number_where_it_stays() -> None:
    assert decided(server(on("A", 6)), 70, others(70)) == ("A", 6)
    assert decided(server(on("A", 6)), 700, others(1000)) == ("A", 12)


def test_what_somebody_asks_for_is_a_number_everywhere() -> None:
    assert decided(server(on("A", 40), minNumReplicas=5), 900, others(50)) == ("B", 5)


def test_partial_measurements_keep_what_was_decided_if_that_is_less_than_runs() -> None:
    subject = server(on("A", 17), on("A", 15))

    assert decided(subject, 60, others(1000), "Partial") == ("A", 15)
    assert decided(subject, 60, others(50), "Partial") == ("B", 2)


def test_the_number_stays_where_it_is_not_known_what_replicas_carry() -> None:
    rest = others(70, FAST)

    assert system_of(server(on("A", 17)), 900, rest).servers[0].min_replicas == 17


@pytest.mark.parametrize("seed", range(20))
def test_rounding_asks_for_no_replica_more(seed: int) -> None:
    random = np.random.default_rng(seed)
    alpha, beta = random.uniform(1, 50), random.uniform(0.01, 1)
    data = objects.performance(alpha=alpha, beta=beta)
    rest = others(1000, {**data, "maxBatchSize": int(random.integers(1, 64))}, FAST)
    replicas = int(random.integers(1, 200))

    assert decided(server(on("A", replicas)), 1.0, rest) == ("A", replicas)
