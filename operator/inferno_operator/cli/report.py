"""A system and its solution -> the page of a fleet; pure but for the search for remedies."""

from collections.abc import Iterable, Iterator
from dataclasses import replace
from math import inf

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
from inferno_operator.pages.html import (
    CardRow,
    FleetPage,
    KeyFigure,
    PredictedLatency,
    ServerRow,
    Shortfall,
)
from inferno_optimizer.explain.remedies import remedies
from inferno_optimizer.sizing.cases import Catalogue
from inferno_optimizer.solution import Decision, Reason, Solution
from inferno_optimizer.system import Allocation, Generation, System, Target

EXPLAINED = 5
"""Most servers that are shown with what would serve them; others have their reason only."""

SEARCH_S = 5.0
"""How long is searched for what would serve one of them, which takes several optimizations [s]."""


def fleet_page(title: str, system: System, solution: Solution, money: Money = CENTS) -> FleetPage:
    """Return the page of a plan.

    Parameters
    ----------
    title
        The name of the fleet.
    system, solution
        The optimized system, and its solution.
    money
        The unit of costs.
    """
    short = _short_of(system, solution)
    return FleetPage(
        title=title,
        rate=money.rate,
        figures=tuple(_figures(system, solution, len(short), money)),
        has_ttft=has_ttft(solution.allocations.values()),
        shortfalls=[_shortfall(system, solution, decision) for decision in short[:EXPLAINED]],
        more_shortfalls=max(len(short) - EXPLAINED, 0),
        servers=tuple(_servers(system, solution, money)),
        cards=[
            CardRow(
                use.type,
                use.used,
                use.held,
                use.available,
                format_card_worth(use.price, use.gain, money, estimated=use.estimated),
            )
            for use in solution.capacity
        ],
        levels=solution.certificate.levels,
        notes=(
            *warn_of_single_replicas(list_replicas(system, solution), money),
            *list_decision_notes(d for d in solution.decisions if _is_served(d)),
        ),
    )


def _figures(system: System, solution: Solution, short: int, money: Money) -> Iterator[KeyFigure]:
    now = system.current_cost
    yield KeyFigure("Cost now", money.amount(now), money.rate)
    yield KeyFigure("Cost planned", money.amount(solution.cost), money.rate)
    yield KeyFigure("Change", money.change(solution.cost - now), money.rate)
    yield KeyFigure("Servers", str(len(system.servers)), f"{short} get less than they need")
    gap = solution.certificate.gap
    proven = "not known" if gap is None else f"{format_number(100 * gap)} %"
    proof = "no bound is proven" if gap is None else "at most, as proven"
    yield KeyFigure("Gap to the best plan", proven, proof)


def _short_of(system: System, solution: Solution) -> list[Decision]:
    """The decisions for servers that get less than they need, the most important ones first."""
    priority = {c.name: c.priority for c in system.classes}
    pairs = [
        (priority.get(server.service_class, inf), decision)
        for server, decision in zip(system.servers, solution.decisions, strict=True)
        if not _is_served(decision)
    ]
    return [decision for _, decision in sorted(pairs, key=lambda pair: (pair[0], pair[1].server))]


def _is_served(decision: Decision) -> bool:
    """Whether a server gets all that it needs."""
    return decision.reason is Reason.ALLOCATED


def _shortfall(system: System, solution: Solution, decision: Decision) -> Shortfall:
    ways_out: Iterable[str] = ()
    if decision.reason.decided:
        options = replace(system.options, time_limit=min(system.options.time_limit, SEARCH_S))
        limited = replace(system, options=options)
        ways_out = (r.message for r in remedies(limited, solution, decision.server))
    return Shortfall(decision.server, decision.message, tuple(ways_out))


def _servers(system: System, solution: Solution, money: Money) -> Iterator[ServerRow]:
    catalogue = Catalogue(system)
    for server, decision in zip(system.servers, solution.decisions, strict=True):
        planned = decision.allocation or Allocation()
        planned = server.current if is_kept(server, decision) else planned
        itl, ttft = _latencies(decision.allocation, catalogue.target(server))
        yield ServerRow(
            name=server.name,
            service_class=server.service_class,
            model=server.model,
            load=server.load.arrival_rate,
            now=format_replicas(server.current, server.model, catalogue),
            planned=format_replicas(planned, server.model, catalogue),
            cost=money.amount(planned.cost),
            itl=itl,
            ttft=ttft,
            reason=str(decision.reason),
            served=_is_served(decision),
        )


def _latencies(
    planned: Allocation | None, target: Target
) -> tuple[PredictedLatency | None, PredictedLatency | None]:
    """The predicted ITL and TTFT; None where nothing is predicted."""
    if planned is None or not planned.accelerator:
        return None, None
    itl = _latency(planned, "itl", planned.itl_ms, target.itl_ms, target.itl_percentile)
    if planned.generation is Generation.DECODE:
        return itl, None
    return itl, _latency(planned, "ttft", planned.ttft_ms, target.ttft_ms, target.ttft_percentile)


def _latency(
    planned: Allocation, name: str, mean_ms: float, target_ms: float, percentile: float
) -> PredictedLatency:
    """The percentile that the target limits if it is predicted; else the mean, with no target."""
    origin = format_origin(planned)
    if not percentile:
        return PredictedLatency(mean_ms, target_ms, band=origin)
    predicted = getattr(planned.tail, f"{name}_p{percentile:g}", 0.0)
    if not predicted:
        return PredictedLatency(mean_ms, 0.0, band=origin)
    return PredictedLatency(predicted, target_ms, percentile, origin)
