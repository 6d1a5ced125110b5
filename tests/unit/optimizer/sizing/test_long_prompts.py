"""Predictions of generation 4 beside simulated steps, where prompts take long."""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pytest

from inferno_optimizer.system import StepParameters
from tests.h100.runs import latencies, replica
from tests.unit.optimizer.apart_simulation import Requests, Seen, requests_of


@dataclass
class Served:
    """A request in the batch: steps before its prompt may be computed, and what is left of it."""

    came: float
    inputs: float
    outputs: float
    ahead: int
    prompt: float
    made: int = 0
    first: float = 0.0
    last: float = 0.0


def serve(law: StepParameters, batch: int, requests: Requests) -> Seen:
    """What each request sees, but for the first tenth.

    A step makes a token for each request that decodes, and computes prompts with what is left of
    the budget, first come, first served. A request that has ended stays for the steps ahead.
    """
    rows = zip(
        *(a.tolist() for a in (requests.times, requests.inputs, requests.outputs)), strict=True
    )
    waiting, running = deque(rows), list[Served]()
    ended: list[Served] = []
    now = 0.0
    while waiting or running:
        if all(one.made == one.outputs for one in running) and waiting:
            now = max(now, waiting[0][0])
        while waiting and len(running) < batch and waiting[0][0] <= now:
            came, inputs, outputs = waiting.popleft()
            running.append(Served(came, inputs, outputs, int(law.ahead), prompt=inputs))
        now += _step(law, running)
        for one in running:
            if one.made and not one.first:
                one.first = now
            if one.made == one.outputs and not one.last:
                one.last, one.ahead = now, int(law.ahead) + 1
                ended.append(one)
        running = [one for one in running if not one.last or one.ahead > 0]
    counted = ended[len(ended) // 10 :]
    ttft = np.array([one.first - one.came for one in counted])
    itl = np.array([(one.last - one.first) / (one.outputs - 1) for one in counted])
    return Seen(ttft, itl)


def _step(law: StepParameters, running: Sequence[Served]) -> float:
    """Do a step, and return how long it takes [ms]."""
    decoding = [one for one in running if 0 < one.made < one.outputs]
    cached = sum(one.inputs + one.made + law.overhead for one in decoding)
    left = law.budget - len(decoding)
    computed = 0.0
    for one in running:
        if one.ahead == 0 and one.prompt > 0 and left > 0:
            taken = min(left, one.prompt)
            one.prompt -= taken
            left, computed = left - taken, computed + taken
            one.made = int(one.prompt == 0)
        one.ahead = max(one.ahead - 1, 0)
    for one in decoding:
        one.made += 1
    extra = law.u * cached if computed else 0.0
    return law.alpha + law.kappa * cached + extra + law.delta * computed


# Predictions of generation 4 beside simulated steps, where prompts take long


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
