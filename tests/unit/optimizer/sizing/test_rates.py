"""The highest rate of a replica, against its queue in plain Python and published numbers."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import example as with_example
from hypothesis import given
from hypothesis import strategies as st

from inferno_optimizer.explain.options import Option, explain
from inferno_optimizer.sizing.generations import model_of
from inferno_optimizer.sizing.limits import TargetLimits
from inferno_optimizer.sizing.performance import Requests
from inferno_optimizer.sizing.rates import size
from inferno_optimizer.sizing.replicas import ROUNDING, Replicas
from inferno_optimizer.system import (
    Allocation,
    DecodeParameters,
    Load,
    PerformanceProfile,
    Server,
    Target,
)
from tests.examples import several
from tests.unit.optimizer.oracles import Replica
from tests.unit.optimizer.systems import one_server


@dataclass(frozen=True)
class Asked:
    """A replica and its targets; 0 is none."""

    replica: Replica
    itl: float = 0.0
    wait: float = 0.0
    tps: float = 0.0


def rates(asked: Sequence[Asked]) -> list[float]:
    """Highest rates [requests/ms] of replicas that stand in descending order of batch."""
    return sized([a.replica for a in asked], [Target(a.itl, a.wait, a.tps) for a in asked])


def sized(replicas: Sequence[Replica], targets: Sequence[Target]) -> list[float]:
    """Highest rates [requests/ms] of replicas in descending order of batch."""
    parameters = [DecodeParameters(replica.alpha, replica.beta) for replica in replicas]
    batch, tokens = (
        np.array([getattr(replica, name) for replica in replicas]) for name in ("batch", "tokens")
    )
    nothing, covs = np.zeros_like(tokens), np.ones(len(tokens))
    requests = Requests(batch, tokens, nothing, nothing, covs, covs, nothing, covs)
    model = model_of(parameters, np.arange(len(replicas)), requests)
    return [float(rate) for rate in size(Replicas(model, TargetLimits.of(targets))).max_rate]


def rate_of(replica: Replica, itl: float = 0.0, wait: float = 0.0, tps: float = 0.0) -> float:
    return rates([Asked(replica, itl, wait, tps)])[0]


def rate_within(replica: Replica, target: Target) -> float:
    """Highest rate [requests/ms] within any target."""
    return sized([replica], [target])[0]


REPLICAS = st.builds(
    Replica,
    alpha=st.floats(2, 40),
    beta=st.floats(0.05, 2),
    batch=st.integers(2, 30),
    tokens=st.integers(1, 2000),
)


def targets_of(replica: Replica) -> st.SearchStrategy[Asked]:
    """Targets from just out of reach to comfortable."""
    least, most = replica.alpha + replica.beta, replica.alpha + replica.beta * replica.batch
    longest = most * replica.tokens
    return st.builds(
        Asked,
        st.just(replica),
        itl=st.just(0.0) | st.floats(0.95 * least, 1.1 * most),
        wait=st.just(0.0) | st.floats(1e-6, 3).map(lambda share: share * longest),
        tps=st.sampled_from([0.0, 100.0]),
    )


@several(40)
@given(asked=REPLICAS.flatmap(targets_of))
@with_example(Asked(Replica(29.908203125, 1.05078125, 2, 1), itl=30.9609375))
def test_the_highest_rate_keeps_all_targets_and_a_little_more_misses_one(asked: Asked) -> None:
    replica, highest = asked.replica, 0.999 * asked.replica.rate(asked.replica.batch)
    rate = rates([asked])[0]

    if rate == 0:
        assert not replica.keeps(0.001 * replica.rate(1) * (1 + 1e-9), asked.itl, asked.wait)
    else:
        rounded = 1 + 2 * ROUNDING  # where latencies hardly depend on the rate, that is more of it
        assert replica.keeps(rate * (1 - 1e-8), asked.itl * rounded, asked.wait * rounded)
        at_the_limit = rate >= (0.9 if asked.tps else 1.0) * highest * (1 - 1e-9)
        assert at_the_limit or not replica.keeps(rate * 1.0001, asked.itl, asked.wait)


def test_replicas_sized_together_have_the_rates_of_those_sized_alone() -> None:
    asked = [
        Asked(Replica(10 + batch / 7, 0.4, batch, 300), itl=20.0 + batch / 5, wait=400)
        for batch in range(60, 1, -1)
    ]

    alone = [rates([one])[0] for one in asked]

    assert rates(asked) == pytest.approx(alone, rel=1e-9)


FLAT = [
    *(
        Replica(alpha, 0.0, batch, 777)
        for alpha in (0.1, 17.3, 20.0, 1 / 3)
        for batch in (1, 3, 38)
    ),
    *(Replica(23.37, 0.0, batch, tokens) for batch in (2, 7) for tokens in (1, 100, 512)),
    Replica(20.0, 0.5, 1, 512),
]


@pytest.mark.parametrize("replica", FLAT, ids=str)
def test_a_flat_latency_keeps_a_target_that_it_equals_and_misses_one_below(
    replica: Replica,
) -> None:
    latency, highest = replica.alpha + replica.beta, 0.999 * replica.rate(replica.batch)

    kept = [rate_of(replica, itl=latency * room) for room in (1, 1 + 1e-9, 1.01, 100)]

    assert kept == pytest.approx([highest] * 4)
    assert rate_of(replica, itl=latency * (1 - 1e-6)) == 0


def test_a_wait_below_that_of_an_all_but_empty_queue_is_out_of_reach() -> None:
    replica = Replica(20.0, 0.5, 1, 512)
    floor = replica.queue(0.001 * replica.rate(1)).wait_ms * math.log(20)

    assert rate_of(replica, wait=floor * 0.999) == 0
    assert rate_of(replica, wait=floor * 1.001) > 0


def test_a_replica_is_used_up_to_a_thousandth_below_saturation_or_a_tenth_for_a_throughput() -> (
    None
):
    replica = Replica(17.15, 0.34, 38, 512)
    highest = 0.999 * 38 / (512 * (17.15 + 0.34 * 38))

    assert rate_of(replica) == pytest.approx(highest)
    assert rate_of(replica, tps=1) == pytest.approx(0.9 * highest)
    assert rate_of(replica, itl=17.49) == 0  # below that of a single request


def example(
    rate: float, batch: int = 0, tps: float = 0.0, itl: float = 40.0, wait: float = 500.0
) -> Option:
    """512 tokens on a G2 at 25 cents/hour: see `sizing.md`, section "A worked example"."""
    profile = PerformanceProfile("granite-13b", "G2", DecodeParameters(17.15, 0.34), 38, 512)
    load = Allocation(load=Load(rate, 512))
    server = Server("server", "Premium", "granite-13b", load, max_batch_size=batch)
    return explain(one_server(server, profile, target=Target(itl, wait, tps)), "server")[0]


@pytest.mark.parametrize(
    ("example", "sizes", "max_rate", "itl_ms", "wait_ms"),
    [
        (example(60), (1, 38), 119.6586, 21.1764, 1.3e-5),
        (example(60, batch=8), (3, 8), 24.5746, 18.5598, 46.42),
        (example(60, tps=5000, itl=0, wait=0), (5, 38), 133.149, 26.4701, 112.684),
    ],
    ids=["large batch", "small batch", "throughput target"],
)
def test_the_example_has_its_published_numbers(
    example: Option, sizes: tuple[int, int], max_rate: float, itl_ms: float, wait_ms: float
) -> None:
    assert (example.replicas, example.max_batch_size) == sizes
    assert example.max_rate == pytest.approx(max_rate, rel=5e-6)
    assert example.itl_ms == pytest.approx(itl_ms, abs=1e-4)
    assert example.wait_ms == pytest.approx(wait_ms, abs=1e-6, rel=1e-4)


def test_the_time_to_first_token_of_the_first_generation_is_the_wait_and_an_iteration() -> None:
    replica, limit = Replica(17.15, 0.34, 8, 512), 300.0

    rate = rate_within(replica, Target(ttft_ms=limit))

    queue = replica.queue(rate)
    assert queue.wait_ms + queue.service_ms / 512 == pytest.approx(limit)


@pytest.mark.parametrize(
    ("alpha", "beta", "tokens"), [(1e-12, 1e-12, 1), (1e9, 1e9, 10**6), (1e-12, 1e9, 512)]
)
def test_extreme_parameters_have_a_rate_all_the_same(
    alpha: float, beta: float, tokens: int
) -> None:
    replica = Replica(alpha, beta, 40, tokens)

    assert rate_of(replica) == pytest.approx(0.999 * replica.rate(40))


def test_a_batch_of_thousands_is_sized() -> None:
    replica = Replica(17.15, 0.34, 20_000, 1)

    rate = rate_of(replica, itl=400.0, wait=500.0)

    assert 0 < rate < 0.999 * replica.rate(20_000)
