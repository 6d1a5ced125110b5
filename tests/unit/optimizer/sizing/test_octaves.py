"""Sums over the likely states of a chain, against sums over all of them."""

import numpy as np
import pytest

from inferno_optimizer.sizing.octaves import LogRatios, last_likely, sums_up_to
from inferno_optimizer.sizing.queueing import FloatArray
from tests.unit.optimizer.sizing.test_step_model import wild

DEEP, FLAT, FULL = (-3.0, 3.0), (-0.02, 0.0), (0.0, 0.7)
"""How fast the ratios of chains rise or fall."""


def every_state(batch: int, ratios: FloatArray) -> tuple[float, float, float]:
    """The sum of n p(n), and p(N), divided by the sum of p(n); and how exact they are."""
    level = np.append(0.0, np.cumsum(ratios))
    weights = np.exp(level - level.max())
    return (
        float(np.arange(batch + 1) @ weights / weights.sum()),
        float(weights[-1] / weights.sum()),
        float(1e-12 * np.abs(ratios).sum() + 1e-13),
    )


def in_ln_n(slopes: FloatArray, offsets: FloatArray) -> LogRatios:
    """Ratios whose logarithm is a cubic function of ln n, which an octave interpolates exactly."""

    def log_ratios(rows: slice, states: FloatArray) -> FloatArray:
        x = np.log(states) / np.log(65536.0)
        return np.asarray(offsets[rows] + slopes[rows] * (x - 2.0 * x**2 + 0.5 * x**3))

    return log_ratios


@pytest.mark.parametrize("span", [DEEP, FLAT, FULL], ids=["deep", "flat", "full"])
def test_likely_states_have_the_sums_of_all_states(span: tuple[float, float]) -> None:
    random = np.random.default_rng(7)
    batch = np.sort(np.exp(random.uniform(0, np.log(20_000), 200)).astype(np.int64))[::-1]
    slopes, offsets = random.uniform(*span, (2, 200))
    log_ratios = in_ln_n(slopes, offsets)

    last = last_likely(batch, log_ratios)
    order = np.argsort(-last, kind="stable")
    total, moment, full = sums_up_to(last[order], in_ln_n(slopes[order], offsets[order]))

    for row, (size, most) in enumerate(
        zip(batch[order].tolist(), last[order].tolist(), strict=True)
    ):
        states = np.arange(1.0, size + 1.0)[:, None]
        mean, at_end, exact = every_state(
            size, log_ratios(slice(order[row], order[row] + 1), states)[:, 0]
        )
        assert moment[row] / total[row] == pytest.approx(mean, rel=exact, abs=1e-20)
        found = full[row] / total[row] if most == size else 0.0
        assert found == pytest.approx(at_end, rel=exact, abs=1e-20)


def test_states_are_left_out_only_where_they_do_not_matter_in_the_step_model() -> None:
    model = wild(1000)
    for share in (0.01, 0.5, 0.9, 0.999, 3.0):
        rate = share * model.batch / model.full_ms
        whole = model.averages_up_to(model.batch, rate)

        found = model.averages(rate)

        assert found.in_service == pytest.approx(whole.in_service, rel=1e-12)
        assert found.waiting == pytest.approx(whole.waiting, rel=1e-9, abs=1e-20)
