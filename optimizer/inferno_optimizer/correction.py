"""Corrects the planned load where replicas that should be enough miss targets.

A Model that is too optimistic makes plans whose replicas miss their targets, and makes the same
plan again. Where what runs should be enough and is not, the factor of the load rises by the share
of one replica; where targets are kept with room, it falls slowly. See `corrections.md`.
"""

from dataclasses import dataclass

import numpy as np

from inferno_optimizer.noise import BoolArray, Numbers
from inferno_optimizer.sizing.queueing import FloatArray, IntArray

MOST = 2.0
"""The largest factor: a Model that is off by more is to be calibrated."""

MISSED = 1.1
"""Ratio of a latency to its target from which the target is missed, and not by chance."""

ROOM = 0.8
"""Ratio of a latency to its target below which the factor falls."""

FALL = 0.9
FALL_S = 1800.0
"""The factor falls to this share in this time [s]."""

IMPROVED = 0.95
"""Ratio to the latency before a rise below which the rise has helped."""

MOST_VAIN = 2
"""Rises in a row that did not help, after which there are no more."""

ENOUGH_REQUESTS = 100
"""Requests for which a verdict must last: the mean of so many has an error of a tenth."""

SMALLEST_RATE = 1e-6
"""Arrival rate of a server without requests [requests/s]."""

GAP_S = 600.0
"""Time between two steps after which the verdict of the first tells nothing of the time between."""


@dataclass(frozen=True, slots=True)
class Correction:
    """The factors of servers, and what led to them; arrays of shape (servers,).

    Attributes
    ----------
    time_s
        The time of the last step [s].
    factor
        What the load is multiplied by, from 1 to `MOST`.
    verdict
        1 where a target is missed although the replicas should be enough, -1 where they keep
        all with room, else 0.
    since_s
        Since when it is so, or the time of the last rise [s].
    before
        The ratio of the latency to its target before the last rise; infinite without one.
    vain
        Rises in a row that did not help.
    """

    time_s: float
    factor: FloatArray
    verdict: IntArray
    since_s: FloatArray
    before: FloatArray
    vain: IntArray

    @classmethod
    def none(cls, servers: int, time_s: float = 0.0) -> "Correction":
        """No correction."""
        ones, nothing = np.ones(servers), np.zeros(servers, dtype=np.int64)
        return cls(time_s, ones, nothing, time_s * ones, np.inf * ones, nothing)

    def step(
        self,
        time_s: float,
        ratio: FloatArray,
        replicas: IntArray,
        enough: BoolArray,
        wait_s: FloatArray,
    ) -> "Correction":
        """Return the correction after a measurement.

        Parameters
        ----------
        time_s
            The time [s].
        ratio
            The largest ratio of a latency to its target.
        replicas
            The replicas that serve.
        enough
            Whether these should be enough, as the Model says, and nothing else explains a miss.
        wait_s
            How long a verdict must last until it counts [s].
        """
        has_room = (ratio < ROOM) & (replicas > 1)  # one replica has room whatever the factor is
        verdict = np.where(enough, (ratio > MISSED).astype(int) - has_room, 0)
        elapsed_s = time_s - self.time_s
        goes_on = (verdict == self.verdict) & (0.0 <= elapsed_s <= GAP_S)
        since = np.where(goes_on, self.since_s, time_s)
        lasts = time_s - since >= wait_s
        missed, room = lasts & (verdict == 1), lasts & (verdict == -1)
        helped = ratio < IMPROVED * self.before
        grows = missed & (self.factor < MOST)
        vain = np.where(grows, np.where(helped, 0, self.vain + 1), np.where(room, 0, self.vain))
        rises = grows & (vain < MOST_VAIN)
        risen = np.minimum(self.factor * (1.0 + 1.0 / np.maximum(replicas, 1)), MOST)
        fallen = np.maximum(self.factor * FALL ** (elapsed_s / FALL_S), 1.0)
        return Correction(
            time_s,
            np.where(rises, risen, np.where(room, fallen, self.factor)),
            verdict,
            np.where(rises, time_s, since),
            np.where(rises, ratio, np.where(room, np.inf, self.before)),
            np.minimum(vain, MOST_VAIN),
        )


def waiting_time(rate: Numbers, longest_s: Numbers) -> FloatArray:
    """Return how long a verdict must last until it counts [s].

    Parameters
    ----------
    rate
        Arrival rates [requests/s].
    longest_s
        The longest of the times over which is measured, and in which a backlog is served [s].
    """
    enough: FloatArray = ENOUGH_REQUESTS / np.maximum(rate, SMALLEST_RATE)
    return np.maximum(longest_s, enough)
