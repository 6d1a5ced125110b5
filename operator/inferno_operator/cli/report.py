"""A system and its solution -> the page of a fleet; pure but for the search for remedies."""

from collections.abc import Iterator
from dataclasses import replace
from math import inf
from typing import Any

from inferno_operator.cli.options.currency import CENTS, Money
from inferno_operator.cli.tables.solution import (
    format_card_worth,
    format_origin,
    format_replicas,
    has_ttft,
    is_kept,
    list_decision_notes,
    list_replicas,
    warn_of_single_replicas,
)
from inferno_operator.cli.tables.table import format_number
from inferno_operator.pages.html import KeyFigure
from inferno_optimizer.explain.remedies import remedies
from inferno_optimizer.sizing.cases import Catalogue
from inferno_optimizer.solution import CapacityUse, Decision, Reason, Solution
from inferno_optimizer.system import Allocation, Generation, System, Target

EXPLAINED = 5
"""Most servers that are shown with what would serve them; others have their reason only."""

SEARCH_S = 5.0
"""How long is searched for what would serve one of them, which takes several optimizations [s]."""


def build_fleet_page(
    title: str, system: System, solution: Solution, money: Money = CENTS
) -> dict[str, Any]:
    """Return what the page of a plan shows, by the names in its template.

    Parameters
    ----------
    title
        The name of the fleet.
    system, solution
        The optimized system, and its solution.
    money
        The unit of costs.
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
    return {
        "title": title,
        "rate": money.rate,
        "figures": tuple(_list_figures(system, solution, len(short), money)),
        "has_ttft": has_ttft(solution.allocations.values()),
        "shortfalls": [
            _explain_shortfall(system, solution, decision)
            for decision in most_important[:EXPLAINED]
        ],
        "more_shortfalls": max(len(short) - EXPLAINED, 0),
        "servers": list(_list_servers(system, solution, money)),
        "cards": [_build_card_row(use, money) for use in solution.capacity],
        "levels": solution.certificate.levels,
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
    """Return why a server gets less than it needs, and what would serve it."""
    changes = []
    if decision.reason.decided:
        time_limit = min(system.options.time_limit, SEARCH_S)
        limited = replace(system, options=replace(system.options, time_limit=time_limit))
        changes = [found.message for found in remedies(limited, solution, decision.server)]
    return {"server": decision.server, "message": decision.message, "remedies": changes}


def _build_card_row(use: CapacityUse, money: Money) -> dict[str, Any]:
    taken = (use.used + use.held) / use.available if use.available else 0.0
    return {
        "type": use.type,
        "used": use.used,
        "held": use.held,
        "available": use.available,
        "share": min(taken, 1.0),
        "worth": format_card_worth(use.price, use.gain, money, estimated=use.estimated),
    }


def _list_servers(system: System, solution: Solution, money: Money) -> Iterator[dict[str, Any]]:
    catalogue = Catalogue(system)
    for server, decision in zip(system.servers, solution.decisions, strict=True):
        allocation, target = decision.allocation, catalogue.target(server)
        planned = server.current if is_kept(server, decision) else allocation or Allocation()
        is_predicted = allocation is not None and bool(allocation.accelerator)
        itl = _predict(allocation, target, "itl") if allocation and is_predicted else None
        ttft = None
        if allocation and is_predicted and allocation.generation is not Generation.DECODE:
            ttft = _predict(allocation, target, "ttft")
        yield {
            "name": server.name,
            "service_class": server.service_class,
            "model": server.model,
            "load": server.load.arrival_rate,
            "now": format_replicas(server.current, server.model, catalogue),
            "planned": format_replicas(planned, server.model, catalogue),
            "cost": money.amount(planned.cost),
            "itl": itl,
            "ttft": ttft,
            "reason": str(decision.reason),
            "served": decision.reason is Reason.ALLOCATED,
        }


def _predict(planned: Allocation, target: Target, latency: str) -> dict[str, Any]:
    """Return a predicted latency beside its target [ms]; a target of 0 means that there is none.

    It is the percentile that the target limits if that is predicted; else the mean.
    """
    predicted, limit = getattr(planned, f"{latency}_ms"), getattr(target, f"{latency}_ms")
    percentile = getattr(target, f"{latency}_percentile")
    if percentile:
        tail = getattr(planned.tail, f"{latency}_p{percentile:g}", 0.0)
        predicted, limit, percentile = (tail, limit, percentile) if tail else (predicted, 0.0, 0.0)
    return {
        "predicted_ms": predicted,
        "target_ms": limit,
        "percentile": percentile,
        "share": predicted / limit if limit else 0.0,
        "met": predicted <= limit,
        "band": format_origin(planned),
    }
