"""The tail of the Erlang distribution, to about 14 digits and without underflow.

Q(a, x) = P(a sum of a exponentials of mean 1 exceeds x) = Gamma(a, x) / Gamma(a), for a whole
number a of at least 1. With m = x^a e^-x / Gamma(a), the two ends of the integral of
t^(a-1) e^-t are

    Q(a, x)     = m * integral of e^(-x u) (1 + u)^(a-1) for u > 0         (t = x (1 + u)),
    1 - Q(a, x) = m * integral of e^(x u) (1 - u)^(a-1) for 0 < u < 1      (t = x (1 - u)).

The first is used for x >= a and the second for x < a, so that the integrand decreases from
u = 0: Gauss-Legendre quadrature over the part that is not negligible then needs few nodes.
"""

import math

import numpy as np

from inferno_optimizer.sizing.queueing import BoolArray, FloatArray

ROWS = 2**10
"""Tails computed at a time, so that their nodes fit into the CPU cache."""

DEPTH = 37.0
"""The integral ends where the integrand has decreased by a factor of e^-37, below 1e-16."""

NODES, WEIGHTS = np.polynomial.legendre.leggauss(32)
"""Nodes and weights of the quadrature on [-1, 1]; shapes (32,)."""

TINY = np.finfo(np.float64).tiny

CERTAIN = 100.0
"""Where x is so far below a that Q(a, x) < 1 by less than e^-100, it is 1."""

NEAR = 0.5
"""Relative distance of x from the shape below which log1p of that distance is used."""

LARGE = 16
"""From this shape on, five terms of Stirling's series are exact to the last digit."""

SMALL_ERRORS = np.array(
    [0.0]
    + [
        math.lgamma(n + 1) - (n + 0.5) * math.log(n) + n - 0.5 * math.log(2.0 * math.pi)
        for n in range(1, LARGE)
    ]
)
"""Errors of Stirling's formula for log n!, for n = 0..LARGE-1."""


def log_erlang_tail(shape: FloatArray, x: FloatArray) -> FloatArray:
    """Logarithm of Q(shape, x).

    Parameters
    ----------
    shape
        Whole numbers of at least 1; shape (n,).
    x
        At least 0; shape (n,).

    Returns
    -------
    FloatArray
        At most 0; shape (n,).
    """
    result = np.empty(len(x))
    for start in range(0, len(x), ROWS):
        rows = slice(start, start + ROWS)
        result[rows] = _log_tail(shape[rows], np.maximum(x[rows], TINY))
    return result


def log_erlang_tail_if_less(shape: FloatArray, x: FloatArray) -> FloatArray:
    """The same without an integral where Q is 1 to the last digit, see `CERTAIN`.

    The other tails may differ in their last bits: the sum over the nodes of an integral is rounded
    differently as there are more or fewer of them.
    """
    result = np.zeros(len(x))
    ratio = np.minimum(np.maximum(x, TINY) / shape, 1.0)
    rows = np.flatnonzero(shape * (ratio - 1.0 - np.log(ratio)) < CERTAIN)  # Chernoff's bound
    result[rows] = log_erlang_tail(shape[rows], x[rows])
    return result


def _log_tail(shape: FloatArray, x: FloatArray) -> FloatArray:
    above = x >= shape
    end = np.minimum(_log_mass(shape, x) + np.log(_integral(shape, x, above)), 0.0)
    below = np.minimum(np.exp(end), 1.0 - np.finfo(np.float64).epsneg)
    return np.where(above, end, np.log1p(-below))


def _log_mass(shape: FloatArray, x: FloatArray) -> FloatArray:
    """Logarithm of x^a e^-x / Gamma(a), without cancellation of its large parts.

    Loader's form [Fast and Accurate Computation of Binomial Probabilities, 2000].
    """
    excess = (x - shape) / shape
    near = np.abs(excess) < NEAR
    log_ratio = np.where(near, np.log1p(np.where(near, excess, 0.0)), np.log(x) - np.log(shape))
    deviance = shape * (excess - log_ratio)
    return -deviance + 0.5 * np.log(shape / (2.0 * math.pi)) - _stirling_error(shape)


def _stirling_error(shape: FloatArray) -> FloatArray:
    """Error of Stirling's formula: log a! minus the value of the formula."""
    inverse = shape**-2.0
    series = 1 / 1260 - inverse * (1 / 1680 - inverse / 1188)
    large: FloatArray = (1 / 12 - inverse * (1 / 360 - inverse * series)) / shape
    small = SMALL_ERRORS[np.minimum(shape, LARGE - 1).astype(np.int64)]
    return np.where(shape < LARGE, small, large)


def _integral(shape: FloatArray, x: FloatArray, above: BoolArray) -> FloatArray:
    """The first integral of the module docstring where `above` is true, else the second."""
    power, side = shape - 1.0, np.where(above, 1.0, -1.0)
    reach = _reach(power, np.maximum(side * (x - power), 0.0), above)
    u = side * reach * (NODES[:, None] + 1.0) / 2.0
    area: FloatArray = WEIGHTS @ np.exp(power * np.log1p(u) - x * u)
    return area * reach / 2.0


def _reach(power: FloatArray, slope: FloatArray, above: BoolArray) -> FloatArray:
    """A distance u within which the logarithm of the integrand decreases by `DEPTH`.

    It decreases by at least slope * u + power * u^2 / 2; where `above` is true, the second term
    is divided by 1 + u. Setting this equal to `DEPTH` gives a quadratic equation. Where `above`
    is false, the distance is at most 1.
    """
    square = np.where(above, slope, 0.0) + power / 2.0
    linear = np.where(above, slope - DEPTH, slope)
    divisor = linear + np.sqrt(linear**2 + 4.0 * square * DEPTH)
    return 2.0 * DEPTH / np.where(above, divisor, np.maximum(divisor, 2.0 * DEPTH))
