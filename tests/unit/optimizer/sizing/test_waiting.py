"""The distribution of the wait, against the Erlang tail of every state that a request meets."""

import math
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from inferno_optimizer.sizing.queueing import Averages, FloatArray, averages
from inferno_optimizer.sizing.waiting import log_tail, wait_percentile
from tests.examples import several
from tests.tiers import extended
from tests.unit.optimizer.oracles import share_waiting_longer

ABOUT_ONE = [1 - 1e-3, 1 - 1e-6, 1 - 1e-8, 1 - 1e-14, 1.0, 1 + 1e-14, 1 + 1e-8, 1 + 1e-6, 1.001]
LOADS = [1e-3, 0.3, 0.9, *ABOUT_ONE, 1.2, 3, 50, 1e4]
TIMES = [0, 1e-6, 0.1, 1, 5, 30, 200, 1500]
"""In intervals between departures of a full batch."""


def queue(load: float, intervals: Sequence[float], limit: int) -> Averages:
    """One queue; the load is the rate of arrivals over that of departures of a full batch."""
    known = np.array(intervals)

    def look_up(_rows: slice, states: FloatArray) -> FloatArray:
        found: FloatArray = known[states.astype(np.int64) - 1]
        return found

    rate = np.array([load / intervals[-1]])
    return averages(rate, np.array([len(known)]), np.array([limit]), look_up)


def share_beyond(found: Averages, time_ms: float) -> float:
    return math.exp(log_tail(found, np.array([time_ms]))[0])


def percentile(found: Averages, share: float) -> float:
    return float(wait_percentile(found, np.array([share]))[0])


def decode_times(batch: int) -> list[float]:
    return [512 * (20.58 / n + 0.41) for n in range(1, batch + 1)]


@pytest.mark.parametrize("places", [1, 2, 9, 150])
@pytest.mark.parametrize("batch", [1, 17, *extended(2)])
@pytest.mark.parametrize("load", LOADS)
def test_the_tail_is_the_sum_of_erlang_tails(load: float, batch: int, places: int) -> None:
    times, limit = decode_times(batch), batch + places

    found = queue(load, times, limit)

    for time in TIMES:
        expected = share_waiting_longer(load / times[-1], times, limit, time * times[-1])
        assert share_beyond(found, time * times[-1]) == pytest.approx(
            expected, rel=2e-7, abs=1e-300
        )


@several(60)
@given(
    times=st.lists(st.floats(0.1, 100), min_size=1, max_size=20),
    load=st.floats(1e-3, 10),
    places=st.integers(1, 60),
    time=st.floats(0, 100),
)
def test_any_rates_even_falling_ones_have_the_tail_of_the_sum(
    times: list[float], load: float, places: int, time: float
) -> None:
    limit = len(times) + places

    found = share_beyond(queue(load, times, limit), time)

    expected = share_waiting_longer(load / times[-1], times, limit, time)
    assert found == pytest.approx(expected, rel=1e-6, abs=1e-250)


@pytest.mark.parametrize("load", LOADS)
@pytest.mark.parametrize("share", [0.5, 0.9, 0.95, 0.99, 0.999])
def test_a_percentile_is_the_least_time_that_so_many_wait_for_at_most(
    share: float, load: float
) -> None:
    times = decode_times(12)

    time = percentile(queue(load, times, 100), share)

    beyond = share_waiting_longer(load / times[-1], times, 100, time)
    assert beyond <= (1 - share) * (1 + 1e-6)
    assert time == 0 or beyond == pytest.approx(1 - share, rel=1e-6)


def test_without_a_limit_it_is_the_textbook_wait_of_mm1() -> None:
    found = queue(0.8, [5.0], 10_000)

    assert share_beyond(found, 30) == pytest.approx(0.8 * math.exp(-30 * 0.2 / 5))
    assert percentile(found, 0.95) == pytest.approx(5 / 0.2 * math.log(0.8 / 0.05))


def test_where_nobody_may_wait_nobody_does() -> None:
    found = queue(0.9, decode_times(3), 3)

    assert share_beyond(found, 0) == 0
    assert percentile(found, 0.99) == 0


def test_everybody_waits_for_longer_than_less_than_nothing() -> None:
    assert share_beyond(queue(0.1, [1.0], 10), -1e-9) == 1


@pytest.mark.parametrize("places", [10**6, 2**31])
@pytest.mark.parametrize("load", [1e-6, 0.999, 1 - 1e-9, 1.0, 1 + 1e-9, 1.5, 2e9])
def test_huge_queues_have_finite_percentiles(load: float, places: int) -> None:
    found = queue(load, [1.0], 1 + places)

    p90, p99 = percentile(found, 0.9), percentile(found, 0.99)

    assert 0 <= p90 <= p99 <= 1.01 * places
