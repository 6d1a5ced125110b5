"""The past of a namespace by its Plans: the page of decisions, moves, and the cost decided.

A Plan keeps the Servers that it was made for, of which other pages draw loads over time.
"""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from sys import intern
from typing import NamedTuple

from inferno_operator.cli.kubectl.answer import sort_plans
from inferno_operator.cli.kubectl.console.page import ConsolePage
from inferno_operator.cli.options.currency import CENTS, Money
from inferno_operator.cli.tables.plans import PHASE_UNKNOWN, format_placements
from inferno_operator.cli.tables.table import Part, TextTable
from inferno_operator.controllers.planning.proposal import UnreadablePlanError, inflate
from inferno_operator.pages.charts import Chart, Frame, Timeline, line_chart, stairs
from inferno_operator.pages.html import KeyFigure
from inferno_operator.resources import Plan, PlanStep, Server, ServerSpec
from inferno_operator.resources.observation import Observation
from inferno_optimizer.errors import InputError
from inferno_optimizer.system import Allocation, System
from inferno_optimizer.wire.codec import decode_system

MOST_OBJECTS = 3000
"""Objects in a namespace whose past is shown of all Servers: each Plan has all of them."""

ABOVE = 1.1
"""Height of an axis, where the highest value is 1."""


class PastServer(NamedTuple):
    """A Server at a moment: arrival rate [requests/min], mean latencies [ms], 0 if not known."""

    rate: float
    itl: float
    wait: float
    ttft: float


@dataclass(frozen=True, slots=True)
class PastLoads:
    """All Servers at a moment, by their `spec.name`."""

    time: datetime
    servers: Mapping[str, PastServer]


def loads_of(
    server: ServerSpec, past: Sequence[PastLoads], now: datetime
) -> Sequence[tuple[datetime, float]]:
    """When a Server had which load [requests/min]: when Plans were made, and now."""
    name, current = server.name, server.current_alloc
    rates = [(item.time, item.servers[name].rate) for item in past if name in item.servers]
    return [*rates, (now, current.load.arrival_rate)] if current and current.load else rates


def latencies_of(
    server: Server, past: Sequence[PastLoads]
) -> Sequence[tuple[datetime, PastServer]]:
    """What was measured of a Server when Plans were made, and last; nothing if it is not."""
    name, last = server.spec.name, server.status.measured
    if server.spec.measure is None:
        return ()
    measured = [(item.time, item.servers[name]) for item in past if name in item.servers]
    if last is not None:
        values = (last.arrival_rate, last.itl_average, last.wait_average, last.ttft_average)
        measured.append((last.time, PastServer(*(value or 0.0 for value in values))))
    return [(time, there) for time, there in measured if there.itl or there.ttft]


class PlanLoads:
    """The past, each Plan unpacked once: a Plan does not change."""

    def __init__(self) -> None:
        self._read: dict[str, Mapping[str, PastServer]] = {}
        """The Servers of Plans that are unpacked, by digest."""

    def loads(self, plans: Iterable[Plan]) -> Sequence[PastLoads]:
        """Return the Servers that Plans were made for, the oldest first."""
        read, past = dict[str, Mapping[str, PastServer]](), list[PastLoads]()
        for plan in plans:
            digest, time = plan.spec.digest, plan.metadata.creation_timestamp
            servers = self._read[digest] if digest in self._read else _servers_of(plan)
            read[digest] = servers
            if time and servers:
                past.append(PastLoads(time, servers))
        self._read = read
        return sorted(past, key=lambda item: item.time)


def _servers_of(plan: Plan) -> Mapping[str, PastServer]:
    """The Servers of a Plan; names are interned, as all Plans have the same ones."""
    system = inputs_of(plan)
    return {intern(s.name): _past(s.current) for s in system.servers} if system else {}


def _past(current: Allocation) -> PastServer:
    return PastServer(current.load.arrival_rate, current.itl_ms, current.wait_ms, current.ttft_ms)


def inputs_of(plan: Plan) -> System | None:
    """The system that a Plan was made for; None if it was left out, or cannot be read."""
    if not plan.spec.inputs:
        return None
    try:
        return decode_system(json.loads(unpack(plan.spec.inputs)))
    except (UnreadablePlanError, InputError, ValueError):
        return None


def history_view(
    observations: Sequence[Observation], now: datetime, money: Money = CENTS
) -> ConsolePage:
    """What was decided for each Server and why, the newest first."""
    plans = sort_plans(observations)
    return ConsolePage(
        title="History",
        parts=tuple(_parts(plans, money)),
        document=lambda: {"plans": [plan.to_json() for plan in plans]},
        figures=tuple(_figures(plans)),
        charts=tuple(_charts(plans, now, money)),
    )


def is_move(step: PlanStep) -> bool:
    """Whether a Server leaves an accelerator for another one."""
    before = {placed.accelerator for placed in step.before if placed.replicas}
    after = {placed.accelerator for placed in step.after if placed.replicas}
    return bool(before - after) and bool(after - before)


def _figures(plans: Sequence[Plan]) -> Iterator[KeyFigure]:
    done = [plan for plan in plans if plan.status.took_effect]
    steps = [step for plan in done for step in plan.spec.steps]
    yield KeyFigure("Plans", str(len(plans)), f"{len(done)} took effect")
    yield KeyFigure("Changes of Servers", str(len(steps)), "by Plans that took effect")
    yield KeyFigure("Moves", str(sum(map(is_move, steps))), "to another accelerator")


def _parts(plans: Sequence[Plan], money: Money) -> Iterator[Part]:
    if plans:
        headings = ("WHEN", "PLAN", "SERVER", "FROM", "TO", ">CHANGE", "PHASE", "WHY")
        rows = [_row(plan, step, money) for plan in plans for step in plan.spec.steps]
        yield TextTable(headings, rows)
        yield from _omitted(plans)
    else:
        yield "No Plans in this namespace: nothing was changed yet."


def _omitted(plans: Sequence[Plan]) -> Iterator[str]:
    """Yield how many changes a Plan does not list."""
    for plan in plans:
        if plan.spec.steps_omitted:
            yield f"{plan.metadata.name}: and {plan.spec.steps_omitted} more changes"


def _row(plan: Plan, step: PlanStep, money: Money) -> Sequence[str]:
    born = plan.metadata.creation_timestamp
    return (
        f"{born:%Y-%m-%d %H:%M} UTC" if born else "-",
        plan.metadata.name,
        step.server,
        format_placements(step.before),
        format_placements(step.after),
        money.change(step.cost_change),
        plan.status.phase or PHASE_UNKNOWN,
        step.message or step.reason,
    )


def _charts(plans: Sequence[Plan], now: datetime, money: Money) -> Iterator[Chart]:
    """Yield the cost by the Plans that took effect, and how many Servers each changed."""
    done = [plan for plan in reversed(plans) if plan.status.took_effect]
    born = [(plan, moment) for plan in done if (moment := plan.metadata.creation_timestamp)]
    if not born:
        return
    line = Timeline.of((moment for _, moment in born), now)
    totals = [(line.at(moment), plan.spec.totals) for plan, moment in born]
    costs = [(at, found.cost_after / money.cents) for at, found in totals]
    changed = [(at, float(found.servers)) for at, found in totals]
    yield line_chart(
        _frame("Cost decided", line, money.rate, costs),
        [("line", stairs(costs, line.end))],
        f"Cost decided over time, now {costs[-1][1]:.2f} {money.rate}",
    )
    yield line_chart(
        _frame("Servers that a Plan changes", line, "Servers", changed),
        [("line", [(at, 0.0), (at, count), (at, 0.0)]) for at, count in changed],
        f"Servers that each Plan changes; Plans that took effect: {len(changed)}",
    )


def _frame(title: str, line: Timeline, unit: str, values: Sequence[tuple[float, float]]) -> Frame:
    most = max(value for _, value in values) * ABOVE or 1.0
    return Frame(title, line.label, unit, line.end, most)
