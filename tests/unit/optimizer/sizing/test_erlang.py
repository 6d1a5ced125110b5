"""The Erlang tail, against the sum of the Poisson distribution that it is."""

import math
from decimal import Decimal, localcontext

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import gammaincc

from inferno_optimizer.sizing.erlang import log_erlang_tail

SHAPES = [1, 2, 3, 15, 16, 17, 50, 150, 2_560]
DISTANCES = [-8, -3, -1, -1e-6, 0, 1e-3, 0.1, 1, 5, 12, 40]
"""From the mean, in standard deviations."""


def log_tail(shape: float, x: float) -> float:
    return float(log_erlang_tail(np.array([float(shape)]), np.array([x]))[0])


def log_of_poisson_sum(shape: int, x: float) -> float:
    """P(fewer than so many events where x are expected), summed with 60 digits."""
    with localcontext(prec=60):
        term, total = (-Decimal(x)).exp(), Decimal(0)
        for events in range(shape):
            total += term
            term *= Decimal(x) / (events + 1)
        return float(total.ln())


@pytest.mark.parametrize("distance", DISTANCES)
@pytest.mark.parametrize("shape", SHAPES)
def test_the_tail_is_the_sum_of_the_poisson_distribution_to_13_digits(
    shape: int, distance: float
) -> None:
    x = max(shape + distance * math.sqrt(shape), 1e-3 * shape)

    assert log_tail(shape, x) == pytest.approx(log_of_poisson_sum(shape, x), rel=1e-13, abs=1e-13)


@given(st.integers(1, 400), st.floats(1e-6, 5))
def test_any_tail_is_the_sum_of_the_poisson_distribution(shape: int, ratio: float) -> None:
    x = ratio * shape

    assert log_tail(shape, x) == pytest.approx(log_of_poisson_sum(shape, x), rel=1e-12, abs=1e-12)


@pytest.mark.parametrize("distance", [-1, -1e-3, 0, 1, 5])
@pytest.mark.parametrize("shape", [10**6, 2**31])
def test_huge_shapes_have_the_tail_of_scipy(shape: int, distance: float) -> None:
    x = shape + distance * math.sqrt(shape)

    assert log_tail(shape, x) == pytest.approx(math.log(gammaincc(shape, x)), rel=1e-9)


def test_a_single_exponential_has_its_own_tail() -> None:
    times = np.array([0.0, 1e-300, 0.5, 1.0, 20.0, 1e6])

    tails = log_erlang_tail(np.ones(len(times)), times)

    assert tails == pytest.approx(-times, rel=1e-14)
