"""The objects of a namespace -> the page of one Server: its options, its past, how it is; pure."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial
from math import inf

from inferno_operator.cli.kubectl.answer import sort_plans
from inferno_operator.cli.kubectl.console.history import (
    PastLoads,
    PastServer,
    latencies_of,
    loads_of,
)
from inferno_operator.cli.kubectl.console.page import ConsolePage, without_columns
from inferno_operator.cli.kubectl.dry_run import DryRun
from inferno_operator.cli.kubectl.selection import choose_server
from inferno_operator.cli.options.currency import CENTS, Money
from inferno_operator.cli.tables.measurement import compare_with_targets, list_reported
from inferno_operator.cli.tables.servers import (
    cost_of,
    describe_conditions,
    format_band,
    format_placement,
)
from inferno_operator.cli.tables.solution import (
    describe_options,
    describe_remedies,
    describe_saved_work,
)
from inferno_operator.cli.tables.table import Part, TextTable, format_age, format_number
from inferno_operator.controllers.planning.allocations import priced_current
from inferno_operator.pages.charts import (
    Chart,
    Frame,
    Named,
    Timeline,
    limit_chart,
    line_chart,
    stairs,
)
from inferno_operator.pages.html import KeyFigure
from inferno_operator.resources import CalibratedData, Model, Placement, Plan, PlanStep, Server
from inferno_operator.resources.conditions import READY
from inferno_operator.resources.objects import Manifest
from inferno_operator.resources.observation import Observation, only, readable
from inferno_optimizer.explain.load_curve import LoadCurve, load_curve
from inferno_optimizer.explain.options import Option, explain, with_choice
from inferno_optimizer.explain.remedies import remedies
from inferno_optimizer.sizing.cases import Catalogue
from inferno_optimizer.sizing.queueing import FloatArray
from inferno_optimizer.system import (
    DecodeParameters,
    PerformanceProfile,
    PrefillDecodeParameters,
    System,
    Target,
)
from inferno_optimizer.wire.codec import encode_explanation, encode_remedies

EVENTS_SHOWN = 20
"""Events that are shown."""

ABOVE = 1.1
"""Height of an axis, where the highest value is 1."""

SMALLEST_MS = 1.0
"""Latencies that never reach this are not drawn [ms]."""

DIGITS = 3
"""Decimals of a latency [ms]."""

SHADED = "; shaded: from the calibrated parameters to their upper confidence"
"""Words about the band of a calibration."""

Changes = Sequence[tuple[Plan, PlanStep]]

DEAREST = 10.0
"""Options are drawn up to so many times the cost of the cheapest one, which a dearer one hides."""


@dataclass(frozen=True, slots=True)
class SeenEvents:
    """The events that a person may see, or why there are none to be seen."""

    events: Sequence[Manifest] = ()
    refusal: str = ""


NO_EVENTS = SeenEvents()


def events_document(seen: SeenEvents) -> list[dict[str, str]]:
    """Return the newest events as JSON."""
    newest = sorted(seen.events, key=_time_of, reverse=True)[:EVENTS_SHOWN]
    return [
        {
            "time": _time_of(event),
            **{name: event.get(name) or "" for name in ("type", "reason", "message")},
        }
        for event in newest
    ]


def event_parts(seen: SeenEvents, now: datetime) -> Iterator[Part]:
    """Yield a table of the newest events, or why they are not shown; nothing if there are none."""
    if seen.refusal:
        yield f"events are not shown: {seen.refusal}"
    events = events_document(seen)
    if events:
        rows = [
            (event["reason"], event["type"], _age_of(event["time"], now), event["message"])
            for event in events
        ]
        yield TextTable(("EVENT", "TYPE", ">AGE", "WHAT HAPPENED"), rows)


def _time_of(event: Manifest) -> str:
    """When an event happened last; a newer time sorts behind an older one."""
    series = event.get("series") or {}
    times = (series.get("lastObservedTime"), event.get("lastTimestamp"), event.get("eventTime"))
    return next((time for time in times if time), "")


def _age_of(time: str, now: datetime) -> str:
    return format_age(datetime.fromisoformat(time), now) if time else "-"


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
        f"Mean {title} of one replica on {curve.accelerator}, predicted: {format_number(now.y)} ms"
        f" at its load of {format_number(now.x)} requests/min; dashed: the most that keeps all targets,"
        f" {format_number(curve.max_rate)} requests/min"
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


def changes_of(server: Server, plans: Sequence[Plan]) -> Changes:
    """The changes of a Server that took effect, the oldest first."""
    return [
        (plan, step)
        for plan in reversed(plans)
        if plan.status.took_effect and plan.metadata.creation_timestamp
        for step in plan.spec.steps
        if step.server == server.metadata.name
    ]


def past_charts(
    loads: Sequence[tuple[datetime, float]],
    measured: Sequence[tuple[datetime, PastServer]],
    changes: Changes,
    target: Target,
    now: datetime,
) -> Iterator[Chart]:
    """Yield load, latencies and replicas over the same time; Plans that took effect are marks."""
    times = [plan.metadata.creation_timestamp or now for plan, _ in changes]
    line = Timeline.of((*(time for time, _ in (*loads, *measured)), *times), now)
    placed = [(line.at(time), step) for (_, step), time in zip(changes, times, strict=True)]
    if len(loads) > 1:
        names = [plan.metadata.name for plan, _ in changes]
        yield _load_chart(line, loads, zip(names, map(line.at, times), strict=True))
    if len(measured) > 1:
        yield from _latency_charts(line, measured, target)
    if placed:
        yield _replica_chart(line, placed)


def _load_chart(
    line: Timeline, loads: Sequence[tuple[datetime, float]], plans: Iterable[tuple[str, float]]
) -> Chart:
    rates = [(line.at(time), rate) for time, rate in loads]
    marks = [Named(name, at, _value_at(rates, at)) for name, at in plans]
    most = max(rate for _, rate in rates) * ABOVE or 1.0
    frame = Frame("Load", line.label, "requests/min", line.end, most)
    words = f"Load when Plans were made, and now: {rates[-1][1]:g} requests/min"
    words += "; dots: Plans that changed the Server" if marks else ""
    return line_chart(frame, [("line", rates)], words, marks)


def _latency_charts(
    line: Timeline, measured: Sequence[tuple[datetime, PastServer]], target: Target
) -> Iterator[Chart]:
    """Yield each latency that has a target as it was measured."""
    for title, field, limit in limits_of(target):
        points = [(line.at(time), getattr(found, field)) for time, found in measured]
        highest = max(value for _, value in points)
        if highest < SMALLEST_MS:
            continue
        frame = Frame(f"{title} measured", line.label, "ms", line.end, max(limit, highest) * ABOVE)
        bound = [("bound", [(0.0, limit), (line.end, limit)])] if limit else []
        last = format_number(points[-1][1])
        words = f"Mean {title} measured when Plans were made, and last: {last} ms"
        words += f"; dashed: the target, {limit:g} ms" if limit else ""
        yield line_chart(frame, [*bound, ("line", points)], words)


def _replica_chart(line: Timeline, placed: Sequence[tuple[float, PlanStep]]) -> Chart:
    counts = [(at, _replicas(step.after)) for at, step in placed]
    first, step = placed[0]
    if first > 0:
        counts.insert(0, (0.0, _replicas(step.before)))
    most = max(1.0, *(count for _, count in counts)) * ABOVE
    frame = Frame("Replicas decided", line.label, "replicas", line.end, most, whole=True)
    words = f"Replicas by the Plans that took effect; now {counts[-1][1]:g}"
    return line_chart(frame, [("line", stairs(counts, line.end))], words)


def _replicas(placed: Sequence[Placement]) -> float:
    return float(sum(part.replicas for part in placed))


def _value_at(points: Sequence[tuple[float, float]], x: float) -> float:
    """The value of the last point that is not to the right."""
    return next((y for at, y in reversed(points) if at <= x), points[0][1])


def server_view(  # noqa: PLR0913 - all that is known of a Server
    observations: Sequence[Observation],
    outcome: DryRun,
    namespace: str,
    name: str,
    now: datetime,
    money: Money = CENTS,
    *,
    past: Sequence[PastLoads] = (),
    events: SeenEvents = NO_EVENTS,
) -> ConsolePage:
    """Every option of a Server, what would serve it, its past, what is measured, its conditions."""
    chosen = choose_server(observations, namespace, name)
    system, solution = outcome.snapshot.system, outcome.solution
    catalogue = Catalogue(system)
    options = explain(system, chosen.spec.name)
    options = with_choice(options, system, solution, chosen.spec.name)
    found = remedies(system, solution, chosen.spec.name)
    decision = next(d for d in solution.decisions if d.server == chosen.spec.name)
    target = catalogue.target(next(s for s in system.servers if s.name == decision.server))
    measurements = [item for item in list_reported(readable(observations)) if item.server is chosen]
    models = [*only(Model, readable(observations))]
    curve, loads = curve_of(system, chosen, models), loads_of(chosen.spec, past, now)
    latencies = latencies_of(chosen, past)
    changes = changes_of(chosen, sort_plans(observations))
    return ConsolePage(
        title=f"Server {chosen.metadata.name}",
        parts=(
            *without_columns(describe_options(options, money), "TYPE", "BATCH"),
            *describe_saved_work(system, chosen.spec.name),
            *describe_remedies(decision, found),
            *(part for item in measurements for part in compare_with_targets(item)),
            *describe_conditions(chosen.status.conditions, now),
            *event_parts(events, now),
        ),
        document=lambda: {
            "options": encode_explanation(options),
            "remedies": encode_remedies(found),
            "loads": [[f"{time:%Y-%m-%dT%H:%M:%SZ}", rate] for time, rate in loads],
            "latencies": [
                {"time": f"{time:%Y-%m-%dT%H:%M:%SZ}", **found._asdict()}
                for time, found in latencies
            ],
            "curve": curve_document(curve) if curve else None,
            "events": events_document(events),
        },
        figures=tuple(_figures_of(chosen, catalogue, money)),
        trouble=_trouble_of(chosen),
        charts=(
            *_choices(options, target, money),
            *(curve_charts(curve, target, chosen) if curve else ()),
            *past_charts(loads, latencies, changes, target, now),
        ),
    )


def affordable(options: Sequence[Option]) -> Sequence[Option]:
    """The options up to `DEAREST` times the cost of the cheapest one; all if it is free."""
    most = DEAREST * min((option.cost for option in options), default=0.0) or inf
    return [option for option in options if option.cost <= most]


def _left_out(count: int) -> str:
    """What a chart says of the options that are too dear to be drawn."""
    if not count:
        return ""
    return (
        f"; {count} that cost{'s' if count == 1 else ''} more than {DEAREST:g} times the cheapest"
    )


def _trouble_of(server: Server) -> str:
    """Why a Server does not get what it needs; "" if it does, or nothing was decided yet."""
    ready = server.status.condition(READY)
    if ready is None or ready.status != "False":
        return ""
    return f"{ready.reason}: {ready.message}"


def _figures_of(server: Server, catalogue: Catalogue, money: Money) -> Iterator[KeyFigure]:
    spec, label = server.spec, partial(catalogue.label, server.spec.model)
    current, desired = price_current(server, catalogue), spec.desired_alloc
    yield KeyFigure("Model", spec.model, f"class {spec.service_class}")
    load = f"{current.load.arrival_rate:g}" if current and current.load else "-"
    yield KeyFigure("Load", load, "requests/min")
    for title, found in (("Now", current), ("Desired", desired)):
        yield KeyFigure(
            title, format_placement(found, label), f"{money.amount(cost_of(found))} {money.rate}"
        )
    if desired and (band := format_band(desired)):
        yield KeyFigure("Predicted ITL", f"{desired.itl_average or 0:.2f} ms", f"({band})")


def _choices(options: Sequence[Option], target: Target, money: Money) -> Iterator[Chart]:
    """Yield what each accelerator would cost against the latencies that have a target."""
    possible = [option for option in options if not option.reason]
    drawn = affordable(possible)
    dearer = _left_out(len(possible) - len(drawn))
    named = (("ITL", "itl_ms", target.itl_ms), ("TTFT", "ttft_ms", target.ttft_ms))
    for title, field, limit in named if drawn else ():
        if limit:
            points = [Named(o.accelerator, o.cost / money.cents, getattr(o, field)) for o in drawn]
            widest = max(point.x for point in points) * ABOVE or 1.0
            highest = max(limit, *(point.y for point in points)) * ABOVE
            frame = Frame(f"Cost and {title}", money.rate, "ms", widest, highest)
            words = (
                f"{title} of each accelerator against its cost; labelled: best trade-offs;"
                f" dashed: the target, {limit:g} ms{dearer}"
            )
            yield limit_chart(frame, points, limit, words)
