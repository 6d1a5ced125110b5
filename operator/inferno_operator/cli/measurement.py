"""Measure Servers from a command line, and keep what was asked."""

import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from logging.handlers import MemoryHandler
from typing import Any

from inferno_operator.adapters.prometheus.client import connect
from inferno_operator.adapters.prometheus.endpoint import PrometheusEndpoint
from inferno_operator.cli.tables.measurement import AskedQuery, ServerMeasurement
from inferno_operator.cli.tables.servers import find_targets
from inferno_operator.controllers.measurement.correction import add_correction
from inferno_operator.controllers.measurement.load import add_planned_load, apply_measurement
from inferno_operator.controllers.measurement.quality import (
    judge_reading,
    note_missed_targets,
    note_missing_lengths,
)
from inferno_operator.engines.catalogue import MetricSources
from inferno_operator.engines.survey import Survey
from inferno_operator.resources import Model, Resource, Server
from inferno_operator.resources.measurement import Measure
from inferno_operator.resources.objects import Key
from inferno_operator.resources.observation import only
from inferno_operator.runtime.prometheus import Prometheus, QueryResult, RefusedError
from inferno_optimizer.errors import InfernoError, InputError, UnavailableError


@dataclass(slots=True)
class QueryRecorder(Prometheus):
    """Passes queries on, and keeps them with their answers."""

    prometheus: Prometheus
    asked: list[AskedQuery] = field(default_factory=list)

    async def query(self, expression: str, at: float | None = None) -> QueryResult:
        """Evaluate an expression, at a Unix time [s] or now."""
        try:
            answer = await self.prometheus.query(expression, at)
        except InfernoError as error:
            self.asked.append(AskedQuery(expression, problem=str(error)))
            raise
        self.asked.append(AskedQuery(expression, answer.samples))
        return answer

    async def metric_names(self, matcher: str) -> tuple[str, ...]:
        """Return the names of the metrics that have a series that a matcher selects."""
        return await self.prometheus.metric_names(matcher)


@contextmanager
def hold_log(name: str) -> Iterator[None]:
    """Print what a package logs at the end, and nothing if an error ends it, which says it all."""
    held = MemoryHandler(1000, logging.CRITICAL + 1, logging.StreamHandler(), flushOnClose=False)
    logger = logging.getLogger(name)
    logger.addHandler(held)
    try:
        yield
        held.flush()
    finally:
        logger.removeHandler(held)
        held.close()


def name_labels(resources: Sequence[Resource], labels: Mapping[str, str]) -> list[Resource]:
    """Return objects in which the Server without `spec.measure` has labels of vLLM replicas.

    Raises InputError if there is none, or several.
    """
    unmeasured = [r for r in only(Server, resources) if not r.spec.measure]
    if len(unmeasured) != 1:
        raise InputError(
            f"--labels are those of one Server, and {len(unmeasured)} have no spec.measure: "
            "write them into each Server"
        )
    (server,) = unmeasured
    named = server.replace_spec(measure=Measure(source="vLLM", labels=dict(labels)))
    return [named if resource is server else resource for resource in resources]


async def measure(
    resources: Sequence[Resource], endpoint: PrometheusEndpoint, sources: MetricSources
) -> tuple[list[ServerMeasurement], list[AskedQuery]]:
    """Measure the Servers among some objects now.

    Raises InputError if no Server has `spec.measure`, or Prometheus refuses every query;
    UnavailableError if Prometheus does not answer.
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
        with hold_log("inferno_operator.engines"):
            results = await survey.ask(measures)
            if recorder.asked and all(asked.problem for asked in recorder.asked):
                problem = recorder.asked[0].problem
                is_refused = next(iter(results.values())).reading.refused
                raise RefusedError(problem) if is_refused else UnavailableError(problem)
    targets = find_targets(resources)
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
