"""Predictions of generation 4 beside simulated steps, where prompts take long."""

import numpy as np
import pytest

from inferno_optimizer.system import StepParameters
from tests.h100.runs import latencies, replica
from tests.unit.optimizer.apart_simulation import requests_of
from tests.unit.optimizer.mixed_simulation import serve

SLOW = StepParameters(45.0, 1.5e-4, 0.25, 1e-4, ahead=1.0, budget=2048.0, overhead=300.0)
"""A large model: a prompt of the budget takes ten times as long as a step without one."""

FAST = StepParameters(5.4, 6.5e-5, 0.0114, 1.34e-4, ahead=1.0, budget=2048.0, overhead=160.0)
"""A small model, as `inferno bench` found it; see tests/data/h100-llama3-3b."""

MANY = 20_000

COV, BATCH, NUMBER = 0.29, 64, 6000


@pytest.mark.parametrize(
    ("inputs", "outputs", "rate"),
    [(512, 128, 2.5), (1024, 128, 1.6), (1500, 96, 1.2), (2048, 64, 0.9), (4000, 200, 0.45)],
)
def test_the_inter_token_latency_counts_prompts_that_came_during_its_own(
    inputs: int, outputs: int, rate: float
) -> None:
    requests = requests_of(np.random.default_rng(1), rate / 1000.0, inputs, outputs, COV, NUMBER)

    seen = serve(SLOW, BATCH, requests)

    found = latencies(replica(SLOW, BATCH, inputs, outputs, COV), rate)
    assert found.itl_ms[0] == pytest.approx(seen.itl.mean(), rel=0.04)
    assert found.ttft_ms[0] == pytest.approx(seen.ttft.mean(), rel=0.12)


@pytest.mark.parametrize(
    ("inputs", "rate"),
    [
        (1280, 14.5),
        (2048, 6.0),
        pytest.param(1280, 8.0, marks=pytest.mark.extended),
        pytest.param(2048, 9.0, marks=pytest.mark.extended),
    ],
    ids=str,
)
def test_a_prompt_of_much_of_the_budget_waits_for_the_steps_of_those_before_it(
    inputs: int, rate: float
) -> None:
    requests = requests_of(np.random.default_rng(1), rate / 1000.0, inputs, 128, COV, MANY)

    seen = serve(FAST, BATCH, requests)

    found = latencies(replica(FAST, BATCH, inputs, 128, COV), rate)
    assert found.ttft_ms[0] == pytest.approx(seen.ttft.mean(), rel=0.05)
    times = np.percentile(seen.ttft, (90, 95, 99))
    assert found.ttft_percentiles[0] == pytest.approx(times, rel=0.07)
