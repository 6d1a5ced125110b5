"""Slow, simple answers in plain Python: what the optimizer's fast ones are held against."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from decimal import Decimal, localcontext
from itertools import pairwise
from typing import Protocol

import numpy as np

from inferno_optimizer.forecast import MOST, QUANTILE
from inferno_optimizer.system import Allocation

DIGITS = 60
"""So many that rounding cannot be seen in a double; exponents are next to unlimited."""


@dataclass(frozen=True)
class Queue:
    """Averages of a queue: rate let in [1/ms], requests in service and waiting, mean times [ms]."""

    throughput: float
    in_service: float
    waiting: float

    @property
    def service_ms(self) -> float:
        return self.in_service / self.throughput

    @property
    def wait_ms(self) -> float:
        return self.waiting / self.throughput


def birth_death(arrival_rate: float, intervals: Sequence[float], limit: int) -> Queue:
    """Sum every state of the chain, with 60 digits; `intervals[n - 1]` is 1 / mu(n)."""
    with localcontext(prec=DIGITS):
        rate, times = Decimal(arrival_rate), [Decimal(t) for t in intervals]
        batch = len(times)
        weight = total = Decimal(1)
        departures = served = waiting = Decimal(0)
        for n in range(1, limit + 1):
            in_service = min(n, batch)
            weight *= rate * times[in_service - 1]
            total += weight
            departures += weight / times[in_service - 1]
            served += weight * in_service
            waiting += weight * (n - in_service)
        return Queue(float(departures / total), float(served / total), float(waiting / total))


def share_waiting_longer(
    arrival_rate: float, intervals: Sequence[float], limit: int, time_ms: float
) -> float:
    """P(wait > time) of a request let in: the Erlang tail of each state it may meet, summed."""
    with localcontext(prec=DIGITS):
        rate, times = Decimal(arrival_rate), [Decimal(t) for t in intervals]
        batch, events = len(times), Decimal(time_ms) / Decimal(intervals[-1])
        weight, poisson = Decimal(1), (-events).exp()
        total = beyond = tail = Decimal(0)
        for n in range(limit):  # it meets n others, and is let in
            total += weight
            if n >= batch:
                tail += poisson
                poisson *= events / (n - batch + 1)
                beyond += weight * tail
            weight *= rate * times[min(n, batch - 1)]
        return float(beyond / total)


class AnyReplica(Protocol):
    """A replica of a generation.

    See `sizing.md`, section "Four generations of performance data".
    """

    @property
    def batch(self) -> int:
        """Most requests in service."""

    @property
    def limit(self) -> int:
        """Most requests in all."""

    def rate(self, n: int) -> float:
        """Departures with n requests in service [requests/ms]."""

    def itl_of(self, queue: Queue) -> float:
        """Mean inter-token latency [ms]."""

    def first_token_of(self, queue: Queue) -> float:
        """Mean time from the start of service to the first token [ms]."""


def queue_of(replica: AnyReplica, arrival_rate: float) -> Queue:
    """Averages in ordinary floats, scaled by the largest weight so that none overflows."""
    n, batch = range(replica.limit + 1), replica.batch
    rates = [0.0, *(replica.rate(i) for i in range(1, batch + 1))]
    logs = [0.0]
    for state in n[1:]:
        logs.append(logs[-1] + math.log(arrival_rate / rates[min(state, batch)]))
    weights = [math.exp(log - max(logs)) for log in logs]
    total = math.fsum(weights)
    p = [weight / total for weight in weights]
    return Queue(
        math.fsum(p[i] * rates[min(i, batch)] for i in n[1:]),
        math.fsum(p[i] * min(i, batch) for i in n),
        math.fsum(p[i] * max(i - batch, 0) for i in n),
    )


def highest_rate(replica: AnyReplica, holds: Callable[[Queue], bool], tps: bool = False) -> float:
    """Find the highest rate of arrivals by bisection; 0 where even the lowest one is too much."""
    low, high = 0.001 * replica.rate(1), 0.999 * replica.rate(replica.batch)
    share = 0.9 if tps else 1.0

    def keeps(rate: float) -> bool:
        return holds(queue_of(replica, rate))

    if not keeps(low):
        return 0.0
    return min(high if keeps(high) else _bisect(keeps, low, high), share * high)


@dataclass(frozen=True)
class Replica:
    """A replica of the first generation.

    See `sizing.md`, section "Four generations of performance data".
    """

    alpha: float
    beta: float
    batch: int
    tokens: int

    @property
    def limit(self) -> int:
        """Most requests in all."""
        return 10 * self.batch

    def rate(self, n: int) -> float:
        """Departures with n requests in service [requests/ms]."""
        return n / (self.tokens * (self.alpha + self.beta * n))

    def queue(self, arrival_rate: float) -> Queue:
        """Averages of the queue."""
        return queue_of(self, arrival_rate)

    def itl_of(self, queue: Queue) -> float:
        """Mean inter-token latency [ms]."""
        return queue.service_ms / self.tokens

    def first_token_of(self, queue: Queue) -> float:
        """One iteration [ms]."""
        return self.itl_of(queue)

    def itl_ms(self, arrival_rate: float) -> float:
        """Mean inter-token latency."""
        return self.itl_of(self.queue(arrival_rate))

    def holds(self, queue: Queue, itl_ms: float, wait_ms: float) -> bool:
        """Whether both targets hold; 0 is no target, the wait is a 95th percentile."""
        return (itl_ms <= 0 or queue.service_ms <= self.tokens * itl_ms) and (
            wait_ms <= 0 or queue.wait_ms * math.log(20) <= wait_ms
        )

    def keeps(self, arrival_rate: float, itl_ms: float, wait_ms: float) -> bool:
        """Whether both targets hold at a rate of arrivals."""
        return self.holds(self.queue(arrival_rate), itl_ms, wait_ms)


@dataclass(frozen=True)
class PrefillReplica:
    """A replica of the second generation: h input tokens, k output tokens."""

    alpha: float
    beta: float
    gamma: float
    delta: float
    batch: int
    inputs: int
    outputs: int

    @property
    def limit(self) -> int:
        """Most requests in all."""
        return 11 * self.batch

    def prefill(self, n: float) -> float:
        """Time of the prefill in a batch of n."""
        return self.gamma + self.delta * self.inputs * n if self.inputs else 0.0

    def decode(self, n: float) -> float:
        """Time of a decode step in a batch of n."""
        return self.alpha + self.beta * n

    def rate(self, n: int) -> float:
        """Departures with n requests in service [requests/ms]."""
        return n / (self.prefill(n) + (self.outputs - 1) * self.decode(n))

    def concurrency(self, queue: Queue) -> float:
        """The batch of which the service time is the mean one."""
        one, two = 1 / self.rate(1), 2 / self.rate(2)
        return 1.0 if two == one else 1 + (queue.service_ms - one) / (two - one)

    def itl_of(self, queue: Queue) -> float:
        """A decode step at the concurrency."""
        return self.decode(self.concurrency(queue))

    def first_token_of(self, queue: Queue) -> float:
        """The prefill at the concurrency."""
        return self.prefill(self.concurrency(queue))


@dataclass(frozen=True)
class BudgetReplica:
    """A replica of the third generation: h input tokens, k output tokens, a short queue."""

    alpha: float
    beta: float
    gamma: float
    batch: int
    inputs: int
    outputs: int
    queue_size: int

    @property
    def limit(self) -> int:
        """Most requests in all."""
        return self.batch + self.queue_size

    def chunks(self, n: int) -> int:
        """Fewest chunks with which a batch of n fits into the token budget; tried in turn."""
        h, k, c = self.inputs, self.outputs, 1
        while (c + k) * (8192 * c - h) < n * (h + k) * c:
            c += 1
        return c

    def prefill(self, chunks: int) -> float:
        """Work of the prefill of one request."""
        return (self.beta + self.gamma * (chunks + 1) / 2) * self.inputs

    def decode(self) -> float:
        """Work of the decode steps of one request."""
        h, k = self.inputs, self.outputs
        return self.beta * k + self.gamma * k * (h + (k + 1) / 2)

    def rate(self, n: int) -> float:
        """Departures with n requests in service [requests/ms]."""
        c = self.chunks(n)
        return n / ((c + self.outputs) * self.alpha + n * (self.prefill(c) + self.decode()))

    def _prefill_time(self, queue: Queue) -> float:
        n = queue.in_service
        c = self.chunks(min(max(math.floor(n + 0.5), 1), self.batch))
        share = (self.prefill(c) + self.decode()) / (c + self.outputs)
        return c * max(self.alpha + (n - 1) * share, 0.0) + self.prefill(c)

    def itl_of(self, queue: Queue) -> float:
        """What the prefill leaves of the service time, by output token."""
        return (queue.service_ms - self._prefill_time(queue)) / self.outputs

    def first_token_of(self, queue: Queue) -> float:
        """The prefill, and a decode step."""
        return self._prefill_time(queue) + self.itl_of(queue)


def _bisect(holds: Callable[[float], bool], low: float, high: float) -> float:
    """Last point at which something holds that holds at `low` and not at `high`."""
    while high - low > 1e-9 * high:
        middle = (low + high) / 2
        low, high = (middle, high) if holds(middle) else (low, middle)
    return low


def value(current: Allocation, accelerator: str, replicas: int, cost: float) -> float:
    """What a solver minimizes: change of cost, and a tenth of both costs for moving."""
    if accelerator != current.accelerator:
        return 0.1 * (current.cost + cost) + cost - current.cost
    return 0.0 if replicas == current.replicas else cost - current.cost


def growth_of(rates: Sequence[float | None], ahead: int, rate: float, first: float) -> float:
    """By what a rate is multiplied to bound the one so many steps later, from those of before."""
    steps = zip(rates, rates[ahead:], strict=False)
    pairs = [(a, b / a) for a, b in steps if a is not None and b is not None and a > 0]
    if not pairs:
        return first
    before = sorted(a for a, _ in pairs)
    low, middle, high = (before[quarter * len(before) // 4] for quarter in (1, 2, 3))
    halves = ((0.0, middle), (low, high), (middle, math.inf))
    bounds = [
        float(
            np.quantile([min(r, MOST) for a, r in pairs if s <= a <= e], QUANTILE, method="weibull")
        )
        for s, e in halves
    ]
    return _between(rate, [low, middle, high], bounds)


def _between(rate: float, levels: Sequence[float], values: Sequence[float]) -> float:
    """Linear between levels, constant beyond; at equal levels the first value."""
    places = list(zip(levels, values, strict=True))
    if rate <= levels[0]:
        return values[0]
    for (below, lower), (above, upper) in pairwise(places):
        if below < rate <= above:
            return lower + (upper - lower) * (rate - below) / (above - below)
    return values[-1]
