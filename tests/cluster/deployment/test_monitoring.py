"""Dashboard and alerts on what operator and optimizer really tell."""

import json
import math
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml

from inferno_operator.adapters.http.metrics import OperatorMetrics
from inferno_operator.resources.objects import Key
from inferno_operator.runtime.observer import MeasuredServer, ObservedLatency
from tests.conftest import ROOT
from tests.controlplane.waiting import wait_until
from tests.deployment.definitions import prometheus_definitions
from tests.deployment.prometheus import Histories, Scrape
from tests.deployment.rendering import (
    OVERLAYS,
    copy_with_components,
    kustomize,
)
from tests.deployment.run import OPERATOR, OPTIMIZERS, Cluster, Pods, Samples
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
SERIES = sorted(
    {
        (series["series"].partition("{")[0], *sorted(re.findall(r'(\w+)="', series["series"])))
        for case in yaml.safe_load((ROOT / "tests/manifests/alerts.yaml").read_text())["tests"]
        for series in case["input_series"]
    }
)
"""Metrics and labels with which `promtool` tests when alerts fire."""

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
    histories: Histories

    def evaluate(self, expression: str, seconds: int) -> list[Sample]:
        """The answer at a time, from what was scraped up to then."""
        return self.histories.of(self.scrapes).query(expression, seconds)

    def selectors(self, expression: str) -> list[str]:
        return self.histories.of(self.scrapes).selectors(expression)


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
    deployment_cluster.delete([*samples.own_namespaces, *manifests])
    return Seen(scrapes, histories)


def measuring(seconds: int) -> Scrape:
    """What an operator tells that measures servers, at a time [s]."""
    metrics = OperatorMetrics()
    metrics.scheduled(Key("measured", "inferno"), 30.0)
    metrics.measured("measured", MEASURED)
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


@pytest.mark.parametrize("series", SERIES, ids=" ".join)
def test_the_series_with_which_alerts_are_tested_have_labels_of_real_ones(
    series: tuple[str, ...], seen: Seen
) -> None:
    metric, *labels = series

    found = seen.evaluate(metric, STILL_FAILING)

    assert any({*labels} <= each.labels.keys() for each in found)


def test_headroom_is_negative_where_a_target_is_missed(seen: Seen) -> None:
    (table,) = [panel for panel in DASHBOARD["panels"] if panel["type"] == "table"]
    expression = table["targets"][-1]["expr"].replace("$namespace", ".*")

    headroom = {
        sample.labels["quantity"]: sample.value for sample in seen.evaluate(expression, SECOND)
    }

    assert headroom == {"itl": pytest.approx(-0.2), "ttft": pytest.approx(0.25)}
