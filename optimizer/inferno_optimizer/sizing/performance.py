"""Computes service times and latencies of generations 1 to 3; one class per generation.

The `PerformanceModel` protocol is what sizing needs from a generation: the departure rate with n
requests in service, the limit of the queue, and the inter-token latency and the time from the
start of service to the first token as functions of the queue averages. The time to first token
is the wait plus that time. Every array has one entry per pair of server and accelerator.
Generation 4 is in `step_model`.

Notation: a request has h input tokens and k output tokens; N is the largest batch. See `sizing.md`,
section "Four generations of performance data".
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Protocol, Self

import numpy as np
import numpy.typing as npt

from inferno_optimizer.sizing.queueing import (
    ArrayTable,
    Averages,
    DepartureIntervals,
    FloatArray,
    IntArray,
    averages,
)
from inferno_optimizer.sizing.spread import Spread
from inferno_optimizer.system import (
    DecodeParameters,
    PrefillDecodeParameters,
    TokenBudgetParameters,
)

TOKENS_PER_ITERATION = 8192.0
"""Largest number of tokens that an iteration computes, in generation 3."""

QUEUE_PER_BATCH = 10
"""Waiting requests allowed per request of the batch, in generations 2 and 4."""


@dataclass(frozen=True, slots=True)
class Requests(ArrayTable):
    """The requests that each replica serves: largest batch, lengths and queue limit.

    Lengths are in tokens; `computed_tokens` are the input tokens that are not in a prefix cache.
    Only generation 3 uses `max_queue_size`, and only generation 4 the coefficients of variation of
    the times between arrivals and of the lengths, and the output tokens that a step makes.
    """

    batch: IntArray
    tokens: IntArray
    input_tokens: IntArray
    max_queue_size: IntArray
    arrival_cov: FloatArray
    length_cov: FloatArray
    computed_tokens: IntArray
    tokens_per_step: FloatArray


class PerformanceModel(Protocol):
    """Performance of many replicas with profiles of one generation."""

    rated_by_throughput: ClassVar[bool]
    """Whether the rate of a replica counts the accepted requests, not all arriving requests."""

    begins_at_demands: ClassVar[bool]
    """Whether a search for numbers of replicas tries first what these would give a replica.

    Else it begins at the highest rate, from which generation 3 finds the root that it is known for.
    """

    @property
    def batch(self) -> IntArray:
        """Largest number of requests in service at a time."""

    @property
    def queue_limit(self) -> IntArray:
        """Largest number of requests in a replica, waiting and in service."""

    def columns(self) -> tuple[FloatArray | IntArray, ...]:
        """All columns of the model; rows with equal values perform equally."""

    def take(self, rows: IntArray) -> Self:
        """The model of some of the rows, in the given order."""

    def with_rows(self, rows: IntArray, columns: tuple[FloatArray | IntArray, ...]) -> Self:
        """The model with other columns at some of its rows."""

    def intervals(self, rows: slice, states: FloatArray) -> FloatArray:
        """Mean time between departures [ms], see `queueing.DepartureIntervals`."""

    def loaded(self, arrival_rate: FloatArray) -> DepartureIntervals:
        """Times between departures that give the queue its distribution at a rate."""

    def averages(self, arrival_rate: FloatArray) -> Averages:
        """Averages of the queues at a rate; the rows are in descending order of batch."""

    def may_fall(self, arrival_rate: FloatArray) -> npt.NDArray[np.bool_]:
        """Whether latencies may be higher at a lower rate, by more than rounding."""

    def itl_ms(self, averages: Averages) -> FloatArray:
        """Mean inter-token latency [ms]."""

    def itl_spread(self, averages: Averages) -> Spread | None:
        """How far the mean of a request is from that of all; None if it is the same for all."""

    def first_token_ms(self, averages: Averages) -> FloatArray:
        """Mean time from the start of service to the first token [ms]."""

    def first_token_spread(self, averages: Averages) -> Spread | None:
        """How far that time is from its mean; None if it is the same for all requests."""

    def idle_itl_ms(self) -> FloatArray:
        """Inter-token latency that is reported for an idle server [ms]."""

    def idle_ttft_ms(self) -> FloatArray:
        """Time to first token that is reported for an idle server [ms]."""


@dataclass(frozen=True, slots=True)
class SteadyModel(ArrayTable):
    """Replicas whose service time depends on the batch alone, the same for all requests."""

    begins_at_demands: ClassVar[bool] = False

    batch: IntArray

    @property
    def queue_limit(self) -> IntArray:
        """Largest number of requests in a replica, waiting and in service."""
        raise NotImplementedError

    def intervals(self, rows: slice, states: FloatArray) -> FloatArray:
        """Mean time between departures [ms], see `queueing.DepartureIntervals`."""
        raise NotImplementedError

    def loaded(self, arrival_rate: FloatArray) -> DepartureIntervals:  # noqa: ARG002 - does not matter
        """The times between departures, at any rate."""
        return self.intervals

    def averages(self, arrival_rate: FloatArray) -> Averages:
        """Averages of the queues at a rate."""
        return averages(arrival_rate, self.batch, self.queue_limit, self.intervals)

    def may_fall(self, arrival_rate: FloatArray) -> npt.NDArray[np.bool_]:
        """Never; the falls of generation 3, which are slight, are those of the original."""
        return np.zeros(len(arrival_rate), dtype=np.bool_)

    def itl_spread(self, averages: Averages) -> None:
        """None: it is the same for all requests."""

    def first_token_spread(self, averages: Averages) -> None:
        """None: the time to the first token varies by the wait only."""


@dataclass(frozen=True, slots=True)
class LinearModel(SteadyModel):
    """Replicas where a request in a batch of n is in service for `fixed + slope n` ms.

    mu(n) = n / (fixed + slope n) never decreases with n.
    """

    fixed: FloatArray
    slope: FloatArray

    def intervals(self, rows: slice, states: FloatArray) -> FloatArray:
        """(fixed + slope n) / n [ms]."""
        result: FloatArray = self.fixed[rows] * (1.0 / states)
        result += self.slope[rows]
        return result

    def concurrency(self, averages: Averages) -> FloatArray:
        """Mean size of the batch in which a request is served, from the mean service time.

        If the service time does not depend on the batch, the mean number in service.
        """
        slows = self.slope > 0
        excess = (averages.service_ms - self.fixed) / np.where(slows, self.slope, 1.0)
        return np.clip(np.where(slows, excess, averages.in_service), 1.0, self.batch)


@dataclass(frozen=True, slots=True)
class DecodeModel(LinearModel):
    """Generation 1: a batch of n makes one token each in `alpha + beta n` ms.

    A request of k tokens, input and output together, is in service for k (alpha + beta n) ms;
    its first token is ready after the first iteration.
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
        alpha, beta = (column[which] for column in columns_of(parameters, "alpha", "beta"))
        tokens = requests.tokens.astype(np.float64)
        return cls(requests.batch, tokens * alpha, tokens * beta, alpha, beta, tokens)

    @property
    def queue_limit(self) -> IntArray:
        """Ten batches, including the one in service."""
        return 10 * self.batch

    def itl_ms(self, averages: Averages) -> FloatArray:
        """Mean service time divided by the tokens of a request [ms]."""
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

    Each further token takes `alpha + beta n` ms. Without input tokens there is no prefill, and
    the time of the first token is not counted, as in the original; a request whose service time
    would be 0 takes one decode step instead. Input tokens in a prefix cache do not count.
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
        alpha, beta, gamma, delta = (column[which] for column in columns_of(parameters, *names))
        inputs = requests.computed_tokens.astype(np.float64)
        prefill, per_request = np.where(inputs > 0, gamma, 0.0), delta * inputs
        fewest = np.where(prefill + per_request > 0, 0.0, 1.0)
        steps = np.maximum(requests.tokens - 1.0, fewest)
        fixed, slope = prefill + steps * alpha, per_request + steps * beta
        return cls(requests.batch, fixed, slope, alpha, beta, gamma, delta, inputs)

    @property
    def queue_limit(self) -> IntArray:
        """The batch in service, and ten batches that wait."""
        return (1 + QUEUE_PER_BATCH) * self.batch

    def itl_ms(self, averages: Averages) -> FloatArray:
        """Time of a decode step at the mean batch, see `concurrency` [ms]."""
        return self.alpha + self.beta * self.concurrency(averages)

    def first_token_ms(self, averages: Averages) -> FloatArray:
        """Prefill time at the mean batch, see `concurrency` [ms]."""
        prefill = self.gamma + self.delta * self.input_tokens * self.concurrency(averages)
        return np.where(self.input_tokens > 0, prefill, 0.0)

    def idle_itl_ms(self) -> FloatArray:
        """Alpha + beta [ms]."""
        return self.alpha + self.beta

    def idle_ttft_ms(self) -> FloatArray:
        """Gamma + delta, the prefill of one token [ms]."""
        return self.gamma + self.delta


@dataclass(frozen=True, slots=True)
class TokenBudgetModel(SteadyModel):
    """Generation 3: iterations of a batch mix the prefill of some requests with decode steps.

    A request takes c prefill chunks and k decode steps, one per iteration; c is the smallest
    number for which the chunks and steps of a batch of n fit into the token budget of an
    iteration. Averaged over its c + k iterations, a request adds d = (prefill + decode) /
    (c + k) ms to each iteration, so that it is in service for (c + k) (alpha + n d) ms.

    mu(n) is not monotone: each further chunk adds work, so that mu decreases a little wherever c
    increases. Beyond n of about sqrt(2 * 8192 * k * alpha / (gamma * h * (h + k))) it decreases
    slowly throughout. For batches used in practice it loses at most a quarter of its peak.
    """

    rated_by_throughput: ClassVar[bool] = True

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
        alpha, beta, gamma = (column[which] for column in columns_of(parameters, *names))
        tokens = requests.tokens.astype(np.float64)
        inputs = requests.input_tokens.astype(np.float64)
        return cls(requests.batch, alpha, beta, gamma, tokens, inputs, requests.max_queue_size)

    @property
    def queue_limit(self) -> IntArray:
        """The batch, and the largest queue of the server."""
        return self.batch + self.max_queue_size

    def chunks(self, states: FloatArray) -> FloatArray:
        """Number c of prefill chunks of a request in batches of n; broadcasts to `states`.

        The smallest integer c >= 1 with (c + k) (T - h / c) >= n (h + k), where T is the token
        budget of an iteration.
        """
        inputs, tokens = self.input_tokens, self.tokens
        most = np.atleast_2d(states).max(axis=0)
        several = most * (inputs + tokens) > (1 + tokens) * (TOKENS_PER_ITERATION - inputs)
        if not several.any():  # the usual case: one chunk in all states
            return np.ones_like(tokens)
        return self._several_chunks(states)

    def _several_chunks(self, states: FloatArray) -> FloatArray:
        """Chunks if one may not be enough: the root of a quadratic equation, rounded up.

        The root may be an integer, where a rounding error can change the result by one; the
        result is therefore corrected.
        """
        inputs, tokens = self.input_tokens, self.tokens
        constant = tokens * inputs
        half = (states * (inputs + tokens) + inputs - tokens * TOKENS_PER_ITERATION) / 2
        root = half + np.sqrt(half**2 + TOKENS_PER_ITERATION * constant)
        chunks = np.maximum(np.ceil(root / TOKENS_PER_ITERATION), 1.0)

        def fits(count: FloatArray) -> FloatArray:
            surplus = (TOKENS_PER_ITERATION * count - 2 * half) * count >= constant
            return np.asarray(surplus, dtype=np.float64)

        chunks += 1.0 - fits(chunks)
        return np.maximum(chunks - fits(np.maximum(chunks - 1.0, 0.0)), 1.0)

    def intervals(self, rows: slice, states: FloatArray) -> FloatArray:
        """Mean time between departures [ms], see `queueing.DepartureIntervals`."""
        return type(self)(*(column[rows] for column in self.columns())).interval_ms(states)

    def interval_ms(self, states: FloatArray) -> FloatArray:
        """(c + k) alpha / n, plus the prefill and decode time of a request [ms]."""
        chunks = self.chunks(states)
        iterations = chunks + self.tokens
        overhead = iterations * self.alpha * (1.0 / states)
        return overhead + self._prefill_ms(chunks) + self._decode_ms()

    def _prefill_ms(self, chunks: FloatArray) -> FloatArray:
        """Time that the prefill of a request adds to its iterations [ms]."""
        beta, gamma = self.beta, self.gamma
        return (beta + gamma * (chunks + 1) / 2) * self.input_tokens

    def _decode_ms(self) -> FloatArray:
        """Time that the decode steps of a request add to its iterations [ms]."""
        read = self.input_tokens + (self.tokens + 1) / 2
        return (self.beta + self.gamma * read) * self.tokens

    def _chunks_at(self, averages: Averages) -> FloatArray:
        """Chunks at the mean number in service, which is rounded half up."""
        return self.chunks(np.maximum(np.floor(averages.in_service + 0.5), 1.0))

    def _prefill_time_ms(self, averages: Averages) -> FloatArray:
        """Time from the start of service to the end of the prefill [ms]."""
        chunks = self._chunks_at(averages)
        prefill = self._prefill_ms(chunks)
        share = (prefill + self._decode_ms()) / (chunks + self.tokens)
        others = np.maximum(self.alpha + (averages.in_service - 1) * share, 0.0)
        return chunks * others + prefill

    def itl_ms(self, averages: Averages) -> FloatArray:
        """Service time after the prefill, divided by the output tokens [ms]."""
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


@dataclass(frozen=True, slots=True)
class CachedTokenBudgetModel(TokenBudgetModel):
    """Generation 3 with prefix caches: `input_tokens` counts what is computed of a prompt.

    The `cached_tokens` besides are read by each of its iterations.
    """

    cached_tokens: FloatArray

    @classmethod
    def of(
        cls, parameters: Sequence[TokenBudgetParameters], which: IntArray, requests: Requests
    ) -> Self:
        """From records, the record of each pair and its requests."""
        computed = replace(requests, input_tokens=requests.computed_tokens)
        cached = (requests.input_tokens - requests.computed_tokens).astype(np.float64)
        return cls(*(*TokenBudgetModel.of(parameters, which, computed).columns(), cached))

    def _prefill_ms(self, chunks: FloatArray) -> FloatArray:
        read = self.gamma * chunks * self.cached_tokens
        return TokenBudgetModel._prefill_ms(self, chunks) + read  # noqa: SLF001 - super() has no class with slots

    def _decode_ms(self) -> FloatArray:
        read = self.gamma * self.cached_tokens * self.tokens
        return TokenBudgetModel._decode_ms(self) + read  # noqa: SLF001 - as above


def columns_of(parameters: Sequence[object], *names: str) -> list[FloatArray]:
    """Fields of records as arrays."""
    return [np.array([getattr(p, name) for p in parameters], dtype=np.float64) for name in names]
