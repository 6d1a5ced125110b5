"""Output of `kubectl inferno plan`: the changes that an optimization would make.

Costs are in cents/hour where no currency is asked for, latencies in ms.
"""

from collections.abc import Iterable, Iterator, Sequence

from inferno_operator.cli.options.currency import CENTS, Money
from inferno_operator.cli.preview import Action, PlanPreview, Preview, runs
from inferno_operator.cli.tables.cluster import band_cell, cost, cost_cell, placement, replicas_of
from inferno_operator.cli.tables.solution import (
    BAND,
    Part,
    TextTable,
    cards_table,
    failed_steps,
    grouped,
    latency_headings,
    proof,
    single_replicas,
    uncertain_data,
    with_ttft,
)
from inferno_optimizer.solution import Reason, Solution

OPTIONAL = (
    *("CLASS", "BATCH", BAND, "WAIT MS", "ITL MS", "TTFT MS", "LOAD", "DESIRED COST", "DESIRED"),
    *("CURRENT COST", "PLANNED COST", "CURRENT"),
)
"""Columns of servers that a narrow terminal does not show."""


def plan_parts(plan: PlanPreview, solution: Solution, money: Money = CENTS) -> Iterator[Part]:
    """Yield servers that change, notes on servers that get too little, totals, cards, proof."""
    changes = changes_table(plan, solution, money)
    if changes.rows:
        yield changes
        yield ""
    if notes := [*_notes(plan.servers), *plan.troubles]:
        yield from notes
        yield ""
    yield _totals(plan.servers, money)
    yield from single_replicas(
        (replicas_of(item.current, item.planned) for item in plan.servers), money
    )
    if solution.capacity:
        yield ""
        yield cards_table(solution.capacity, money)
    yield ""
    yield proof(solution.certificate)
    yield from uncertain_data(a.origin for a in solution.allocations.values())
    yield from failed_steps(solution.certificate)


def changes_table(plan: PlanPreview, solution: Solution, money: Money = CENTS) -> TextTable:
    """Return the servers that change; only headings where nothing does."""
    ttft = with_ttft(solution.allocations.values())
    now = ("SERVER", "CLASS", ">LOAD", "CURRENT", ">CURRENT:COST", "DESIRED", ">DESIRED:COST")
    then = ("PLANNED", ">BATCH", ">PLANNED:COST", *latency_headings(ttft=ttft))
    changed = [item for item in plan.servers if item.action]
    rows = [_row(item, money, ttft=ttft) for item in changed]
    table = TextTable((*now, *then, "ACTION", "REASON"), rows, OPTIONAL)
    return table.with_last(BAND, [band_cell(item.planned) for item in changed])


def _row(item: Preview, money: Money, *, ttft: bool) -> tuple[str, ...]:
    return (
        item.name,
        item.service_class,
        _load(item),
        *(placement(item.current, item.label), cost_cell(item.current, money)),
        *(placement(item.desired, item.label), cost_cell(item.desired, money)),
        *_planned_cells(item, money, ttft=ttft),
        item.action,
        item.reason,
    )


def _load(item: Preview) -> str:
    load = item.current.load if item.current else None
    return f"{load.arrival_rate:g}" if load else "-"


def _planned_cells(item: Preview, money: Money, *, ttft: bool) -> tuple[str, ...]:
    planned = item.planned
    if planned is None or not planned.accelerator:
        return ("-", *[""] * (4 + ttft))
    latencies = (planned.itl_average, planned.wait_average, planned.ttft_average)[: 2 + ttft]
    return (
        placement(planned, item.label),
        str(planned.max_batch or 0),
        cost_cell(planned, money),
        *(f"{latency or 0:.2f}" for latency in latencies),
    )


def _notes(previews: Iterable[Preview]) -> Iterator[str]:
    """Return why servers get too little, and warnings, as sentences below the table."""
    return grouped((item.name, note) for item in previews for note in _notes_of(item))


def _notes_of(item: Preview) -> Iterator[str]:
    if item.reason != Reason.ALLOCATED:
        yield item.message
    if item.warnings:
        yield f"warning: {item.warnings}"
    if item.action and item.absence:
        yield f"warning: {item.absence}"


def _totals(previews: Sequence[Preview], money: Money) -> str:
    changing = sum(item.action is not Action.NONE for item in previews)
    planned = sum(runs(item.planned) for item in previews)
    total = len(previews)
    costs = (
        money.amount(sum(cost(getattr(item, which)) for item in previews))
        for which in ("current", "desired", "planned")
    )
    now, desired, then = costs
    changes = f"{changing} of {total} servers would change" if changing else "nothing would change"
    return (
        f"{changes}; {planned} of {total} would have an allocation;"
        f" cost {now} now, {desired} desired -> {then} {money.rate}"
    )
