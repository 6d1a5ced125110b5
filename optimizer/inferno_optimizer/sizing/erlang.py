"""The tail of the Erlang distribution, to about 14 digits and without underflow.

Q(a, x) = P(a sum of a exponentials of mean 1 exceeds x) = Gamma(a, x) / Gamma(a), for a whole
number a of at least 1. With m = x^a e^-x / Gamma(a), the two ends of the integral of
t^(a-1) e^-t are

    Q(a, x)     = m * integral of e^(-x u) (1 + u)^(a-1) for u > 0         (t = x (1 + u)),
    1 - Q(a, x) = m * integral of e^(x u) (1 - u)^(a-1) for 0 < u < 1      (t = x (1 - u)).

The first is taken from x = a on and the second below, so that the integrand falls from the
start: Gauss-Legendre quadrature over the part where it matters then takes few nodes.
"""

import math

import numpy as np
import numpy.typing as npt

from inferno_optimizer.sizing.queueing import FloatArray

BoolArray = npt.NDArray[np.bool_]

ROWS = 2**10
"""So many tails at once that their nodes fit into the cache."""

DEPTH = 37.0
"""The integrand is left out where it has fallen by a factor of e^-37, less than 1e-16."""

NODES, WEIGHTS = np.polynomial.legendre.leggauss(32)
"""Of the quadrature on [-1, 1]; shapes (32,)."""

TINY = np.finfo(np.float64).tiny

NEAR = 0.5
"""Relative distance of x from the shape below which their difference is taken as it is."""

LARGE = 16
"""From this shape on, five terms of Stirling's series are exact to the last digit."""

SMALL_ERRORS = np.array(
    [0.0]
    + [
        math.lgamma(n + 1) - (n + 0.5) * math.log(n) + n - 0.5 * math.log(2.0 * math.pi)
        for n in range(1, LARGE)
    ]
)
"""Of Stirling's formula for the logarithm of n!, by n below that shape."""


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
    """log a! less Stirling's formula for it."""
    inverse = shape**-2.0
    series = 1 / 1260 - inverse * (1 / 1680 - inverse / 1188)
    large: FloatArray = (1 / 12 - inverse * (1 / 360 - inverse * series)) / shape
    small = SMALL_ERRORS[np.minimum(shape, LARGE - 1).astype(np.int64)]
    return np.where(shape < LARGE, small, large)


def _integral(shape: FloatArray, x: FloatArray, above: BoolArray) -> FloatArray:
    """The integral above or below x, as the module says."""
    power, side = shape - 1.0, np.where(above, 1.0, -1.0)
    reach = _reach(power, np.maximum(side * (x - power), 0.0), above)
    u = side * reach * (NODES[:, None] + 1.0) / 2.0
    area: FloatArray = WEIGHTS @ np.exp(power * np.log1p(u) - x * u)
    return area * reach / 2.0


def _reach(power: FloatArray, slope: FloatArray, above: BoolArray) -> FloatArray:
    """A distance within which the integrand falls by the depth; at most 1 below.

    Its logarithm falls by slope * u + power * u^2 / 2 or more; above the second term is
    divided by 1 + u. Where that is the depth is the root of a quadratic equation.
    """
    square = np.where(above, slope, 0.0) + power / 2.0
    linear = np.where(above, slope - DEPTH, slope)
    divisor = linear + np.sqrt(linear**2 + 4.0 * square * DEPTH)
    return 2.0 * DEPTH / np.where(above, divisor, np.maximum(divisor, 2.0 * DEPTH))
