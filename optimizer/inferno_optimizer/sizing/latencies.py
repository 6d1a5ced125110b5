"""Latencies of requests: means and percentiles, and how far each is from its target."""

from dataclasses import dataclass
from typing import Self

import numpy as np

from inferno_optimizer.sizing.erlang import log_erlang_tail_if_less
from inferno_optimizer.sizing.queueing import ArrayTable, Averages, FloatArray, IntArray
from inferno_optimizer.sizing.spread import Spread
from inferno_optimizer.sizing.waiting import (
    delay_percentile,
    log_delay_tail,
    log_tail,
    wait_percentile,
)
from inferno_optimizer.system import Tail

MEAN_FACTOR = float(-np.log(0.05))
"""Ratio of the 95th percentile to the mean of an exponential wait, as in the original."""

PERCENTILES = (0.90, 0.95, 0.99)
"""The percentiles in a `Tail`."""


@dataclass(frozen=True, slots=True)
class Latencies(ArrayTable):
    """Latencies of requests [ms]: means, and percentiles of shape (rows, `PERCENTILES`)."""

    itl_ms: FloatArray
    wait_ms: FloatArray
    ttft_ms: FloatArray
    wait_percentiles: FloatArray
    ttft_percentiles: FloatArray
    itl_percentiles: FloatArray

    @classmethod
    def zeros(cls, rows: int) -> Self:
        """Latencies of 0, to be filled in."""
        tails = (np.zeros((rows, len(PERCENTILES))) for _ in range(3))
        return cls(np.zeros(rows), np.zeros(rows), np.zeros(rows), *tails)

    def tail(self, row: int) -> Tail:
        """The percentiles of one row."""
        columns = (self.wait_percentiles, self.ttft_percentiles, self.itl_percentiles)
        return Tail(*np.concatenate([column[row] for column in columns]).tolist())


@dataclass(frozen=True, slots=True)
class Latency:
    """A latency with a target: its mean [ms], and how far it is from that; None if it is not.

    The share `share` of the requests must stay within the target; where it is 0, the mean must.
    """

    mean: FloatArray
    share: FloatArray
    spread: Spread | None

    def ms(self) -> FloatArray:
        """The latency that the target limits: a percentile, or the mean [ms]."""
        result = self.mean.copy()
        if self.spread is not None:
            rows = np.flatnonzero(self.share)
            result[rows] += self.spread.take(rows).quantile(self.share[rows])
        return result

    def excess(self, limit: FloatArray) -> FloatArray:
        """Logarithm of the ratio to a limit [ms], see `Replicas.excess`."""
        result = _log_of(self.mean / limit)
        if self.spread is not None:
            rows = np.flatnonzero(self.share)
            beyond = self.spread.take(rows).tail(limit[rows] - self.mean[rows])
            result[rows] = _log_of(beyond) - np.log1p(-self.share[rows])
        return result


@dataclass(frozen=True, slots=True)
class Delay:
    """A latency with a target: the wait in a queue plus the time `after` it [ms].

    The time after it has a `spread`; None if it is the same for all requests.
    The share `share` of the requests must stay within the target; where `share` is 0, the mean
    times `factor` must stay within the target.
    """

    queue: Averages
    after: FloatArray
    share: FloatArray
    factor: float
    spread: Spread | None = None

    @property
    def _rows(self) -> IntArray:
        """Positions of the rows with a percentile."""
        return np.flatnonzero(self.share)

    def ms(self) -> FloatArray:
        """The latency that the target limits: a percentile, or the mean times `factor` [ms]."""
        result = self.factor * (self.queue.wait_ms + self.after)
        rows = self._rows
        if rows.size:
            queue, after, share = self.queue.take(rows), self.after[rows], self.share[rows]
            waits = wait_percentile(queue, share)
            result[rows] = (
                waits + after
                if self.spread is None
                else delay_percentile(queue, after, self.spread.take(rows), share, waits)
            )
        return result

    def excess(self, limit: FloatArray) -> FloatArray:
        """Logarithm of the ratio to a limit [ms], see `Replicas.excess`."""
        result = _log_of(self.factor * (self.queue.wait_ms + self.after) / limit)
        rows = self._rows
        if rows.size:
            queue, after = self.queue.take(rows), self.after[rows]
            missed = (
                log_tail(queue, limit[rows] - after)
                if self.spread is None
                else log_delay_tail(queue, after, self.spread.take(rows), limit[rows])
            )
            result[rows] = missed - np.log1p(-self.share[rows])
        return result


def _log_of(ratio: FloatArray) -> FloatArray:
    return np.log(np.maximum(ratio, np.finfo(np.float64).tiny))


def tails(
    queue: Averages, first: FloatArray, spread: Spread | None
) -> tuple[FloatArray, FloatArray]:
    """The `PERCENTILES` of the wait, and of it and the time after it [ms].

    That time has the mean `first`, and a `spread` if it is not the same for all requests.
    """
    if spread is None:
        found = [wait_percentile(queue, np.full_like(first, share)) for share in PERCENTILES]
        waits = np.stack(found, axis=1)
        return waits, waits + first[:, None]
    every = np.tile(np.arange(len(first)), len(PERCENTILES))
    several, share = queue.take(every), np.repeat(PERCENTILES, len(first))
    waits = wait_percentile(several, share, log_erlang_tail_if_less)
    delays = delay_percentile(several, first[every], spread.take(every), share, waits)
    return waits.reshape(-1, len(first)).T, delays.reshape(-1, len(first)).T
