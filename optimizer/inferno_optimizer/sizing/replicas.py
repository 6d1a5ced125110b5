"""Replicas of one generation to size: their latencies at rates, beside their targets."""

from dataclasses import dataclass

import numpy as np

from inferno_optimizer.sizing.latencies import (
    MEAN_FACTOR,
    PERCENTILES,
    Delay,
    Latencies,
    Latency,
    tails,
)
from inferno_optimizer.sizing.limits import TargetLimits
from inferno_optimizer.sizing.performance import PerformanceModel
from inferno_optimizer.sizing.queueing import Averages, FloatArray, IntArray, distinct_rows

ROUNDING = 1e-12
"""A latency that exceeds its target by less than this share meets the target."""


@dataclass(frozen=True, slots=True)
class LimitedLatencies:
    """The latencies that targets limit: inter-token latency, wait, and time to first token."""

    itl: Latency
    wait: Delay
    ttft: Delay

    def excess(self, limits: TargetLimits) -> FloatArray:
        """The largest of their excesses, see `Replicas.excess`."""
        delay = np.maximum(self.wait.excess(limits.wait), self.ttft.excess(limits.ttft))
        return np.maximum(self.itl.excess(limits.itl), delay) - ROUNDING


@dataclass(frozen=True, slots=True)
class Replicas:
    """Replicas of one generation to size, one per pair of server and accelerator.

    They must be in descending order of batch when averages are computed.
    """

    model: PerformanceModel
    limits: TargetLimits

    def take(self, rows: IntArray) -> "Replicas":
        """The replicas of some of the rows, in the given order."""
        return Replicas(self.model.take(rows), self.limits.take(rows))

    def distinct(self) -> tuple[IntArray, IntArray]:
        """The distinct rows, by descending batch, and the position of each row among them."""
        columns = (*self.model.columns(), *self.limits.columns())
        rows, inverse = distinct_rows(self.model.batch, *columns)
        order = np.argsort(-self.model.batch[rows], kind="stable")
        place = np.empty_like(order)
        place[order] = np.arange(len(order))
        return rows[order], place[inverse]

    def averages(self, arrival_rate: FloatArray) -> Averages:
        """Averages of the replicas' queues at these rates [requests/ms]."""
        return self.model.averages(arrival_rate)

    def itl(self, queue: Averages) -> Latency:
        """The mean inter-token latency of a request."""
        share = self.limits.itl_share
        spread = self.model.itl_spread(queue) if share.any() else None
        return Latency(self.model.itl_ms(queue), share, spread)

    def delays(self, queue: Averages) -> tuple[Delay, Delay]:
        """The wait and the time to first token."""
        first, limits = self.model.first_token_ms(queue), self.limits
        spread = self.model.first_token_spread(queue) if limits.ttft_share.any() else None
        return (
            Delay(queue, np.zeros_like(first), limits.wait_share, MEAN_FACTOR),
            Delay(queue, first, limits.ttft_share, 1.0, spread),
        )

    def excess(self, arrival_rate: FloatArray) -> FloatArray:
        """Logarithm of the largest ratio of a latency to its target; above 0 a target is missed.

        For a mean it is the ratio to the limit; for a percentile it is the share of requests
        beyond the limit, divided by the allowed share.
        """
        return self.limited(self.averages(arrival_rate)).excess(self.limits)

    def limited(self, queue: Averages) -> "LimitedLatencies":
        """The latencies that have limits, from the averages of the queues."""
        return LimitedLatencies(self.itl(queue), *self.delays(queue))

    def latencies(self, arrival_rate: FloatArray) -> Latencies:
        """Latencies at these rates [requests/ms]."""
        queue = self.averages(arrival_rate)
        first, spread = self.model.first_token_ms(queue), self.model.first_token_spread(queue)
        itl, around = self.model.itl_ms(queue), self.model.itl_spread(queue)
        waits, delays = tails(queue, first, spread)
        intervals = np.zeros_like(waits)
        if around is not None:
            quantiles = [around.quantile(np.full_like(itl, share)) for share in PERCENTILES]
            intervals = itl[:, None] + np.stack(quantiles, axis=1)
        return Latencies(itl, queue.wait_ms, queue.wait_ms + first, waits, delays, intervals)
