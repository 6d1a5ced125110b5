"""The objects of a namespace -> its first page, and the page of its cards."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from functools import partial
from typing import Any

from inferno_operator.cli.kubectl.choices import sort_plans
from inferno_operator.cli.kubectl.console.page import (
    NO_SERVERS,
    ConsolePage,
    Note,
    SeenNamespace,
)
from inferno_operator.cli.kubectl.console.plans import (
    PastLoads,
    build_current_gap_figure,
    list_loads,
)
from inferno_operator.cli.options import Money
from inferno_operator.cli.tables.html import Trend
from inferno_operator.cli.tables.plans import summarize
from inferno_operator.cli.tables.servers import (
    CardUse,
    Overview,
    ServerView,
    build_overview,
    count_replicas,
    describe_totals,
    encode_overview,
    find_cost,
    find_latest_optimization,
    list_notes,
    list_problems,
    tabulate_servers,
    warn_of_excess,
)
from inferno_operator.cli.tables.solution import warn_of_single_replicas
from inferno_operator.cli.tables.table import Columns, Part, TextTable, format_age
from inferno_operator.pages.charts import to_stairs
from inferno_operator.pages.html import KeyFigure
from inferno_operator.resources import Plan, ServerSpec
from inferno_operator.resources.observation import Observation

COUNTED = ("TOTAL", "OTHERS", "OURS", "FREE")
NO_CARDS = "No cards: there is no Capacity, and no Server that runs. Apply a Capacity."


def view_capacity(seen: SeenNamespace) -> ConsolePage:
    """The cards by type: there, in use, held; planned now and over time."""
    cards = build_overview(seen.objects).cards
    plans = [plan for plan in reversed(sort_plans(seen.objects)) if plan.status.took_effect]
    return ConsolePage(
        title="Cards by type",
        parts=(*tabulate_cards(cards, seen.money),),
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
        trend=partial(_find_cards_over_time, plans, seen.now),
    )


def _list_card_figures(cards: Sequence[CardUse]) -> Iterator[KeyFigure]:
    yield KeyFigure("Cards", str(sum(item.available for item in cards)), f"of {len(cards)} types")
    running = sum(item.running for item in cards)
    yield KeyFigure("In use", str(running), "by the Servers of this namespace")
    if all(item.planned is None for item in cards):
        return
    full = sum(bool(item.planned) and item.used + item.held >= item.available for item in cards)
    yield KeyFigure("Planned", str(sum(item.used for item in cards)), "by the last plan")
    if held := sum(item.held for item in cards):
        yield KeyFigure("Held", str(held), "by Servers without a decision")
    yield KeyFigure("Types without a free card", str(full), "by the last plan")


def tabulate_cards(cards: Sequence[CardUse], money: Money) -> Iterator[Part]:
    """Yield the cards by type, and of which more are in use than there are."""
    if not cards:
        yield NO_CARDS
        return
    columns: dict[str, Callable[[CardUse], str]] = {
        "CARDS": lambda item: item.type,
        ">IN USE/THERE": lambda item: f"{item.running}/{item.available}",
        ">PLANNED/THERE": lambda item: f"{item.used}/{item.available}" if item.planned else "-",
        ">HELD": lambda item: item.plan_cells()[1],
        ">ONE MORE CARD": lambda item: item.worth_cell(money),
    }
    if any(item.counted for item in cards):
        for name in COUNTED:
            columns[f">{name}"] = partial(_format_count, name.lower())
        columns["LIMITED BY"] = partial(_format_count, "bound_by")
    yield TextTable.of(cards, columns)
    yield from warn_of_excess(cards)


def _format_count(name: str, item: CardUse) -> str:
    return str(getattr(item.counted, name, "-"))


def _find_cards_over_time(plans: Sequence[Plan], now: datetime, kind: str) -> Trend | None:
    """Return what the Plans that took effect gave of a type, the oldest first, until now."""
    born = [(plan, moment) for plan in plans if (moment := plan.metadata.creation_timestamp)]
    if not born:
        return None
    counts = [sum(c.count for c in plan.spec.totals.cards if c.type == kind) for plan, _ in born]
    times = [moment.timestamp() for _, moment in born]
    begin = f"{born[0][1]:%Y-%m-%d %H:%M} UTC"
    words = f"given by Plans since {begin}: from {min(counts)} to {max(counts)}, now {counts[-1]}"
    return Trend(to_stairs([*zip(times, counts, strict=True)], now.timestamp()), words)


def view_fleet(namespace: SeenNamespace, past: Sequence[PastLoads] = ()) -> ConsolePage:
    """What is wrong, what waits, the Servers with their targets, and the cards."""
    objects, now, money = namespace.objects, namespace.now, namespace.money
    seen = build_overview(objects)
    specs = {view.name: view.spec for view in seen.servers if view.spec}
    waiting = [plan for plan in sort_plans(objects) if plan.status.phase == "Proposed"]
    wrong = seen.with_servers(view for view in seen.servers if view.has_problem)
    others = seen.with_servers(view for view in seen.servers if not view.has_problem)
    totals = _sum_classes(seen.servers)
    replicas = (
        count_replicas(spec.current_alloc, spec.desired_alloc or spec.current_alloc)
        for spec in specs.values()
    )
    return ConsolePage(
        title=f"Servers in {namespace.name}",
        lead=_describe_fleet(seen, now) if seen.servers else "",
        troubles=tuple(list_problems(wrong)),
        parts=(
            tabulate_servers(seen.servers, money) if seen.servers else NO_SERVERS,
            *(tabulate_cards(seen.cards, money) if seen.cards else ()),
            *describe_totals(replace(seen, servers=(), cards=()), now, money),
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
        figures=tuple(_list_figures(seen, objects, money)),
        notice=_choose_notice(seen, waiting, money),
        before=(
            *([_tabulate_classes(totals, money)] if totals else ()),
            *warn_of_single_replicas(replicas, money),
            *list_notes(replace(others, troubles=())),
        ),
        trend=partial(_find_load_over_time, specs, past, now),
    )


def _find_load_over_time(
    specs: Mapping[str, ServerSpec], past: Sequence[PastLoads], now: datetime, name: str
) -> Trend | None:
    loads = list_loads(specs[name], past, now) if past and name in specs else ()
    rates = [rate for _, rate in loads]
    if not rates:
        return None
    begin = f"{loads[0][0]:%Y-%m-%d %H:%M} UTC"
    words = f"load since {begin}: from {min(rates):g} to {max(rates):g} requests/min"
    return Trend([(time.timestamp(), rate) for time, rate in loads], words)


def _describe_fleet(seen: Overview, now: datetime) -> str:
    used, there = (sum(getattr(c, name) for c in seen.cards) for name in ("running", "available"))
    last, planned = find_latest_optimization(seen.optimizers), "no plan was made yet"
    if last:
        planned = f"the last plan is {format_age(last.time, now)} old"
    elif not seen.optimizers:
        planned = "nothing plans for them: apply an Optimizer"
    return f"{_count_servers(seen)}; cards in use: {used} of {there}; {planned}."


def _count_servers(seen: Overview) -> str:
    return "1 Server" if len(seen.servers) == 1 else f"{len(seen.servers)} Servers"


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
    total = f"of {_count_servers(seen)} (latency known {known_of})"
    yield KeyFigure("Miss a target now", str(missed), total)


def _sum_classes(servers: Iterable[ServerView]) -> list[dict[str, Any]]:
    """Sum up the readable Servers of each class, the most important classes first."""
    by_class: dict[str, list[ServerView]] = {}
    for view in sorted(servers, key=lambda view: view.priority):
        if view.spec:
            by_class.setdefault(view.spec.service_class, []).append(view)
    return [_sum_class(name, views) for name, views in by_class.items()]


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
    columns: Columns[dict[str, Any]] = {
        "CLASS": lambda of: str(of["name"]),
        ">PRIORITY": lambda of: str(of["priority"]),
        ">SERVERS": lambda of: str(of["servers"]),
        ">MISS A TARGET": lambda of: f"{of['missed']} of {of['known']}",
        ">LOAD": lambda of: f"{of['load']:g}",
        ">COST": lambda of: money.amount(of["cost"]),
    }
    return TextTable.of(totals, columns)


def _choose_notice(seen: Overview, waiting: Sequence[Plan], money: Money) -> Note | None:
    """Choose the newest Plan that waits, or the way to the next one if it can be computed."""
    if not waiting:
        text, action = "No Plan waits for approval.", "Compute the next plan"
        return Note(text, "/next", action) if seen.servers and seen.optimizers else None
    newest, others = waiting[0], len(waiting) - 1
    more = f" {others} more wait." if others else ""
    name = newest.metadata.name
    text = f"{name} waits for approval: {summarize(newest, money)}.{more}"
    return Note(text, f"/plans/{name}", "Look at it and decide")
