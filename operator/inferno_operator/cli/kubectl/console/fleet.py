"""The objects of a namespace -> its first page, and the page of its cards."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime
from urllib.parse import urlencode

from inferno_operator.cli.kubectl.answer import sort_plans
from inferno_operator.cli.kubectl.console.history import PastLoads, loads_of
from inferno_operator.cli.kubectl.console.page import (
    NO_SERVERS,
    ConsolePage,
    PageLink,
    PageNotice,
    Trend,
)
from inferno_operator.cli.kubectl.console.plans import could_cost_less_now
from inferno_operator.cli.options.currency import CENTS, Money
from inferno_operator.cli.tables.plans import summarize
from inferno_operator.cli.tables.servers import (
    CardUse,
    Overview,
    ServerView,
    build_overview,
    cost_of,
    count_replicas,
    describe_totals,
    encode_overview,
    failure_of,
    find_latest_optimization,
    list_notes,
    tabulate_servers,
    warn_of_excess,
)
from inferno_operator.cli.tables.solution import warn_of_single_replicas
from inferno_operator.cli.tables.table import Part, TextTable
from inferno_operator.pages.charts import Chart, Frame, Timeline, line_chart, stairs
from inferno_operator.pages.html import KeyFigure
from inferno_operator.resources import Plan
from inferno_operator.resources.observation import Observation

ABOVE = 1.1
"""Height of an axis, where the highest value is 1."""

MORE = (1, 4)
"""How many more cards a link tries."""

COUNTED = ("TOTAL", "OTHERS", "OURS", "FREE")

WAITS = "Proposed"
"""Phase of a Plan that waits for approval."""


def capacity_view(
    observations: Sequence[Observation], now: datetime, money: Money = CENTS
) -> ConsolePage:
    """The cards by type: there, in use, planned, held; and what was planned over time."""
    cards = build_overview(observations).cards
    plans = [plan for plan in reversed(sort_plans(observations)) if plan.status.took_effect]
    return ConsolePage(
        title="Cards by type",
        parts=tuple(_card_parts(cards, money)),
        document=lambda: _document(observations, plans),
        figures=tuple(_card_figures(cards)),
        charts=tuple(_charts(cards, plans, now)),
        links=tuple(_trials(cards)),
    )


def _card_figures(cards: Sequence[CardUse]) -> Iterator[KeyFigure]:
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


def _card_parts(cards: Sequence[CardUse], money: Money) -> Iterator[Part]:
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
    counted = [*(f">{name}" for name in COUNTED), "LIMITED BY"]
    table = TextTable((*headings, *counted), rows)
    are_counted = any(item.counted for item in cards)
    yield table if are_counted else table.without(*COUNTED, "LIMITED BY")
    yield from warn_of_excess(cards)


def _charts(cards: Sequence[CardUse], plans: Sequence[Plan], now: datetime) -> Iterator[Chart]:
    """Yield what the Plans that took effect gave of each type, beside what is there now."""
    born = [plan.metadata.creation_timestamp for plan in plans]
    line = Timeline.of((moment for moment in born if moment), now)
    for item in cards if plans else ():
        given = [
            (line.at(moment), float(_cards_of(plan, item.type)))
            for plan, moment in zip(plans, born, strict=True)
            if moment
        ]
        most = max(item.available, *(count for _, count in given), 1)
        frame = Frame(item.type, line.label, "cards", line.end, most * ABOVE, whole=True)
        there = [(0.0, float(item.available)), (line.end, float(item.available))]
        words = f"{item.type}: {given[-1][1]:g} by the last Plan that took effect; dashed:"
        lines = (("bound", there), ("line", stairs(given, line.end)))
        yield line_chart(frame, lines, f"{words} {item.available} are there now")


def _cards_of(plan: Plan, card_type: str) -> int:
    return sum(cards.count for cards in plan.spec.totals.cards if cards.type == card_type)


def _trials(cards: Sequence[CardUse]) -> Iterator[PageLink]:
    """Yield what the next plan would be with more cards, which is solved when somebody asks."""
    for item in cards:
        for more in MORE:
            change = urlencode({"set": f"capacity.{item.type}+={more}"})
            yield PageLink(f"/next?{change}", f"{more} more {item.type}")


def _document(observations: Sequence[Observation], plans: Sequence[Plan]) -> object:
    return {
        "capacity": encode_overview(build_overview(observations))["capacity"],
        "plans": [
            {
                "name": plan.metadata.name,
                "created": plan.metadata.to_json().get("creationTimestamp"),
                "cards": {cards.type: cards.count for cards in plan.spec.totals.cards},
            }
            for plan in plans
        ],
    }


def fleet_view(
    observations: Sequence[Observation],
    namespace: str,
    now: datetime,
    money: Money = CENTS,
    past: Sequence[PastLoads] = (),
) -> ConsolePage:
    """The Servers now, their targets and the cards; what waits, and how good the plan is."""
    seen = build_overview(observations)
    waiting = [plan for plan in sort_plans(observations) if plan.status.phase == WAITS]
    classes = classes_of(seen.servers)
    return ConsolePage(
        title=f"Servers in {namespace}",
        parts=tuple(_parts(seen, now, money)),
        document=lambda: {
            **encode_overview(seen),
            "classes": [_class_document(name, views) for name, views in classes.items()],
            "waiting": [plan.metadata.name for plan in waiting],
            "past": [_past_document(at) for at in past],
        },
        figures=tuple(_figures(seen, observations, money)),
        notice=_notice(seen, waiting, money),
        trouble="; ".join(filter(None, map(failure_of, seen.optimizers))),
        before=(
            *((_classes_table(classes, money),) if classes else ()),
            *_single_replicas(seen, money),
            *list_notes(seen),
        ),
        trend=_trends(seen, past, now),
    )


def _trends(
    seen: Overview, past: Sequence[PastLoads], now: datetime
) -> Callable[[str], Trend | None]:
    """The load over time of each Server that can be read."""
    specs = {view.name: view.spec for view in seen.servers if view.spec}

    def trend(name: str) -> Trend | None:
        loads = loads_of(specs[name], past, now) if past and name in specs else ()
        rates = [rate for _, rate in loads]
        if not rates:
            return None
        begun = f"{loads[0][0]:%Y-%m-%d %H:%M} UTC"
        words = f"load since {begun}: from {min(rates):g} to {max(rates):g} requests/min"
        return Trend([(time.timestamp(), rate) for time, rate in loads], words)

    return trend


def _parts(seen: Overview, now: datetime, money: Money) -> Iterator[Part]:
    if seen.servers:
        yield tabulate_servers(seen.servers, money)
    else:
        yield NO_SERVERS
    yield from describe_totals(seen, now, money, failures=False)  # they stand above all numbers


def _figures(
    seen: Overview, observations: Sequence[Observation], money: Money
) -> Iterator[KeyFigure]:
    specs = [view.spec for view in seen.servers if view.spec]
    running = sum(cost_of(spec.current_alloc) for spec in specs)
    desired = sum(cost_of(spec.desired_alloc) for spec in specs)
    measured = [view for view in seen.servers if view.is_known]
    missed = sum(view.misses_target for view in measured)
    yield KeyFigure("Cost now", money.amount(running), money.rate)
    yield KeyFigure(
        "Cost desired", money.amount(desired), f"{money.change(desired - running)} {money.rate}"
    )
    last = find_latest_optimization(seen.optimizers)
    yield could_cost_less_now(observations, last, money)
    servers, known = len(seen.servers), len(measured)
    known_of = "for all" if known == servers else f"for {known}"
    total = f"of {servers} Servers (latency known {known_of})"
    yield KeyFigure("Miss a target now", str(missed), total)


def classes_of(views: Sequence[ServerView]) -> Mapping[str, Sequence[ServerView]]:
    """Servers that can be read by class, the most important class first."""
    by_class: dict[str, list[ServerView]] = {}
    for view in sorted(views, key=lambda view: view.priority):
        if view.spec:
            by_class.setdefault(view.spec.service_class, []).append(view)
    return by_class


def _classes_table(classes: Mapping[str, Sequence[ServerView]], money: Money) -> TextTable:
    headings = ("CLASS", ">PRIORITY", ">SERVERS", ">MISS A TARGET", ">LOAD", ">COST")
    rows = [
        (
            name,
            str(views[0].priority),
            str(len(views)),
            "{} of {}".format(*_missed(views)),
            f"{_load(views):g}",
            money.amount(_cost(views)),
        )
        for name, views in classes.items()
    ]
    return TextTable(headings, rows)


def _single_replicas(seen: Overview, money: Money) -> Iterator[str]:
    specs = [view.spec for view in seen.servers if view.spec]
    servers = (count_replicas(s.current_alloc, s.desired_alloc or s.current_alloc) for s in specs)
    yield from warn_of_single_replicas(servers, money)


def _missed(views: Sequence[ServerView]) -> tuple[int, int]:
    """Servers that miss a target now, and those of which it is known."""
    measured = [view for view in views if view.is_known]
    return sum(view.misses_target for view in measured), len(measured)


def _load(views: Sequence[ServerView]) -> float:
    running = [view.spec.current_alloc for view in views if view.spec]
    return round(sum(part.load.arrival_rate for part in running if part and part.load), 2)


def _cost(views: Sequence[ServerView]) -> float:
    return sum(cost_of(view.spec.current_alloc) for view in views if view.spec)


def _class_document(name: str, views: Sequence[ServerView]) -> Mapping[str, object]:
    missed, measured = _missed(views)
    return {
        "name": name,
        "priority": views[0].priority,
        "servers": len(views),
        "missed": missed,
        "known": measured,
        "load": _load(views),
        "cost": _cost(views),
    }


def _past_document(at: PastLoads) -> Mapping[str, object]:
    loads = {name: server.rate for name, server in at.servers.items()}
    return {"time": f"{at.time:%Y-%m-%dT%H:%M:%SZ}", "loads": loads}


def _notice(seen: Overview, waiting: Sequence[Plan], money: Money) -> PageNotice | None:
    """The newest Plan that waits for approval, or the way to the next one if it can be computed."""
    if not waiting:
        text, action = "No Plan waits for approval.", "Compute the next plan"
        return PageNotice(text, "/next", action) if seen.servers and seen.optimizers else None
    newest, others = waiting[0], len(waiting) - 1
    more = f" {others} more wait." if others else ""
    name = newest.metadata.name
    text = f"{name} waits for approval: {summarize(newest, money)}.{more}"
    return PageNotice(text, f"/plans/{name}", "Look at it and decide")
