"""Performance parameters -> service times and latencies, one class per generation.

What sizing needs from a generation is the `PerformanceModel` protocol: how fast a replica
works with n requests in service, how many may wait, and how the inter-token latency and the
time from the start of service to the first token follow from the averages of its queue; the
time to first token is the wait and that. Every array has one entry per pair of server and
accelerator.

Notation: a request has h input tokens and k output tokens; N is the largest batch.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, ClassVar, Protocol, Self

import numpy as np

from inferno_optimizer.sizing.queueing import Averages, Columns, FloatArray, IntArray
from inferno_optimizer.system import (
    DecodeParameters,
    Generation,
    PerformanceParameters,
    PrefillDecodeParameters,
    TokenBudgetParameters,
)

TOKENS_PER_ITERATION = 8192.0
"""Tokens that an iteration computes at most, in generation 3."""

QUEUE_PER_BATCH = 10
"""Requests that may wait for each one of the batch, in generation 2."""


@dataclass(frozen=True, slots=True)
class Requests(Columns):
    """The requests that each replica serves: how many together, how long, how many wait.

    Lengths are in tokens; `max_queue_size` counts in generation 3 alone.
    """

    batch: IntArray
    tokens: IntArray
    input_tokens: IntArray
    max_queue_size: IntArray


class PerformanceModel(Protocol):
    """Many replicas of one generation."""

    rated_by_throughput: ClassVar[bool]
    """Whether a replica counts for the requests that it lets in, not for all that arrive."""

    @property
    def batch(self) -> IntArray:
        """Most requests in service together."""

    @property
    def queue_limit(self) -> IntArray:
        """Most requests in a replica, waiting and in service."""

    def columns(self) -> tuple[FloatArray | IntArray, ...]:
        """Everything that tells one row from another."""

    def take(self, rows: IntArray) -> Self:
        """The same for some of the rows, in the order given."""

    def intervals(self, rows: slice, states: FloatArray) -> FloatArray:
        """Mean time between departures [ms], see `queueing.DepartureIntervals`."""

    def itl_ms(self, averages: Averages) -> FloatArray:
        """Mean inter-token latency [ms]."""

    def first_token_ms(self, averages: Averages) -> FloatArray:
        """Mean time from the start of service to the first token [ms]."""

    def idle_itl_ms(self) -> FloatArray:
        """Inter-token latency that an idle server is reported with [ms]."""

    def idle_ttft_ms(self) -> FloatArray:
        """Time to first token that an idle server is reported with [ms]."""


@dataclass(frozen=True, slots=True)
class LinearModel(Columns):
    """Replicas where a request of a batch of n is in service for `fixed + slope n` ms.

    mu(n) = n / (fixed + slope n) never falls with the batch.
    """

    batch: IntArray
    fixed: FloatArray
    slope: FloatArray

    def intervals(self, rows: slice, states: FloatArray) -> FloatArray:
        """(fixed + slope n) / n [ms]."""
        result: FloatArray = self.fixed[rows] * (1.0 / states)
        result += self.slope[rows]
        return result

    def concurrency(self, averages: Averages) -> FloatArray:
        """The batch in which an average request is served: its service time tells.

        Where that is the same in every batch, the mean number in service.
        """
        told = self.slope > 0
        excess = (averages.service_ms - self.fixed) / np.where(told, self.slope, 1.0)
        return np.clip(np.where(told, excess, averages.in_service), 1.0, self.batch)


@dataclass(frozen=True, slots=True)
class DecodeModel(LinearModel):
    """Generation 1: a batch of n makes one token each in `alpha + beta n` ms.

    A request of k tokens, input and output alike, is in service for k (alpha + beta n) ms;
    its first token comes with the first iteration.
    """

    rated_by_throughput: ClassVar[bool] = False

    alpha: FloatArray
    beta: FloatArray
    tokens: FloatArray

    @classmethod
    def of(
        cls, parameters: Sequence[DecodeParameters], which: IntArray, requests: Requests
    ) -> Self:
        """From records, the record of each pair and its requests."""
        alpha, beta = (column[which] for column in _columns(parameters, "alpha", "beta"))
        tokens = requests.tokens.astype(np.float64)
        return cls(requests.batch, tokens * alpha, tokens * beta, alpha, beta, tokens)

    @property
    def queue_limit(self) -> IntArray:
        """Ten batches in all."""
        return 10 * self.batch

    def itl_ms(self, averages: Averages) -> FloatArray:
        """Mean service time over the tokens of a request [ms]."""
        return averages.service_ms / self.tokens

    def first_token_ms(self, averages: Averages) -> FloatArray:
        """One iteration [ms]."""
        return self.itl_ms(averages)

    def idle_itl_ms(self) -> FloatArray:
        """Alpha + beta [ms]."""
        return self.alpha + self.beta

    def idle_ttft_ms(self) -> FloatArray:
        """One iteration [ms]."""
        return self.alpha + self.beta


@dataclass(frozen=True, slots=True)
class PrefillDecodeModel(LinearModel):
    """Generation 2: a prefill of `gamma + delta h n` ms makes the first of k output tokens.

    The others take `alpha + beta n` ms each. Without input tokens there is no prefill, and
    the original does not count a first token either; a request that would take no time at
    all then takes one decode step.
    """

    rated_by_throughput: ClassVar[bool] = True

    alpha: FloatArray
    beta: FloatArray
    gamma: FloatArray
    delta: FloatArray
    input_tokens: FloatArray

    @classmethod
    def of(
        cls, parameters: Sequence[PrefillDecodeParameters], which: IntArray, requests: Requests
    ) -> Self:
        """From records, the record of each pair and its requests."""
        names = ("alpha", "beta", "gamma", "delta")
        alpha, beta, gamma, delta = (column[which] for column in _columns(parameters, *names))
        inputs = requests.input_tokens.astype(np.float64)
        prefill, per_request = np.where(inputs > 0, gamma, 0.0), delta * inputs
        fewest = np.where(prefill + per_request > 0, 0.0, 1.0)
        steps = np.maximum(requests.tokens - 1.0, fewest)
        fixed, slope = prefill + steps * alpha, per_request + steps * beta
        return cls(requests.batch, fixed, slope, alpha, beta, gamma, delta, inputs)

    @property
    def queue_limit(self) -> IntArray:
        """The batch, and ten more that wait."""
        return (1 + QUEUE_PER_BATCH) * self.batch

    def itl_ms(self, averages: Averages) -> FloatArray:
        """Decode time at the concurrency [ms]."""
        return self.alpha + self.beta * self.concurrency(averages)

    def first_token_ms(self, averages: Averages) -> FloatArray:
        """Prefill time at the concurrency [ms]."""
        prefill = self.gamma + self.delta * self.input_tokens * self.concurrency(averages)
        return np.where(self.input_tokens > 0, prefill, 0.0)

    def idle_itl_ms(self) -> FloatArray:
        """Alpha + beta [ms]."""
        return self.alpha + self.beta

    def idle_ttft_ms(self) -> FloatArray:
        """Gamma + delta, the prefill of one token [ms]."""
        return self.gamma + self.delta


@dataclass(frozen=True, slots=True)
class TokenBudgetModel(Columns):
    """Generation 3: iterations of a batch mix the prefill of some requests with decode steps.

    A request goes through c prefill chunks and k decode steps, one an iteration; c is the
    smallest number for which the chunks and steps of a batch of n fit into the token budget
    of an iteration. In the mean over its c + k iterations it adds d = (prefill + decode) /
    (c + k) ms to each, so that it is in service for (c + k) (alpha + n d) ms.

    mu(n) is not monotone: each further chunk adds work, so that mu dips a little wherever c
    steps up, and beyond n of about sqrt(2 * 8192 * k * alpha / (gamma * h * (h + k))) it falls
    for good, slowly. Of batches in use it loses a quarter of its peak at the most.
    """

    rated_by_throughput: ClassVar[bool] = True

    batch: IntArray
    alpha: FloatArray
    beta: FloatArray
    gamma: FloatArray
    tokens: FloatArray
    input_tokens: FloatArray
    max_queue_size: IntArray

    @classmethod
    def of(
        cls, parameters: Sequence[TokenBudgetParameters], which: IntArray, requests: Requests
    ) -> Self:
        """From records, the record of each pair and its requests."""
        names = ("alpha", "beta", "gamma")
        alpha, beta, gamma = (column[which] for column in _columns(parameters, *names))
        tokens = requests.tokens.astype(np.float64)
        inputs = requests.input_tokens.astype(np.float64)
        return cls(requests.batch, alpha, beta, gamma, tokens, inputs, requests.max_queue_size)

    @property
    def queue_limit(self) -> IntArray:
        """The batch, and what the server lets wait."""
        return self.batch + self.max_queue_size

    def chunks(self, states: FloatArray) -> FloatArray:
        """Prefill chunks of a request, c, in batches of n, a whole number; broadcasts to them.

        The smallest c >= 1 with (c + k) (T - h / c) >= n (h + k), where T is the budget.
        """
        inputs, tokens = self.input_tokens, self.tokens
        most = np.atleast_2d(states).max(axis=0)
        several = most * (inputs + tokens) > (1 + tokens) * (TOKENS_PER_ITERATION - inputs)
        if not several.any():  # as most often: then it is the same in all states
            return np.ones_like(tokens)
        return self._several_chunks(states)

    def _several_chunks(self, states: FloatArray) -> FloatArray:
        """The same where one chunk may not do: the root of a quadratic, rounded up.

        It is a whole number now and then, so that rounding may miss it by one.
        """
        inputs, tokens = self.input_tokens, self.tokens
        constant = tokens * inputs
        half = (states * (inputs + tokens) + inputs - tokens * TOKENS_PER_ITERATION) / 2
        root = half + np.sqrt(half**2 + TOKENS_PER_ITERATION * constant)
        found = np.maximum(np.ceil(root / TOKENS_PER_ITERATION), 1.0)

        def fits(count: FloatArray) -> FloatArray:
            surplus = (TOKENS_PER_ITERATION * count - 2 * half) * count >= constant
            return np.asarray(surplus, dtype=np.float64)

        found += 1.0 - fits(found)
        return np.maximum(found - fits(np.maximum(found - 1.0, 0.0)), 1.0)

    def intervals(self, rows: slice, states: FloatArray) -> FloatArray:
        """Mean time between departures [ms], see `queueing.DepartureIntervals`."""
        return type(self)(*(column[rows] for column in self.columns())).interval_ms(states)

    def interval_ms(self, states: FloatArray) -> FloatArray:
        """(c + k) alpha / n, and the work of a request [ms]."""
        chunks = self.chunks(states)
        iterations = chunks + self.tokens
        overhead = iterations * self.alpha * (1.0 / states)
        return overhead + self._prefill_ms(chunks) + self._decode_ms()

    def _prefill_ms(self, chunks: FloatArray) -> FloatArray:
        """What the prefill of a request adds to its iterations [ms]."""
        beta, gamma = self.beta, self.gamma
        return (beta + gamma * (chunks + 1) / 2) * self.input_tokens

    def _decode_ms(self) -> FloatArray:
        """What the decode steps of a request add to its iterations [ms]."""
        read = self.input_tokens + (self.tokens + 1) / 2
        return (self.beta + self.gamma * read) * self.tokens

    def _chunks_at(self, averages: Averages) -> FloatArray:
        """Chunks in the batch that is served on average, rounded half up."""
        return self.chunks(np.maximum(np.floor(averages.in_service + 0.5), 1.0))

    def _prefill_time_ms(self, averages: Averages) -> FloatArray:
        """Time from the start of service to the end of the prefill [ms]."""
        chunks = self._chunks_at(averages)
        prefill = self._prefill_ms(chunks)
        share = (prefill + self._decode_ms()) / (chunks + self.tokens)
        others = np.maximum(self.alpha + (averages.in_service - 1) * share, 0.0)
        return chunks * others + prefill

    def itl_ms(self, averages: Averages) -> FloatArray:
        """What is left of the service time after the prefill, over the output tokens [ms]."""
        return (averages.service_ms - self._prefill_time_ms(averages)) / self.tokens

    def first_token_ms(self, averages: Averages) -> FloatArray:
        """The prefill and one decode step [ms]."""
        return self._prefill_time_ms(averages) + self.itl_ms(averages)

    def idle_itl_ms(self) -> FloatArray:
        """Alpha + beta [ms]."""
        return self.alpha + self.beta

    def idle_ttft_ms(self) -> FloatArray:
        """Alpha + beta + gamma N [ms]."""
        return self.alpha + self.beta + self.gamma * self.batch


def _columns(parameters: Sequence[object], *names: str) -> list[FloatArray]:
    return [np.array([getattr(p, name) for p in parameters], dtype=np.float64) for name in names]


_MODELS: Mapping[Generation, Any] = MappingProxyType(
    {
        Generation.DECODE: DecodeModel,
        Generation.PREFILL_DECODE: PrefillDecodeModel,
        Generation.TOKEN_BUDGET: TokenBudgetModel,
    }
)


def model_of(
    parameters: Sequence[PerformanceParameters], which: IntArray, requests: Requests
) -> PerformanceModel:
    """The model of replicas of one generation.

    Parameters
    ----------
    parameters
        Records of one generation, at least one.
    which
        The record of each replica.
    requests
        What each replica serves.
    """
    model: PerformanceModel = _MODELS[parameters[0].generation].of(parameters, which, requests)
    return model
