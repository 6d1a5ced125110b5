"""How much the requests in a batch vary, beside steps that are drawn at random."""

import numpy as np
import pytest

from inferno_optimizer.sizing.crowding import LEAST_INDEX, Crowding, overlap
from inferno_optimizer.sizing.queueing import FloatArray
from inferno_optimizer.sizing.step_law import StepLaw
from inferno_optimizer.sizing.step_ratios import StepRatios

STEPS, AHEAD, MEAN = 60, 1, 20.0


def law(cov: float, busy: float) -> StepLaw:
    """Steps of 1 ms, whatever the batch; prompts take the share `busy` of the time in all."""
    one = np.ones(1)
    prompt = busy * STEPS / ((1.0 - busy) * MEAN) * one
    return StepLaw(
        alpha=one,
        decode_slope=0.0 * one,
        mixed_slope=0.0 * one,
        prefill_ms=prompt,
        steps=STEPS * one,
        ahead=AHEAD * one,
        chunks=1e-9 * one,
        alone=0.0 * one,
        budget_share=0.0 * one,
        length_cov=cov * one,
    )


def drawn(busy: float, *, constant: bool) -> FloatArray:
    """Requests in a batch in many systems, after many steps.

    The prompts that come in a step make a step longer, those ahead later; more come in that time.
    Prompts and stays are all as long, or exponential.
    """
    chance, systems = np.random.default_rng(1), 4000
    each = MEAN / STEPS * (1.0 - busy)
    came = np.zeros((STEPS + AHEAD + 1, systems), dtype=np.int64)
    inside = np.zeros(systems, dtype=np.int64)
    for step in range(12 * STEPS):
        before = came[(step - AHEAD - 1) % len(came)]
        prompts = before if constant else chance.gamma(before)
        new = chance.poisson(each + busy * prompts)
        stayed = came[(step - STEPS) % len(came)]
        inside += new - (stayed if constant else chance.binomial(inside, 1.0 / STEPS))
        came[step % len(came)] = new
    return inside.astype(np.float64)


@pytest.mark.parametrize("constant", [True, False], ids=["constant", "exponential"])
@pytest.mark.parametrize("busy", [0.0, 0.4, 0.7, 0.8])
def test_requests_in_the_batch_vary_as_in_steps_that_are_drawn(busy: float, constant: bool) -> None:
    inside = drawn(busy, constant=constant)

    crowding = Crowding.of(law(0.0 if constant else 1.0, busy), np.ones(1))

    (index,) = crowding.index(np.array([busy]))
    assert inside.mean() == pytest.approx(MEAN, rel=0.05)
    assert inside.var() / inside.mean() == pytest.approx(index, rel=0.1)


@pytest.mark.parametrize("arrival_cov", [0.0, 0.7, 1.0, 1.3])
@pytest.mark.parametrize("busy", [0.0, 0.25])
def test_the_chain_has_the_mean_and_the_variance(arrival_cov: float, busy: float) -> None:
    """Where the stay does not depend on the batch: lambda S, and the index times as much."""
    steps, states = law(0.3, busy), np.arange(1.0, 400.0)[:, None]
    covs, rate = np.array([arrival_cov]), np.array([MEAN / STEPS * (1.0 - busy)])

    ratios = StepRatios(steps, covs, np.array([np.inf]), rate)(slice(0, 1), states)[:, 0]

    (index,) = Crowding.of(steps, covs).index(np.array([busy]))
    weights = np.exp(np.concatenate(([0.0], np.cumsum(ratios))))
    numbers, weights = np.arange(400.0), weights / weights.sum()
    mean = weights @ numbers
    expected = rate * steps.stay_ms(np.full(1, MEAN), rate, steps.step_ms(np.ones(1), rate)[0])
    assert mean == pytest.approx(expected[0], rel=0.005 if index >= 1.0 else 0.02)
    assert weights @ (numbers - mean) ** 2 == pytest.approx(index * mean, rel=0.03)


def test_the_shorter_of_two_stays_is_exact_for_constant_and_exponential_ones() -> None:
    stays = np.random.default_rng(1).gamma(4.0, 0.25, (2, 100_000))

    constant, half, exponential = overlap(np.array([0.0, 0.5, 1.0]))

    assert (constant, exponential) == pytest.approx((1.0, 0.5))
    assert half == pytest.approx(stays.min(axis=0).mean(), rel=0.005)


def test_arrivals_like_clockwork_leave_some_variance() -> None:
    (index,) = Crowding.of(law(0.0, 0.0), np.zeros(1)).index(np.zeros(1))

    assert index == LEAST_INDEX
