"""The interface through which controllers report what they do, for metrics."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from inferno_operator.resources.objects import Key, Kind
from inferno_optimizer.solution import Solution
from inferno_optimizer.system import System


@dataclass(frozen=True, slots=True)
class ObservedLatency:
    """A latency of a server: measured, predicted by the plan, and its target [ms]; or None."""

    measured: float | None = None
    predicted: float | None = None
    target: float | None = None


@dataclass(frozen=True, slots=True)
class MeasuredServer:
    """What the last measurement tells about a server.

    `quality` is that of the measurement, such as Fresh or Stale. `arrival_rate` is its load
    [requests/min] and `age` the age of its newest sample [s], both None if unknown. `latencies`
    are by quantity: itl, ttft, wait. `misses` tells for each target of the server, such as
    slo-ttft, whether the server misses it now; targets that are not measured are absent.
    `correction` is what its load is multiplied by for plans; None if unknown.
    """

    server: str
    quality: str
    arrival_rate: float | None = None
    age: float | None = None
    latencies: Mapping[str, ObservedLatency] = field(default_factory=dict)
    misses: Mapping[str, bool] = field(default_factory=dict)
    correction: float | None = None


class Observer:
    """Receives a call for each optimization, measurement, query and write; this one ignores all."""

    def scheduled(self, key: Key, interval: float | None) -> None:
        """Note the interval of an Optimizer [s]; None if it optimizes only when it is asked."""

    def started(self, key: Key) -> None:
        """Note that an optimization has begun; `key` is that of its Optimizer."""

    def optimized(self, key: Key, system: System, solution: Solution) -> None:
        """Note that an optimization succeeded and all its results are written."""

    def failed(self, key: Key, reason: str) -> None:
        """Note that an optimization failed and will be tried again."""

    def forgot(self, key: Key) -> None:
        """Note that an Optimizer was deleted."""

    def wrote(self, kind: Kind, part: str, *, succeeded: bool) -> None:
        """Note a write; `part` is spec, status, scale, metadata, event or deletion."""

    def queried(self, result: str) -> None:
        """Note a query of Prometheus; `result` is Answered or the reason of an error."""

    def measured(self, namespace: str, servers: Sequence[MeasuredServer]) -> None:
        """Note the measurement of all measured servers of a namespace; none if there are none."""

    def measuring_ended(self, seconds: float) -> None:
        """Note that a measuring cycle, of all namespaces, has ended, and how long it took [s]."""
