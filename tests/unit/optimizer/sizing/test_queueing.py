"""Averages of queues, against closed forms and against every state summed with 60 digits."""

from collections.abc import Sequence
from fractions import Fraction
from math import factorial

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from inferno_optimizer.sizing.queueing import (
    ROWS,
    Averages,
    DepartureIntervals,
    FloatArray,
    averages,
    distinct_rows,
)
from tests.unit.optimizer.oracles import Queue, birth_death

PRECISION = 1e-11
"""Relative, wherever nothing but rounding stands between two answers."""

SHARES = (1e-6, 0.01, 0.5, 0.99, 1 - 1e-6, 1 - 1e-9, 1.0, 1 + 1e-9, 1 + 1e-6, 1.01, 2.0, 50.0)
"""Arrival rates as shares of the capacity; about 1 the geometric sums change their form."""


def table_of(intervals: Sequence[float]) -> DepartureIntervals:
    """Every queue departs at these intervals; the last one holds for all longer queues."""
    known = np.array(intervals, dtype=np.float64)

    def look_up(_rows: slice, states: FloatArray) -> FloatArray:
        found: FloatArray = known[np.minimum(states, len(known)).astype(np.int64) - 1]
        return found

    return look_up


def solve(rates: Sequence[float], intervals: Sequence[float], limit: int) -> list[Queue]:
    """Queues that differ in their arrival rate alone."""
    found = averages(
        np.array(rates, dtype=np.float64),
        np.full(len(rates), len(intervals)),
        np.full(len(rates), limit),
        table_of(intervals),
    )
    return as_queues(found)


def as_queues(found: Averages) -> list[Queue]:
    columns = (found.throughput.tolist(), found.in_service.tolist(), found.waiting.tolist())
    return [Queue(*numbers) for numbers in zip(*columns, strict=True)]


def numbers(queue: Queue) -> tuple[float, float, float]:
    return queue.throughput, queue.in_service, queue.waiting


@pytest.mark.parametrize("load", ["1/3", "9/10", "1", "3/2", "20"])
@pytest.mark.parametrize(
    ("servers", "limit"), [(1, 1), (1, 11), (1, 200), (2, 2), (5, 9), (16, 16), (17, 40), (40, 90)]
)
def test_proportional_rates_are_the_textbook_queue_mmck(
    servers: int, limit: int, load: str
) -> None:
    offered = Fraction(load) * servers
    full = offered**servers / factorial(servers)
    weights = [offered**n / factorial(n) for n in range(servers)]
    weights += [full * Fraction(load) ** (n - servers) for n in range(servers, limit + 1)]
    p = [weight / sum(weights) for weight in weights]
    in_service = sum(min(n, servers) * p[n] for n in range(limit + 1))
    waiting = sum((n - servers) * p[n] for n in range(servers, limit + 1))

    found = solve([float(offered)], [1 / n for n in range(1, servers + 1)], limit)[0]

    assert numbers(found) == pytest.approx(
        (float(offered * (1 - p[limit])), float(in_service), float(waiting)), rel=PRECISION
    )


@pytest.mark.parametrize("places", [1, 2, 10])
@pytest.mark.parametrize("batch", [1, 2, 15, 16, 17, 33, 100, 300])
def test_batches_of_a_language_model_match_the_sum_over_every_state(
    batch: int, places: int
) -> None:
    intervals = [512 * (20.58 / n + 0.41) for n in range(1, batch + 1)]
    rates = [share / intervals[-1] for share in SHARES]
    limit = places * batch

    found = solve(rates, intervals, limit)

    for rate, queue in zip(rates, found, strict=True):
        assert numbers(queue) == pytest.approx(
            numbers(birth_death(rate, intervals, limit)), rel=PRECISION, abs=0
        )


@given(
    intervals=st.lists(st.floats(0.1, 1000), min_size=1, max_size=60).map(
        lambda times: sorted(times, reverse=True)
    ),
    share=st.floats(1e-6, 50),
    places=st.integers(0, 300),
)
def test_rates_that_never_fall_with_the_batch_match_the_sum_over_every_state(
    intervals: list[float], share: float, places: int
) -> None:
    rate, limit = share / intervals[-1], len(intervals) + places

    found = solve([rate], intervals, limit)[0]

    assert numbers(found) == pytest.approx(
        numbers(birth_death(rate, intervals, limit)), rel=1e-9, abs=1e-290
    )


@given(
    intervals=st.lists(st.floats(1e-3, 1e3), min_size=1, max_size=60),
    rate=st.floats(1e-6, 1e3),
    places=st.integers(0, 60),
)
def test_rates_that_rise_and_fall_match_the_sum_over_every_state(
    intervals: list[float], rate: float, places: int
) -> None:
    limit = len(intervals) + places

    found = solve([rate], intervals, limit)[0]

    assert numbers(found) == pytest.approx(
        numbers(birth_death(rate, intervals, limit)), rel=1e-9, abs=1e-250
    )


@pytest.mark.parametrize("batch", [5_000, 65_536])
def test_very_large_batches_stay_finite(batch: int) -> None:
    intervals = [20 / n + 0.4 for n in range(1, batch + 1)]

    found = solve([share / intervals[-1] for share in SHARES], intervals, 10 * batch)

    for share, queue in zip(SHARES, found, strict=True):
        assert np.isfinite([*numbers(queue), queue.service_ms, queue.wait_ms]).all()
        assert queue.throughput <= min(share, 1) / intervals[-1] * (1 + 1e-9)
        assert 0 <= queue.in_service <= batch * (1 + 1e-9)


def test_a_queue_has_the_same_answer_alone_and_among_thousands() -> None:
    rows = ROWS + 700
    random = np.random.default_rng(20)
    batch = np.sort(random.integers(1, 70, rows))[::-1]
    alpha, beta = random.uniform(5, 30, rows), random.uniform(0.1, 1, rows)
    rates = random.uniform(0.01, 3, rows) * batch / (alpha + beta * batch)

    together = averages(rates, batch, 10 * batch, decode(alpha, beta))

    for row in range(0, rows, 97):
        one = slice(row, row + 1)
        alone = averages(rates[one], batch[one], 10 * batch[one], decode(alpha[one], beta[one]))
        assert numbers(as_queues(alone)[0]) == pytest.approx(
            numbers(as_queues(together)[row]), rel=1e-13
        )


def decode(alpha: FloatArray, beta: FloatArray) -> DepartureIntervals:
    """Intervals (alpha + beta n) / n, of another row each."""
    return lambda rows, states: alpha[rows] / states + beta[rows]


def test_no_queue_at_all_is_no_problem() -> None:
    nothing = np.array([], dtype=np.int64)

    found = averages(np.array([]), nothing, nothing, table_of([1.0]))

    assert as_queues(found) == []


def test_rows_of_short_numbers_are_told_apart_and_equal_ones_found() -> None:
    columns = [*np.random.default_rng(1).integers(1, 17, (4, 5000))]
    table = np.column_stack(columns)

    rows, place = distinct_rows(*columns)

    assert len(rows) == len(np.unique(table, axis=0))
    assert np.array_equal(table[rows[place]], table)
