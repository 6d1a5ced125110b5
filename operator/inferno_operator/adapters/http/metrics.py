"""The `inferno_*` metrics, in a registry of their own.

The series about the last optimization of a namespace are replaced together by the next one, and
removed when its Optimizer is deleted; those about the last measurement are replaced together by the
next one. Those about decisions follow the Servers. So there are no series of deleted objects.
"""

from collections import Counter as Tally
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import groupby
from time import monotonic, time
from typing import Literal

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector

from inferno_operator.controllers.scaling.publication import Published
from inferno_operator.resources.objects import Key, Kind
from inferno_operator.runtime.leader_election import Clock
from inferno_operator.runtime.observer import MeasuredServer, Observer
from inferno_optimizer.solution import Solution
from inferno_optimizer.system import LOWEST_PRIORITY, System
from inferno_optimizer.units import SECONDS_PER_HOUR


@dataclass(frozen=True, slots=True)
class Metric:
    """One metric."""

    name: str
    kind: Literal["counter", "gauge", "histogram"]
    labels: tuple[str, ...]
    help: str


Row = tuple[Metric, tuple[str, ...], float]
"""A metric, the values of its labels without the namespace, and its value."""


def define_gauge(name: str, labels: tuple[str, ...], text: str) -> Metric:
    """Return a metric of a namespace whose series are replaced together."""
    return Metric(f"inferno_{name}", "gauge", ("namespace", *labels), text)


class ReplacedSeries(Collector):
    """Collects the series of metrics from rows that are read whenever the metrics are printed.

    Parameters
    ----------
    metrics
        The metrics; each has the namespace as its first label.
    rows
        Returns the rows of each namespace, in the order in which they are printed.
    """

    def __init__(
        self,
        metrics: Iterable[Metric],
        rows: Callable[[], Iterable[tuple[str, Iterable[Row]]]],
    ) -> None:
        self._metrics = tuple(metrics)
        self._rows = rows

    def describe(self) -> Iterable[GaugeMetricFamily]:
        """Return all metrics, without samples."""
        return self._families().values()

    def collect(self) -> Iterable[GaugeMetricFamily]:
        """Return all metrics, with a sample for each series."""
        families = self._families()
        for namespace, rows in self._rows():
            for metric, labels, value in rows:
                families[metric].add_metric((namespace, *labels), value)
        return families.values()

    def _families(self) -> dict[Metric, GaugeMetricFamily]:
        return {
            metric: GaugeMetricFamily(metric.name, metric.help, labels=metric.labels)
            for metric in self._metrics
        }


LAST_TIME = define_gauge(
    "last_optimization_timestamp_seconds", (), "When the last optimization ended, Unix time."
)
SERVERS = define_gauge("servers", (), "Servers in the last optimization.")
UNSERVED = define_gauge(
    "unserved_servers",
    ("service_class", "priority", "reason"),
    "Servers without an allocation after the last optimization.",
)
COST = define_gauge(
    "cost_cents_per_hour",
    (),
    "Cost of the last optimization: all allocations, and what runs without a possible decision.",
)
GAP = define_gauge(
    "optimality_gap_ratio",
    (),
    "Proven relative distance from the optimum; absent if the solver proves nothing.",
)
DESIRED = define_gauge(
    "server_desired_replicas", ("server", "accelerator"), "Replicas that were decided for a server."
)
CURRENT = define_gauge(
    "server_current_replicas",
    ("server", "accelerator"),
    "Replicas that a server had when the last optimization read it.",
)
RUNNING_COST = define_gauge(
    "server_cost_cents_per_hour",
    ("server",),
    "What the replicas of a server cost that ran when the last optimization read it.",
)
STATIC_PEAK = define_gauge(
    "server_static_peak_cents_per_hour",
    ("server",),
    "What a server would cost if the replicas of its dearest plan of the last 24 hours ran all the"
    " time.",
)
USED = define_gauge("capacity_used_cards", ("type",), "Cards that the allocations use.")
AVAILABLE = define_gauge(
    "capacity_available_cards", ("type",), "Cards that exist; absent if capacity is unlimited."
)
HELD = define_gauge(
    "capacity_held_cards",
    ("type",),
    "Cards that servers hold for which no decision is possible.",
)
PRICE = define_gauge(
    "capacity_price_cents_per_hour",
    ("type",),
    "What one more card would save at the served load, estimated if the plan is not proven to be"
    " the best; absent where it serves more load.",
)
GAIN = define_gauge(
    "capacity_gain_requests_per_minute",
    ("type", "priority"),
    "Load that one more card would serve, of the most important priority that gains; estimated if"
    " the plan is not proven to be the best.",
)

RESULT_METRICS = (
    LAST_TIME,
    SERVERS,
    UNSERVED,
    COST,
    GAP,
    DESIRED,
    CURRENT,
    RUNNING_COST,
    STATIC_PEAK,
    USED,
    AVAILABLE,
    HELD,
    PRICE,
    GAIN,
)
"""Metrics whose series the next optimization of the namespace replaces."""


DAY_HOURS = 24
"""Hours in which a static number of replicas must be enough for the peak."""

DearestPlans = Mapping[str, Mapping[int, float]]
"""The cost of the dearest plan for each server in an hour [cents/hour], for each hour that no
later one exceeds."""


def find_dearest_plans(
    before: DearestPlans, system: System, solution: Solution, hour: int
) -> DearestPlans:
    """Return the dearest plans for the servers of a solution in the last day."""
    running = {server.name: server.current.cost for server in system.servers}
    dearest = {}
    for decision in solution.decisions:
        name, allocation = decision.server, decision.allocation
        held = 0.0 if decision.reason.decided else running.get(name, 0.0)
        cost = allocation.cost if allocation else held
        dearer = {
            when: most
            for when, most in before.get(name, {}).items()
            if when > hour - DAY_HOURS and most > cost
        }
        dearest[name] = {hour: cost, **dearer}
    return dearest


def build_result_rows(
    system: System, solution: Solution, now: float, dearest: DearestPlans
) -> Iterator[Row]:
    """Yield the rows of an optimization that ended now, Unix time [s]."""
    yield LAST_TIME, (), now
    yield SERVERS, (), len(solution.decisions)
    yield COST, (), solution.cost
    if solution.certificate.gap is not None:
        yield GAP, (), solution.certificate.gap
    for labels, count in _count_unserved(system, solution).items():
        yield UNSERVED, labels, count
    yield from _build_server_rows(system, solution)
    for name, costs in dearest.items():
        yield STATIC_PEAK, (name,), max(costs.values())
    yield from _build_capacity_rows(system, solution)


def _count_unserved(system: System, solution: Solution) -> Tally[tuple[str, ...]]:
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


def _build_server_rows(system: System, solution: Solution) -> Iterator[Row]:
    allocations = solution.allocations
    for server in system.servers:
        current, desired = server.current, allocations.get(server.name)
        if current.accelerator:
            yield CURRENT, (server.name, current.accelerator), current.replicas
        yield RUNNING_COST, (server.name,), current.cost
        if desired is None:
            yield DESIRED, (server.name, ""), 0
        else:
            for part in desired.parts:
                yield DESIRED, (server.name, part.accelerator), part.replicas


def _build_capacity_rows(system: System, solution: Solution) -> Iterator[Row]:
    for use in solution.capacity:
        yield USED, (use.type,), use.used
        yield HELD, (use.type,), use.held
        if not system.options.unlimited:
            yield AVAILABLE, (use.type,), use.available
        if use.price is not None:
            yield PRICE, (use.type,), use.price
        if use.gain is not None:
            yield GAIN, (use.type, str(use.gain.priority)), use.gain.load


ARRIVAL_RATE = define_gauge(
    "server_measured_arrival_rate", ("server",), "Measured load of a server [requests/min]."
)
MEASURED = define_gauge(
    "server_measured_milliseconds",
    ("server", "quantity"),
    "Measured mean latency of a server; quantity is itl, ttft or wait.",
)
PREDICTED = define_gauge(
    "server_predicted_milliseconds",
    ("server", "quantity"),
    "Mean latency of a server that its plan predicts; quantity is itl, ttft or wait.",
)
TARGET = define_gauge(
    "server_target_milliseconds",
    ("server", "quantity"),
    "Target of a latency of a server; quantity is itl, ttft or wait.",
)
MISSES = define_gauge(
    "server_misses_target",
    ("server", "target"),
    "1 if the measured value misses a target of the server, else 0; target is such as slo-ttft.",
)
CORRECTION = define_gauge(
    "server_load_correction",
    ("server",),
    "What the load of a server is multiplied by for plans, as it missed targets with replicas that"
    " should be enough; 1 without a correction.",
)
AGE = define_gauge(
    "server_measurement_age_seconds", ("server",), "Age of the newest sample of a server."
)
QUALITY = define_gauge(
    "server_measurement_quality",
    ("server", "quality"),
    "1 for the quality of a measurement: Fresh, Idle, Partial, Stale, Missing or Refused.",
)

MEASUREMENT_METRICS = (ARRIVAL_RATE, MEASURED, PREDICTED, TARGET, MISSES, CORRECTION, AGE, QUALITY)
"""Metrics whose series the next measurement of the namespace replaces."""


@dataclass(frozen=True, slots=True)
class NamespaceMeasurement:
    """The last measurement of the servers of a namespace, and its time [s]."""

    time: float
    servers: tuple[MeasuredServer, ...]

    def rows(self, now: float) -> Iterator[Row]:
        """Yield the rows of all servers; samples are as old as they are at a time [s]."""
        for server in self.servers:
            yield from _build_measurement_rows(server, now - self.time)


def measurement(time: float, servers: Sequence[MeasuredServer]) -> NamespaceMeasurement:
    """Return the measurement of a time [s], with its servers in the order of their names."""
    return NamespaceMeasurement(time, tuple(sorted(servers, key=lambda server: server.server)))


def _build_measurement_rows(server: MeasuredServer, elapsed: float) -> Iterator[Row]:
    name = server.server
    yield QUALITY, (name, server.quality), 1
    if server.arrival_rate is not None:
        yield ARRIVAL_RATE, (name,), server.arrival_rate
    if server.age is not None:
        yield AGE, (name,), server.age + elapsed
    if server.correction is not None:
        yield CORRECTION, (name,), server.correction
    for target, missed in server.misses.items():
        yield MISSES, (name, target), missed
    for quantity, latency in server.latencies.items():
        values = ((MEASURED, latency.measured), (PREDICTED, latency.predicted))
        for metric, value in (*values, (TARGET, latency.target)):
            if value is not None:
                yield metric, (name, quantity), value


PUBLISHED = define_gauge(
    "desired_replicas",
    ("server", "accelerator", "workload"),
    "Replicas that were decided for a workload; server is the name of the Server object.",
)

Variant = Callable[[Published, str], str]
"""Returns the name of the variant that runs a Server on an accelerator."""

WVA_LABELS = ("namespace", "exported_namespace", "variant_name", "accelerator_type")
"""Labels of the autoscaler of llm-d; KServe asks for the namespace by the second name."""

WVA_DESIRED = Metric(
    "wva_desired_replicas",
    "gauge",
    WVA_LABELS,
    "Replicas that were decided for a variant; with INFERNO_WVA_METRICS only.",
)
WVA_CURRENT = Metric(
    "wva_current_replicas",
    "gauge",
    WVA_LABELS,
    "Replicas of a variant that run; with INFERNO_WVA_METRICS only.",
)
WVA_RATIO = Metric(
    "wva_desired_ratio",
    "gauge",
    WVA_LABELS,
    "Decided replicas divided by those that run, or the decided ones if none run; with"
    " INFERNO_WVA_METRICS only.",
)

WVA_METRICS = (WVA_DESIRED, WVA_CURRENT, WVA_RATIO)
PUBLISHED_METRICS = (PUBLISHED,)


def build_published_rows(decisions: Iterable[Published]) -> Iterator[tuple[str, Iterable[Row]]]:
    """Yield namespaces with the rows of their Servers; decisions are in the order of their keys."""
    for namespace, published in groupby(_list_decided(decisions), lambda item: item.key.namespace):
        yield namespace, [row for decision in published for row in _build_workload_rows(decision)]


def build_wva_rows(
    decisions: Iterable[Published], variant: Variant
) -> Iterator[tuple[str, Iterable[Row]]]:
    """Yield namespaces with the rows for users of llm-d and KServe.

    Several Servers that name one workload give one row, that of the first Server.
    """
    for namespace, published in groupby(_list_decided(decisions), lambda item: item.key.namespace):
        rows: dict[tuple[Metric, tuple[str, ...]], float] = {}
        for decision in published:
            for metric, labels, value in _build_variant_rows(decision, variant):
                rows.setdefault((metric, labels), value)
        yield namespace, [(metric, labels, value) for (metric, labels), value in rows.items()]


def _list_decided(decisions: Iterable[Published]) -> Iterator[Published]:
    return (decision for decision in decisions if decision.replicas is not None)


def _build_workload_rows(decision: Published) -> Iterator[Row]:
    for accelerator, replicas in decision.parts():
        workload = decision.workloads.get(accelerator)
        name = workload.name if workload else ""
        yield PUBLISHED, (decision.key.name, accelerator, name), replicas


def _build_variant_rows(decision: Published, variant: Variant) -> Iterator[Row]:
    for place, desired in decision.parts():
        workload = decision.workloads.get(place)
        accelerator = workload.accelerator if workload else place
        labels = decision.key.namespace, variant(decision, place), accelerator
        current = decision.current.get(place, 0)
        yield WVA_DESIRED, labels, desired
        yield WVA_CURRENT, labels, current
        yield WVA_RATIO, labels, desired / current if current else desired


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
OVERDUE = define_gauge(
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
        own = ReplacedSeries(PUBLISHED_METRICS, lambda: build_published_rows(decisions()))
        self._registry.register(own)
        if variant is not None:
            rows = partial(build_wva_rows, variant=variant)
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
        dearest = find_dearest_plans(last.dearest if last else {}, system, solution, hour)
        rows = tuple(build_result_rows(system, solution, self._now(), dearest))
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
