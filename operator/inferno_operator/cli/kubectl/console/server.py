"""The objects of a namespace -> the page of one Server: its options, its past, how it is."""

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime

from inferno_operator.cli.kubectl.answer import in_order
from inferno_operator.cli.kubectl.console.events import (
    NO_EVENTS,
    SeenEvents,
    event_parts,
    events_document,
)
from inferno_operator.cli.kubectl.console.page import ConsolePage
from inferno_operator.cli.kubectl.console.past import PastLoads, loads_of
from inferno_operator.cli.kubectl.dry_run import DryRun
from inferno_operator.cli.kubectl.selection import choose_server
from inferno_operator.cli.measurement import reported
from inferno_operator.cli.options.currency import CENTS, Money
from inferno_operator.cli.tables.cluster import cost, placement
from inferno_operator.cli.tables.measurement import comparison_parts
from inferno_operator.cli.tables.solution import option_parts, saved_work_parts
from inferno_operator.cli.tables.top import condition_parts
from inferno_operator.cli.tables.what_if import remedy_parts
from inferno_operator.pages.charts import Chart, Named, limit_chart, line_chart
from inferno_operator.pages.figures import KeyFigure
from inferno_operator.pages.svg import Frame, stairs
from inferno_operator.pages.timeline import Timeline
from inferno_operator.resources import Placement, Plan, PlanStep, Server
from inferno_operator.resources.observation import Observation, readable
from inferno_optimizer.explain.load_curve import LoadCurve, load_curve
from inferno_optimizer.explain.options import Option, explain
from inferno_optimizer.explain.remedies import remedies
from inferno_optimizer.sizing.cases import Catalogue
from inferno_optimizer.system import Target
from inferno_optimizer.wire.codec import encode_explanation, encode_remedies

ABOVE = 1.1
"""Height of an axis, where the highest value is 1."""

SMALLEST_MS = 1.0
"""Latencies that never reach this are not drawn [ms]."""

DIGITS = 3
"""Decimals of a latency [ms]."""


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
    options = explain(system, chosen.spec.name)
    found = remedies(system, solution, chosen.spec.name)
    decision = next(d for d in solution.decisions if d.server == chosen.spec.name)
    target = Catalogue(system).target(next(s for s in system.servers if s.name == decision.server))
    measurements = [item for item in reported(readable(observations)) if item.server is chosen]
    curve, loads = load_curve(system, chosen.spec.name), loads_of(chosen.spec, past, now)
    changes = changes_of(chosen, in_order(observations))
    return ConsolePage(
        title=f"Server {chosen.metadata.name}",
        parts=(
            *option_parts(options, money),
            *saved_work_parts(system, chosen.spec.name),
            *remedy_parts(decision, found),
            *(part for item in measurements for part in comparison_parts(item)),
            *condition_parts(chosen.status.conditions, now),
            *event_parts(events, now),
        ),
        document=lambda: {
            "options": encode_explanation(options),
            "remedies": encode_remedies(found),
            "loads": [[f"{time:%Y-%m-%dT%H:%M:%SZ}", rate] for time, rate in loads],
            "curve": _curve_document(curve) if curve else None,
            "events": events_document(events),
        },
        figures=tuple(_figures_of(chosen, money)),
        charts=(
            *_choices(options, target, money),
            *(curve_charts(curve, target, chosen) if curve else ()),
            *_past_charts(loads, changes, now),
        ),
    )


def _figures_of(server: Server, money: Money) -> Iterator[KeyFigure]:
    spec = server.spec
    current, desired = spec.current_alloc, spec.desired_alloc
    yield KeyFigure("Model", spec.model, f"class {spec.service_class}")
    load = f"{current.load.arrival_rate:g}" if current and current.load else "-"
    yield KeyFigure("Load", load, "requests/min")
    for title, found in (("Now", current), ("Desired", desired)):
        yield KeyFigure(title, placement(found), f"{money.amount(cost(found))} {money.rate}")


def _choices(options: Sequence[Option], target: Target, money: Money) -> Iterator[Chart]:
    """Yield what each accelerator would cost against the latencies that have a target."""
    possible = [option for option in options if not option.reason]
    named = (("ITL", "itl_ms", target.itl_ms), ("TTFT", "ttft_ms", target.ttft_ms))
    for title, field, limit in named if possible else ():
        if limit:
            points = [
                Named(o.accelerator, o.cost / money.cents, getattr(o, field)) for o in possible
            ]
            widest = max(point.x for point in points) * ABOVE or 1.0
            highest = max(limit, *(point.y for point in points)) * ABOVE
            frame = Frame(f"Cost and {title}", money.rate, "ms", widest, highest)
            words = (
                f"{title} of each accelerator against its cost; dashed: the target, {limit:g} ms"
            )
            yield limit_chart(frame, points, limit, words)


def curve_charts(curve: LoadCurve, target: Target, server: Server) -> Iterator[Chart]:
    """Yield each latency that has a target against the load of one replica."""
    rates = curve.rates.tolist()
    named = (
        ("ITL", "itl", target.itl_ms, target.itl_percentile),
        ("TTFT", "ttft", target.ttft_ms, target.ttft_percentile),
        ("WAIT", "wait", target.wait_ms, True),  # a percentile, whatever is asked for
    )
    for title, field, limit, percentile in named:
        values = getattr(curve, f"{field}_ms").round(DIGITS)
        if limit and values[curve.rates <= curve.max_rate].max(initial=0.0) >= SMALLEST_MS:
            line = [*zip(rates, values.tolist(), strict=True)]
            measured = _measured_point(server, f"{field}_average")
            yield _curve_chart(title, curve, line, 0.0 if percentile else limit, measured)


def _curve_chart(
    title: str,
    curve: LoadCurve,
    line: Sequence[tuple[float, float]],
    limit: float,
    measured: Named | None,
) -> Chart:
    """One latency [ms] against the rate [requests/min]; `limit` is that of the mean, 0 if none."""
    now = Named("predicted", *line[curve.now])
    points = [now, measured] if measured else [now]
    held = [y for x, y in line if x <= curve.max_rate]
    most = max(limit, *held, *(point.y for point in points)) * ABOVE
    widest = max(line[-1][0], *(point.x for point in points))
    frame = Frame(f"{title} and load of one replica", "requests/min", "ms", widest, most)
    bounds = [[(curve.max_rate, 0.0), (curve.max_rate, most)]]
    bounds += [[(0.0, limit), (widest, limit)]] if limit else []
    shown = [point for point in line if point[1] <= most]
    words = (
        f"Mean {title} of one replica on {curve.accelerator}, predicted: {now.y:.3g} ms at its load"
        f" of {now.x:.4g} requests/min; dashed: the most that keeps all targets,"
        f" {curve.max_rate:.4g} requests/min" + (f", and the target, {limit:g} ms" if limit else "")
    )
    lines = (*(("bound", bound) for bound in bounds), ("line", shown))
    return line_chart(frame, lines, words, points, {point.name for point in points})


def _measured_point(server: Server, field: str) -> Named | None:
    """What is measured of a latency at the load of one replica; None if it is not known."""
    found = server.status.measured
    value = getattr(found, field, None)
    if found is None or not value or not found.arrival_rate or found.replicas is None:
        return None
    replicas = found.replicas.reporting
    return Named("measured", found.arrival_rate / replicas, value) if replicas else None


def changes_of(server: Server, plans: Sequence[Plan]) -> Sequence[tuple[Plan, PlanStep]]:
    """The changes of a Server that took effect, the oldest first."""
    return [
        (plan, step)
        for plan in reversed(plans)
        if plan.status.took_effect and plan.metadata.creation_timestamp
        for step in plan.spec.steps
        if step.server == server.metadata.name
    ]


def _past_charts(
    loads: Sequence[tuple[datetime, float]],
    changes: Sequence[tuple[Plan, PlanStep]],
    now: datetime,
) -> Iterator[Chart]:
    """Yield the load over time, and the replicas, with the Plans that changed them as marks."""
    times = [plan.metadata.creation_timestamp or now for plan, _ in changes]
    line = Timeline.of((*(time for time, _ in loads), *times), now)
    if len(loads) > 1:
        rates = [(line.at(time), rate) for time, rate in loads]
        names = (plan.metadata.name for plan, _ in changes)
        yield _load_chart(line, rates, dict(zip(names, map(line.at, times), strict=True)))
    if changes:
        steps = [step for _, step in changes]
        yield _replicas_chart(line, list(zip(map(line.at, times), steps, strict=True)))


def _load_chart(
    line: Timeline, rates: Sequence[tuple[float, float]], plans: Mapping[str, float]
) -> Chart:
    """The load over time, with a mark for each Plan, given by its place on the line."""
    marks = [Named(name, at, _value_at(rates, at)) for name, at in plans.items()]
    most = max(rate for _, rate in rates) * ABOVE or 1.0
    frame = Frame("Load", line.label, "requests/min", line.end, most)
    words = f"Load when Plans were made, and now: {rates[-1][1]:.4g} requests/min"
    return line_chart(frame, [("line", rates)], f"{words}; dots: Plans that changed it", marks)


def _replicas_chart(line: Timeline, steps: Sequence[tuple[float, PlanStep]]) -> Chart:
    """The replicas over time; what ran before the first step, if that is not at the beginning."""
    placed = [(at, _replicas(step.after)) for at, step in steps]
    if placed[0][0] > 0:
        placed.insert(0, (0.0, _replicas(steps[0][1].before)))
    most = max(1.0, *(count for _, count in placed)) * ABOVE
    frame = Frame("Replicas decided", line.label, "replicas", line.end, most, whole=True)
    words = f"Replicas by the Plans that took effect; now {placed[-1][1]:g}"
    return line_chart(frame, [("line", stairs(placed, line.end))], words)


def _replicas(placed: Sequence[Placement]) -> float:
    return float(sum(part.replicas for part in placed))


def _value_at(points: Sequence[tuple[float, float]], x: float) -> float:
    """The value of the last point that is not to the right."""
    return next((y for at, y in reversed(points) if at <= x), points[0][1])


def _curve_document(curve: LoadCurve) -> dict[str, object]:
    return {
        "accelerator": curve.accelerator,
        "rate": curve.rate,
        "maxRate": curve.max_rate,
        "rates": curve.rates.tolist(),
        "itl": curve.itl_ms.tolist(),
        "wait": curve.wait_ms.tolist(),
        "ttft": curve.ttft_ms.tolist(),
    }
