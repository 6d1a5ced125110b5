"""Loads that measured Servers had in the past, as a trace that can be replayed."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import numpy as np

from inferno_operator.adapters.prometheus.client import connect
from inferno_operator.adapters.prometheus.endpoint import PrometheusEndpoint
from inferno_operator.cli.console import run_async
from inferno_operator.cli.offline.traces import write_trace
from inferno_operator.cli.options import duration_of
from inferno_operator.engines.catalogue import MetricSources
from inferno_operator.engines.past import PastLoad, Span, Tell, read_loads
from inferno_operator.resources import Resource, Server
from inferno_operator.resources.observation import only
from inferno_operator.runtime.prometheus import PrometheusPast
from inferno_optimizer.errors import InputError
from inferno_optimizer.replay.trace import Trace, build_trace
from inferno_optimizer.sizing.queueing import FloatArray

GAPS_TOLD = 8  # gaps of a Server that are told; of others, how many there are


def parse_span(start: str, end: str, step_s: float, now: datetime) -> Span:
    """Return the time between two texts: a time (UTC if it names no zone), or how long ago.

    Raises InputError if a text is neither, or there are less than two steps between them.
    """
    first, last = (
        _parse_time(text, option, now) for text, option in ((start, "from"), (end, "to"))
    )
    begin, finish = (time.timestamp() // step_s * step_s for time in (first, min(last, now)))
    if finish < begin + 2 * step_s:
        until = f"--to {end}" if end else "now"
        raise InputError(f"--from {start}: less than two steps of {step_s:g} s until {until}")
    return Span(begin, finish, step_s)


def _parse_time(text: str, option: str, now: datetime) -> datetime:
    if not text:
        return now
    if (duration := duration_of(text)) is not None:
        return now - duration
    try:
        time = datetime.fromisoformat(text)
    except ValueError as error:
        wanted = "give a time such as 2026-07-01T18:00, or how long ago: 7d, 12h"
        raise InputError(f"--{option} {text}: {wanted}") from error
    return time.replace(tzinfo=time.tzinfo or UTC)


@dataclass(frozen=True, slots=True)
class PastOptions:
    """What the options of the command say: where and when to read, and where to keep it."""

    endpoint: PrometheusEndpoint
    sources: MetricSources
    begin: str
    end: str
    step_s: float
    keep: Path | None


def read_past(
    resources: Iterable[Resource],
    options: PastOptions,
    tell: Tell,
    warn: Callable[[Iterable[str]], None],
) -> Trace:
    """Read the loads of the measured Servers among some objects; tell what is missing.

    Raises InputError if there is nothing to read, or what was read cannot be kept;
    RefusedError, UnavailableError if Prometheus refuses a query, or does not answer.
    """
    servers = [*only(Server, resources)]
    span = parse_span(options.begin, options.end, options.step_s, datetime.now(UTC))

    async def read() -> tuple[dict[str, PastLoad], list[str]]:
        async with connect(options.endpoint) as client:
            return await read_past_loads(servers, client, options.sources, span, tell)

    loads, remarks = run_async(read())
    trace, missing = build_past_trace(loads, span)
    warn((*remarks, *missing))
    if options.keep is not None:
        write_trace(str(options.keep), trace, span.start)
    return trace


async def read_past_loads(
    servers: Sequence[Server],
    prometheus: PrometheusPast,
    catalogue: MetricSources,
    span: Span,
    tell: Tell,
) -> tuple[dict[str, PastLoad], list[str]]:
    """Return the loads of the measured ones among some Servers by their spec.name, and remarks.

    Raises InputError if no Server has `spec.measure`, or a source is unknown; RefusedError,
    UnavailableError if Prometheus refuses a query, or does not answer, also about a short time.
    """
    measures = {s.spec.name: s.spec.measure for s in servers if s.spec.measure}
    if not measures:
        raise InputError("nothing to read: no Server has spec.measure")
    return await read_loads(measures, prometheus, catalogue, span, tell)


def build_past_trace(loads: Mapping[str, PastLoad], span: Span) -> tuple[Trace, list[str]]:
    """Return the trace of some loads, and a line for each thing that is missing.

    In a gap a Server has the load of before; before the first and after the last number, none.

    Raises InputError if there is nothing of any Server.
    """
    notes: list[str] = []
    kept: dict[str, PastLoad] = {}
    for name, load in loads.items():
        if np.isnan(load.rate).all():
            notes.append(f"{name}: left out: nothing from {_format_span(span, 0, span.steps)}")
        elif np.isnan(load.output_tokens).all():
            notes.append(f"{name}: left out: the lengths of its requests are not known")
        else:
            notes += _list_gaps(name, load.rate, span)
            kept[name] = load
    if not kept:
        raise InputError(f"nothing to replay: {notes[0]}")
    rate, given, generated = (
        np.stack([getattr(load, column) for load in kept.values()], axis=1)
        for column in ("rate", "input_tokens", "output_tokens")
    )
    return build_trace(tuple(kept), span.step_s, _carry_forward(rate), (given, generated)), notes


def _list_gaps(name: str, rate: FloatArray, span: Span) -> list[str]:
    measured = np.flatnonzero(~np.isnan(rate))
    gaps = list(_runs(np.isnan(rate)))
    lines = []
    for first, last in gaps[:GAPS_TOLD]:
        outside = last <= measured[0] or first > measured[-1]
        taken = "no requests" if outside else "the load before it is taken"
        lines.append(f"{name}: nothing from {_format_span(span, first, last)}: {taken}")
    if len(gaps) > GAPS_TOLD:
        lines.append(f"{name}: and {len(gaps) - GAPS_TOLD} more gaps")
    return lines


def _runs(missing: np.ndarray[tuple[int], np.dtype[np.bool_]]) -> Iterator[tuple[int, int]]:
    edges = np.flatnonzero(np.diff(np.concatenate(([False], missing, [False])).astype(np.int8)))
    yield from zip(edges[::2].tolist(), edges[1::2].tolist(), strict=True)


def _format_span(span: Span, first: int, last: int) -> str:
    begin, end = (
        datetime.fromtimestamp(span.start + step * span.step_s, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        for step in (first, last)
    )
    return f"{begin} to {end}"


def _carry_forward(rate: FloatArray) -> FloatArray:
    """Rates of shape (steps, servers) without gaps: those of before; 0 outside of what is known."""
    filled = np.zeros_like(rate)
    for server, column in enumerate(rate.T):
        measured = np.flatnonzero(~np.isnan(column))
        inside = np.arange(measured[0], measured[-1] + 1)
        newest = measured[np.searchsorted(measured, inside, side="right") - 1]
        filled[inside, server] = column[newest]
    return filled
