"""What a replica is predicted to do, against watching one do it, event by event."""

from collections.abc import Callable, Sequence

import numpy as np
import pytest

from inferno_optimizer.sizing.generations import model_of
from inferno_optimizer.sizing.latencies import Latencies
from inferno_optimizer.sizing.limits import TargetLimits
from inferno_optimizer.sizing.performance import Requests
from inferno_optimizer.sizing.replicas import Replicas
from inferno_optimizer.system import (
    DecodeParameters,
    PerformanceParameters,
    PrefillDecodeParameters,
    Target,
    TokenBudgetParameters,
)
from tests.tiers import extended
from tests.unit.optimizer.oracles import (
    AnyReplica,
    BudgetReplica,
    PrefillReplica,
    Replica,
)
from tests.unit.optimizer.simulation import interval, simulate

OVERLOADED = 5
"""Cases where more requests come than can be served; right at the limit a run takes ages."""

CASES, RUNS, EVENTS = 20, 40, 12_000
Make = Callable[[np.random.Generator, int], AnyReplica]

P95 = 1
"""Place of the 95th percentile in a tail."""


def first_generation(random: np.random.Generator, batch: int) -> Replica:
    alpha, beta = random.uniform(2, 30), random.uniform(0.1, 2)
    return Replica(alpha, beta, batch, int(random.integers(1, 600)))


def second_generation(random: np.random.Generator, batch: int) -> PrefillReplica:
    alpha, beta = random.uniform(2, 30), random.uniform(0.1, 2)
    gamma, delta = random.uniform(0, 200), random.uniform(0.001, 0.1)
    inputs, outputs = int(random.integers(1, 2000)), int(random.integers(2, 600))
    return PrefillReplica(alpha, beta, gamma, delta, batch, inputs, outputs)


def third_generation(random: np.random.Generator, batch: int) -> BudgetReplica:
    alpha, beta, gamma = (random.uniform(*ends) for ends in ((2, 9), (0.01, 0.1), (1e-4, 1e-3)))
    inputs, outputs = int(random.integers(0, 12_000)), int(random.integers(1, 600))
    queue_size = int(random.integers(0, 8 * batch))
    return BudgetReplica(alpha, beta, gamma, batch, inputs, outputs, queue_size)


def parameters_of(replica: AnyReplica) -> PerformanceParameters:
    match replica:
        case PrefillReplica(alpha, beta, gamma, delta):
            return PrefillDecodeParameters(alpha, beta, gamma, delta)
        case BudgetReplica(alpha, beta, gamma):
            return TokenBudgetParameters(alpha, beta, gamma)
        case Replica(alpha, beta):
            return DecodeParameters(alpha, beta)
    raise TypeError(replica)


def predict(replicas: Sequence[AnyReplica], rates: Sequence[float]) -> Latencies:
    """Predictions for replicas of one generation, in descending order of batch."""
    lengths = [getattr(r, "tokens", 0) or getattr(r, "outputs", 0) for r in replicas]
    prompts = np.array([getattr(r, "inputs", 0) for r in replicas])
    requests = Requests(
        np.array([r.batch for r in replicas]),
        np.array(lengths),
        prompts,
        np.array([getattr(r, "queue_size", 0) for r in replicas]),
        np.ones(len(replicas)),
        np.ones(len(replicas)),
        prompts,
        np.ones(len(replicas)),
    )
    every = np.arange(len(replicas))
    model = model_of([parameters_of(r) for r in replicas], every, requests)
    limits = TargetLimits.of([Target()] * len(replicas))
    return Replicas(model, limits).latencies(np.array(rates))


@pytest.mark.slow
@pytest.mark.parametrize("make", [third_generation, *extended(first_generation, second_generation)])
def test_waits_their_tail_and_the_inter_token_latency_are_those_of_a_simulation(make: Make) -> None:
    random = np.random.default_rng(11)
    batches = sorted(random.integers(1, 14, CASES).tolist(), reverse=True)
    replicas = [make(random, batch) for batch in batches]
    loads = [*random.uniform(0.5, 0.88, CASES - OVERLOADED), *random.uniform(1.15, 2, OVERLOADED)]
    rates = [load * r.rate(r.batch) for load, r in zip(loads, replicas, strict=True)]
    predicted = predict(replicas, rates)

    seen = simulate(replicas, rates, RUNS, EVENTS, seed=1)

    for case, (replica, runs) in enumerate(zip(replicas, seen, strict=True)):
        p95 = predicted.wait_percentiles[case, P95]
        beyond = interval([float(np.mean(run.waits_ms > p95)) for run in runs])
        assert predicted.wait_ms[case] in interval([float(np.mean(run.waits_ms)) for run in runs])
        assert 0.05 in beyond or (p95 == 0 and beyond.low <= 0.05)
        assert predicted.itl_ms[case] in interval([replica.itl_of(run.queue) for run in runs])
