"""When a load counts as another one: only where chance does not explain the difference."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from inferno_optimizer.noise import MOST_NOISE, find_moved, followed, noise, significant_rate

LONG_S, SHORT_S = 300.0, 60.0
RATES = st.floats(0, 1000, allow_subnormal=False)


def column(*numbers: float) -> np.ndarray[tuple[int, ...], np.dtype[np.float64]]:
    """The numbers of one load."""
    return np.array(numbers, dtype=np.float64)[:, None]


def test_constant_arrivals_are_seldom_taken_for_more() -> None:
    random, rate = np.random.default_rng(1), 5.0
    short = random.poisson(rate * SHORT_S, 100_000) / SHORT_S
    rest = random.poisson(rate * (LONG_S - SHORT_S), 100_000) / (LONG_S - SHORT_S)
    long = (short * SHORT_S + rest * (LONG_S - SHORT_S)) / LONG_S

    seen = significant_rate(long, LONG_S, [(short, SHORT_S)])

    assert np.count_nonzero(seen != long) <= 1


@given(RATES, RATES)
def test_a_load_never_falls_below_the_newest_nor_rises_above_both(last: float, new: float) -> None:
    rate = float(followed(column(last), column(new), LONG_S)[0, 0])

    assert rate == last or new <= rate <= max(last, new)


@given(RATES, RATES)
def test_the_same_load_again_changes_nothing(last: float, new: float) -> None:
    once = followed(column(last), column(new), LONG_S)

    assert np.array_equal(followed(once, column(new), LONG_S), once)


@pytest.mark.parametrize(("last", "new", "changes"), [(500.0, 520.0, False), (500.0, 540.0, True)])
def test_lengths_count_from_a_twentieth_on(last: float, new: float, *, changes: bool) -> None:
    busy = 1000.0

    assert find_moved(column(busy, last), column(busy, new), LONG_S).tolist() == [changes]


def test_a_number_that_becomes_known_counts_and_one_that_stays_unknown_does_not() -> None:
    nothing = float("nan")

    assert find_moved(column(1, nothing), column(1, 500), LONG_S).tolist() == [True]
    assert find_moved(column(1, nothing), column(1, nothing), LONG_S).tolist() == [False]


def test_few_requests_are_noise_up_to_a_half() -> None:
    assert float(noise(0.01, LONG_S)) > MOST_NOISE
    assert not find_moved(column(0.02), column(0.011), LONG_S).any()
    assert find_moved(column(0.02), column(0.009), LONG_S).all()
