"""Lines that the true latencies do not exceed, as parameters that sizing can take.

The upper confidence of a line, and the waits for other requests' prefills, are convex in the
batch. The chord between a batch of 1 and the largest batch is therefore nowhere below them: it
is a line again, so every solver and every optimizer can use it as parameters.
"""

from dataclasses import dataclass

import numpy as np

from inferno_optimizer.calibration.fit import interference_ms
from inferno_optimizer.sizing.queueing import FloatArray

Z = 1.2816
"""90 % quantile of the standard normal distribution, one-sided."""


@dataclass(frozen=True, slots=True)
class Line:
    """Intercept + slope x, and the covariance of both.

    Every array has one entry for each group; `covariance` has shape (groups, 2, 2).
    """

    intercept: FloatArray
    slope: FloatArray
    covariance: FloatArray

    def upper(self, x: FloatArray, z: float) -> FloatArray:
        """The value at x plus z standard errors; shape (groups,)."""
        point = np.stack([np.ones_like(x), x], axis=1)
        variance = np.einsum("gi,gij,gj->g", point, self.covariance, point)
        return np.asarray(self.intercept + self.slope * x + z * np.sqrt(np.maximum(variance, 0.0)))


@dataclass(frozen=True, slots=True)
class GroupRequests:
    """The requests of each group; shape (groups,).

    Attributes
    ----------
    largest_batch
        Largest batch of a replica [requests].
    input_tokens, output_tokens
        Mean tokens of a request.
    share
        1 if decode steps wait for prefills of other requests besides the decode line, else 0.
    """

    largest_batch: FloatArray
    input_tokens: FloatArray
    output_tokens: FloatArray
    share: FloatArray


@dataclass(frozen=True, slots=True)
class Chords:
    """Linear parameters for sizing; shape (groups,)."""

    alpha: FloatArray
    beta: FloatArray
    gamma: FloatArray
    delta: FloatArray


def chords(decode: Line, prefill: Line, requests: GroupRequests, z: float) -> Chords:
    """Lines through the latencies at a batch of 1 and at the largest batch.

    Parameters
    ----------
    decode
        Time of a decode step against the batch [ms].
    prefill
        Time of a prefill against input tokens times batch [ms].
    requests
        The requests that share decode steps with prefills.
    z
        Standard errors to add: 0 for the expected latencies, `Z` for their upper confidence.

    Returns
    -------
    Chords
        Inter-token latency, which includes the waits for prefills of other requests, against the
        batch; and the time of a prefill against input tokens times batch.
    """
    first = np.ones_like(requests.largest_batch)
    last = np.maximum(requests.largest_batch, 2.0)
    inputs = requests.input_tokens
    prefills = (prefill.upper(inputs * batch, z) for batch in (first, last))
    gamma, delta = _chord(inputs, inputs * last, *prefills)

    def itl(batch: FloatArray) -> FloatArray:
        others = prefill.upper(inputs * (batch + 1.0), z)
        waits = requests.share * interference_ms(batch, others, requests.output_tokens)
        return np.asarray(decode.upper(batch, z) + waits)

    alpha, beta = _chord(first, last, itl(first), itl(last))
    return Chords(alpha, beta, gamma, delta)


def _chord(
    first: FloatArray, last: FloatArray, at_first: FloatArray, at_last: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Intercept and slope of the line through two points, neither of them negative.

    A line with a negative intercept is replaced by the one through the origin and the last
    point, which lies above it; one with a negative slope by the larger value.
    """
    slope = np.maximum((at_last - at_first) / (last - first), 0.0)
    intercept = at_first - slope * first
    through_origin = intercept < 0
    return (
        np.where(through_origin, 0.0, intercept),
        np.where(through_origin, at_last / last, slope),
    )
