"""Whether a run began slower than it went on, as that of an engine that warms up; pure.

An engine that compiles, or makes a CUDA graph, stands still for it when a size of step comes for
the first time. That ends as the run goes on, so that its first parts differ from the others.
"""

import math

import numpy as np

from inferno_optimizer.sizing.queueing import FloatArray

PARTS = 10
"""Parts of a run, with as many tokens in each; at most half of them are the beginning."""

LEAST_CLEAR = 3.5
"""Difference of beginning and rest, in standard errors, from which it is not chance."""

LEAST_ADDED = 0.03
"""What it adds to the mean of the run, from which it matters."""

FEWEST = 1000
"""Tokens below which a run tells nothing."""

TINY = np.finfo(np.float64).tiny


def warm_up_share(times: FloatArray, gaps: FloatArray) -> float:
    """What a slow beginning adds to the mean time between tokens, relative to that of the rest.

    Parameters
    ----------
    times
        When tokens came, in any order and unit, of shape (tokens,).
    gaps
        The time between each and the one before it in its answer, of shape (tokens,).

    Returns
    -------
    float
        0.0 if the run began no slower than it went on.
    """
    if len(times) < FEWEST:
        return 0.0
    parts = np.array_split(gaps[np.argsort(times, kind="stable")], PARTS)
    means = np.array([part.mean() for part in parts])
    clearness, first = max((_clearness(means, n), n) for n in range(1, PARTS // 2 + 1))
    added = float(means.mean() / means[first:].mean()) - 1.0
    return added if clearness >= LEAST_CLEAR and added >= LEAST_ADDED else 0.0


def _clearness(means: FloatArray, first: int) -> float:
    """How much slower the first parts were than the others, in standard errors of the others."""
    rest = means[first:]
    error = float(rest.std(ddof=1)) * math.sqrt(1.0 / first + 1.0 / len(rest))
    return float(means[:first].mean() - rest.mean()) / max(error, TINY)
