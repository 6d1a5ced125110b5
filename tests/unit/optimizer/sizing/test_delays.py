"""Percentiles of a wait and what varies after it, against their own tail; and what they cost."""

from dataclasses import dataclass
from typing import cast

import numpy as np
import pytest

from inferno_optimizer.sizing.queueing import FloatArray, IntArray
from inferno_optimizer.sizing.spread import Spread
from inferno_optimizer.sizing.waiting import delay_percentile, log_delay_tail, wait_percentile
from tests.unit.optimizer.sizing.test_step_model import wild

LOADS = [1e-3, 0.5, 0.9, 0.99, 1.5]


@dataclass(frozen=True, slots=True)
class Counted:
    """A spread that counts the queues whose tails are computed."""

    spread: Spread
    tails: list[int]

    def take(self, rows: IntArray) -> "Counted":
        """Some of the rows, which are counted too."""
        return Counted(self.spread.take(rows), self.tails)

    def tail(self, beyond_ms: FloatArray) -> FloatArray:
        """The tail of the spread, counted."""
        self.tails.append(len(beyond_ms))
        return self.spread.tail(beyond_ms)

    def quantile(self, share: FloatArray) -> FloatArray:
        """That of the spread, which needs no tail."""
        return self.spread.quantile(share)


@pytest.mark.parametrize("share", [0.01, 0.5, 0.9, 0.99, 0.99999])
@pytest.mark.parametrize("load", LOADS)
def test_so_many_requests_are_within_a_percentile_and_fewer_within_any_less(
    load: float, share: float
) -> None:
    model = wild(300)
    queue = model.averages(load * model.batch / model.full_ms)
    mean, spread = model.first_token_ms(queue), model.first_token_spread(queue)
    shares = np.full(300, share)

    found = delay_percentile(queue, mean, spread, shares, wait_percentile(queue, shares))

    beyond, before = (
        np.exp(log_delay_tail(queue, mean, spread, found * factor)) for factor in (1.0, 1.0 - 1e-6)
    )
    assert (beyond <= (1.0 - share) * (1.0 + 1e-9)).all()
    at_all = found > 1e-6 * mean  # a gamma distribution may have more requests below 0
    assert (before >= (1.0 - share) * (1.0 - 1e-9))[at_all].all()


@pytest.mark.parametrize("load", LOADS)
def test_a_percentile_takes_a_few_tails(load: float) -> None:
    """Two ends of a bracket, and a few between them."""
    model = wild(300)
    queue = model.averages(load * model.batch / model.full_ms)
    mean, shares = model.first_token_ms(queue), np.full(300, 0.95)
    counted = Counted(model.first_token_spread(queue), [])
    waits = wait_percentile(queue, shares)

    delay_percentile(queue, mean, cast("Spread", counted), shares, waits)

    assert sum(counted.tails) <= 9 * 300
    assert len(counted.tails) <= 20
