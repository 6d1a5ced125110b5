"""The past of a namespace by its Plans: the page of decisions, moves, and the cost decided.

A Plan keeps the Servers that it was made for, of which other pages draw loads over time.
"""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from sys import intern
from typing import NamedTuple

from inferno_operator.cli.kubectl.choices import sort_plans
from inferno_operator.cli.kubectl.console.page import ConsolePage, SeenNamespace
from inferno_operator.cli.options import Money
from inferno_operator.cli.tables.plans import PHASE_UNKNOWN, format_placements
from inferno_operator.cli.tables.table import Part, TextTable
from inferno_operator.controllers.planning.proposal import UnreadablePlanError, unpack
from inferno_operator.pages.charts import Chart, Frame, Timeline, draw_lines, to_stairs
from inferno_operator.pages.html import KeyFigure
from inferno_operator.resources import Plan, PlanStep, Server, ServerSpec
from inferno_optimizer.errors import InputError
from inferno_optimizer.system import System
from inferno_optimizer.wire.codec import decode_system

# Objects in a namespace whose past is shown of all Servers: each Plan has all of them.
MOST_OBJECTS = 3000

ABOVE = 1.1  # height of an axis, where the highest value is 1


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


def list_loads(
    server: ServerSpec, past: Sequence[PastLoads], now: datetime
) -> Sequence[tuple[datetime, float]]:
    """Return when a Server had which load [requests/min]: when Plans were made, and now."""
    name, current = server.name, server.current_alloc
    rates = [(item.time, item.servers[name].rate) for item in past if name in item.servers]
    return [*rates, (now, current.load.arrival_rate)] if current and current.load else rates


def list_latencies(
    server: Server, past: Sequence[PastLoads]
) -> Sequence[tuple[datetime, PastServer]]:
    """Return what was measured of a Server when Plans were made, and last; nothing if it is not."""
    name, last = server.spec.name, server.status.measured
    if server.spec.measure is None:
        return ()
    measured = [(item.time, item.servers[name]) for item in past if name in item.servers]
    if last is not None:
        values = (last.arrival_rate, last.itl_average, last.wait_average, last.ttft_average)
        measured.append((last.time, PastServer(*(value or 0.0 for value in values))))
    return [(time, found) for time, found in measured if found.itl or found.ttft]


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
            servers = self._read[digest] if digest in self._read else _read_servers(plan)
            read[digest] = servers
            if time and servers:
                past.append(PastLoads(time, servers))
        self._read = read
        return sorted(past, key=lambda item: item.time)


def _read_servers(plan: Plan) -> Mapping[str, PastServer]:
    """Return the Servers of a Plan; names are interned, as all Plans have the same ones."""
    system, servers = read_inputs(plan), dict[str, PastServer]()
    for server in system.servers if system else ():
        now = server.current
        latencies = (now.itl_ms, now.wait_ms, now.ttft_ms)
        servers[intern(server.name)] = PastServer(now.load.arrival_rate, *latencies)
    return servers


def read_inputs(plan: Plan) -> System | None:
    """Return the system that a Plan was made for; None if it was left out, or cannot be read."""
    if not plan.spec.inputs:
        return None
    try:
        return decode_system(json.loads(unpack(plan.spec.inputs)))
    except (UnreadablePlanError, InputError, ValueError):
        return None


def is_move(step: PlanStep) -> bool:
    """Whether a Server leaves an accelerator for another one."""
    before = {placed.accelerator for placed in step.before if placed.replicas}
    after = {placed.accelerator for placed in step.after if placed.replicas}
    return bool(before - after) and bool(after - before)


def view_history(seen: SeenNamespace) -> ConsolePage:
    """What was decided for each Server and why, the newest first."""
    plans = sort_plans(seen.objects)
    done = [plan for plan in plans if plan.status.took_effect]
    steps = [step for plan in done for step in plan.spec.steps]
    return ConsolePage(
        title="History",
        parts=tuple(_describe_history(plans, seen.money)),
        document=lambda: {"plans": [plan.to_json() for plan in plans]},
        figures=(
            KeyFigure("Plans", str(len(plans)), f"{len(done)} took effect"),
            KeyFigure("Changes of Servers", str(len(steps)), "by Plans that took effect"),
            KeyFigure("Moves", str(sum(map(is_move, steps))), "to another accelerator"),
        ),
        charts=tuple(_draw_history(done[::-1], seen.now, seen.money)),
    )


def _describe_history(plans: Sequence[Plan], money: Money) -> Iterator[Part]:
    if not plans:
        yield "No Plans in this namespace: nothing was changed yet."
        return
    rows = []
    for plan in plans:
        born = plan.metadata.creation_timestamp
        rows += [
            (
                f"{born:%Y-%m-%d %H:%M} UTC" if born else "-",
                plan.metadata.name,
                step.server,
                format_placements(step.before),
                format_placements(step.after),
                money.change(step.cost_change),
                plan.status.phase or PHASE_UNKNOWN,
                step.message or step.reason,
            )
            for step in plan.spec.steps
        ]
    headings = ("WHEN", "PLAN", "SERVER", "FROM", "TO", ">CHANGE", "PHASE", "WHY")
    yield TextTable(headings, rows)
    for plan in plans:
        if plan.spec.steps_omitted:
            yield f"{plan.metadata.name}: and {plan.spec.steps_omitted} more changes"


def _draw_history(plans: Sequence[Plan], now: datetime, money: Money) -> Iterator[Chart]:
    born = [(plan, moment) for plan in plans if (moment := plan.metadata.creation_timestamp)]
    if not born:
        return
    line = Timeline.of((moment for _, moment in born), now)
    totals = [(line.at(moment), plan.spec.totals) for plan, moment in born]
    costs = [(at, found.cost_after / money.cents) for at, found in totals]
    changed = [(at, float(found.servers)) for at, found in totals]
    highest_cost, highest_count = (
        max(value for _, value in values) * ABOVE or 1.0 for values in (costs, changed)
    )
    yield draw_lines(
        Frame("Cost decided", line.label, money.rate, line.end, highest_cost),
        [("line", to_stairs(costs, line.end))],
        f"Cost decided over time, now {costs[-1][1]:.2f} {money.rate}",
    )
    yield draw_lines(
        Frame("Servers that a Plan changes", line.label, "Servers", line.end, highest_count),
        [("line", [(at, 0.0), (at, count), (at, 0.0)]) for at, count in changed],
        f"Servers that each Plan changes; Plans that took effect: {len(changed)}",
    )
