"""Decides when a planned load rises or falls: only by what chance does not explain.

The operator's measurements and the policies of a replay follow this one rule. Arrivals are Poisson:
a count of n requests has a standard deviation of sqrt(n).

- The rate is that of a long window, and that of a shorter one where it is significantly larger: an
  increase is seen at once, a decrease after the long window.
- A planned load stays while the newest one differs from it by noise. One that falls goes to the
  most that it may be but for chance.
"""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from inferno_optimizer.sizing.queueing import FloatArray

SIGNIFICANT = 4.5
"""Standard deviations of the difference of two rates by which a load must grow to be seen at once.

Numbers of a window of few scrapes are off by a tenth besides chance: at 3.5, a constant load of 5/s
got a replica in three minutes, which then stayed for the window of reductions. A load of 5/s that
doubles is seen after 13 s on average, in place of 10 s; one of 2/s after 33 s in place of 17 s.
"""

NOISE = 4.0
"""Standard deviations of a Poisson count by which a planned load must change to count.

With fewer than 6,400 requests in the long window this is more than `MOVED`. A day has 288 such
windows: chance exceeds 3 about once a day, and each time costs a replica that comes and goes.
"""

MOVED = 0.05
"""Relative change of a number that counts: smaller ones are not worth a plan."""

MOST_NOISE = 0.5
"""Relative change of a load that counts, however few requests there are."""

Numbers = FloatArray | float
"""Numbers of several servers, or one for all of them."""
BoolArray = npt.NDArray[np.bool_]


def significant_rate(
    long: Numbers, long_s: Numbers, shorter: Sequence[tuple[Numbers, Numbers]]
) -> FloatArray:
    """Return the rates of the long window, or of a shorter one where it is larger not by chance.

    Parameters
    ----------
    long
        Numbers over the long window [requests/s]; any shape.
    long_s
        The part of the long window that is known [s].
    shorter
        The rates over shorter windows, of the same shape, and the parts of these that are known.
    """
    significant = np.asarray(long, dtype=np.float64)
    for rate, seconds in shorter:
        variance = np.maximum(rate, 0.0) / seconds + np.maximum(long, 0.0) / long_s
        is_larger = (rate > significant) & (rate - long > SIGNIFICANT * np.sqrt(variance))
        significant = np.where(is_larger, rate, significant)
    return np.maximum(significant, 0.0)


def noise(rate: Numbers, seconds: Numbers, deviations: float = NOISE) -> FloatArray:
    """Return so many standard deviations of the requests in a time, as a share of them."""
    return np.asarray(deviations / np.sqrt(np.maximum(rate * seconds, 1.0)))


def find_moved(last: FloatArray, newest: FloatArray, seconds: Numbers) -> BoolArray:
    """Whether loads differ noticeably, and not by chance.

    Parameters
    ----------
    last, newest
        Loads of shape (numbers, servers); NaN where a number is not known. The first number is the
        rate [requests/s], others are such as the lengths of requests.
    seconds
        The time over which they are measured [s].
    """
    share = np.clip(noise(np.maximum(last[0], newest[0]), seconds), MOVED, MOST_NOISE)
    return np.asarray(differs(last, newest, share).any(axis=0))


def differs(last: FloatArray, newest: FloatArray, share: Numbers) -> BoolArray:
    """Whether numbers moved by more than a share of the larger one; NaN where one is not known."""
    unknown = np.isnan(last) & np.isnan(newest)
    same = np.abs(newest - last) <= share * np.maximum(np.abs(newest), np.abs(last))
    return np.asarray(~(same | unknown))


def followed(last: FloatArray, newest: FloatArray, seconds: Numbers) -> FloatArray:
    """Return the newest loads; the last ones while they differ by noise; see `find_moved`.

    A load is seen to have fallen when chance makes it small. So it falls to the most that it may
    be but for chance: else it would rise again.
    """
    most = newest[0] * (1.0 + np.minimum(noise(newest[0], seconds), MOST_NOISE))
    rate = np.maximum(newest[0], np.minimum(most, last[0]))
    load: FloatArray = np.where(
        find_moved(last, newest, seconds), np.vstack((rate, newest[1:])), last
    )
    return load
