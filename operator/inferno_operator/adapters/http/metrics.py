"""The `inferno_*` metrics, in a registry of their own.

The series about the last optimization of a namespace are replaced together by the next one, and
removed when its Optimizer is deleted; those about the last measurement are replaced together by the
next one. Those about decisions follow the Servers. So there are no series of deleted objects.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from time import monotonic, time

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector
from prometheus_client.exposition import choose_encoder

from inferno_operator.adapters.http.measurements import (
    MEASUREMENT_METRICS,
    NamespaceMeasurement,
    measurement,
)
from inferno_operator.adapters.http.publication import (
    PUBLISHED_METRICS,
    WVA_METRICS,
    Variant,
    desired_rows,
    wva_rows,
)
from inferno_operator.adapters.http.results import (
    RESULT_METRICS,
    DearestPlans,
    dearest_plans,
    result_rows,
)
from inferno_operator.adapters.http.series import Metric, ReplacedSeries, Row, replaced
from inferno_operator.controllers.scaling.publication import Published
from inferno_operator.resources.objects import Key, Kind
from inferno_operator.runtime.leader_election import Clock
from inferno_operator.runtime.observer import MeasuredServer, Observer
from inferno_optimizer.solution import Solution
from inferno_optimizer.system import System
from inferno_optimizer.units import SECONDS_PER_HOUR

BUCKETS = (0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0)
"""Upper bounds of the buckets of histograms [s]."""


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
OVERDUE = replaced(
    "optimizer_overdue_seconds",
    ("optimizer",),
    "Time since an Optimizer with an interval should have optimized again; 0 if it is not overdue.",
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
QUERIES = Metric(
    "inferno_prometheus_queries_total",
    "counter",
    ("result",),
    "Queries of Prometheus; result is Answered or the reason of a failure.",
)
CYCLE = Metric(
    "inferno_measure_cycle_seconds",
    "histogram",
    (),
    "Time that a measuring cycle took, from its first query to its last write.",
)

METRICS = (
    OPTIMIZATIONS,
    DURATION,
    SOLVE_DURATION,
    OVERDUE,
    WRITES,
    LEADER,
    QUEUE_DEPTH,
    QUERIES,
    CYCLE,
    *RESULT_METRICS,
    *MEASUREMENT_METRICS,
    *PUBLISHED_METRICS,
    *WVA_METRICS,
)
"""All metrics of the operator; on Linux the page also has the usual `process_*` metrics."""


@dataclass(frozen=True, slots=True)
class _Result:
    """The result of the last optimization of a namespace, and the name of its Optimizer."""

    optimizer: str
    rows: tuple[Row, ...]
    dearest: DearestPlans


@dataclass(frozen=True, slots=True)
class _Schedule:
    """The interval of an Optimizer, and when its last one began by the clock of the metrics [s]."""

    interval: float
    since: float


class OperatorMetrics(Observer):
    """Updates the metrics on each call, and prints them."""

    def __init__(self, clock: Clock = monotonic, now: Clock = time) -> None:
        self._clock = clock
        self._now = now
        self._started: dict[Key, float] = {}
        self._schedules: dict[Key, _Schedule] = {}
        self._results: dict[str, _Result] = {}
        self._measurements: dict[str, NamespaceMeasurement] = {}
        self._registry = CollectorRegistry()
        ProcessCollector(registry=self._registry)
        self._optimizations = self._counter(OPTIMIZATIONS)
        self._writes = self._counter(WRITES)
        self._duration = self._histogram(DURATION)
        self._solve_duration = self._histogram(SOLVE_DURATION)
        self._queries = self._counter(QUERIES)
        self._cycle = self._histogram(CYCLE)
        self._registry.register(ReplacedSeries((OVERDUE,), self._overdue_rows))
        self._registry.register(ReplacedSeries(RESULT_METRICS, self._result_rows))
        self._registry.register(ReplacedSeries(MEASUREMENT_METRICS, self._measurement_rows))

    def follow(self, *, leading: Callable[[], bool], queue_depth: Callable[[], int]) -> None:
        """Register callables whose values are read whenever the metrics are printed."""
        for metric, value in ((LEADER, leading), (QUEUE_DEPTH, queue_depth)):
            Gauge(metric.name, metric.help, registry=self._registry).set_function(value)

    def publish(
        self, decisions: Callable[[], Iterable[Published]], variant: Variant | None = None
    ) -> None:
        """Print the decisions, which are read whenever the metrics are printed.

        With `variant` they are also printed under the names that users of llm-d and KServe know.
        """
        own = ReplacedSeries(PUBLISHED_METRICS, lambda: desired_rows(decisions()))
        self._registry.register(own)
        if variant is not None:
            rows = partial(wva_rows, variant=variant)
            self._registry.register(ReplacedSeries(WVA_METRICS, lambda: rows(decisions())))

    def page(self, accept: str = "") -> tuple[str, bytes]:
        """Return content type and body, in a format that the Accept header allows."""
        encode, content_type = choose_encoder(accept)
        return content_type, encode(self._registry)

    def scheduled(self, key: Key, interval: float | None) -> None:
        """Store the interval of an Optimizer; the first one begins now."""
        schedule = self._schedules.pop(key, None)
        if interval is not None:
            since = self._clock() if schedule is None else schedule.since
            self._schedules[key] = _Schedule(interval, since)

    def started(self, key: Key) -> None:
        """Store the time of the start."""
        self._started[key] = self._clock()

    def optimized(self, key: Key, system: System, solution: Solution) -> None:
        """Count a successful optimization, and replace the series of its namespace."""
        started = self._started.pop(key, None)
        if started is not None:
            self._duration.observe(self._clock() - started)
        if key in self._schedules:
            self._schedules[key] = replace(self._schedules[key], since=self._clock())
        certificate = solution.certificate
        self._solve_duration.labels(certificate.solver).observe(certificate.seconds)
        self._optimizations.labels(key.namespace, key.name, "Optimized").inc()
        last = self._results.get(key.namespace)
        hour = int(self._clock() // SECONDS_PER_HOUR)
        dearest = dearest_plans(last.dearest if last else {}, system, solution, hour)
        rows = tuple(result_rows(system, solution, self._now(), dearest))
        self._results[key.namespace] = _Result(key.name, rows, dearest)

    def failed(self, key: Key, reason: str) -> None:
        """Count a failed optimization; the series of the last successful one stay."""
        self._started.pop(key, None)
        self._optimizations.labels(key.namespace, key.name, reason).inc()

    def forgot(self, key: Key) -> None:
        """Remove the series of this Optimizer."""
        self._started.pop(key, None)
        self._schedules.pop(key, None)
        labels = {"namespace": key.namespace, "optimizer": key.name}
        self._optimizations.remove_by_labels(labels)
        result = self._results.get(key.namespace)
        if result is not None and result.optimizer == key.name:
            del self._results[key.namespace]

    def wrote(self, kind: Kind, part: str, *, succeeded: bool) -> None:
        """Count a write."""
        outcome = "written" if succeeded else "failed"
        self._writes.labels(kind.kind, part, outcome).inc()

    def queried(self, result: str) -> None:
        """Count a query of Prometheus."""
        self._queries.labels(result).inc()

    def measured(self, namespace: str, servers: Sequence[MeasuredServer]) -> None:
        """Replace the series about the measurement of a namespace."""
        if servers:
            self._measurements[namespace] = measurement(self._clock(), servers)
        else:
            self._measurements.pop(namespace, None)

    def measuring_ended(self, seconds: float) -> None:
        """Note the time that a measuring cycle took."""
        self._cycle.observe(seconds)

    def _overdue_rows(self) -> Iterator[tuple[str, Iterable[Row]]]:
        now = self._clock()
        for key, schedule in sorted(self._schedules.items()):
            overdue = max(0.0, now - schedule.since - schedule.interval)
            yield key.namespace, [(OVERDUE, (key.name,), overdue)]

    def _result_rows(self) -> Iterator[tuple[str, Iterable[Row]]]:
        for namespace, result in sorted(self._results.items()):
            yield namespace, result.rows

    def _measurement_rows(self) -> Iterator[tuple[str, Iterable[Row]]]:
        now = self._clock()
        for namespace, measured in sorted(self._measurements.items()):
            yield namespace, measured.rows(now)

    def _counter(self, metric: Metric) -> Counter:
        return Counter(metric.name, metric.help, metric.labels, registry=self._registry)

    def _histogram(self, metric: Metric) -> Histogram:
        return Histogram(
            metric.name, metric.help, metric.labels, buckets=BUCKETS, registry=self._registry
        )
