"""The objects of a namespace -> the page of one Server: its options, its past, how it is; pure."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial
from math import inf

from inferno_operator.cli.kubectl.choices import DryRun, choose_server, sort_plans
from inferno_operator.cli.kubectl.console.page import ConsolePage, SeenNamespace
from inferno_operator.cli.kubectl.console.plans import (
    PastLoads,
    PastServer,
    list_latencies,
    list_loads,
)
from inferno_operator.cli.options import Money
from inferno_operator.cli.tables.measurement import describe_latencies, list_reported
from inferno_operator.cli.tables.servers import (
    describe_conditions,
    find_cost,
    format_band,
    format_load,
    format_placement,
)
from inferno_operator.cli.tables.solution import describe_explanation, explain_decision
from inferno_operator.cli.tables.table import Part, TextTable, format_age, format_number
from inferno_operator.controllers.planning.conversions import price_current
from inferno_operator.pages.charts import (
    Chart,
    Frame,
    Named,
    Timeline,
    draw_lines,
    find_low_front,
    to_stairs,
)
from inferno_operator.pages.html import KeyFigure
from inferno_operator.resources import CalibratedData, Model, Placement, Plan, PlanStep, Server
from inferno_operator.resources.conditions import READY
from inferno_operator.resources.objects import Manifest
from inferno_operator.resources.observation import only, readable
from inferno_optimizer.explain.load_curve import LoadCurve, load_curve
from inferno_optimizer.explain.options import Option
from inferno_optimizer.sizing.cases import Catalogue
from inferno_optimizer.sizing.queueing import FloatArray
from inferno_optimizer.system import (
    DecodeParameters,
    PrefillDecodeParameters,
    System,
    Target,
)

EVENTS_SHOWN = 20  # events that are shown
ABOVE = 1.1  # height of an axis, where the highest value is 1
SMALLEST_MS = 1.0  # latencies that never reach this are not drawn [ms]
DIGITS = 3  # decimals of a latency [ms]

# Options are drawn up to so many times the cost of the cheapest one, which a dearer one hides.
DEAREST = 10.0

Changes = Sequence[tuple[Plan, PlanStep]]


@dataclass(frozen=True, slots=True)
class SeenEvents:
    """The events that a person may see, or why there are none to be seen."""

    events: Sequence[Manifest] = ()
    refusal: str = ""


NO_EVENTS = SeenEvents()


@dataclass(frozen=True, slots=True)
class ServerCurve:
    """The curve that plans are made with; `band` has those of a calibration at the same rates.

    They are of the calibrated parameters and of their upper confidence, or there are none.
    """

    predicted: LoadCurve
    band: Sequence[LoadCurve] = ()

    def to_json(self) -> Mapping[str, object]:
        """Return the curve as JSON."""
        curve = self.predicted
        return {
            "accelerator": curve.accelerator,
            "rate": curve.rate,
            "maxRate": curve.max_rate,
            "rates": curve.rates.tolist(),
            **_encode_latencies(curve),
            "confidence": list(map(_encode_latencies, self.band)),
        }


def _encode_latencies(curve: LoadCurve) -> Mapping[str, object]:
    return {name: getattr(curve, f"{name}_ms").tolist() for name in ("itl", "wait", "ttft")}


def view_server(
    seen: SeenNamespace,
    outcome: DryRun,
    name: str,
    *,
    past: Sequence[PastLoads] = (),
    events: SeenEvents = NO_EVENTS,
) -> ConsolePage:
    """Every option of a Server, what would serve it, its past, what is measured, its conditions."""
    now, money = seen.now, seen.money
    chosen = choose_server(seen.objects, seen.name, name)
    system, catalogue = outcome.snapshot.system, Catalogue(outcome.snapshot.system)
    found = explain_decision(system, outcome.solution, chosen.spec.name)
    target = catalogue.target(next(s for s in system.servers if s.name == chosen.spec.name))
    resources = readable(seen.objects)
    measurements = [item for item in list_reported(resources) if item.server is chosen]
    curve = find_curve(system, chosen, [*only(Model, resources)])
    loads, latencies = list_loads(chosen.spec, past, now), list_latencies(chosen, past)
    changes = [
        (plan, step)
        for plan in reversed(sort_plans(seen.objects))
        if plan.status.took_effect and plan.metadata.creation_timestamp
        for step in plan.spec.steps
        if step.server == chosen.metadata.name
    ]
    explained = describe_explanation(system, found, money)
    ready = chosen.status.condition(READY)
    is_short = ready is not None and ready.status == "False"
    return ConsolePage(
        title=f"Server {chosen.metadata.name}",
        parts=(
            *(p if isinstance(p, str) else p.without("TYPE", "BATCH") for p in explained),
            *(part for item in measurements for part in describe_latencies(item)),
            *describe_conditions(chosen.status.conditions, now),
            *describe_events(events, now),
        ),
        document=lambda: {
            **found.to_json(),
            "loads": [[f"{time:%Y-%m-%dT%H:%M:%SZ}", rate] for time, rate in loads],
            "latencies": [
                {"time": f"{time:%Y-%m-%dT%H:%M:%SZ}", **past._asdict()} for time, past in latencies
            ],
            "curve": curve.to_json() if curve else None,
            "events": encode_events(events),
        },
        figures=tuple(_list_figures(chosen, catalogue, money)),
        troubles=(f"{ready.reason}: {ready.message}",) if ready and is_short else (),
        charts=(
            *_draw_options(found.options, target, money),
            *(_draw_curves(curve, target, chosen) if curve else ()),
            *_draw_past(loads, latencies, changes, target, now),
        ),
    )


def _list_figures(server: Server, catalogue: Catalogue, money: Money) -> Iterator[KeyFigure]:
    spec, label = server.spec, partial(catalogue.label, server.spec.model)
    current, desired = price_current(server, catalogue), spec.desired_alloc
    yield KeyFigure("Model", spec.model, f"class {spec.service_class}")
    yield KeyFigure("Load", format_load(current), "requests/min")
    for title, found in (("Now", current), ("Desired", desired)):
        note = f"{money.amount(find_cost(found))} {money.rate}"
        yield KeyFigure(title, format_placement(found, label), note)
    if desired and (band := format_band(desired)):
        yield KeyFigure("Predicted ITL", f"{desired.itl_average or 0:.2f} ms", f"({band})")


def encode_events(seen: SeenEvents) -> list[dict[str, str]]:
    """Return the newest events as JSON."""
    return [
        {
            "time": _find_time(event),
            **{name: event.get(name) or "" for name in ("type", "reason", "message")},
        }
        for event in sorted(seen.events, key=_find_time, reverse=True)[:EVENTS_SHOWN]
    ]


def _find_time(event: Manifest) -> str:
    """Return when an event happened last; a newer time sorts behind an older one."""
    series = event.get("series") or {}
    times = (series.get("lastObservedTime"), event.get("lastTimestamp"), event.get("eventTime"))
    return next((time for time in times if time), "")


def describe_events(seen: SeenEvents, now: datetime) -> Iterator[Part]:
    """Yield a table of the newest events, or why they are not shown; nothing if there are none."""
    if seen.refusal:
        yield f"events are not shown: {seen.refusal}"
    rows = []
    for event in encode_events(seen):
        time = event["time"]
        age = format_age(datetime.fromisoformat(time), now) if time else "-"
        rows.append((event["reason"], event["type"], age, event["message"]))
    if rows:
        yield TextTable(("EVENT", "TYPE", ">AGE", "WHAT HAPPENED"), rows)


def find_curve(system: System, server: Server, models: Sequence[Model]) -> ServerCurve | None:
    """Return the curve of a replica of a Server as it runs; None where there is none to draw."""
    predicted = load_curve(system, server.spec.name)
    if predicted is None:
        return None
    of_model = (m.status.calibration for m in models if m.spec.name == server.spec.model)
    calibrated = (data for calibration in of_model for data in calibration)
    found = next((data for data in calibrated if data.acc == predicted.accelerator), None)
    return ServerCurve(predicted, _draw_band(system, server, found, predicted) if found else ())


def _draw_band(
    system: System, server: Server, calibrated: CalibratedData, predicted: LoadCurve
) -> Sequence[LoadCurve]:
    """Return the curves of both edges of a calibration; none where one of them cannot be drawn."""
    expected, upper = calibrated.expected, calibrated.decode_parms
    if expected is None or upper is None or calibrated.step_parms:
        return ()
    edges = ((expected, calibrated.prefill), (upper, calibrated.prefill_parms))
    alone = tuple(s for s in system.servers if s.name == server.spec.name)
    curves = []
    for profile in system.profiles:
        if (profile.model, profile.accelerator) != (server.spec.model, calibrated.acc):
            continue
        for decode, prefill in edges:
            gamma, delta = (prefill.gamma, prefill.delta) if prefill else (0.0, 0.0)
            fitted: DecodeParameters | PrefillDecodeParameters = PrefillDecodeParameters(
                decode.alpha, decode.beta, gamma, delta
            )
            if isinstance(profile.parameters, DecodeParameters):  # it has no time of prefills
                fitted = DecodeParameters(decode.alpha, decode.beta)
            changed = replace(
                system, servers=alone, profiles=(replace(profile, parameters=fitted),)
            )
            curves.append(load_curve(changed, server.spec.name, predicted.rates))
    drawn = [curve for curve in curves if curve]
    return drawn if len(drawn) == len(curves) else ()


def list_limits(target: Target) -> Iterator[tuple[str, str, float]]:
    """Yield title, name and target of the mean [ms] of each latency with a target, or 0 for it."""
    named = (
        ("ITL", "itl", target.itl_ms, target.itl_percentile),
        ("TTFT", "ttft", target.ttft_ms, target.ttft_percentile),
        ("WAIT", "wait", target.wait_ms, True),  # a percentile, whatever is asked for
    )
    for title, field, limit, percentile in named:
        if limit:
            yield title, field, 0.0 if percentile else limit


def _draw_curves(curves: ServerCurve, target: Target, server: Server) -> Iterator[Chart]:
    """Yield each latency that has a target against the load of one replica."""
    curve = curves.predicted
    for title, field, limit in list_limits(target):
        values = _list_latencies(curve, field)
        if values[curve.rates <= curve.max_rate].max(initial=0.0) >= SMALLEST_MS:
            yield _draw_curve(title, field, curves, limit, _measured_point(server, field))


def _list_latencies(curve: LoadCurve, field: str) -> FloatArray:
    values: FloatArray = getattr(curve, f"{field}_ms").round(DIGITS)
    return values


def _draw_curve(
    title: str, field: str, curves: ServerCurve, limit: float, measured: Named | None
) -> Chart:
    """Draw a latency [ms] against the rate [requests/min]; `limit` is that of the mean, 0: none."""
    curve, rates = curves.predicted, curves.predicted.rates.tolist()
    line, *edges = (
        [*zip(rates, _list_latencies(each, field).tolist(), strict=True)]
        for each in (curve, *curves.band)
    )
    now = Named("predicted", *line[curve.now])
    points = [now, measured] if measured else [now]
    held = [y for x, y in line if x <= curve.max_rate]
    most = max(limit, *held, *(point.y for point in points)) * ABOVE
    widest = max(rates[-1], *(point.x for point in points))
    bounds = [[(curve.max_rate, 0.0), (curve.max_rate, most)]]
    words = (
        f"Mean {title} of one replica on {curve.accelerator}, predicted: {format_number(now.y)} ms"
        f" at its load of {format_number(now.x)} requests/min; dashed: the most that keeps all"
        f" targets, {format_number(curve.max_rate)} requests/min"
    )
    if limit:
        bounds.append([(0.0, limit), (widest, limit)])
        words += f", and the target, {limit:g} ms"
    if edges:
        words += "; shaded: from the calibrated parameters to their upper confidence"
    frame = Frame(f"{title} and load of one replica", "requests/min", "ms", widest, most)
    shown = [point for point in line if point[1] <= most]
    lines = (*(("bound", bound) for bound in bounds), ("line", shown))
    band = [point for edge, step in zip(edges, (1, -1), strict=False) for point in edge[::step]]
    return draw_lines(frame, lines, words, points, {point.name for point in points}, band)


def _measured_point(server: Server, field: str) -> Named | None:
    """Return what is measured of a latency at the load of one replica; None if not known."""
    latest = server.status.measured
    value = getattr(latest, f"{field}_average", None)
    if latest is None or not value or not latest.arrival_rate or latest.replicas is None:
        return None
    replicas = latest.replicas.reporting
    return Named("measured", latest.arrival_rate / replicas, value) if replicas else None


def _draw_past(
    loads: Sequence[tuple[datetime, float]],
    measured: Sequence[tuple[datetime, PastServer]],
    changes: Changes,
    target: Target,
    now: datetime,
) -> Iterator[Chart]:
    """Yield load, latencies and replicas over the same time; Plans that took effect are marks."""
    times = [plan.metadata.creation_timestamp or now for plan, _ in changes]
    line = Timeline.of((*(time for time, _ in (*loads, *measured)), *times), now)
    moved = [(line.at(time), plan, step) for time, (plan, step) in zip(times, changes, strict=True)]
    if len(loads) > 1:
        rates = [(line.at(time), rate) for time, rate in loads]
        marks = []
        for at, plan, _ in moved:
            rate = next((y for x, y in reversed(rates) if x <= at), rates[0][1])
            marks.append(Named(plan.metadata.name, at, rate))
        most = max(rate for _, rate in rates) * ABOVE or 1.0
        words = f"Load when Plans were made, and now: {rates[-1][1]:g} requests/min"
        words += "; dots: Plans that changed the Server" if marks else ""
        frame = Frame("Load", line.label, "requests/min", line.end, most)
        yield draw_lines(frame, [("line", rates)], words, marks)
    if len(measured) > 1:
        yield from _draw_latencies(measured, target, line)
    if moved:
        counts = [(at, _count_replicas(step.after)) for at, _, step in moved]
        if counts[0][0] > 0:
            counts.insert(0, (0.0, _count_replicas(moved[0][2].before)))
        most = max(1.0, *(count for _, count in counts)) * ABOVE
        words = f"Replicas by the Plans that took effect; now {counts[-1][1]:g}"
        frame = Frame("Replicas decided", line.label, "replicas", line.end, most, whole=True)
        yield draw_lines(frame, [("line", to_stairs(counts, line.end))], words)


def _count_replicas(placements: Iterable[Placement]) -> float:
    return float(sum(part.replicas for part in placements))


def _draw_latencies(
    measured: Sequence[tuple[datetime, PastServer]], target: Target, line: Timeline
) -> Iterator[Chart]:
    for title, field, limit in list_limits(target):
        points = [(line.at(time), getattr(found, field)) for time, found in measured]
        highest = max(value for _, value in points)
        if highest < SMALLEST_MS:
            continue
        bound = [("bound", [(0.0, limit), (line.end, limit)])] if limit else []
        words = f"Mean {title} measured when Plans were made, and last: "
        words += f"{format_number(points[-1][1])} ms"
        words += f"; dashed: the target, {limit:g} ms" if limit else ""
        frame = Frame(f"{title} measured", line.label, "ms", line.end, max(limit, highest) * ABOVE)
        yield draw_lines(frame, [*bound, ("line", points)], words)


def list_affordable(options: Sequence[Option]) -> Sequence[Option]:
    """Return options up to `DEAREST` times the cost of the cheapest one; all if it is free."""
    most = DEAREST * min((option.cost for option in options), default=0.0) or inf
    return [option for option in options if option.cost <= most]


def _draw_options(options: Sequence[Option], target: Target, money: Money) -> Iterator[Chart]:
    """Yield what each accelerator would cost against the latencies that have a target."""
    possible = [option for option in options if not option.reason]
    drawn, left_out = list_affordable(possible), ""
    if count := len(possible) - len(drawn):
        costs = "costs" if count == 1 else "cost"
        left_out = f"; {count} that {costs} more than {DEAREST:g} times the cheapest"
    named = (("ITL", "itl_ms", target.itl_ms), ("TTFT", "ttft_ms", target.ttft_ms))
    for title, field, limit in named if drawn else ():
        if limit:
            points = [Named(o.accelerator, o.cost / money.cents, getattr(o, field)) for o in drawn]
            widest = max(point.x for point in points) * ABOVE or 1.0
            highest = max(limit, *(point.y for point in points)) * ABOVE
            frame = Frame(f"Cost and {title}", money.rate, "ms", widest, highest)
            words = (
                f"{title} of each accelerator against its cost; labelled: best trade-offs;"
                f" dashed: the target, {limit:g} ms{left_out}"
            )
            bound, best = [(0.0, limit), (widest, limit)], find_low_front(points)
            yield draw_lines(frame, [("bound", bound)], words, points, {p.name for p in best})
