"""Speculative decoding: steps that make several tokens of an answer."""

from dataclasses import replace

import numpy as np
import pytest

from inferno_optimizer.explain.options import explain
from inferno_optimizer.sizing.performance import Requests
from inferno_optimizer.sizing.step_model import StepModel
from inferno_optimizer.system import (
    Allocation,
    Load,
    PerformanceProfile,
    Server,
    StepParameters,
    System,
    Target,
)
from inferno_optimizer.validation import find_problems
from tests.h100.runs import latencies
from tests.unit.optimizer.systems import one_server

STEPS = StepParameters(9.0, 5e-5, 0.02, ahead=1.0)


def replica(
    outputs: int, per_step: float, parameters: StepParameters = STEPS, batch: int = 32
) -> StepModel:
    """A replica of requests with prompts of 500 tokens."""
    one, nothing = np.ones(1), np.zeros(1, np.int64)
    size, tokens, prompts = (np.array([value]) for value in (batch, outputs, 500))
    asked = Requests(size, tokens, prompts, nothing, one, 0.29 * one, prompts, per_step * one)
    return StepModel.of([parameters], nothing, asked)


def test_a_lone_request_takes_fewer_steps_and_each_of_them_gives_several_tokens() -> None:
    model = replica(101, 2.0)
    m = 50 / 53  # of the time it decodes: 50 of its steps, 2 beside them, and the prompt's

    decode = 9.0 + 5e-5 * m * (500 + 101 * (1 + 0.29**2) / 2)

    (lone,) = model.intervals(slice(0, 1), np.ones(1))
    assert lone == pytest.approx(53 * decode + 0.02 * 500)
    assert latencies(model, 1e-6).itl_ms[0] == pytest.approx(decode / 2)
    assert latencies(model, 1e-6).ttft_ms[0] == pytest.approx(2.5 * 9.0 + 0.02 * 500)


@pytest.mark.parametrize("rate", [1.0, 10.0, 25.0])
def test_half_as_many_steps_are_an_answer_of_half_the_length(rate: float) -> None:
    parameters = replace(STEPS, kappa=0.0)  # so that the context of the answer does not matter

    found = latencies(replica(101, 2.0, parameters), rate)
    shorter = latencies(replica(51, 1.0, parameters), rate)

    assert found.ttft_ms == pytest.approx(shorter.ttft_ms)
    assert found.ttft_percentiles == pytest.approx(shorter.ttft_percentiles)
    assert found.itl_ms == pytest.approx(shorter.itl_ms / 2)
    assert found.itl_percentiles == pytest.approx(shorter.itl_percentiles / 2)


def departures_per_ms(
    clients: int, outputs: int, accepted: float, drafts: int, steps: int
) -> float:
    """Throughput of clients who ask again at once, step by step; each draft token by chance."""
    chance = np.random.default_rng(1)
    left = chance.integers(1, outputs, clients).astype(np.float64)
    finished, passed = 0, 0.0
    for _ in range(steps):
        new = left >= outputs  # asked since the last step: this one computes its prompt
        context = np.where(new, 0.0, 500.0 + outputs - left)
        passed += STEPS.alpha + STEPS.kappa * context.sum() + STEPS.delta * 500.0 * new.sum()
        kept = (chance.random((clients, drafts)) < accepted).cumprod(axis=1).sum(axis=1)
        left -= np.where(new, 1.0, 1.0 + kept)
        done = left <= 0
        finished += int(done.sum())
        left[done] = outputs
    return finished / passed


@pytest.mark.parametrize("accepted", [0.0, 0.5, 0.8])
def test_a_full_batch_has_the_throughput_of_simulated_steps(accepted: float) -> None:
    drafts, outputs, clients = 3, 256, 32
    per_step = 1.0 + sum(accepted**i for i in range(1, drafts + 1))
    parameters = replace(STEPS, ahead=0.0)

    model = replica(outputs, per_step, parameters, clients)

    simulated = departures_per_ms(clients, outputs, accepted, drafts, 20_000)
    assert clients / model.full_ms[0] == pytest.approx(simulated, rel=0.03)


def system(per_step: float) -> System:
    """A server with long answers, and as many cards as it likes."""
    load = Load(3000.0, input_tokens=500, output_tokens=400, tokens_per_step=per_step)
    served = Server("chat", "Premium", "llm", Allocation("H100", 4, load=load))
    profile = PerformanceProfile("llm", "H100", STEPS, 64, 400)
    return one_server(served, profile, target=Target(itl_ms=14))


def test_more_tokens_in_a_step_take_fewer_replicas() -> None:
    replicas = [explain(system(per_step), "chat")[0].replicas for per_step in (0, 1, 1.5, 3)]

    assert replicas[0] == replicas[1]
    assert replicas[1] > replicas[2] > replicas[3]


def test_a_step_makes_at_least_one_token() -> None:
    (problem,) = find_problems(system(0.5))

    assert problem.field == "currentAlloc.load.tokensPerStep"
