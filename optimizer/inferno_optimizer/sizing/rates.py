"""Targets -> the highest arrival rate that one replica carries while it keeps all of them.

Every latency with a target grows with the arrival rate, so the highest rate is where the one
closest to its target reaches it: a single root per replica, found by bracketing for all
replicas at once. (Generation 3 steps down a little here and there, see `TokenBudgetModel`;
the root found is then one of a few close to each other.)
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np
import numpy.typing as npt

from inferno_optimizer.sizing.performance import PerformanceModel
from inferno_optimizer.sizing.queueing import Averages, Columns, FloatArray, IntArray, averages
from inferno_optimizer.sizing.roots import last_feasible
from inferno_optimizer.sizing.waiting import log_tail, wait_percentile
from inferno_optimizer.system import Tail, Target

LOWEST_SHARE = 0.001
"""The search starts at this share of the service rate of a single request."""

HIGHEST_SHARE = 0.999
"""The search ends at this share of the service rate of a full batch: a stable queue."""

THROUGHPUT_SHARE = 0.9
"""Share of the highest stable rate that is used when a throughput is asked for."""

ROUNDING = 1e-12
"""A latency that exceeds its target by so little, relative, is the target."""

MEAN_FACTOR = float(-np.log(0.05))
"""The 95th percentile of an exponential wait over its mean, as the original assumes."""

PERCENTILES = (0.90, 0.95, 0.99)
"""Those of the wait and of the time to first token that a `Tail` holds."""


@dataclass(frozen=True, slots=True)
class Limits(Columns):
    """Targets as arrays; limits [ms] are infinite where there is none.

    `itl` limits the mean inter-token latency. `wait_share` and `ttft_share` are the shares of
    the requests that have to stay within `wait` and `ttft`, for each where 0 stands for the
    rule of the original, see `Target`. `throughput` says where a throughput is asked for.
    """

    itl: FloatArray
    wait: FloatArray
    wait_share: FloatArray
    ttft: FloatArray
    ttft_share: FloatArray
    throughput: npt.NDArray[np.bool_]

    @classmethod
    def of(cls, targets: Sequence[Target]) -> Self:
        """The limits that targets set, a row for each."""
        columns = ("itl_ms", "wait_ms", "ttft_ms", "wait_percentile", "ttft_percentile")
        itl, wait, ttft, wait_percent, ttft_percent = (
            np.array([getattr(t, name) for t in targets], dtype=np.float64) for name in columns
        )
        return cls(
            np.where(itl > 0, itl, np.inf),
            np.where(wait > 0, wait, np.inf),
            np.where(wait > 0, wait_percent / 100, 0.0),
            np.where(ttft > 0, ttft, np.inf),
            np.where(ttft > 0, ttft_percent / 100, 0.0),
            np.array([t.tokens_per_second > 0 for t in targets], dtype=np.bool_),
        )


@dataclass(frozen=True, slots=True)
class Latencies(Columns):
    """What requests experience [ms]: means, and percentiles of shape (rows, `PERCENTILES`)."""

    itl_ms: FloatArray
    wait_ms: FloatArray
    ttft_ms: FloatArray
    wait_percentiles: FloatArray
    ttft_percentiles: FloatArray

    @classmethod
    def zeros(cls, rows: int) -> Self:
        """Latencies to be filled in."""
        tails = (np.zeros((rows, len(PERCENTILES))) for _ in range(2))
        return cls(np.zeros(rows), np.zeros(rows), np.zeros(rows), *tails)

    def tail(self, row: int) -> Tail:
        """The percentiles of one row."""
        return Tail(*self.wait_percentiles[row].tolist(), *self.ttft_percentiles[row].tolist())


@dataclass(frozen=True, slots=True)
class Replicas:
    """Replicas of one generation to size, one per pair of server and accelerator.

    They stand in descending order of batch wherever averages are asked for.
    """

    model: PerformanceModel
    limits: Limits

    def take(self, rows: IntArray) -> "Replicas":
        """The same for some of the rows, in the order given."""
        return Replicas(self.model.take(rows), self.limits.take(rows))

    def distinct(self) -> tuple[IntArray, IntArray]:
        """Rows that differ from each other, by descending batch, and where each row is there."""
        columns = (*self.model.columns(), *self.limits.columns())
        table = np.column_stack((-self.model.batch, *columns))
        _, rows, inverse = np.unique(table, axis=0, return_index=True, return_inverse=True)
        return rows, inverse.ravel()

    def averages(self, arrival_rate: FloatArray) -> Averages:
        """Averages of the replicas' queues at these rates [requests/ms]."""
        model = self.model
        return averages(arrival_rate, model.batch, model.queue_limit, model.intervals)

    def delays(self, queue: Averages) -> tuple["Delay", "Delay"]:
        """The wait and the time to first token."""
        first, limits = self.model.first_token_ms(queue), self.limits
        return (
            Delay(queue, np.zeros_like(first), limits.wait_share, MEAN_FACTOR),
            Delay(queue, first, limits.ttft_share, 1.0),
        )

    def excess(self, arrival_rate: FloatArray) -> FloatArray:
        """How far the target that is worst off is missed, as a logarithm; above 0 it is.

        Of a mean it is the ratio to its limit, of a percentile the ratio of the requests
        beyond the limit to those that may be.
        """
        queue, limits = self.averages(arrival_rate), self.limits
        wait, ttft = self.delays(queue)
        itl = _log(self.model.itl_ms(queue) / limits.itl)
        delay = np.maximum(wait.excess(limits.wait), ttft.excess(limits.ttft))
        return np.maximum(itl, delay) - ROUNDING

    def latencies(self, arrival_rate: FloatArray) -> Latencies:
        """Latencies at these rates [requests/ms]."""
        queue = self.averages(arrival_rate)
        first = self.model.first_token_ms(queue)
        waits = np.stack(
            [wait_percentile(queue, np.full(len(first), share)) for share in PERCENTILES], axis=1
        )
        return Latencies(
            itl_ms=self.model.itl_ms(queue),
            wait_ms=queue.wait_ms,
            ttft_ms=queue.wait_ms + first,
            wait_percentiles=waits,
            ttft_percentiles=waits + first[:, None],
        )


@dataclass(frozen=True, slots=True)
class Delay:
    """A wait in a queue and the time after it that belongs to a target too [ms].

    Of the requests `share` have to stay within the target; where that is 0, the mean times
    `factor` has to.
    """

    queue: Averages
    after: FloatArray
    share: FloatArray
    factor: float

    @property
    def _rows(self) -> IntArray:
        """Where a percentile counts."""
        return np.flatnonzero(self.share)

    def ms(self) -> FloatArray:
        """What is to stay within the target [ms]."""
        result = self.factor * (self.queue.wait_ms + self.after)
        rows = self._rows
        if rows.size:
            wait = wait_percentile(self.queue.take(rows), self.share[rows])
            result[rows] = wait + self.after[rows]
        return result

    def excess(self, limit: FloatArray) -> FloatArray:
        """How far a limit [ms] is missed, see `Replicas.excess`."""
        result = _log(self.factor * (self.queue.wait_ms + self.after) / limit)
        rows = self._rows
        if rows.size:
            missed = log_tail(self.queue.take(rows), limit[rows] - self.after[rows])
            result[rows] = missed - np.log1p(-self.share[rows])
        return result


def _log(ratio: FloatArray) -> FloatArray:
    return np.log(np.maximum(ratio, np.finfo(np.float64).tiny))


@dataclass(frozen=True, slots=True)
class Sizing(Columns):
    """What one replica can do, per pair.

    `max_rate` is the highest rate at which it keeps all targets [requests/ms], 0 where there
    is none; in generations 2 and 3 it counts the requests let in. The floors are the
    latencies [ms], as the targets count them, at next to no load: below them no number of
    replicas gets.
    """

    max_rate: FloatArray
    itl_floor: FloatArray
    wait_floor: FloatArray
    ttft_floor: FloatArray


def size(replicas: Replicas) -> Sizing:
    """Size every replica (`sizing.md`, sections 2 to 4, with the defects of section 7 mended)."""
    model = replicas.model
    batch = model.batch.astype(np.float64)
    every = slice(0, len(batch))
    highest = HIGHEST_SHARE / model.intervals(every, batch)
    lowest = np.minimum(LOWEST_SHARE / model.intervals(every, np.ones_like(batch)), highest)
    rate = highest_rate(replicas, lowest, highest)
    rate = np.minimum(rate, np.where(replicas.limits.throughput, THROUGHPUT_SHARE, 1.0) * highest)
    least = replicas.averages(lowest)
    wait, ttft = replicas.delays(least)
    return Sizing(_counted(replicas, rate), model.itl_ms(least), wait.ms(), ttft.ms())


def _counted(replicas: Replicas, rate: FloatArray) -> FloatArray:
    """The rate that a replica counts for, at its highest rate of arrivals."""
    if not replicas.model.rated_by_throughput:
        return rate
    sized = np.flatnonzero(rate > 0)
    result = np.zeros_like(rate)
    result[sized] = replicas.take(sized).averages(rate[sized]).throughput
    return result


def highest_rate(replicas: Replicas, lowest: FloatArray, highest: FloatArray) -> FloatArray:
    """Largest rate in the interval at which every target holds; 0 where none does.

    A target that holds at the highest rate holds everywhere, also where the latency is flat.
    """
    at_lowest, at_highest = replicas.excess(lowest), replicas.excess(highest)
    result = np.where(at_highest <= 0, highest, 0.0)
    rows = np.flatnonzero((at_lowest <= 0) & (at_highest > 0))
    result[rows] = np.exp(
        last_feasible(
            lambda some, x: replicas.take(rows[some]).excess(np.exp(x)),
            ends=np.log(np.stack((lowest[rows], highest[rows]))),
            values=np.stack((at_lowest[rows], at_highest[rows])),
        )
    )
    return result
