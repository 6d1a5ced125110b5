"""How much the number of requests in a batch varies: the part of generation 4 that makes tails.

With random arrivals and no prefills it would be a Poisson number. Prefills stop the requests that
decode, and others come in that time: so in steps, by which requests leave, arrivals come in clumps.
The same variance of arrivals weighs more as lengths vary less, because what came together then
leaves together. See `sizing.md`, section "Steps that mix prefill and decode".
"""

from dataclasses import dataclass
from typing import Self

import numpy as np

from inferno_optimizer.sizing.queueing import ArrayTable, FloatArray, IntArray
from inferno_optimizer.sizing.step_law import StepLaw

LEAST_INDEX = 0.25
"""Least index: arrivals like clockwork, and one request or none, each half of the time."""

MOST_BUSY = 0.9
"""Largest share of the time that prefills take in an index, which has a pole at 1."""

MOST_CENTRED = 3.0
"""Up to this index the chain has the mean of Little's law. Beyond it prefills take most of the
time, and batches are nearly empty or nearly full: only the variance is right there."""


def overlap(cov: FloatArray) -> FloatArray:
    """Mean of the shorter of two stays, relative to the mean stay; stays vary by `cov`.

    One less Gini's index of a gamma distribution, whose ratio of gamma functions is within 3 % of
    a root [Watson, Edinburgh Math. Notes 42 (1959) 7-9]; exact for constant and exponential stays.
    """
    return np.asarray(1.0 - cov / np.sqrt(np.pi + (4.0 - np.pi) * cov**2))


@dataclass(frozen=True, slots=True)
class Crowding(ArrayTable):
    """What the index of dispersion of the requests in a batch is made of, for each replica.

    The index is the variance relative to the mean, if steps did not depend on the batch. `apart` is
    the part of the steps of the own prompt, which nothing stops. `arrivals` and `lengths` are
    factors of the part of decode steps: from the variation of arrivals, and of prompts. `kept` is
    what is left of an exponential stay when the prompts that came in a step are computed.
    """

    apart: FloatArray
    arrivals: FloatArray
    lengths: FloatArray
    kept: FloatArray

    @classmethod
    def of(cls, law: StepLaw, arrival_cov: FloatArray) -> Self:
        """From the law of steps, and the coefficient of variation of times between arrivals."""
        weight, scv = overlap(law.length_cov), arrival_cov**2
        stay = law.steps + law.chunks
        stopped = weight * law.steps / stay
        apart = 1.0 + weight * (scv - 1.0) - stopped * scv
        least = LEAST_INDEX - stopped * scv
        kept = np.exp(-(law.chunks + law.ahead) / stay)
        return cls(np.maximum(apart, least), stopped * scv, stopped * law.length_cov**2, kept)

    def rows(self, rows: slice) -> Self:
        """That of some of the rows."""
        return type(self)(*(column[rows] for column in self.columns()))

    def index(self, busy: FloatArray) -> FloatArray:
        """The index of dispersion where prefills take the share `busy` of the time.

        A request is followed by `busy` others that come while its prompt is computed, these by
        others a step and those ahead later, and so on; in n, as in an autoregressive process, their
        clumps weigh with what is left of a stay [Eckberg, Proc. 10th Int. Teletraffic Congress,
        1983, on the peakedness of a stream of arrivals].
        """
        square = np.minimum(busy, MOST_BUSY)
        later = square * self.kept
        np.multiply(square, square, out=square)
        result: FloatArray = square * self.lengths
        result += self.arrivals
        np.subtract(1.0, square, out=square)
        np.subtract(1.0, later, out=later)
        square *= later
        np.subtract(2.0, later, out=later)
        result *= later  # (1 + busy kept) / ((1 - busy kept) (1 - busy^2)) times as much
        result /= square
        result += self.apart
        return result


def log_ratio(states: FloatArray | IntArray, mean: FloatArray, index: FloatArray) -> FloatArray:
    """Logarithm of p(n) / p(n - 1) of a number with an index of dispersion v.

    With v of at least 1 it is ((mean + (n - 1) (v - 1)) / (n v)): a negative binomial number where
    neither depends on n. Then, and only with that ratio, E[n] = E[mean(n + 1)] also where they do:
    Little's law. Below 1, and beyond `MOST_CENTRED`, it is a power of such a ratio, so that the
    variance is right; at v = 1 it is mean / n.

    Parameters
    ----------
    states
        n; shape (states, 1), or of one n for each chain.
    mean
        lambda S(n), positive; overwritten.
    index
        v, positive; overwritten.
    """
    centred = np.minimum(np.maximum(index, 1.0), MOST_CENTRED)  # half of the time of clip
    np.divide(centred, index, out=index)
    more = centred - 1.0
    more *= states - 1.0
    mean += more
    centred *= states
    mean /= centred
    result: FloatArray = np.log(mean, out=mean)
    result *= index
    return result
