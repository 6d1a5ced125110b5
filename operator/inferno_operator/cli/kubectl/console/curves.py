"""How the latencies of one replica of a Server grow with its load, as charts; pure."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from inferno_operator.cli.tables.measurement import number
from inferno_operator.pages.charts import Chart, Named, line_chart
from inferno_operator.pages.svg import Frame
from inferno_operator.resources import CalibratedData, Model, Server
from inferno_optimizer.explain.load_curve import LoadCurve, load_curve
from inferno_optimizer.sizing.queueing import FloatArray
from inferno_optimizer.system import (
    DecodeParameters,
    PerformanceProfile,
    PrefillDecodeParameters,
    System,
    Target,
)

ABOVE = 1.1
"""Height of an axis, where the highest value is 1."""

SMALLEST_MS = 1.0
"""Latencies that never reach this are not drawn [ms]."""

DIGITS = 3
"""Decimals of a latency [ms]."""

SHADED = "; shaded: from the calibrated parameters to their upper confidence"
"""Words about the band of a calibration."""


@dataclass(frozen=True, slots=True)
class ServerCurve:
    """The curve that plans are made with; `band` has those of a calibration at the same rates.

    They are of the calibrated parameters and of their upper confidence, or there are none.
    """

    predicted: LoadCurve
    band: Sequence[LoadCurve] = ()


def curve_of(system: System, server: Server, models: Sequence[Model]) -> ServerCurve | None:
    """Return the curve of a replica of a Server as it runs; None where there is none to draw."""
    predicted = load_curve(system, server.spec.name)
    if predicted is None:
        return None
    named = (m for m in models if m.spec.name == server.spec.model)
    calibrated = (data for model in named for data in model.status.calibration)
    of_accelerator = (data for data in calibrated if data.acc == predicted.accelerator)
    calibration = next(of_accelerator, None)
    return ServerCurve(
        predicted, _band(system, server, calibration, predicted) if calibration else ()
    )


def _band(
    system: System, server: Server, calibrated: CalibratedData, predicted: LoadCurve
) -> Sequence[LoadCurve]:
    """The curves of both edges of a calibration; none where one of them cannot be drawn."""
    name, placed = server.spec.name, (server.spec.model, calibrated.acc)
    alone = replace(system, servers=tuple(s for s in system.servers if s.name == name))
    profiles = (p for p in system.profiles if (p.model, p.accelerator) == placed)
    curves = [
        load_curve(replace(alone, profiles=(_like(profile, parameters),)), name, predicted.rates)
        for profile in profiles
        for parameters in _edges(calibrated)
    ]
    drawn = [curve for curve in curves if curve]
    return drawn if len(drawn) == len(curves) else ()


def _edges(calibrated: CalibratedData) -> Iterator[PrefillDecodeParameters]:
    """Yield the calibrated parameters and their upper confidence, if both are known."""
    expected, upper = calibrated.expected, calibrated.decode_parms
    if expected is None or upper is None or calibrated.step_parms:
        return
    for decode, prefill in ((expected, calibrated.prefill), (upper, calibrated.prefill_parms)):
        gamma, delta = (prefill.gamma, prefill.delta) if prefill else (0.0, 0.0)
        yield PrefillDecodeParameters(decode.alpha, decode.beta, gamma, delta)


def _like(profile: PerformanceProfile, fitted: PrefillDecodeParameters) -> PerformanceProfile:
    """A profile with other parameters; the first generation has no prefill time of its own."""
    first = isinstance(profile.parameters, DecodeParameters)
    parameters = DecodeParameters(fitted.alpha, fitted.beta) if first else fitted
    return replace(profile, parameters=parameters)


def limits_of(target: Target) -> Iterator[tuple[str, str, float]]:
    """Yield title, name and target of the mean [ms] of each latency with a target, or 0 for it."""
    named = (
        ("ITL", "itl", target.itl_ms, target.itl_percentile),
        ("TTFT", "ttft", target.ttft_ms, target.ttft_percentile),
        ("WAIT", "wait", target.wait_ms, True),  # a percentile, whatever is asked for
    )
    for title, field, limit, percentile in named:
        if limit:
            yield title, field, 0.0 if percentile else limit


def curve_charts(curves: ServerCurve, target: Target, server: Server) -> Iterator[Chart]:
    """Yield each latency that has a target against the load of one replica."""
    curve = curves.predicted
    for title, field, limit in limits_of(target):
        values = _values(curve, field)
        if values[curve.rates <= curve.max_rate].max(initial=0.0) >= SMALLEST_MS:
            yield _curve_chart(title, field, curves, limit, _measured_point(server, field))


def _values(curve: LoadCurve, field: str) -> FloatArray:
    """A latency at each rate [ms]."""
    values: FloatArray = getattr(curve, f"{field}_ms").round(DIGITS)
    return values


def _curve_chart(
    title: str, field: str, curves: ServerCurve, limit: float, measured: Named | None
) -> Chart:
    """One latency [ms] against the rate [requests/min]; `limit` is that of the mean, 0 if none."""
    curve, rates = curves.predicted, curves.predicted.rates.tolist()
    line = [*zip(rates, _values(curve, field).tolist(), strict=True)]
    now = Named("predicted", *line[curve.now])
    points = [now, measured] if measured else [now]
    held = [y for x, y in line if x <= curve.max_rate]
    most = max(limit, *held, *(point.y for point in points)) * ABOVE
    widest = max(rates[-1], *(point.x for point in points))
    frame = Frame(f"{title} and load of one replica", "requests/min", "ms", widest, most)
    bounds = _bounds(curve, limit, widest, most)
    shown = [point for point in line if point[1] <= most]
    edges = [[*zip(rates, _values(edge, field).tolist(), strict=True)] for edge in curves.band]
    words = _words(title, curve, now, limit) + (SHADED if edges else "")
    lines = (*(("bound", bound) for bound in bounds), ("line", shown))
    band = [point for edge, step in zip(edges, (1, -1), strict=False) for point in edge[::step]]
    return line_chart(frame, lines, words, points, {point.name for point in points}, band)


def _bounds(
    curve: LoadCurve, limit: float, widest: float, most: float
) -> Sequence[Sequence[tuple[float, float]]]:
    """The lines of the highest rate and of the target, in a chart of this size."""
    rate = [(curve.max_rate, 0.0), (curve.max_rate, most)]
    return [rate, [(0.0, limit), (widest, limit)]] if limit else [rate]


def _words(title: str, curve: LoadCurve, now: Named, limit: float) -> str:
    """What a chart shows, for those who do not see it."""
    return (
        f"Mean {title} of one replica on {curve.accelerator}, predicted: {number(now.y)} ms at its"
        f" load of {number(now.x)} requests/min; dashed: the most that keeps all targets,"
        f" {number(curve.max_rate)} requests/min"
        + (f", and the target, {limit:g} ms" if limit else "")
    )


def _measured_point(server: Server, field: str) -> Named | None:
    """What is measured of a latency at the load of one replica; None if it is not known."""
    latest = server.status.measured
    value = getattr(latest, f"{field}_average", None)
    if latest is None or not value or not latest.arrival_rate or latest.replicas is None:
        return None
    replicas = latest.replicas.reporting
    return Named("measured", latest.arrival_rate / replicas, value) if replicas else None


def curve_document(curves: ServerCurve) -> Mapping[str, object]:
    """Return the curve as JSON."""
    curve = curves.predicted
    return {
        "accelerator": curve.accelerator,
        "rate": curve.rate,
        "maxRate": curve.max_rate,
        "rates": curve.rates.tolist(),
        **_latencies_document(curve),
        "confidence": [_latencies_document(edge) for edge in curves.band],
    }


def _latencies_document(curve: LoadCurve) -> Mapping[str, object]:
    return {
        "itl": curve.itl_ms.tolist(),
        "wait": curve.wait_ms.tolist(),
        "ttft": curve.ttft_ms.tolist(),
    }
