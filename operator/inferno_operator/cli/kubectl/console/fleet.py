"""The objects of a namespace -> its first page, and the page of its cards."""

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any
from urllib.parse import urlencode

from inferno_operator.cli.kubectl.choices import sort_plans
from inferno_operator.cli.kubectl.console.history import PastLoads, list_loads
from inferno_operator.cli.kubectl.console.page import (
    NO_SERVERS,
    ConsolePage,
    PageLink,
    PageNotice,
    Trend,
)
from inferno_operator.cli.kubectl.console.plans import build_current_gap_figure
from inferno_operator.cli.options import CENTS, Money
from inferno_operator.cli.tables.plans import summarize
from inferno_operator.cli.tables.servers import (
    CardUse,
    Overview,
    ServerView,
    build_overview,
    count_replicas,
    describe_failure,
    describe_totals,
    encode_overview,
    find_cost,
    find_latest_optimization,
    list_notes,
    tabulate_servers,
    warn_of_excess,
)
from inferno_operator.cli.tables.solution import warn_of_single_replicas
from inferno_operator.cli.tables.table import Part, TextTable
from inferno_operator.pages.charts import Chart, Frame, Timeline, draw_lines, to_stairs
from inferno_operator.pages.html import KeyFigure
from inferno_operator.resources import Plan
from inferno_operator.resources.observation import Observation

ABOVE = 1.1  # height of an axis, where the highest value is 1
TRIED_CARDS = (1, 4)  # how many more cards a link tries
COUNTED = ("TOTAL", "OTHERS", "OURS", "FREE")


def view_capacity(
    observations: Sequence[Observation], now: datetime, money: Money = CENTS
) -> ConsolePage:
    """The cards by type: there, in use, planned, held; and what was planned over time."""
    cards = build_overview(observations).cards
    plans = [plan for plan in reversed(sort_plans(observations)) if plan.status.took_effect]
    return ConsolePage(
        title="Cards by type",
        parts=tuple(_describe_cards(cards, money)),
        document=lambda: {
            "capacity": [item.to_json() for item in cards],
            "plans": [
                {
                    "name": plan.metadata.name,
                    "created": plan.metadata.to_json().get("creationTimestamp"),
                    "cards": {cards.type: cards.count for cards in plan.spec.totals.cards},
                }
                for plan in plans
            ],
        },
        figures=tuple(_list_card_figures(cards)),
        charts=tuple(_draw_cards(cards, plans, now)),
        links=[
            PageLink(
                f"/next?{urlencode({'set': f'capacity.{item.type}+={more}'})}",
                f"{more} more {item.type}",
            )
            for item in cards
            for more in TRIED_CARDS
        ],
    )


def _list_card_figures(cards: Sequence[CardUse]) -> Iterator[KeyFigure]:
    yield KeyFigure("Cards", str(sum(item.available for item in cards)), f"of {len(cards)} types")
    running = sum(item.running for item in cards)
    yield KeyFigure("In use", str(running), "by the Servers of this namespace")
    if all(item.planned is None for item in cards):
        yield KeyFigure("Planned", "-", "no plan was made yet")
        return
    full = sum(bool(item.planned) and item.used + item.held >= item.available for item in cards)
    yield KeyFigure("Planned", str(sum(item.used for item in cards)), "by the last plan")
    held = sum(item.held for item in cards)
    yield KeyFigure("Held", str(held), "by Servers without a decision")
    yield KeyFigure("Types without a free card", str(full), "by the last plan")


def _describe_cards(cards: Sequence[CardUse], money: Money) -> Iterator[Part]:
    if not cards:
        yield "No cards: there is no Capacity, and no Server that runs. Apply a Capacity."
        return
    rows = []
    for item in cards:
        used, held = item.plan_cells()
        found = item.counted
        counts = ["-"] * (len(COUNTED) + 1)
        if found:
            counts = [*(str(getattr(found, name.lower())) for name in COUNTED), found.bound_by]
        rows.append(
            (
                item.type,
                f"{item.running}/{item.available}",
                f"{used}/{item.available}" if item.planned else used,
                held,
                item.worth_cell(money),
                *counts,
            )
        )
    headings = ("CARDS", ">IN USE/THERE", ">PLANNED/THERE", ">HELD", ">ONE MORE CARD")
    table = TextTable((*headings, *(f">{name}" for name in COUNTED), "LIMITED BY"), rows)
    are_counted = any(item.counted for item in cards)
    yield table if are_counted else table.without(*COUNTED, "LIMITED BY")
    yield from warn_of_excess(cards)


def _draw_cards(cards: Sequence[CardUse], plans: Sequence[Plan], now: datetime) -> Iterator[Chart]:
    """Yield what the Plans that took effect gave of each type, beside what is there now."""
    born = [(plan, moment) for plan in plans if (moment := plan.metadata.creation_timestamp)]
    line = Timeline.of((moment for _, moment in born), now)
    for item in cards if born else ():
        given = [
            (line.at(moment), float(sum(c.count for c in used if c.type == item.type)))
            for plan, moment in born
            for used in [plan.spec.totals.cards]
        ]
        most = max(item.available, *(count for _, count in given), 1)
        frame = Frame(item.type, line.label, "cards", line.end, most * ABOVE, whole=True)
        available = [(0.0, float(item.available)), (line.end, float(item.available))]
        words = f"{item.type}: {given[-1][1]:g} by the last Plan that took effect; dashed:"
        lines = (("bound", available), ("line", to_stairs(given, line.end)))
        yield draw_lines(frame, lines, f"{words} {item.available} are there now")


def view_fleet(
    observations: Sequence[Observation],
    namespace: str,
    now: datetime,
    money: Money = CENTS,
    past: Sequence[PastLoads] = (),
) -> ConsolePage:
    """The Servers now, their targets and the cards; what waits, and how good the plan is."""
    seen = build_overview(observations)
    specs = {view.name: view.spec for view in seen.servers if view.spec}
    waiting = [plan for plan in sort_plans(observations) if plan.status.phase == "Proposed"]
    totals = [_sum_class(name, views) for name, views in _group_by_class(seen.servers).items()]
    replicas = (
        count_replicas(spec.current_alloc, spec.desired_alloc or spec.current_alloc)
        for spec in specs.values()
    )

    def draw_trend(name: str) -> Trend | None:
        loads = list_loads(specs[name], past, now) if past and name in specs else ()
        rates = [rate for _, rate in loads]
        if not rates:
            return None
        begin = f"{loads[0][0]:%Y-%m-%d %H:%M} UTC"
        words = f"load since {begin}: from {min(rates):g} to {max(rates):g} requests/min"
        return Trend([(time.timestamp(), rate) for time, rate in loads], words)

    return ConsolePage(
        title=f"Servers in {namespace}",
        parts=(
            tabulate_servers(seen.servers, money) if seen.servers else NO_SERVERS,
            *describe_totals(seen, now, money),
        ),
        document=lambda: {
            **encode_overview(seen),
            "classes": totals,
            "waiting": [plan.metadata.name for plan in waiting],
            "past": [
                {
                    "time": f"{at.time:%Y-%m-%dT%H:%M:%SZ}",
                    "loads": {name: server.rate for name, server in at.servers.items()},
                }
                for at in past
            ],
        },
        figures=tuple(_list_figures(seen, observations, money)),
        notice=_choose_notice(seen, waiting, money),
        trouble="; ".join(filter(None, map(describe_failure, seen.optimizers))),
        before=(
            *([_tabulate_classes(totals, money)] if totals else ()),
            *warn_of_single_replicas(replicas, money),
            *list_notes(seen),
        ),
        trend=draw_trend,
    )


def _list_figures(
    seen: Overview, observations: Sequence[Observation], money: Money
) -> Iterator[KeyFigure]:
    specs = [view.spec for view in seen.servers if view.spec]
    running = sum(find_cost(spec.current_alloc) for spec in specs)
    desired = sum(find_cost(spec.desired_alloc) for spec in specs)
    yield KeyFigure("Cost now", money.amount(running), money.rate)
    yield KeyFigure(
        "Cost desired", money.amount(desired), f"{money.change(desired - running)} {money.rate}"
    )
    yield build_current_gap_figure(observations, find_latest_optimization(seen.optimizers), money)
    servers, known = len(seen.servers), [view for view in seen.servers if view.is_known]
    missed = sum(view.misses_target for view in known)
    known_of = "for all" if len(known) == servers else f"for {len(known)}"
    total = f"of {servers} Servers (latency known {known_of})"
    yield KeyFigure("Miss a target now", str(missed), total)


def _group_by_class(views: Sequence[ServerView]) -> Mapping[str, Sequence[ServerView]]:
    by_class: dict[str, list[ServerView]] = {}
    for view in sorted(views, key=lambda view: view.priority):
        if view.spec:
            by_class.setdefault(view.spec.service_class, []).append(view)
    return by_class


def _sum_class(name: str, views: Sequence[ServerView]) -> dict[str, Any]:
    known = [view for view in views if view.is_known]
    running = [view.spec.current_alloc for view in views if view.spec]
    load = sum(part.load.arrival_rate for part in running if part and part.load)
    return {
        "name": name,
        "priority": views[0].priority,
        "servers": len(views),
        "missed": sum(view.misses_target for view in known),
        "known": len(known),
        "load": round(load, 2),
        "cost": sum(map(find_cost, running)),
    }


def _tabulate_classes(totals: Sequence[dict[str, Any]], money: Money) -> TextTable:
    rows = [
        (
            str(of["name"]),
            str(of["priority"]),
            str(of["servers"]),
            f"{of['missed']} of {of['known']}",
            f"{of['load']:g}",
            money.amount(of["cost"]),
        )
        for of in totals
    ]
    headings = ("CLASS", ">PRIORITY", ">SERVERS", ">MISS A TARGET", ">LOAD", ">COST")
    return TextTable(headings, rows)


def _choose_notice(seen: Overview, waiting: Sequence[Plan], money: Money) -> PageNotice | None:
    """Choose the newest Plan that waits, or the way to the next one if it can be computed."""
    if not waiting:
        text, action = "No Plan waits for approval.", "Compute the next plan"
        return PageNotice(text, "/next", action) if seen.servers and seen.optimizers else None
    newest, others = waiting[0], len(waiting) - 1
    more = f" {others} more wait." if others else ""
    name = newest.metadata.name
    text = f"{name} waits for approval: {summarize(newest, money)}.{more}"
    return PageNotice(text, f"/plans/{name}", "Look at it and decide")
