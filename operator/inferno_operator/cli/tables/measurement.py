"""Output of `inferno measure` and `kubectl inferno measure`.

Loads are in requests/min, latencies in ms.
"""

from collections.abc import Iterator, Sequence
from datetime import datetime

from inferno_operator.cli.headroom import LATENCIES
from inferno_operator.cli.measurement import Asked, ServerMeasurement
from inferno_operator.cli.tables.solution import Part, TextTable, grouped
from inferno_operator.cli.tables.top import UNKNOWN, age, duration
from inferno_operator.controllers.measurement.correction import judge_correction
from inferno_operator.controllers.measurement.quality import compare_with_targets
from inferno_operator.resources import Measured

SERIES_SHOWN = 20
"""How many series of an answer are shown."""

LOAD = "LOAD REQ/MIN"

DECIMALS = 4
"""Of a number; what is less than the last of them is 0."""

QUANTITIES = (LOAD, "ITL", "WAIT", "TTFT")

HEADINGS = (
    "SERVER", "QUALITY", ">AGE", ">LOAD", ">IN", ">OUT", ">ITL", ">TTFT", ">WAIT",
    ">RUNNING", ">WAITING", ">KV", "REPLICAS", "MISSES",
)  # fmt: skip

OPTIONAL = ("KV", "RUNNING", "AGE", "WAIT", "IN", "OUT", "WAITING")
"""Columns that a narrow terminal does not show."""


def measurement_parts(
    measurements: Sequence[ServerMeasurement], asked: Sequence[Asked], now: datetime
) -> Iterator[Part]:
    """Yield the measurements, what to do where one is not fresh, and the queries."""
    yield TextTable(HEADINGS, [_row(item, now) for item in measurements], OPTIONAL)
    if notes := measurement_notes(measurements):
        yield ""
        yield from notes
    for query in asked:
        yield ""
        yield query.expression
        yield from _answer(query)


def measurement_notes(measurements: Sequence[ServerMeasurement]) -> Sequence[str]:
    """Return what to do where a measurement is not fresh, and what else the numbers do not say."""
    named = ((item.server.metadata.name, note) for item in measurements for note in _notes(item))
    return list(grouped(named))


def comparison_parts(item: ServerMeasurement) -> Iterator[Part]:
    """Yield a table of what is measured, what was predicted, and the target of each latency."""
    if item.server.spec.measure is None:
        return
    desired, measured, target = item.server.spec.desired_alloc, item.measured, item.target
    limits = dict.fromkeys(QUANTITIES, "-")
    values = dict.fromkeys(QUANTITIES, UNKNOWN)
    if measured is not None:
        values = {
            LOAD: number(measured.arrival_rate),
            "ITL": number(measured.itl_average),
            "WAIT": number(measured.wait_average),
            "TTFT": number(measured.ttft_average),
        }
        compared = compare_with_targets(measured, target) if target else ()
        limits |= {
            LATENCIES[name].upper(): f"{value:.1f}/{limit:g}" for name, value, limit in compared
        }
    predicted = {
        LOAD: number(desired.load.arrival_rate if desired and desired.load else None),
        "ITL": number(desired.itl_average if desired else None),
        "WAIT": number(desired.wait_average if desired else None),
        "TTFT": number(desired.ttft_average if desired else None),
    }
    rows = [(name, values[name], predicted[name], limits[name]) for name in QUANTITIES]
    yield ""
    yield TextTable(("QUANTITY", ">MEASURED", ">PREDICTED", ">NOW/SLO"), rows)
    yield from _of_load(measured)
    yield from _of_schedule(item)


def _notes(item: ServerMeasurement) -> Iterator[str]:
    if item.measured is not None and item.measured.message:
        yield item.measured.message
    yield from _of_caches(item.measured)
    yield from _of_drafts(item.measured)
    yield from _of_correction(item)
    yield from _of_backlog(item.measured)


def _of_load(measured: Measured | None) -> Iterator[str]:
    """Yield why plans are for another load than the one that arrives now."""
    if measured is not None and measured.ahead is not None and measured.load is not None:
        now, planned, ahead = measured.arrival_rate, measured.load.arrival_rate, measured.ahead
        grows = f"{ahead.growth:g} times that after {duration(ahead.seconds)}"
        seen = (
            f"as in 9 of 10 cases of the last {duration(ahead.history_seconds)}"
            if ahead.history_seconds
            else "assumed until two hours are known"
        )
        corrected = measured.correction.factor if measured.correction else 1.0
        more = f", times {corrected:.3g} for missed targets" if corrected > 1 else ""
        said = f"planned for {number(planned)} requests/min: now {number(now)}, {grows}, {seen}"
        yield said + more
    yield from _of_backlog(measured)


def _of_correction(item: ServerMeasurement) -> Iterator[str]:
    """Yield why plans are for more than the load; nothing where they are not."""
    verdict = judge_correction(item.server, item.measured) if item.measured else None
    if verdict is not None:
        yield verdict.message


def _of_schedule(item: ServerMeasurement) -> Iterator[str]:
    """Yield what the schedule of a Server asks for now, or when new replicas serve."""
    measured, server = item.measured, item.server
    for window in server.scheduled(measured.time) if measured is not None else ():
        asked = (
            f"{number(value)} {unit}"
            for value, unit in (
                (window.min_arrival_rate, "requests/min"),
                (window.min_num_replicas, "replicas"),
            )
            if value is not None
        )
        yield f"scheduled ({window.start} {window.timezone}): at least {' and '.join(asked)}"


def _of_caches(measured: Measured | None) -> Iterator[str]:
    """Yield how many input tokens are in prefix caches; nothing if none are, or it is not known."""
    if measured is not None and measured.load is not None and measured.load.cached_tokens:
        inputs, cached = measured.load.avg_in_tokens or 0, measured.load.cached_tokens
        yield (
            f"{number(cached)} of {number(inputs)} input tokens are in prefix caches; plans count"
            f" on them where replicas run already"
        )


def _of_drafts(measured: Measured | None) -> Iterator[str]:
    """Yield how many tokens a step makes; nothing without speculative decoding."""
    if measured is not None and measured.tokens_per_step:
        made = number(measured.tokens_per_step)
        yield f"a step makes {made} tokens of an answer, as drafts are accepted"


def _of_backlog(measured: Measured | None) -> Iterator[str]:
    """Yield what part of the load for plans is not arrivals; nothing if there is no backlog."""
    if measured is not None and measured.backlog and measured.load is not None:
        yield (
            f"{number(measured.backlog)} requests wait beyond what a healthy queue holds;"
            f" plans are for {number(measured.load.arrival_rate)} requests/min, to serve them too"
        )


def _row(item: ServerMeasurement, now: datetime) -> tuple[str, ...]:
    name, measured = item.server.metadata.name, item.measured
    if measured is None:
        quality = "not yet" if item.server.spec.measure else "-"
        return (name, quality, *([""] * (len(HEADINGS) - 2)))
    replicas = measured.replicas
    return (
        name,
        measured.quality,
        age(measured.time, now),
        number(measured.arrival_rate),
        number(measured.avg_in_tokens),
        number(measured.avg_out_tokens),
        number(measured.itl_average),
        number(measured.ttft_average),
        number(measured.wait_average),
        number(measured.running),
        number(measured.waiting),
        UNKNOWN if measured.kv_cache_usage is None else f"{100 * measured.kv_cache_usage:.0f}%",
        UNKNOWN if replicas is None else f"{replicas.reporting}/{replicas.ready}",
        ", ".join(measured.misses_targets) or "-",
    )


def number(value: float | None) -> str:
    """Return a number with three digits or more, or that it is not known."""
    if value is None:
        return UNKNOWN
    return f"{value:.0f}" if value >= 100 else f"{round(value, DECIMALS):.3g}"  # noqa: PLR2004 - three digits


def _answer(query: Asked) -> Iterator[str]:
    if query.problem:
        yield f"  {query.problem}"
    elif not query.samples:
        yield "  no series"
    for sample in query.samples[:SERIES_SHOWN]:
        labels = ", ".join(f'{name}="{value}"' for name, value in sorted(sample.labels.items()))
        yield f"  {{{labels}}}  {sample.value:g}"
    if len(query.samples) > SERIES_SHOWN:
        yield f"  and {len(query.samples) - SERIES_SHOWN} more series"
