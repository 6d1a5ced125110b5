"""What is known of a Model by measurement, as charts: calibrations, and predictions; pure."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from inferno_operator.pages.charts import Chart, Named, agreement_chart, line_chart
from inferno_operator.pages.svg import Frame
from inferno_operator.resources import (
    CalibratedData,
    DecodeParms,
    FittedPrefill,
    Model,
    PerformanceData,
    PrefillParms,
    Server,
)

ABOVE = 1.05
"""Height of an axis, where the highest value is 1."""

MARKED = 3
"""Servers farthest from what was predicted, which have their names in a chart."""

Corners = Sequence[tuple[float, float]]

Line = tuple[float, float]
"""Time of a decode step alone, and what each request of the batch adds [ms]."""


def step_line(data: PerformanceData, tokens: int) -> Line:
    """Time of a decode step of requests that have so many tokens in the cache each [ms]."""
    if data.step_parms:
        return data.step_parms.alpha, data.step_parms.kappa * tokens
    if data.perf_parms:
        return data.perf_parms.alpha, data.perf_parms.beta + data.perf_parms.gamma * tokens
    if data.decode_parms:
        return data.decode_parms.alpha, data.decode_parms.beta
    return data.alpha or 0.0, data.beta or 0.0


@dataclass(frozen=True, slots=True)
class MeasuredReplica:
    """The mean replica of a Server: its batch [requests], its input tokens, its latencies [ms]."""

    server: str
    batch: float
    tokens: float
    itl_ms: float
    prefill_ms: float


def measured_replicas(servers: Sequence[Server], accelerator: str) -> Sequence[MeasuredReplica]:
    """What is measured of the Servers that run on one accelerator only."""
    return [
        MeasuredReplica(
            server=server.metadata.name,
            batch=measured.running / measured.replicas.reporting,
            tokens=measured.avg_computed_tokens or measured.avg_in_tokens or 0.0,
            itl_ms=measured.itl_average or 0.0,
            prefill_ms=(measured.ttft_average or 0.0) - (measured.wait_average or 0.0),
        )
        for server in servers
        if (measured := server.status.measured) and measured.running and measured.replicas
        if measured.replicas.reporting and _runs_on(server) == {accelerator}
    ]


def _runs_on(server: Server) -> set[str]:
    current = server.spec.current_alloc
    return {part.accelerator for part in current.parts if part.num_replicas} if current else set()


def calibration_charts(
    model: Model, calibration: Mapping[str, CalibratedData], servers: Sequence[Server]
) -> Iterator[Chart]:
    """Yield the times of a step and of a prefill on each accelerator that is calibrated.

    Dots are Servers of the model that run there, as they are measured now.
    """
    for data in model.spec.data:
        calibrated, replicas = calibration.get(data.acc), measured_replicas(servers, data.acc)
        if calibrated and calibrated.expected and calibrated.decode_parms:
            steps = [
                Named(part.server, part.batch, part.itl_ms) for part in replicas if part.itl_ms
            ]
            yield _step_chart(data, calibrated.expected, calibrated.decode_parms, steps)
        if calibrated and calibrated.prefill and calibrated.prefill_parms:
            prefills = [
                Named(part.server, part.batch * part.tokens, part.prefill_ms)
                for part in replicas
                if part.tokens and part.prefill_ms > 0
            ]
            yield _prefill_chart(
                data, calibrated, calibrated.prefill, calibrated.prefill_parms, prefills
            )


def _points(line: Line, end: float) -> Corners:
    """Both ends of a line, from 0 on."""
    return [(x, line[0] + line[1] * x) for x in (0.0, end)]


def _step_chart(
    data: PerformanceData, expected: DecodeParms, upper: DecodeParms, dots: Sequence[Named]
) -> Chart:
    alone, slope = step_line(data, data.at_tokens)
    batch = max([1.0, data.max_batch_size, *(point.x for point in dots)])
    typed = _points((alone, slope), batch)
    fitted, highest = (_points((part.alpha, part.beta), batch) for part in (expected, upper))
    most = _most((*typed, *fitted, *highest), dots)
    frame = Frame(data.acc, "batch [requests]", "step [ms]", batch, most)
    words = (
        f"Step on {data.acc}: calibrated {expected.alpha:.3g} ms + {expected.beta:.3g} ms for each"
        f" request, shaded up to its upper confidence; dashed, as configured: {alone:.3g} ms +"
        f" {slope:.3g} ms{_dots(dots, 'ITL')}"
    )
    return _fit_chart(frame, typed, fitted, highest, dots, words)


def _prefill_chart(
    data: PerformanceData,
    calibrated: CalibratedData,
    expected: FittedPrefill,
    upper: PrefillParms,
    dots: Sequence[Named],
) -> Chart:
    """Time of a prefill against the input tokens of all requests of the batch."""
    usual = (calibrated.avg_in_tokens or 1.0) * max(calibrated.most_batch or 1.0, 1.0)
    tokens = max([usual, *(point.x for point in dots)])
    typed_parms = data.prefill_parms
    typed = _points((typed_parms.gamma, typed_parms.delta), tokens) if typed_parms else []
    fitted, highest = (_points((part.gamma, part.delta), tokens) for part in (expected, upper))
    most = _most((*typed, *fitted, *highest), dots)
    frame = Frame(f"{data.acc}, prefill", "input tokens of the batch", "prefill [ms]", tokens, most)
    words = (
        f"Prefill on {data.acc}: calibrated {expected.gamma:.3g} ms + {expected.delta:.3g} ms for"
        " each input token, shaded up to its upper confidence"
        + ("; dashed, as configured" if typed_parms else "")
        + _dots(dots, "TTFT without the wait")
    )
    return _fit_chart(frame, typed, fitted, highest, dots, words)


def _most(lines: Iterable[tuple[float, float]], dots: Sequence[Named]) -> float:
    """The end of an axis that has all values."""
    return max(*(y for _, y in lines), *(point.y for point in dots)) * ABOVE or 1.0


def _dots(dots: Sequence[Named], what: str) -> str:
    return f"; dots: {what} of Servers now" if dots else ""


def _fit_chart(
    frame: Frame, typed: Corners, fitted: Corners, upper: Corners, dots: Sequence[Named], words: str
) -> Chart:
    """A fitted line with the band to its upper confidence, a configured one, dashed, and dots."""
    lines = (("bound", typed), ("line", fitted))
    return line_chart(frame, lines, words, dots, band=(*fitted, *reversed(upper)))


def agreements(servers: Sequence[Server]) -> Iterator[Chart]:
    """Yield what was predicted of each latency against what is measured of it, by Server."""
    for title, field in (("ITL", "itl_average"), ("TTFT", "ttft_average")):
        points = [
            Named(server.metadata.name, predicted, measured)
            for server in servers
            if (predicted := getattr(server.spec.desired_alloc, field, None))
            and (measured := getattr(server.status.measured, field, None))
        ]
        if points:
            yield _agreement(title, points)


def _agreement(title: str, points: Sequence[Named]) -> Chart:
    """Predicted and measured values of one latency [ms]; both axes have the same length."""
    most = max(max(point.x, point.y) for point in points) * ABOVE
    frame = Frame(f"{title}, measured and predicted", "predicted [ms]", "measured [ms]", most, most)
    farthest = {point.name for point in sorted(points, key=_error)[-MARKED:]}
    words = (
        f"{title} predicted and measured, Servers: {len(points)}; dashed: both the same;"
        f" the median difference is {median(map(_error, points)):.0%}"
    )
    return agreement_chart(frame, points, farthest, words)


def _error(point: Named) -> float:
    """By how much of the prediction the measured value differs from it."""
    return abs(point.y - point.x) / point.x
