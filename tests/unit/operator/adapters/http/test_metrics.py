"""The series, read back with the parser of the Prometheus client."""

import re
from dataclasses import replace

import pytest
from prometheus_client.parser import text_string_to_metric_families

from inferno_operator.adapters.http.metrics import METRICS, OperatorMetrics
from inferno_operator.resources import Server as ServerResource
from inferno_operator.resources.objects import Key, kind_of
from inferno_operator.runtime.observer import MeasuredServer, ObservedLatency
from inferno_optimizer.solution import (
    CapacityUse,
    Certificate,
    Decision,
    Gain,
    Reason,
    Solution,
    SolverStatus,
)
from inferno_optimizer.system import Allocation, Options, Server, ServiceClass, System

Labels = frozenset[tuple[str, str]]

INFERNO = Key("llm", "inferno")
SYSTEM = System(
    classes=(ServiceClass("Premium", 1, {}),),
    servers=(
        Server("a", "Premium", "m", current=Allocation("A100", 4, cost=120.0)),
        Server("b", "Premium", "m"),
        Server("c", "Nobody", "m"),
    ),
)
SOLUTION = Solution(
    decisions=(
        Decision("a", Reason.ALLOCATED, "", Allocation("G2", 2, cost=50.0)),
        Decision("b", Reason.NO_CAPACITY, ""),
        Decision("c", Reason.UNKNOWN_CLASS, ""),
    ),
    certificate=Certificate("milp", SolverStatus.OPTIMAL, 100.0, 99.0, 0.25),
    capacity=(
        CapacityUse("G2", 2, 5, 12.5, held=3),
        CapacityUse("A100", 0, 8, gain=Gain(2, 30.0)),
    ),
)


class Times:
    """A clock that is set by hand."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def read(metrics: OperatorMetrics) -> dict[str, dict[Labels, float]]:
    _, page = metrics.page()
    series: dict[str, dict[Labels, float]] = {}
    for family in text_string_to_metric_families(page.decode()):
        for sample in family.samples:
            series.setdefault(sample.name, {})[frozenset(sample.labels.items())] = sample.value
    return series


def labels(**values: str) -> Labels:
    return frozenset(values.items())


@pytest.fixture
def metrics() -> OperatorMetrics:
    clock = Times()
    metrics = OperatorMetrics(clock, lambda: 1_700_000_000.0)
    metrics.started(INFERNO)
    clock.now = 3.0
    metrics.optimized(INFERNO, SYSTEM, SOLUTION)
    return metrics


def test_an_optimization_is_counted_and_its_time_kept(metrics: OperatorMetrics) -> None:
    series = read(metrics)

    done = labels(namespace="llm", optimizer="inferno", result="Optimized")
    assert series["inferno_optimizations_total"] == {done: 1}
    assert series["inferno_optimization_duration_seconds_sum"] == {labels(): 3.0}
    assert series["inferno_solve_duration_seconds_sum"] == {labels(solver="milp"): 0.25}
    assert series["inferno_last_optimization_timestamp_seconds"] == {
        labels(namespace="llm"): 1_700_000_000.0
    }


def test_what_it_brought_is_told(metrics: OperatorMetrics) -> None:
    series = read(metrics)

    llm = labels(namespace="llm")
    assert series["inferno_servers"] == {llm: 3}
    assert series["inferno_cost_cents_per_hour"] == {llm: 50.0}
    assert series["inferno_optimality_gap_ratio"] == {llm: pytest.approx(0.01)}
    assert series["inferno_unserved_servers"] == {
        labels(namespace="llm", service_class="Premium", priority="1", reason="NoCapacity"): 1,
        labels(namespace="llm", service_class="Nobody", priority="100", reason="UnknownClass"): 1,
    }
    assert series["inferno_server_desired_replicas"] == {
        labels(namespace="llm", server="a", accelerator="G2"): 2,
        labels(namespace="llm", server="b", accelerator=""): 0,
        labels(namespace="llm", server="c", accelerator=""): 0,
    }
    assert series["inferno_server_current_replicas"] == {
        labels(namespace="llm", server="a", accelerator="A100"): 4
    }


def test_what_a_server_runs_now_stands_beside_its_dearest_plan_of_the_last_day() -> None:
    clock = Times()
    metrics = OperatorMetrics(clock)
    a = labels(namespace="llm", server="a")

    def peak_after(hours: float, cost: float) -> float:
        clock.now = 3600 * hours
        decisions = (replace(SOLUTION.decisions[0], allocation=Allocation("G2", 2, cost=cost)),)
        metrics.optimized(INFERNO, SYSTEM, replace(SOLUTION, decisions=decisions))
        return read(metrics)["inferno_server_static_peak_cents_per_hour"][a]

    peaks = [peak_after(*plan) for plan in ((0, 50), (1, 80), (2, 20), (3, 60), (24.5, 10))]

    assert peaks == [50, 80, 80, 80, 80]
    assert peak_after(25.5, 10) == 60
    assert peak_after(60, 10) == 10
    assert read(metrics)["inferno_server_cost_cents_per_hour"][a] == 120


def test_a_server_that_nobody_can_decide_costs_what_it_runs_at_its_peak_too(
    metrics: OperatorMetrics,
) -> None:
    servers = (replace(SYSTEM.servers[2], current=Allocation("A100", 1, cost=30.0)),)
    system = replace(SYSTEM, servers=servers)
    metrics.optimized(INFERNO, system, replace(SOLUTION, decisions=SOLUTION.decisions[2:]))

    assert read(metrics)["inferno_server_static_peak_cents_per_hour"] == {
        labels(namespace="llm", server="c"): 30.0
    }


def test_capacity_and_its_price_are_told_by_type(metrics: OperatorMetrics) -> None:
    series = read(metrics)

    a100, g2 = labels(namespace="llm", type="A100"), labels(namespace="llm", type="G2")
    assert series["inferno_capacity_used_cards"] == {a100: 0, g2: 2}
    assert series["inferno_capacity_available_cards"] == {a100: 8, g2: 5}
    assert series["inferno_capacity_held_cards"] == {a100: 0, g2: 3}
    assert series["inferno_capacity_price_cents_per_hour"] == {g2: 12.5}
    gained = labels(namespace="llm", type="A100", priority="2")
    assert series["inferno_capacity_gain_requests_per_minute"] == {gained: 30.0}


def test_a_failure_is_counted_by_its_reason_and_changes_nothing_else(
    metrics: OperatorMetrics,
) -> None:
    before = read(metrics)
    metrics.started(INFERNO)
    metrics.failed(INFERNO, "Unavailable")

    after = read(metrics)

    failed = labels(namespace="llm", optimizer="inferno", result="Unavailable")
    assert after["inferno_optimizations_total"][failed] == 1
    assert after["inferno_cost_cents_per_hour"] == before["inferno_cost_cents_per_hour"]


def test_series_disappear_with_their_server_and_their_optimizer_and_no_others(
    metrics: OperatorMetrics,
) -> None:
    remaining = replace(SYSTEM, servers=SYSTEM.servers[1:], options=Options(unlimited=True))
    metrics.optimized(INFERNO, remaining, replace(SOLUTION, decisions=SOLUTION.decisions[1:]))
    assert 'server="a"' not in metrics.page()[1].decode()
    assert "inferno_capacity_available_cards" not in read(metrics)  # there are no limits

    metrics.optimized(Key("other", "inferno"), SYSTEM, SOLUTION)
    metrics.forgot(Key("llm", "another"))
    assert len(read(metrics)["inferno_servers"]) == 2
    metrics.forgot(INFERNO)

    assert "llm" not in metrics.page()[1].decode()
    assert read(metrics)["inferno_servers"] == {labels(namespace="other"): 3}
    assert "inferno_servers" not in read(OperatorMetrics())  # of another operator in the process


def test_writes_are_counted(metrics: OperatorMetrics) -> None:
    for succeeded in (True, True, False):
        metrics.wrote(kind_of(ServerResource), "spec", succeeded=succeeded)

    assert read(metrics)["inferno_writes_total"] == {
        labels(kind="Server", part="spec", result="written"): 2,
        labels(kind="Server", part="spec", result="failed"): 1,
    }


def test_who_leads_and_what_waits_is_asked_when_it_is_printed(metrics: OperatorMetrics) -> None:
    depth = 0
    metrics.follow(leading=lambda: depth > 1, queue_depth=lambda: depth)
    depth = 2

    series = read(metrics)

    assert (series["inferno_leader"], series["inferno_queue_depth"]) == (
        {labels(): 1},
        {labels(): 2},
    )


SERVERS = (
    MeasuredServer(
        "b",
        "Fresh",
        arrival_rate=312.5,
        age=4.0,
        latencies={
            "itl": ObservedLatency(21.5, 20.0, 25.0),
            "ttft": ObservedLatency(410.0, None, 400.0),
        },
        misses={"slo-itl": False, "slo-ttft": True},
        correction=1.25,
    ),
    MeasuredServer("a", "Missing"),
)


def test_a_measurement_is_told_by_server() -> None:
    metrics = OperatorMetrics(Times())
    metrics.measured("llm", SERVERS)

    told = {name: values for name, values in read(metrics).items() if "_server_" in name}
    b = {"namespace": "llm", "server": "b"}
    itl, ttft = labels(**b, quantity="itl"), labels(**b, quantity="ttft")
    assert told == {
        "inferno_server_measured_arrival_rate": {labels(**b): 312.5},
        "inferno_server_measured_milliseconds": {itl: 21.5, ttft: 410.0},
        "inferno_server_predicted_milliseconds": {itl: 20.0},
        "inferno_server_target_milliseconds": {itl: 25.0, ttft: 400.0},
        "inferno_server_load_correction": {labels(**b): 1.25},
        "inferno_server_misses_target": {
            labels(**b, target="slo-itl"): 0,
            labels(**b, target="slo-ttft"): 1,
        },
        "inferno_server_measurement_age_seconds": {labels(**b): 4.0},
        "inferno_server_measurement_quality": {
            labels(**b, quality="Fresh"): 1,
            labels(namespace="llm", server="a", quality="Missing"): 1,
        },
    }


def test_a_measurement_grows_older_until_the_next_one() -> None:
    clock = Times()
    metrics = OperatorMetrics(clock)
    metrics.measured("llm", SERVERS)
    clock.now = 30.0

    before = read(metrics)["inferno_server_measurement_age_seconds"]
    metrics.measured("llm", SERVERS)
    after = read(metrics)["inferno_server_measurement_age_seconds"]

    server = labels(namespace="llm", server="b")
    assert (before, after) == ({server: 34.0}, {server: 4.0})


def test_a_measurement_replaces_that_of_its_namespace_only() -> None:
    metrics = OperatorMetrics()
    metrics.measured("llm", SERVERS)
    metrics.measured("other", SERVERS)
    metrics.measured("llm", [MeasuredServer("b", "Stale")])
    metrics.measured("other", [])

    assert {name for name in read(metrics) if "_server_" in name} == {
        "inferno_server_measurement_quality"
    }
    assert read(metrics)["inferno_server_measurement_quality"] == {
        labels(namespace="llm", server="b", quality="Stale"): 1
    }


def test_queries_and_measuring_cycles_are_counted() -> None:
    metrics = OperatorMetrics()
    for result in ("Answered", "Answered", "Refused"):
        metrics.queried(result)
    metrics.measuring_ended(0.7)

    series = read(metrics)

    assert series["inferno_prometheus_queries_total"] == {
        labels(result="Answered"): 2,
        labels(result="Refused"): 1,
    }
    assert series["inferno_measure_cycle_seconds_sum"] == {labels(): 0.7}


def test_every_series_of_ours_is_in_the_table_with_its_labels(metrics: OperatorMetrics) -> None:
    metrics.follow(leading=lambda: True, queue_depth=lambda: 0)
    metrics.wrote(kind_of(ServerResource), "spec", succeeded=True)
    metrics.queried("Answered")
    metrics.measured("llm", SERVERS)
    table = {metric.name: set(metric.labels) for metric in METRICS}

    ending = re.compile(r"_(bucket|count|sum|created)$")
    for name, values in read(metrics).items():
        known = table.get(ending.sub("", name), table.get(ending.sub("_total", name)))
        if name.startswith("inferno_"):
            assert known is not None, name
            assert all({label for label, _ in item} - {"le"} == known for item in values)


def test_every_series_of_the_table_is_printed_with_its_help(metrics: OperatorMetrics) -> None:
    metrics.follow(leading=lambda: True, queue_depth=lambda: 0)
    metrics.publish(tuple, lambda *_: "")
    page = metrics.page()[1].decode()

    for metric in METRICS:
        assert f"# HELP {metric.name} {metric.help}" in page
        assert f"# TYPE {metric.name} {metric.kind}" in page


def test_an_optimizer_is_overdue_after_its_interval_until_it_optimizes_again() -> None:
    clock = Times()
    metrics, labels = (
        OperatorMetrics(clock),
        frozenset({("namespace", "llm"), ("optimizer", "inferno")}),
    )

    def overdue() -> float:
        return read(metrics)["inferno_optimizer_overdue_seconds"][labels]

    metrics.scheduled(INFERNO, 60)
    told = [overdue()]
    for clock.now in (59.0, 100.0):
        metrics.scheduled(INFERNO, 60)
        told.append(overdue())
    metrics.optimized(INFERNO, SYSTEM, SOLUTION)
    told.append(overdue())
    clock.now = 170.0

    assert [*told, overdue()] == [0, 0, 40, 0, 10]


@pytest.mark.parametrize("end", ["without an interval", "deleted"])
def test_an_optimizer_without_an_interval_is_never_overdue(end: str) -> None:
    metrics = OperatorMetrics(Times())
    metrics.scheduled(INFERNO, 60)

    if end == "deleted":
        metrics.forgot(INFERNO)
    else:
        metrics.scheduled(INFERNO, None)

    assert "inferno_optimizer_overdue_seconds" not in read(metrics)
