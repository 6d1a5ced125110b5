"""The past of a Server as charts: its load, its latencies and its replicas over time; pure."""

from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime

from inferno_operator.cli.kubectl.console.curves import SMALLEST_MS, limits_of
from inferno_operator.cli.kubectl.console.past import PastServer
from inferno_operator.cli.tables.measurement import number
from inferno_operator.pages.charts import Chart, Named, line_chart
from inferno_operator.pages.svg import Frame, stairs
from inferno_operator.pages.timeline import Timeline
from inferno_operator.resources import Placement, Plan, PlanStep, Server
from inferno_optimizer.system import Target

ABOVE = 1.1
"""Height of an axis, where the highest value is 1."""

Changes = Sequence[tuple[Plan, PlanStep]]


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
        words = f"Mean {title} measured when Plans were made, and last: {number(points[-1][1])} ms"
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
