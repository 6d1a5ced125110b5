"""A load that only fluctuates: what is written of it, and what is told."""

import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta

import pytest

from inferno_operator.controllers.measurement.load import set_load
from inferno_operator.controllers.planning.reconcile import reconcile
from inferno_operator.controllers.planning.updates import (
    has_other_words,
    is_close,
    is_close_message,
    is_same_placement,
)
from inferno_operator.resources import Load, Server
from inferno_operator.resources.objects import Key, Manifest
from inferno_operator.resources.observation import Observation
from tests.fakes import FakeCluster
from tests.unit.operator.controllers.planning.scene import (
    INFERNO,
    TypedLoads,
    cluster_of,
    context_of,
)
from tests.unit.operator.objects import (
    NOW,
    accelerator,
    capacity,
    model,
    optimizer,
    performance,
    server,
    service_class,
)

SERVERS, MINUTES, INTERVAL_S = 50, 10, 10
RATE = 540.0
"""Requests/min of each server: 1.5 times what a replica carries, at 6 standard deviations."""


class PoissonLoads(TypedLoads):
    """Each server has the requests of one minute at the same rate, counted anew each time."""

    def __init__(self) -> None:
        self._random = random.Random(7)  # noqa: S311 - a repeatable choice, not a secret
        self.rate = RATE

    async def with_loads(self, observations: Sequence[Observation]) -> Sequence[Observation]:
        return [
            replace(o, resource=set_load(o.resource, self._load()))
            if isinstance(o.resource, Server)
            else o
            for o in observations
        ]

    def _load(self) -> Load:
        """A normal distribution is near enough to a Poisson distribution at such rates."""
        count = self._random.gauss(self.rate, self.rate**0.5)
        return Load(arrival_rate=round(count, 1), avg_length=1)


class Clock:
    def __init__(self) -> None:
        self.now = NOW


def fleet() -> FakeCluster:
    """Servers that need two replicas each, and an Optimizer with an interval."""
    asked = optimizer(optimize=False)
    fast = model(data=[performance(alpha=999 / 6, beta=0)])
    objects = [accelerator(), fast, service_class(), capacity(4 * SERVERS)]
    servers = [server(f"s{place}") for place in range(SERVERS)]
    interval = {**asked, "spec": {**asked["spec"], "interval": INTERVAL_S}}
    return cluster_of(*objects, *servers, interval)


@pytest.mark.extended
async def test_noise_is_written_once_a_minute_at_most_and_is_no_event() -> None:
    cluster, clock, loads = fleet(), Clock(), PoissonLoads()
    context = context_of(cluster, now=lambda: clock.now, loads=loads)
    await reconcile(INFERNO, context)
    cluster.writes.clear()
    cluster.events.clear()

    for _ in range(MINUTES * 60 // INTERVAL_S):
        clock.now += timedelta(seconds=INTERVAL_S)
        assert not (await reconcile(INFERNO, context)).failed

    by_server = Counter(write for write in cluster.writes if " Server " in write)
    assert max(by_server.values()) <= MINUTES
    assert cluster.events == []


async def test_more_replicas_are_written_at_once() -> None:
    cluster, clock, loads = fleet(), Clock(), PoissonLoads()
    context = context_of(cluster, now=lambda: clock.now, loads=loads)
    await reconcile(INFERNO, context)
    cluster.events.clear()

    loads.rate = 1.7 * RATE
    clock.now += timedelta(seconds=INTERVAL_S)
    await reconcile(INFERNO, context)

    specs = [cluster.objects["Server", Key("default", f"s{n}")]["spec"] for n in range(SERVERS)]
    assert {spec["desiredAlloc"]["numReplicas"] for spec in specs} == {3}
    assert {event.message for event in cluster.events} == {"3 x A"}
    assert len(cluster.events) == SERVERS


@pytest.mark.parametrize(
    ("before", "after", "close"),
    [
        ({"cost": 100.0}, {"cost": 104.9}, True),
        ({"cost": 100.0}, {"cost": 106.0}, False),
        ({"cost": 0}, {"cost": 0.0}, True),
        ({"cost": 0}, {"cost": 0.1}, False),
        ({}, {"cost": 1}, False),
        ({"cost": 1, "more": 2}, {"cost": 1}, True),
        ({"load": {"arrivalRate": 60}}, {"load": {"arrivalRate": 62}}, True),
        ({"load": {"arrivalRate": 60}}, {"load": {"arrivalRate": 70}}, False),
        ({"accelerator": "A"}, {"accelerator": "B"}, False),
        (
            {"mix": [{"accelerator": "A", "cost": 10}, {"accelerator": "B", "cost": 20}]},
            {"mix": [{"accelerator": "B", "cost": 20.1}, {"accelerator": "A", "cost": 10}]},
            True,
        ),
        ({"mix": []}, {"mix": [{"accelerator": "A"}]}, False),
    ],
)
def test_numbers_are_close_within_a_twentieth(
    before: Manifest, after: Manifest, close: bool
) -> None:
    assert is_close(before, after) is close


def test_a_placement_is_the_accelerators_replicas_and_batches_in_any_order() -> None:
    a, b = ({"accelerator": name, "numReplicas": 1, "maxBatch": 4} for name in "AB")
    whole = {"accelerator": "A", "numReplicas": 2, "mix": [a, b]}

    assert is_same_placement(whole, {**whole, "accelerator": "B", "mix": [b, a], "cost": 9})
    assert not is_same_placement(whole, {**whole, "mix": [a, {**b, "numReplicas": 2}]})
    assert not is_same_placement(a, {**a, "maxBatch": 5})


def test_messages_with_other_numbers_say_the_same() -> None:
    first = "gets 2 of the 3 x A it needs: not enough cards; at 60.5 requests/min expect 2e-05 ms"

    assert is_close_message(first, first.replace("60.5", "61"))
    assert not is_close_message(first, first.replace("60.5", "70"))
    assert not has_other_words(first, first.replace("60.5", "70"))
    assert has_other_words(first, first.replace("expect", "fear"))
