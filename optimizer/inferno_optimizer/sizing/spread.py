"""The distribution of a sum of independent times, from its first cumulants.

The sum is taken as a gamma distribution with the same mean, variance and skewness, by the cube
root that makes one nearly normal [Wilson and Hilferty, Proc. Nat. Acad. Sci. 17 (1931) 684-688].
"""

from dataclasses import dataclass
from statistics import NormalDist

import numpy as np

from inferno_optimizer.sizing.queueing import ArrayTable, FloatArray

LEAST_SKEW, MOST_SKEW = 1e-3, 2.0
"""Limits of the skewness: nearly normal, and exponential."""

LEAST_DEVIATION = 1e-9
"""Least standard deviation [ms]."""

NORMAL_TAIL = (0.319381530, -0.356563782, 1.781477937, -1.821255978, 1.330274429)
NORMAL_SCALE = 0.2316419
"""Coefficients of the tail of the normal distribution [Abramowitz and Stegun, 26.2.17]."""

TINY = np.finfo(np.float64).tiny


@dataclass(frozen=True, slots=True)
class Spread(ArrayTable):
    """How far a time is from its mean: variance [ms^2] and third cumulant [ms^3]."""

    variance: FloatArray
    third: FloatArray

    @property
    def deviation(self) -> FloatArray:
        """Standard deviation [ms]."""
        return np.maximum(np.sqrt(np.maximum(self.variance, 0.0)), LEAST_DEVIATION)

    def tail(self, beyond_ms: FloatArray) -> FloatArray:
        """Share of the times that exceed the mean by more than this."""
        deviation = self.deviation
        skew = np.clip(self.third / deviation**3, LEAST_SKEW, MOST_SKEW)
        cube = np.maximum(1.0 + skew * beyond_ms / deviation / 2.0, 0.0)
        normal = 6.0 / skew * (np.cbrt(cube) - 1.0) + skew / 6.0
        above = _normal_tail(np.abs(normal))
        return np.where(normal > 0, above, 1.0 - above)

    def quantile(self, share: FloatArray) -> FloatArray:
        """The excess over the mean that a share of the times, in (0, 1), does not exceed [ms]."""
        deviation = self.deviation
        skew = np.clip(self.third / deviation**3, LEAST_SKEW, MOST_SKEW)
        shares, place = np.unique(share, return_inverse=True)
        normal = np.array([NormalDist().inv_cdf(one) for one in shares.tolist()])[place]
        cube = np.maximum(1.0 + skew / 6.0 * (normal - skew / 6.0), 0.0) ** 3
        excess: FloatArray = 2.0 * deviation / skew * (cube - 1.0)
        return excess


def cumulants(
    first: FloatArray, second: FloatArray, third: FloatArray
) -> tuple[FloatArray, Spread]:
    """The mean of a time and its spread, from its moments [ms, ms^2, ms^3]."""
    variance = np.maximum(second - first**2, 0.0)
    return first, Spread(variance, third - 3.0 * second * first + 2.0 * first**3)


def _normal_tail(z: FloatArray) -> FloatArray:
    """Share of a standard normal distribution above z, which is at least 0."""
    t = 1.0 / (1.0 + NORMAL_SCALE * z)
    series = np.zeros_like(t)
    for coefficient in reversed(NORMAL_TAIL):
        series = (series + coefficient) * t
    return np.asarray(np.maximum(series * np.exp(-(z**2) / 2.0) / np.sqrt(2.0 * np.pi), TINY))
