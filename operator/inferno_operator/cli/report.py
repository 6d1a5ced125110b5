"""A plan, and replays -> their pages; pure but for the search for remedies."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from math import inf
from typing import Any

import numpy as np

from inferno_operator.cli.options import CENTS, Money
from inferno_operator.cli.replay import WORST_TOLD, Replayed, Row, list_class_rows
from inferno_operator.cli.tables.html import (
    AS_NOW,
    Bar,
    Table,
    build_table,
    drop_empty_columns,
    join_cards,
)
from inferno_operator.cli.tables.solution import (
    BAND,
    format_origin,
    format_replicas,
    is_kept,
    list_decision_notes,
    list_replicas,
    tabulate_cards,
    tabulate_levels,
    warn_of_single_replicas,
)
from inferno_operator.cli.tables.table import Columns, TextTable, format_number
from inferno_operator.pages.charts import (
    COLOURS,
    Chart,
    Frame,
    Named,
    draw_front,
    draw_lines,
    draw_stack,
)
from inferno_operator.pages.html import KeyFigure
from inferno_optimizer.explain.remedies import remedies
from inferno_optimizer.replay.account import Cause, Incident, find_worst_incidents
from inferno_optimizer.replay.replay import Scenario
from inferno_optimizer.sizing.cases import Catalogue
from inferno_optimizer.sizing.queueing import FloatArray, IntArray
from inferno_optimizer.solution import Decision, Reason, Solution
from inferno_optimizer.system import Allocation, Generation, System, Target

# Most servers that are shown with what would serve them; others have their reason only.
EXPLAINED = 5

# How long is searched for what would serve one of them, which takes several optimizations [s].
SEARCH_S = 5.0


def build_fleet_page(
    title: str, system: System, solution: Solution, money: Money = CENTS
) -> dict[str, Any]:
    """Return what the page of a plan shows, by the names in its template.

    `title`: the name of the fleet; `system`, `solution`: the optimized system, and its
    solution; `money`: the unit of costs.
    """
    priority = {c.name: c.priority for c in system.classes}
    pairs = list(zip(system.servers, solution.decisions, strict=True))
    short = [
        (priority.get(server.service_class, inf), server.name, decision)
        for server, decision in pairs
        if decision.reason is not Reason.ALLOCATED
    ]
    most_important = [decision for *_, decision in sorted(short, key=lambda item: item[:2])]
    served = (d for d in solution.decisions if d.reason is Reason.ALLOCATED)

    def build(table: TextTable) -> Table:
        return build_table(drop_empty_columns(join_cards(table)), money)

    return {
        "title": title,
        "figures": tuple(_list_figures(system, solution, len(short), money)),
        "shortfalls": [
            _explain_shortfall(system, solution, decision)
            for decision in most_important[:EXPLAINED]
        ],
        "more_shortfalls": max(len(short) - EXPLAINED, 0),
        "servers": build(_tabulate_servers(system, solution, money)),
        "cards": build(tabulate_cards(solution.capacity, money)),
        "levels": build(tabulate_levels(solution.certificate.levels)),
        "notes": (
            *warn_of_single_replicas(list_replicas(system, solution), money),
            *list_decision_notes(served),
        ),
    }


def _list_figures(
    system: System, solution: Solution, short: int, money: Money
) -> Iterator[KeyFigure]:
    now, gap = system.current_cost, solution.certificate.gap
    yield KeyFigure("Cost now", money.amount(now), money.rate)
    yield KeyFigure("Cost planned", money.amount(solution.cost), money.rate)
    yield KeyFigure("Change", money.change(solution.cost - now), money.rate)
    yield KeyFigure("Servers", str(len(system.servers)), f"{short} get less than they need")
    proven = "not known" if gap is None else f"{format_number(100 * gap)} %"
    proof = "no bound is proven" if gap is None else "at most, as proven"
    yield KeyFigure("Gap to the best plan", proven, proof)


def _explain_shortfall(system: System, solution: Solution, decision: Decision) -> dict[str, Any]:
    changes = []
    if decision.reason.decided:
        time_limit = min(system.options.time_limit, SEARCH_S)
        limited = replace(system, options=replace(system.options, time_limit=time_limit))
        changes = [found.message for found in remedies(limited, solution, decision.server)]
    return {"server": decision.server, "message": decision.message, "remedies": changes}


def _tabulate_servers(system: System, solution: Solution, money: Money) -> TextTable:
    catalogue, rows = Catalogue(system), []
    for server, decision in zip(system.servers, solution.decisions, strict=True):
        allocation, kept = decision.allocation, is_kept(server, decision)
        planned = server.current if kept else allocation or Allocation()
        predicted = allocation if allocation and allocation.accelerator else None
        now, then = (
            format_replicas(placed, server.model, catalogue) for placed in (server.current, planned)
        )
        has_prefill = predicted and predicted.generation is not Generation.DECODE
        target = catalogue.target(server)
        rows.append(
            (
                server.name,
                server.service_class,
                server.model,
                f"{server.load.arrival_rate:.1f}",
                now,
                AS_NOW if then == now else then,
                money.amount(planned.cost),
                _format_latency(predicted, target, "itl") if predicted else "-",
                _format_latency(predicted, target, "ttft") if predicted and has_prefill else "-",
                format_origin(predicted).replace("+-", "\N{PLUS-MINUS SIGN}") if predicted else "",
                str(decision.reason),
            )
        )
    latencies = (">ITL/SLO", ">TTFT/SLO", BAND)
    headings = ("SERVER", "CLASS", "MODEL", ">LOAD", "NOW", "PLANNED", ">COST", *latencies)
    return TextTable((*headings, "REASON"), rows)


def _format_latency(planned: Allocation, target: Target, latency: str) -> str:
    """Return a predicted latency [ms] beside its target, if it has one.

    It is the percentile that the target limits if that is predicted; else the mean.
    """
    predicted, limit = getattr(planned, f"{latency}_ms"), getattr(target, f"{latency}_ms")
    percentile = getattr(target, f"{latency}_percentile")
    if percentile:
        tail = getattr(planned.tail, f"{latency}_p{percentile:g}", 0.0)
        if not tail:
            return f"{predicted:.1f}"
        return f"{tail:.1f}/{limit:g} p{percentile:g}"
    return f"{predicted:.1f}/{limit:g}" if limit else f"{predicted:.1f}"


PLACES = 160  # most places of a chart over time; each is the mean of as many steps
WITHIN = 0.95  # least share of requests within targets that is fine
ABOVE = 1.05  # height of an axis, where the highest value is 1


def build_replay_page(
    title: str, scenario: Scenario, replays: Sequence[Replayed], money: Money = CENTS
) -> dict[str, Any]:
    """Return the page of replays of one load.

    `title`: what was replayed; `scenario`: Servers and load; `replays`: the replays, one or
    more; `money`: the unit of costs.
    """
    sections = _Sections(scenario, replays, money)
    return {
        "title": title,
        "figures": tuple(_list_replay_figures(scenario, replays, money)),
        "totals": build_table(_tabulate_policies(replays, money), money, bar=_read_share),
        "classes": build_table(_tabulate_classes(replays), money, bar=_read_share),
        "front": _draw_costs(replays, money),
        "policies": [sections.of(replayed) for replayed in replays],
    }


def _list_replay_figures(
    scenario: Scenario, replays: Sequence[Replayed], money: Money
) -> Iterator[KeyFigure]:
    trace, first = scenario.trace, replays[0]
    hours = first.account.hours
    yield KeyFigure("Load", f"{hours:g} h", f"a decision each {trace.step_s:g}\N{NO-BREAK SPACE}s")
    yield KeyFigure("Requests", f"{first.account.requests.sum():,.0f}")
    accelerators = f"{len(scenario.fleet.accelerators)} accelerators"
    yield KeyFigure("Servers", str(len(scenario.fleet.servers)), accelerators)
    bound = first.bound.total_cost / hours
    yield KeyFigure("Bound", money.amount(bound), f"{money.rate}, with hindsight")
    best = min(replays, key=lambda replayed: replayed.account.total_cost)
    cheapest = money.amount(best.account.total_cost / hours)
    yield KeyFigure("Cheapest", cheapest, f"{money.rate}, {best.policy}")
    kept = max(replays, key=lambda replayed: replayed.account.attainment)
    yield KeyFigure("Most within targets", f"{100 * kept.account.attainment:.2f} %", kept.policy)


def _draw_costs(replays: Sequence[Replayed], money: Money) -> Chart:
    points = [
        Named(
            replayed.policy,
            replayed.account.total_cost / replayed.account.hours / money.cents,
            100 * replayed.account.attainment,
        )
        for replayed in replays
    ]
    least = min(point.y for point in points)
    margin = max((100.0 - least) * (ABOVE - 1), 0.1)
    most = max(point.x for point in points) * ABOVE or 1.0
    frame = Frame(
        "Cost and requests within targets",
        money.rate,
        "%",
        most,
        100.0 + margin,
        max(least - margin, 0.0),
    )
    words = "; ".join(f"{p.name}: {p.x:.2f} {money.rate}, {p.y:.2f} %" for p in points)
    return draw_front(frame, points, words)


@dataclass(frozen=True, slots=True)
class _Sections:
    """Sections of policies whose charts have the same axes."""

    scenario: Scenario
    replays: Sequence[Replayed]
    money: Money

    def of(self, replayed: Replayed) -> dict[str, Any]:
        """The section of a policy."""
        account = replayed.account
        accelerators = self.scenario.fleet.accelerators
        worst = find_worst_incidents(account, self.scenario.trace, accelerators, WORST_TOLD)
        return {
            "name": replayed.policy,
            "charts": (self._cost(replayed), self._replicas(replayed)),
            "worst": build_table(self._tabulate_incidents(worst), self.money),
        }

    def _cost(self, replayed: Replayed) -> Chart:
        accounts = (*(each.account for each in self.replays), replayed.bound)
        costs = [account.history.cost / self.money.cents for account in accounts]
        most = max(float(_average_steps(cost).max(initial=0.0)) for cost in costs) * ABOVE or 1.0
        own, bound = (
            _average_steps(account.history.cost / self.money.cents)
            for account in (replayed.account, replayed.bound)
        )
        hours = self._hours(len(own))
        lines = [
            (kind, zip(hours, values.tolist(), strict=True))
            for kind, values in (("bound", bound), ("line", own))
        ]
        frame = Frame("Cost", "hours", self.money.rate, replayed.account.hours, most)
        extremes = f"{own.min():.2f} to {own.max():.2f} {self.money.rate}"
        words = f"Cost of {replayed.policy} over time: {extremes}"
        return draw_lines(frame, lines, f"{words}; dashed: the bound")

    def _replicas(self, replayed: Replayed) -> Chart:
        totals = [each.account.history.replicas.sum(axis=1) for each in self.replays]
        most = max(float(_average_steps(total).max(initial=0.0)) for total in totals) * ABOVE or 1.0
        means = _average_steps(replayed.account.history.on_accelerator)
        layers = _layer_accelerators(self.scenario.fleet.accelerators, means)
        frame = Frame("Replicas by accelerator", "hours", "replicas", replayed.account.hours, most)
        words = (
            f"Replicas of {replayed.policy} over time on {', '.join(name for name, _ in layers)}"
        )
        return draw_stack(frame, self._hours(len(means)), layers, words)

    def _hours(self, places: int) -> list[float]:
        hours = self.replays[0].account.hours
        return [(place + 0.5) * hours / places for place in range(places)]

    def _tabulate_incidents(self, worst: Sequence[Incident]) -> TextTable:
        step_s = self.scenario.trace.step_s
        columns: Columns[Incident] = {
            "FROM": lambda found: _format_clock(found.first * step_s),
            ">MINUTES": lambda found: f"{(found.last + 1 - found.first) * step_s / 60:.0f}",
            "SERVER": lambda found: found.server,
            "CLASS": lambda found: found.service_class,
            "ACCELERATOR": lambda found: found.accelerator or "none yet",
            ">REQUESTS OUTSIDE": lambda found: f"{found.outside:.0f}",
            "DECIDED BEFORE": lambda found: _describe_decision(found, step_s),
            "CAUSE": _describe_cause,
        }
        return TextTable.of(worst, columns)


def _tabulate_policies(replays: Sequence[Replayed], money: Money) -> TextTable:
    rows = [
        (
            replayed.policy,
            money.amount(row.cost / replayed.account.hours),
            money.change(replayed.regret / replayed.account.hours),
            f"{100 * replayed.share_of_optimum:.1f} %",
            f"{row.within:.2%}",
            f"{row.missed_minutes:.0f}",
            f"{row.replicas:.2f}",
            str(row.started),
            str(row.moves),
        )
        for replayed in replays
        for row in (Row.of(replayed, "", slice(None)),)
    ]
    costs = (">COST", ">ABOVE THE BOUND", ">OF THE OPTIMUM", ">WITHIN TARGETS", ">MISSED")
    return TextTable(("POLICY", *costs, ">REPLICAS", ">STARTED", ">MOVES"), rows)


def _tabulate_classes(replays: Sequence[Replayed]) -> TextTable:
    names = [f">{row.server}" for row in list_class_rows(replays[0])]
    rows = [
        (each.policy, *(f"{row.within:.2%}" for row in list_class_rows(each))) for each in replays
    ]
    return TextTable(("POLICY", *names), rows)


def _read_share(_: str, text: str) -> Bar | None:
    """Return the bar of a share of requests within their targets, which are written 98.20%."""
    if not text.endswith("%") or text.endswith(" %"):
        return None
    share = float(text.removesuffix("%")) / 100
    return Bar(share, f"{text} within targets", met=share >= WITHIN)


def _layer_accelerators(names: Sequence[str], means: FloatArray) -> list[tuple[str, list[float]]]:
    """Replicas over time on the accelerators that have most of them, and on all others."""
    order = np.argsort(-means.sum(axis=0), kind="stable")
    order = order[means.sum(axis=0)[order] > 0]
    shown = order if len(order) <= COLOURS else order[: COLOURS - 1]
    others = order[len(shown) :]
    layers = [(names[place], means[:, place].tolist()) for place in shown.tolist()]
    if len(others):
        layers.append((f"{len(others)} others", means[:, others].sum(axis=1).tolist()))
    return layers


def _average_steps(values: FloatArray | IntArray) -> FloatArray:
    """The means of steps in a row, at most `PLACES`; the first axis are the steps."""
    places = min(len(values), PLACES)
    edges = np.arange(places + 1) * len(values) // max(places, 1)
    sums = np.add.reduceat(values, edges[:-1], axis=0) if places else values
    sizes = np.diff(edges).reshape(-1, *(1,) * (values.ndim - 1))
    means: FloatArray = sums / np.maximum(sizes, 1)
    return means


def _format_clock(seconds: float) -> str:
    return str(timedelta(seconds=round(seconds)))


def _describe_decision(incident: Incident, step_s: float) -> str:
    if incident.before == incident.replicas:
        return f"replicas {incident.replicas} from the beginning"
    when = _format_clock(incident.changed * step_s)
    return f"replicas {incident.before} to {incident.replicas} at {when}"


def _describe_cause(incident: Incident) -> str:
    match incident.cause:
        case Cause.NO_CARDS:
            return f"no cards for {incident.refused} more replicas"
        case Cause.STARTING:
            starting = incident.replicas - incident.ready
            return f"{starting} of {incident.replicas} replicas were still starting"
        case Cause.TOO_FEW:
            return f"{incident.rate:.2f} requests/s came, {incident.able:.2f} could be served"
        case Cause.BACKLOG:
            return f"{incident.waiting:.0f} requests waited from before"
        case Cause.TOO_FULL:
            return "batches were larger than the targets allow"
