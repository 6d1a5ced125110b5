"""Slow, simple answers in plain Python: what the optimizer's fast ones are held against."""

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal, localcontext
from itertools import product

from inferno_optimizer.system import Accelerator, Allocation
from tests.unit.optimizer.systems import Demand

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


@dataclass(frozen=True)
class Replica:
    """A replica of the first generation, as sizing.md describes it."""

    alpha: float
    beta: float
    batch: int
    tokens: int

    def rate(self, n: int) -> float:
        """Departures with n requests in service [requests/ms]."""
        return n / (self.tokens * (self.alpha + self.beta * n))

    def queue(self, arrival_rate: float) -> Queue:
        """Averages in ordinary floats, scaled by the largest weight so that none overflows."""
        n = range(10 * self.batch + 1)
        logs = [0.0]
        for state in n[1:]:
            logs.append(logs[-1] + math.log(arrival_rate / self.rate(min(state, self.batch))))
        weights = [math.exp(log - max(logs)) for log in logs]
        total = math.fsum(weights)
        p = [weight / total for weight in weights]
        return Queue(
            math.fsum(p[i] * self.rate(min(i, self.batch)) for i in n[1:]),
            math.fsum(p[i] * min(i, self.batch) for i in n),
            math.fsum(p[i] * max(i - self.batch, 0) for i in n),
        )

    def itl_ms(self, arrival_rate: float) -> float:
        """Mean inter-token latency."""
        return self.queue(arrival_rate).service_ms / self.tokens

    def keeps(self, arrival_rate: float, itl_ms: float, wait_ms: float) -> bool:
        """Whether both targets hold; 0 is no target, the wait is a 95th percentile."""
        queue = self.queue(arrival_rate)
        return (itl_ms <= 0 or queue.service_ms <= self.tokens * itl_ms) and (
            wait_ms <= 0 or queue.wait_ms * math.log(20) <= wait_ms
        )

    def highest_rate(self, itl_ms: float = 0, wait_ms: float = 0, tps: float = 0) -> float:
        """Find it by bisection; 0 where even the lowest rate misses a target."""
        low, high = 0.001 * self.rate(1), 0.999 * self.rate(self.batch)
        share = 0.9 if tps > 0 else 1.0
        if not self.keeps(low, itl_ms, wait_ms):
            return 0.0
        rate = (
            high
            if self.keeps(high, itl_ms, wait_ms)
            else _bisect(lambda x: self.keeps(x, itl_ms, wait_ms), low, high)
        )
        return min(rate, share * high)


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


@dataclass(frozen=True)
class Choice:
    """What one server may get; `load` is what is served by it."""

    load: float = 0.0
    value: float = 0.0
    cards: Mapping[str, int] = field(default_factory=dict)


def choices(demand: Demand, units: Mapping[str, Accelerator]) -> list[Choice]:
    """Nothing, or all replicas on one of the accelerators."""
    found = [Choice()]
    for name, replicas in demand.needs.items():
        accelerator, count = units[name], demand.accelerators_per_replica
        cost = accelerator.cost * count * replicas
        cards = {accelerator.type: replicas * count * accelerator.multiplicity}
        worth = value(demand.current, name, replicas, cost)
        found.append(Choice(demand.load, worth, cards))
    return found


def best_plan(
    demands: Sequence[Demand], units: Sequence[Accelerator], capacity: Mapping[str, int]
) -> tuple[tuple[float, ...], float]:
    """Try every plan: served load by priority, as large as can be, then the least value."""
    by_name = {unit.name: unit for unit in units}
    plans = product(*(choices(demand, by_name) for demand in demands))
    served, lost = max(_worth(plan, demands) for plan in plans if _fits(plan, capacity))
    return served, -lost


def _fits(plan: Sequence[Choice], capacity: Mapping[str, int]) -> bool:
    used: Counter[str] = Counter()
    for choice in plan:
        used.update(choice.cards)
    return all(count <= capacity.get(card_type, 0) for card_type, count in used.items())


def _worth(plan: Sequence[Choice], demands: Sequence[Demand]) -> tuple[tuple[float, ...], float]:
    return (
        served_by_priority(demands, [choice.load for choice in plan]),
        -math.fsum(choice.value for choice in plan),
    )


def served_by_priority(demands: Sequence[Demand], served: Sequence[float]) -> tuple[float, ...]:
    """Sums of what the servers of each priority get, the most important one first."""
    total = dict.fromkeys(sorted({demand.priority for demand in demands}), 0.0)
    for demand, load in zip(demands, served, strict=True):
        total[demand.priority] += load
    return tuple(total.values())
