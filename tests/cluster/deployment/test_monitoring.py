"""Dashboard and alerts on what operator and optimizer really tell."""

import json
import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
import yaml

from inferno_operator.adapters.http.metrics import OperatorMetrics
from inferno_operator.resources.objects import Key
from inferno_operator.runtime.observer import MeasuredServer, ObservedLatency
from tests.controlplane.waiting import wait_until
from tests.deployment.definitions import prometheus_definitions
from tests.deployment.prometheus import Histories, Scrape
from tests.deployment.rendering import (
    OVERLAYS,
    copy_with_components,
    kustomize,
)
from tests.deployment.run import OPERATOR, OPTIMIZERS, Cluster, Pods, Samples, leads
from tests.engines.prometheus import Sample

pytestmark = pytest.mark.extended

COMPONENT = OVERLAYS.parent / "components" / "monitoring"
DASHBOARD = json.loads((COMPONENT / "dashboard.json").read_text())
(GROUP,) = yaml.safe_load((COMPONENT / "prometheus-rule.yaml").read_text())["spec"]["groups"]
ALERTS = {rule["alert"]: rule["expr"] for rule in GROUP["rules"]}
GRAFANA = {"$__rate_interval": "5m", "$namespace": ".*"}
TARGETS = [
    (panel["title"], target["expr"])
    for panel in DASHBOARD["panels"]
    for target in panel.get("targets", [])
]
MEASURED = (
    MeasuredServer(
        "slow",
        "Fresh",
        arrival_rate=60.0,
        age=5.0,
        latencies={
            "itl": ObservedLatency(30.0, 20.0, 25.0),
            "ttft": ObservedLatency(300.0, 250.0, 400.0),
        },
        misses={"slo-itl": True, "slo-ttft": False},
    ),
    MeasuredServer("lost", "Stale", age=900.0),
    MeasuredServer("unknown", "Missing"),
)
FAILED = 'result="Unavailable"'
BEFORE, FIRST, SECOND, FAILING, STILL_FAILING = 0, 60, 120, 180, 240
"""When what was scraped is said to have been [s]."""


@dataclass(frozen=True, slots=True)
class Seen:
    """Scrapes of a deployment with remote optimizers."""

    scrapes: list[Scrape]
    leader: str
    histories: Histories

    def evaluate(self, expression: str, seconds: int, *only: Scrape) -> list[Sample]:
        """The answer at a time, from what was scraped up to then."""
        return self.histories.of(only or self.scrapes).query(expression, seconds)

    def selectors(self, expression: str) -> list[str]:
        return self.histories.of(self.scrapes).selectors(expression)

    def at(self, seconds: int) -> list[Scrape]:
        return [scrape for scrape in self.scrapes if scrape.seconds == seconds]


@pytest.fixture(scope="module")
def histories(prometheus_program: Path, promtool: Path) -> Iterator[Histories]:
    with Histories(prometheus_program, promtool) as histories:
        yield histories


@pytest.fixture(scope="module")
def seen(deployment_cluster: Cluster, image: Path, histories: Histories) -> Seen:
    """Two optimizations of the samples, and then one that fails for want of an optimizer."""
    control_plane = deployment_cluster.control_plane
    manifests = kustomize(control_plane.kubectl_program, OVERLAYS / "remote")
    deployment_cluster.apply(manifests)
    samples = Samples(control_plane, {sample: f"seen-{sample}" for sample in OPTIMIZERS})
    samples.apply()
    with deployment_cluster.pods(manifests, image) as pods:
        scrapes = [*map(measuring, (FIRST, SECOND, STILL_FAILING)), *pods.scrapes(BEFORE)]
        for seconds in (FIRST, SECOND):
            samples.optimize()
            scrapes += pods.scrapes(seconds)
        assert pods.optimizer is not None
        pods.optimizer.stop()
        samples.scene("small").request("inferno")
        operators = Pods(pods.operators, None)
        for seconds, failures in ((FAILING, 1), (STILL_FAILING, 2)):
            scrapes += wait_until(
                lambda: operators.scrapes(seconds),  # noqa: B023 - called at once
                lambda pages: any(_failures(page.page) >= failures for page in pages),  # noqa: B023
                "a failure",
            )
        leader = next(operator.name for operator in pods.operators if leads(operator))
    deployment_cluster.delete([*samples.own_namespaces, *manifests])
    return Seen(scrapes, leader, histories)


def measuring(seconds: int, *servers: MeasuredServer) -> Scrape:
    """What an operator tells that measures servers, at a time [s]."""
    metrics = OperatorMetrics()
    metrics.scheduled(Key("measured", "inferno"), 30.0)
    metrics.measured("measured", servers or MEASURED)
    for _ in range(seconds // 30):
        metrics.queried("Answered")
        metrics.measuring_ended(0.5)
    return Scrape(seconds, metrics.page()[1].decode(), OPERATOR, "measuring")


def _failures(page: str) -> float:
    lines = [
        line for line in page.splitlines() if "optimizations_total{" in line and FAILED in line
    ]
    return sum(float(line.split()[-1]) for line in lines)


@pytest.fixture
def definitions(deployment_cluster: Cluster) -> Iterator[None]:
    """The Prometheus Operator's kinds are served."""
    files = [argument for file in prometheus_definitions() for argument in ("--filename", file)]
    deployment_cluster.control_plane.kubectl("apply", "--server-side", *files)
    yield
    deployment_cluster.control_plane.kubectl("delete", *files)


@pytest.mark.usefixtures("definitions")
def test_the_prometheus_operator_is_given_what_its_definitions_ask_for(
    deployment_cluster: Cluster, tmp_path: Path
) -> None:
    control_plane = deployment_cluster.control_plane
    overlay = copy_with_components(tmp_path, "remote", "monitoring", "monitoring-optimizer")
    manifests = kustomize(control_plane.kubectl_program, overlay)
    watched = [
        {**manifest, "metadata": {**manifest["metadata"], "namespace": "default"}}
        for manifest in manifests
        if manifest["apiVersion"].startswith("monitoring.coreos.com/")
    ]

    warnings = deployment_cluster.apply(watched)

    assert len(watched) == 3
    assert not warnings


@pytest.mark.parametrize(("panel", "expression"), TARGETS)
def test_every_panel_has_data(panel: str, expression: str, seen: Seen) -> None:
    for variable, value in GRAFANA.items():
        expression = expression.replace(variable, value)

    samples = seen.evaluate(expression, SECOND)

    assert not all(math.isnan(sample.value) for sample in samples), panel


@pytest.mark.parametrize("alert", ALERTS)
def test_every_series_that_an_alert_looks_at_is_there(alert: str, seen: Seen) -> None:
    selectors = seen.selectors(ALERTS[alert])

    assert selectors
    assert all(seen.evaluate(selector, STILL_FAILING) for selector in selectors)


def test_a_leader_is_missed_when_none_leads_or_nobody_is_there(seen: Seen) -> None:
    alert = ALERTS["InfernoLeaderMissing"]
    operators = [scrape for scrape in seen.at(SECOND) if scrape.job == OPERATOR]
    standing_by = [scrape for scrape in operators if scrape.pod != seen.leader]
    optimizers = [scrape for scrape in seen.at(SECOND) if scrape.job != OPERATOR]

    assert not seen.evaluate(alert, SECOND, *operators)
    assert seen.evaluate(alert, SECOND, *standing_by)
    assert seen.evaluate(alert, SECOND, *optimizers)


def test_failures_are_told_until_one_succeeds(seen: Seen) -> None:
    alert = ALERTS["InfernoOptimizationFailing"]
    since = [s for s in seen.scrapes if s.seconds >= FAILING]

    assert not seen.evaluate(alert, SECOND)
    assert labels_of(seen.evaluate(alert, STILL_FAILING, *since)) == [
        {"namespace": "seen-small", "optimizer": "inferno"}
    ]


def test_a_large_gap_is_told(seen: Seen) -> None:
    alert = ALERTS["InfernoOptimalityGapLarge"]
    (page,) = [scrape for scrape in seen.at(SECOND) if scrape.pod == seen.leader]
    name = 'inferno_optimality_gap_ratio{namespace="seen-fleet"}'
    wide = [f"{name} 0.2" if line.startswith(name) else line for line in page.page.splitlines()]

    assert not seen.evaluate(alert, SECOND)
    assert labels_of(seen.evaluate(alert, SECOND, replace(page, page="\n".join([*wide, ""])))) == [
        {"namespace": "seen-fleet"}
    ]


def test_unserved_servers_of_important_classes_are_told(seen: Seen) -> None:
    told = labels_of(seen.evaluate(ALERTS["InfernoImportantClassUnserved"], SECOND))

    assert {(labels["namespace"], labels["service_class"]) for labels in told} >= {
        ("seen-troubles", "Premium"),
        ("seen-troubles", "Instant"),
    }


def test_targets_that_are_missed_now_are_told(seen: Seen) -> None:
    alert = ALERTS["InfernoTargetMissed"]
    fine = replace(MEASURED[0], misses={"slo-itl": False})

    assert labels_of(seen.evaluate(alert, SECOND)) == [
        {"namespace": "measured", "server": "slow", "target": "slo-itl"}
    ]
    assert not seen.evaluate(alert, SECOND, measuring(SECOND, fine))


def test_servers_without_a_current_measurement_are_told(seen: Seen) -> None:
    alert = ALERTS["InfernoMeasurementStale"]
    known = [replace(MEASURED[0], quality=quality) for quality in ("Fresh", "Idle", "Partial")]

    told = labels_of(seen.evaluate(alert, SECOND))

    assert sorted(labels["server"] for labels in told) == ["lost", "unknown"]
    assert not any(seen.evaluate(alert, SECOND, measuring(SECOND, server)) for server in known)


def test_headroom_is_negative_where_a_target_is_missed(seen: Seen) -> None:
    (table,) = [panel for panel in DASHBOARD["panels"] if panel["type"] == "table"]
    expression = table["targets"][-1]["expr"].replace("$namespace", ".*")

    headroom = {
        sample.labels["quantity"]: sample.value for sample in seen.evaluate(expression, SECOND)
    }

    assert headroom == {"itl": pytest.approx(-0.2), "ttft": pytest.approx(0.25)}


def test_a_plan_that_nobody_carries_out_is_told(seen: Seen) -> None:
    alert = ALERTS["InfernoPlanNotActuated"]

    first, second = (labels_of(seen.evaluate(alert, at)) for at in (FIRST, SECOND))

    assert not first  # nobody has looked again
    assert {labels["server"] for labels in second} >= {
        "Premium-granite-13b",
        "Free-granite-13b",
    }


def labels_of(samples: list[Sample]) -> list[dict[str, str]]:
    return [dict(sample.labels) for sample in samples]
