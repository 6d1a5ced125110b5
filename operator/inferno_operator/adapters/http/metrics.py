"""The `inferno_*` metrics, in a registry of their own.

The series about the last optimization of a namespace are replaced together by the next one, and
removed when its Optimizer is deleted. So there are no series of deleted objects.
"""

from collections import Counter as Tally
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from time import monotonic, time
from typing import Literal

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector

from inferno_operator.resources.objects import Key, Kind
from inferno_operator.runtime.leader_election import Clock
from inferno_operator.runtime.observer import Observer
from inferno_optimizer.system import LOWEST_PRIORITY, Solution, System

BUCKETS = (0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0)
"""Upper bounds of the buckets of histograms [s]."""


@dataclass(frozen=True, slots=True)
class Metric:
    """One metric; `of_result` if it is about the last optimization of a namespace."""

    name: str
    kind: Literal["counter", "gauge", "histogram"]
    labels: tuple[str, ...]
    help: str
    of_result: bool = False


def _result(name: str, labels: tuple[str, ...], text: str) -> Metric:
    return Metric(f"inferno_{name}", "gauge", ("namespace", *labels), text, of_result=True)


OPTIMIZATIONS = Metric(
    "inferno_optimizations_total",
    "counter",
    ("namespace", "optimizer", "result"),
    "Optimizations that ended; result is Optimized or the reason of a failure.",
)
DURATION = Metric(
    "inferno_optimization_duration_seconds",
    "histogram",
    (),
    "Time from reading the objects to the last write, for optimizations that succeeded.",
)
SOLVE_DURATION = Metric(
    "inferno_solve_duration_seconds",
    "histogram",
    ("solver",),
    "Time that the solver took, for optimizations that succeeded.",
)
WRITES = Metric(
    "inferno_writes_total",
    "counter",
    ("kind", "part", "result"),
    "Writes; part is spec, status, scale, metadata, event or deletion; result, written or failed.",
)
LEADER = Metric("inferno_leader", "gauge", (), "1 if this operator leads, else 0.")
QUEUE_DEPTH = Metric(
    "inferno_queue_depth",
    "gauge",
    (),
    "Optimizers that are reconciled or wait for their next reconcile.",
)
LAST_TIME = _result(
    "last_optimization_timestamp_seconds", (), "When the last optimization ended, Unix time."
)
SERVERS = _result("servers", (), "Servers in the last optimization.")
UNSERVED = _result(
    "unserved_servers",
    ("service_class", "priority", "reason"),
    "Servers without an allocation after the last optimization.",
)
COST = _result("cost_cents_per_hour", (), "Cost of all allocations of the last optimization.")
GAP = _result(
    "optimality_gap_ratio",
    (),
    "Proven relative distance from the optimum; absent if the solver proves nothing.",
)
DESIRED = _result(
    "server_desired_replicas", ("server", "accelerator"), "Replicas that were decided for a server."
)
CURRENT = _result(
    "server_current_replicas",
    ("server", "accelerator"),
    "Replicas that a server had when the last optimization read it.",
)
USED = _result("capacity_used_cards", ("type",), "Cards that the allocations use.")
AVAILABLE = _result(
    "capacity_available_cards", ("type",), "Cards that exist; absent if capacity is unlimited."
)
HELD = _result(
    "capacity_held_cards",
    ("type",),
    "Cards that servers hold for which no decision is possible.",
)
PRICE = _result(
    "capacity_price_cents_per_hour",
    ("type",),
    "What one more card would save at the served load; absent where it serves more load.",
)
GAIN = _result(
    "capacity_gain_requests_per_minute",
    ("type", "priority"),
    "Load that one more card would serve, of the most important priority that gains.",
)

METRICS = (
    OPTIMIZATIONS,
    DURATION,
    SOLVE_DURATION,
    WRITES,
    LEADER,
    QUEUE_DEPTH,
    LAST_TIME,
    SERVERS,
    UNSERVED,
    COST,
    GAP,
    DESIRED,
    CURRENT,
    USED,
    AVAILABLE,
    HELD,
    PRICE,
    GAIN,
)
"""All metrics of the operator; on Linux the page also has the usual `process_*` metrics."""

Row = tuple[Metric, tuple[str, ...], float]
"""A metric, the values of its labels without the namespace, and its value."""


@dataclass(frozen=True, slots=True)
class _Result:
    """The result of the last optimization of a namespace, and the name of its Optimizer."""

    optimizer: str
    rows: tuple[Row, ...]


class Metrics(Observer):
    """Updates the metrics on each call, and prints them."""

    def __init__(self, clock: Clock = monotonic, now: Clock = time) -> None:
        self._clock = clock
        self._now = now
        self._started: dict[Key, float] = {}
        self._results: dict[str, _Result] = {}
        self._registry = CollectorRegistry()
        ProcessCollector(registry=self._registry)
        self._optimizations = self._counter(OPTIMIZATIONS)
        self._writes = self._counter(WRITES)
        self._duration = self._histogram(DURATION)
        self._solve_duration = self._histogram(SOLVE_DURATION)
        self._registry.register(_Results(self._results))

    def follow(self, *, leading: Callable[[], bool], queue_depth: Callable[[], int]) -> None:
        """Register callables whose values are read whenever the metrics are printed."""
        for metric, value in ((LEADER, leading), (QUEUE_DEPTH, queue_depth)):
            Gauge(metric.name, metric.help, registry=self._registry).set_function(value)

    def page(self, accept: str = "") -> tuple[str, bytes]:
        """Return content type and body, in a format that the Accept header allows."""
        encode, content_type = choose_encoder(accept)
        return content_type, encode(self._registry)

    def started(self, key: Key) -> None:
        """Store the time of the start."""
        self._started[key] = self._clock()

    def optimized(self, key: Key, system: System, solution: Solution) -> None:
        """Count a successful optimization, and replace the series of its namespace."""
        started = self._started.pop(key, None)
        if started is not None:
            self._duration.observe(self._clock() - started)
        certificate = solution.certificate
        self._solve_duration.labels(certificate.solver).observe(certificate.seconds)
        self._optimizations.labels(key.namespace, key.name, "Optimized").inc()
        rows = ((LAST_TIME, (), self._now()), *_rows(system, solution))
        self._results[key.namespace] = _Result(key.name, rows)

    def failed(self, key: Key, reason: str) -> None:
        """Count a failed optimization; the series of the last successful one stay."""
        self._started.pop(key, None)
        self._optimizations.labels(key.namespace, key.name, reason).inc()

    def forgot(self, key: Key) -> None:
        """Remove the series of this Optimizer."""
        self._started.pop(key, None)
        labels = {"namespace": key.namespace, "optimizer": key.name}
        self._optimizations.remove_by_labels(labels)
        result = self._results.get(key.namespace)
        if result is not None and result.optimizer == key.name:
            del self._results[key.namespace]

    def wrote(self, kind: Kind, part: str, *, succeeded: bool) -> None:
        """Count a write."""
        outcome = "written" if succeeded else "failed"
        self._writes.labels(kind.kind, part, outcome).inc()

    def _counter(self, metric: Metric) -> Counter:
        return Counter(metric.name, metric.help, metric.labels, registry=self._registry)

    def _histogram(self, metric: Metric) -> Histogram:
        return Histogram(
            metric.name, metric.help, metric.labels, buckets=BUCKETS, registry=self._registry
        )


class _Results(Collector):
    """Collects the series about the last optimizations."""

    def __init__(self, results: dict[str, _Result]) -> None:
        self._results = results

    def describe(self) -> Iterable[GaugeMetricFamily]:
        """Return all metrics, without samples."""
        return self._families().values()

    def collect(self) -> Iterable[GaugeMetricFamily]:
        """Return all metrics, with a sample for each series."""
        families = self._families()
        for namespace, result in sorted(self._results.items()):
            for metric, labels, value in result.rows:
                families[metric].add_metric((namespace, *labels), value)
        return families.values()

    @staticmethod
    def _families() -> dict[Metric, GaugeMetricFamily]:
        return {
            metric: GaugeMetricFamily(metric.name, metric.help, labels=metric.labels)
            for metric in METRICS
            if metric.of_result
        }


def _rows(system: System, solution: Solution) -> Iterator[Row]:
    """Yield the rows of an optimization."""
    yield SERVERS, (), len(solution.decisions)
    yield COST, (), solution.cost
    if solution.certificate.gap is not None:
        yield GAP, (), solution.certificate.gap
    for labels, count in _unserved(system, solution).items():
        yield UNSERVED, labels, count
    yield from _server_rows(system, solution)
    yield from _capacity_rows(system, solution)


def _unserved(system: System, solution: Solution) -> Tally[tuple[str, ...]]:
    """Count the servers without an allocation by service class, priority and reason."""
    classes = {server.name: server.service_class for server in system.servers}
    priorities = {item.name: item.effective_priority for item in system.classes}
    return Tally(
        (
            classes[decision.server],
            str(priorities.get(classes[decision.server], LOWEST_PRIORITY)),
            decision.reason.value,
        )
        for decision in solution.unserved
    )


def _server_rows(system: System, solution: Solution) -> Iterator[Row]:
    allocations = solution.allocations
    for server in system.servers:
        current, desired = server.current, allocations.get(server.name)
        if current.accelerator:
            yield CURRENT, (server.name, current.accelerator), current.replicas
        if desired is None:
            yield DESIRED, (server.name, ""), 0
        else:
            for part in desired.parts:
                yield DESIRED, (server.name, part.accelerator), part.replicas


def _capacity_rows(system: System, solution: Solution) -> Iterator[Row]:
    for use in solution.capacity:
        yield USED, (use.type,), use.used
        yield HELD, (use.type,), use.held
        if not system.options.unlimited:
            yield AVAILABLE, (use.type,), use.available
        if use.price is not None:
            yield PRICE, (use.type,), use.price
        if use.gain is not None:
            yield GAIN, (use.type, str(use.gain.priority)), use.gain.load
