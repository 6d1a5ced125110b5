"""Text output of the command line for what-if questions: comparisons and remedies.

Costs are in cents/hour where no currency is asked for, latencies in ms.
"""

from collections.abc import Iterable, Iterator, Sequence

from inferno_operator.cli.options.currency import CENTS, Money
from inferno_operator.cli.tables.solution import (
    Part,
    TextTable,
    decision_notes,
    latency_cells,
    latency_headings,
    placed,
    with_ttft,
)
from inferno_optimizer.explain.comparison import Comparison, DecisionDifference, served
from inferno_optimizer.explain.remedies import Remedy
from inferno_optimizer.sizing.cases import Catalogue
from inferno_optimizer.solution import CapacityUse, Decision, Reason, Solution
from inferno_optimizer.system import Allocation, System


def comparison_parts(
    comparison: Comparison, system: System, money: Money = CENTS
) -> Iterator[Part]:
    """Yield servers that change, why they get less than they need, totals and cards."""
    if not comparison.differences:
        yield "nothing changes: every server gets the same as without"
        return
    yield changes_table(comparison.differences, system, money)
    yield ""
    if notes := list(decision_notes(d.after for d in comparison.differences)):
        yield from notes
        yield ""
    yield _totals(comparison.before, comparison.after, money)
    if comparison.before.capacity or comparison.after.capacity:
        yield ""
        yield _cards(comparison.before, comparison.after)


def remedy_parts(decision: Decision, remedies: Iterable[Remedy]) -> Iterator[Part]:
    """Yield why a server gets too little, and its remedies; nothing if it is served."""
    if decision.reason is Reason.ALLOCATED:
        return
    yield ""
    yield f"{decision.server}: {decision.message}"
    lines = [f"- {remedy.message}: --set {remedy.change}" for remedy in remedies]
    yield from lines or ["no single change of cards, targets or load is known that would serve it"]


def changes_table(
    differences: Sequence[DecisionDifference], system: System, money: Money = CENTS
) -> TextTable:
    """Return the servers that change; only headings where nothing does."""
    ttft = with_ttft(d.after.allocation for d in differences if d.after.allocation)
    placements = ("SERVER", "BEFORE", ">BEFORE:COST", "AFTER", ">AFTER:COST")
    headings = (*placements, *latency_headings(ttft=ttft), "REASON")
    catalogue = Catalogue(system)
    models = {server.name: server.model for server in system.servers}
    rows = [
        _row(difference, models.get(difference.server, ""), catalogue, money, ttft=ttft)
        for difference in differences
    ]
    optional = ("WAIT MS", "ITL MS", "TTFT MS", "BEFORE COST", "AFTER COST")
    return TextTable(headings, rows, optional)


def _row(
    difference: DecisionDifference, model: str, catalogue: Catalogue, money: Money, *, ttft: bool
) -> tuple[str, ...]:
    after = difference.after.allocation
    latencies = latency_cells(after, ttft=ttft) if after else [""] * (2 + ttft)
    return (
        difference.server,
        *_placement(difference.before.allocation, model, catalogue, money),
        *_placement(after, model, catalogue, money),
        *latencies,
        difference.after.reason,
    )


def _placement(
    allocation: Allocation | None, model: str, catalogue: Catalogue, money: Money
) -> tuple[str, str]:
    if allocation is None:
        return "-", ""
    return placed(allocation, model, catalogue), money.amount(allocation.cost)


def _totals(before: Solution, after: Solution, money: Money) -> str:
    return (
        f"served: {served(before)} -> {served(after)} of {len(after.decisions)} servers;"
        f" cost {money.amount(before.cost)} -> {money.amount(after.cost)} {money.rate}"
        f" ({money.change(after.cost - before.cost)})"
    )


def _cards(before: Solution, after: Solution) -> TextTable:
    uses = [{use.type: use for use in solution.capacity} for solution in (before, after)]
    rows = [
        (name, *_change(*(of.get(name, CapacityUse(name, 0, 0)) for of in uses)))
        for name in sorted(uses[0] | uses[1])
    ]
    headings = ("CARDS", ">USED", ">USED:AFTER", ">HELD", ">HELD:AFTER", ">AVAILABLE")
    return TextTable((*headings, ">AVAILABLE:AFTER"), rows)


def _change(before: CapacityUse, after: CapacityUse) -> Sequence[str]:
    pairs = (
        (before.used, after.used),
        (before.held, after.held),
        (before.available, after.available),
    )
    return [str(count) for pair in pairs for count in pair]
