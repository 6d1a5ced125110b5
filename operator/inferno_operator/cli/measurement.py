"""Measures Servers from a command line, and says what was asked."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from inferno_operator.adapters.prometheus.client import connect
from inferno_operator.adapters.prometheus.endpoint import PrometheusEndpoint
from inferno_operator.cli.overview import targets_of
from inferno_operator.controllers.measurement.correction import add_correction
from inferno_operator.controllers.measurement.load import add_planned_load, apply_measurement
from inferno_operator.controllers.measurement.quality import (
    judge_reading,
    note_missed_targets,
    note_missing_lengths,
)
from inferno_operator.engines.catalogue import MetricSources
from inferno_operator.engines.survey import Survey
from inferno_operator.resources import Measured, Model, Resource, Server, Target
from inferno_operator.resources.objects import Key
from inferno_operator.resources.observation import only
from inferno_operator.runtime.prometheus import Prometheus, QueryResult, RefusedError, Sample
from inferno_optimizer.errors import InfernoError, InputError, UnavailableError


@dataclass(frozen=True, slots=True)
class Asked:
    """A query, and its answer or why there is none."""

    expression: str
    samples: tuple[Sample, ...] = ()
    problem: str = ""


@dataclass(frozen=True, slots=True)
class ServerMeasurement:
    """A Server, its measurement, and its target; without a measurement it is not measured."""

    server: Server
    measured: Measured | None
    target: Target | None = None


@dataclass(slots=True)
class QueryRecorder(Prometheus):
    """Passes queries on, and keeps them with their answers."""

    prometheus: Prometheus
    asked: list[Asked] = field(default_factory=list)

    async def query(self, expression: str, at: float | None = None) -> QueryResult:
        """Evaluate an expression, at a Unix time [s] or now."""
        try:
            answer = await self.prometheus.query(expression, at)
        except InfernoError as error:
            self.asked.append(Asked(expression, problem=str(error)))
            raise
        self.asked.append(Asked(expression, answer.samples))
        return answer

    async def metric_names(self, matcher: str) -> tuple[str, ...]:
        """Return the names of the metrics that have a series that a matcher selects."""
        return await self.prometheus.metric_names(matcher)


async def measure(
    resources: Sequence[Resource], endpoint: PrometheusEndpoint, sources: MetricSources
) -> tuple[list[ServerMeasurement], list[Asked]]:
    """Measure the Servers among some objects now.

    Raises
    ------
    InputError
        No Server has `spec.measure`, or Prometheus refuses every query.
    UnavailableError
        Prometheus does not answer.
    """
    servers = [r for r in only(Server, resources) if r.spec.measure]
    if not servers:
        raise InputError("nothing to measure: no Server has spec.measure")
    async with connect(endpoint) as client:
        recorder = QueryRecorder(client)
        survey = Survey(
            recorder, sources, lambda: datetime.now(UTC).timestamp(), looked_at=len(servers)
        )
        measures = {_key(s): s.spec.measure for s in servers if s.spec.measure}
        results = await survey.ask(measures)
    if recorder.asked and all(asked.problem for asked in recorder.asked):
        _raise(next(iter(results.values())).reading.refused, recorder.asked[0].problem)
    targets = targets_of(resources)
    models = {r.spec.name: r for r in only(Model, resources)}
    measurements = []
    for server in servers:
        result = results[_key(server)]
        target = targets.get((server.spec.service_class, server.spec.model))
        newest = judge_reading(result.reading, result.source, None, result.hint, server.ready_pods)
        before = server.status.measured
        model = models.get(server.spec.model)
        newest = add_correction(note_missed_targets(newest, target), server, before, target, model)
        newest = add_planned_load(newest, server, before, target, newest.time)
        newest = note_missing_lengths(newest, measures[_key(server)].source, result.source)
        measurements.append(ServerMeasurement(server, newest, target))
    return measurements, recorder.asked


def reported(resources: Sequence[Resource]) -> list[ServerMeasurement]:
    """Return what the operator has measured, from the status of each Server."""
    targets = targets_of(resources)
    return [
        ServerMeasurement(
            resource,
            resource.status.measured,
            targets.get((resource.spec.service_class, resource.spec.model)),
        )
        for resource in resources
        if isinstance(resource, Server)
    ]


def measurement_document(
    measurements: Sequence[ServerMeasurement], asked: Sequence[Asked]
) -> dict[str, Any]:
    """Return measurements and queries as JSON."""
    servers = [
        {
            "name": item.server.metadata.name,
            "measured": item.measured.to_json() if item.measured else None,
        }
        for item in measurements
    ]
    queries = [
        {
            "expression": query.expression,
            "problem": query.problem,
            "series": [
                {"labels": dict(sample.labels), "value": str(sample.value)}
                for sample in query.samples
            ],
        }
        for query in asked
    ]
    return {"servers": servers, **({"queries": queries} if asked else {})}


def with_measured_loads(
    resources: Sequence[Resource], measurements: Sequence[ServerMeasurement]
) -> dict[str, Any]:
    """Return the objects as a List in which measured Servers have their load."""
    newest = {
        _key(item.server): apply_measurement(item.server, item.measured) for item in measurements
    }
    items = [newest.get(_key(resource), resource) for resource in resources]
    return {"apiVersion": "v1", "kind": "List", "items": [item.to_json() for item in items]}


def _key(resource: Resource) -> Key:
    return Key(resource.metadata.namespace, f"{resource.kind}/{resource.metadata.name}")


def _raise(refused: str, problem: str) -> None:
    if refused:
        raise RefusedError(problem)
    raise UnavailableError(problem)
