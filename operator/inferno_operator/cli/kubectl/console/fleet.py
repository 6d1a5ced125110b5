"""The objects of a namespace -> the page that the console begins with."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime

from inferno_operator.cli.kubectl.answer import in_order
from inferno_operator.cli.kubectl.console.page import NO_SERVERS, ConsolePage, PageNotice, Trend
from inferno_operator.cli.kubectl.console.past import PastLoads, loads_of
from inferno_operator.cli.kubectl.console.proof import could_cost_less_now
from inferno_operator.cli.options.currency import CENTS, Money
from inferno_operator.cli.overview import (
    Overview,
    ServerView,
    latest_optimization,
    overview,
    overview_document,
)
from inferno_operator.cli.tables.cluster import cost, replicas_of
from inferno_operator.cli.tables.plans import summary
from inferno_operator.cli.tables.solution import Part, TextTable, single_replicas
from inferno_operator.cli.tables.top import (
    failure_of,
    notes_of,
    servers_table,
    summary_parts,
)
from inferno_operator.pages.figures import KeyFigure
from inferno_operator.resources import Plan
from inferno_operator.resources.observation import Observation

WAITS = "Proposed"
"""Phase of a Plan that waits for approval."""


def fleet_view(
    observations: Sequence[Observation],
    namespace: str,
    now: datetime,
    money: Money = CENTS,
    past: Sequence[PastLoads] = (),
) -> ConsolePage:
    """The Servers now, their targets and the cards; what waits, and how good the plan is."""
    seen = overview(observations)
    waiting = [plan for plan in in_order(observations) if plan.status.phase == WAITS]
    classes = classes_of(seen.servers)
    return ConsolePage(
        title=f"Servers in {namespace}",
        parts=tuple(_parts(seen, now, money)),
        document=lambda: {
            **overview_document(seen),
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
            *notes_of(seen),
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
        yield servers_table(seen.servers, money)
    else:
        yield NO_SERVERS
    yield from summary_parts(seen, now, money, failures=False)  # they stand above all numbers


def _figures(
    seen: Overview, observations: Sequence[Observation], money: Money
) -> Iterator[KeyFigure]:
    specs = [view.spec for view in seen.servers if view.spec]
    running = sum(cost(spec.current_alloc) for spec in specs)
    desired = sum(cost(spec.desired_alloc) for spec in specs)
    measured = [view for view in seen.servers if view.is_known]
    missed = sum(view.misses_target for view in measured)
    yield KeyFigure("Cost now", money.amount(running), money.rate)
    yield KeyFigure(
        "Cost desired", money.amount(desired), f"{money.change(desired - running)} {money.rate}"
    )
    last = latest_optimization(seen.optimizers)
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
    servers = (replicas_of(s.current_alloc, s.desired_alloc or s.current_alloc) for s in specs)
    yield from single_replicas(servers, money)


def _missed(views: Sequence[ServerView]) -> tuple[int, int]:
    """Servers that miss a target now, and those of which it is known."""
    measured = [view for view in views if view.is_known]
    return sum(view.misses_target for view in measured), len(measured)


def _load(views: Sequence[ServerView]) -> float:
    running = [view.spec.current_alloc for view in views if view.spec]
    return round(sum(part.load.arrival_rate for part in running if part and part.load), 2)


def _cost(views: Sequence[ServerView]) -> float:
    return sum(cost(view.spec.current_alloc) for view in views if view.spec)


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
    text = f"{name} waits for approval: {summary(newest, money)}.{more}"
    return PageNotice(text, f"/plans/{name}", "Look at it and decide")
