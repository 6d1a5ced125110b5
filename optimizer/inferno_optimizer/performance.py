"""Performance parameters -> service times and latencies, one class per generation.

What sizing needs from a generation is the `PerformanceModel` protocol: how fast a replica
works with n requests in service, and how the latencies that have targets follow from the
averages of its queue. Every array has one entry per pair of server and accelerator.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, Self

import numpy as np

from inferno_optimizer.queueing import Averages, FloatArray, IntArray
from inferno_optimizer.system import DecodeParameters, Target

WAIT_PERCENTILE_FACTOR = -np.log(0.05)
"""The 95th percentile of an exponential wait over its mean, as the original assumes."""


class PerformanceModel(Protocol):
    """Many replicas of one generation."""

    def columns(self) -> tuple[FloatArray, ...]:
        """Everything that tells one row from another."""

    def take(self, rows: IntArray) -> Self:
        """The same for some of the rows, in the order given."""

    def intervals(self, rows: slice, states: FloatArray) -> FloatArray:
        """Mean time between departures [ms], see `queueing.DepartureIntervals`."""

    def queue_limit(self, batch: IntArray) -> IntArray:
        """Most requests in a replica, waiting and in service."""

    def itl_ms(self, averages: Averages) -> FloatArray:
        """Mean inter-token latency [ms]."""

    def delay_ms(self, averages: Averages) -> FloatArray:
        """Mean of the delay that has a target: the wait in generation 1 [ms]."""

    def idle_itl_ms(self) -> FloatArray:
        """Inter-token latency of a single request [ms]."""

    @staticmethod
    def delay_target_ms(target: Target) -> float:
        """The target of a class as a limit of the mean delay; infinite where there is none."""


@dataclass(frozen=True, slots=True)
class DecodeModel:
    """Generation 1: a batch of n makes one token each in `alpha + beta n` ms.

    A request of k tokens is in service for k (alpha + beta n) ms, so
    mu(n) = n / (k (alpha + beta n)); arrays of shape (pairs,).
    """

    alpha: FloatArray
    beta: FloatArray
    tokens: FloatArray

    @classmethod
    def of(cls, parameters: Sequence[DecodeParameters], which: IntArray, tokens: IntArray) -> Self:
        """From records, the record of each pair and its request length [tokens]."""
        alpha = np.array([p.alpha for p in parameters], dtype=np.float64)
        beta = np.array([p.beta for p in parameters], dtype=np.float64)
        return cls(alpha[which], beta[which], tokens.astype(np.float64))

    def columns(self) -> tuple[FloatArray, ...]:
        """Everything that tells one pair from another."""
        return self.alpha, self.beta, self.tokens

    def take(self, rows: IntArray) -> Self:
        """The same for some of the pairs, in the order given."""
        return type(self)(self.alpha[rows], self.beta[rows], self.tokens[rows])

    def intervals(self, rows: slice, states: FloatArray) -> FloatArray:
        """k (alpha + beta n) / n [ms], computed as k alpha / n + k beta."""
        tokens = self.tokens[rows, None]
        return tokens * self.alpha[rows, None] * (1.0 / states) + tokens * self.beta[rows, None]

    def queue_limit(self, batch: IntArray) -> IntArray:
        """Ten batches in all."""
        return 10 * batch

    def itl_ms(self, averages: Averages) -> FloatArray:
        """Mean service time over the tokens of a request [ms]."""
        return averages.service_ms / self.tokens

    def delay_ms(self, averages: Averages) -> FloatArray:
        """Mean waiting time [ms]."""
        return averages.wait_ms

    def idle_itl_ms(self) -> FloatArray:
        """Alpha + beta [ms]."""
        return self.alpha + self.beta

    @staticmethod
    def delay_target_ms(target: Target) -> float:
        """The mean of an exponential wait whose 95th percentile is the target [ms]."""
        return target.wait_ms / WAIT_PERCENTILE_FACTOR if target.wait_ms > 0 else np.inf
