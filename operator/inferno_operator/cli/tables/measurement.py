"""What is measured of Servers, and what was asked for it, as text and JSON.

Loads are in requests/min, latencies in ms.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from inferno_operator.cli.tables.servers import LATENCIES, find_targets
from inferno_operator.cli.tables.table import (
    UNKNOWN,
    Part,
    TextTable,
    format_age,
    format_duration,
    format_number,
    group_notes,
)
from inferno_operator.controllers.measurement.correction import judge_correction
from inferno_operator.controllers.measurement.quality import compare_with_targets
from inferno_operator.resources import Measured, Resource, Server, Target
from inferno_operator.resources.observation import only
from inferno_operator.runtime.prometheus import Sample

SERIES_SHOWN = 20  # how many series of an answer are shown
LOAD = "LOAD REQ/MIN"

HEADINGS = (
    "SERVER", "QUALITY", ">AGE", ">LOAD", ">IN", ">OUT", ">ITL", ">TTFT", ">WAIT",
    ">RUNNING", ">WAITING", ">KV", "REPLICAS", "MISSES",
)  # fmt: skip

# Columns that a narrow terminal does not show.
OPTIONAL = ("KV", "RUNNING", "AGE", "WAIT", "IN", "OUT", "WAITING")


@dataclass(frozen=True, slots=True)
class AskedQuery:
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


def list_reported(resources: Sequence[Resource]) -> list[ServerMeasurement]:
    """Return what the operator has measured, from the status of each Server."""
    targets = find_targets(resources)
    return [
        ServerMeasurement(s, s.status.measured, targets.get((s.spec.service_class, s.spec.model)))
        for s in only(Server, resources)
    ]


def encode_measurements(
    measurements: Sequence[ServerMeasurement], queries: Sequence[AskedQuery]
) -> dict[str, Any]:
    """Return measurements and queries as JSON."""
    servers = [
        {
            "name": item.server.metadata.name,
            "measured": item.measured.to_json() if item.measured else None,
        }
        for item in measurements
    ]
    asked = [
        {
            "expression": query.expression,
            "problem": query.problem,
            "series": [
                {"labels": dict(sample.labels), "value": str(sample.value)}
                for sample in query.samples
            ],
        }
        for query in queries
    ]
    return {"servers": servers, **({"queries": asked} if asked else {})}


def describe_measurements(
    measurements: Sequence[ServerMeasurement], queries: Sequence[AskedQuery], now: datetime
) -> Iterator[Part]:
    """Yield the measurements, what to do where one is not fresh, and the queries."""
    yield TextTable(HEADINGS, [_format_measurement(item, now) for item in measurements], OPTIONAL)
    if notes := list_measurement_notes(measurements):
        yield ""
        yield from notes
    for query in queries:
        yield ""
        yield query.expression
        if query.problem:
            yield f"  {query.problem}"
        elif not query.samples:
            yield "  no series"
        for sample in query.samples[:SERIES_SHOWN]:
            labels = ", ".join(f'{name}="{value}"' for name, value in sorted(sample.labels.items()))
            yield f"  {{{labels}}}  {sample.value:g}"
        if len(query.samples) > SERIES_SHOWN:
            yield f"  and {len(query.samples) - SERIES_SHOWN} more series"


def _format_measurement(item: ServerMeasurement, now: datetime) -> tuple[str, ...]:
    name, measured = item.server.metadata.name, item.measured
    if measured is None:
        quality = "not yet" if item.server.spec.measure else "-"
        return (name, quality, *([""] * (len(HEADINGS) - 2)))
    replicas, cache = measured.replicas, measured.kv_cache_usage
    return (
        name,
        measured.quality,
        format_age(measured.time, now),
        format_number(measured.arrival_rate),
        format_number(measured.avg_in_tokens),
        format_number(measured.avg_out_tokens),
        format_number(measured.itl_average),
        format_number(measured.ttft_average),
        format_number(measured.wait_average),
        format_number(measured.running),
        format_number(measured.waiting),
        UNKNOWN if cache is None else f"{100 * cache:.0f}%",
        UNKNOWN if replicas is None else f"{replicas.reporting}/{replicas.ready}",
        ", ".join(measured.misses_targets) or "-",
    )


def list_measurement_notes(measurements: Sequence[ServerMeasurement]) -> Sequence[str]:
    """Return what to do where a measurement is not fresh, and what else the numbers do not say."""
    named = (
        (item.server.metadata.name, note) for item in measurements for note in _list_notes(item)
    )
    return list(group_notes(named))


def _list_notes(item: ServerMeasurement) -> Iterator[str]:
    measured = item.measured
    if measured is None:
        return
    if measured.message:
        yield measured.message
    load = measured.load
    if load is not None and load.cached_tokens:
        yield (
            f"{format_number(load.cached_tokens)} of {format_number(load.avg_in_tokens or 0)} input"
            " tokens are in prefix caches; plans count on them where replicas run already"
        )
    if measured.tokens_per_step:
        made = format_number(measured.tokens_per_step)
        yield f"a step makes {made} tokens of an answer, as drafts are accepted"
    verdict = judge_correction(item.server, measured)
    if verdict is not None:
        yield verdict.message
    yield from _explain_backlog(measured)


def _explain_backlog(measured: Measured) -> Iterator[str]:
    """Yield what part of the load for plans is not arrivals; nothing if there is no backlog."""
    if measured.backlog and measured.load is not None:
        waiting, planned = measured.backlog, measured.load.arrival_rate
        yield (
            f"{format_number(waiting)} requests wait beyond what a healthy queue holds;"
            f" plans are for {format_number(planned)} requests/min, to serve them too"
        )


def describe_latencies(item: ServerMeasurement) -> Iterator[Part]:
    """Yield a table of what is measured, what was predicted, and the target of each latency."""
    if item.server.spec.measure is None:
        return
    desired, measured, target = item.server.spec.desired_alloc, item.measured, item.target
    limits = {}
    if measured and target:
        limits = {
            LATENCIES[name]: f"{value:.1f}/{limit:g}"
            for name, value, limit in compare_with_targets(measured, target)
        }
    rates = (measured.arrival_rate if measured else None, desired and desired.load)
    predicted_rate = rates[1].arrival_rate if rates[1] else None
    rows: list[tuple[str, ...]] = [
        (LOAD, format_number(rates[0]), format_number(predicted_rate), "-")
    ]
    for latency in ("itl", "wait", "ttft"):
        values = (getattr(part, f"{latency}_average", None) for part in (measured, desired))
        rows.append((latency.upper(), *map(format_number, values), limits.get(latency, "-")))
    yield ""
    yield TextTable(("QUANTITY", ">MEASURED", ">PREDICTED", ">NOW/SLO"), rows)
    if measured is None:
        return
    yield from _explain_forecast(measured)
    yield from _explain_backlog(measured)
    for window in item.server.scheduled(measured.time):
        asked = (
            f"{format_number(value)} {unit}"
            for value, unit in (
                (window.min_arrival_rate, "requests/min"),
                (window.min_num_replicas, "replicas"),
            )
            if value is not None
        )
        yield f"scheduled ({window.start} {window.timezone}): at least {' and '.join(asked)}"


def _explain_forecast(measured: Measured) -> Iterator[str]:
    """Yield why plans are for another load than the one that arrives now."""
    forecast = measured.ahead
    if forecast is None or measured.load is None:
        return
    now, planned = format_number(measured.arrival_rate), format_number(measured.load.arrival_rate)
    grows = f"{forecast.growth:g} times that after {format_duration(forecast.seconds)}"
    basis = (
        f"as in 9 of 10 cases of the last {format_duration(forecast.history_seconds)}"
        if forecast.history_seconds
        else "assumed until two hours are known"
    )
    corrected = measured.correction.factor if measured.correction else 1.0
    more = f", times {corrected:.3g} for missed targets" if corrected > 1 else ""
    yield f"planned for {planned} requests/min: now {now}, {grows}, {basis}{more}"
