"""Why a Plan waits for a person: the mode of its Optimizer, or the guard; pure."""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime

from inferno_operator.resources import Guard, Optimizer, PlanTotals

NAMED = 3
"""How many Servers a message names."""


@dataclass(frozen=True, slots=True)
class Hold:
    """Why a Plan waits; `until` is the time after which it does not wait by itself, if any."""

    reason: str
    message: str
    until: datetime | None = None


def hold_of(optimizer: Optimizer, totals: PlanTotals, now: datetime) -> Hold | None:
    """Return why a plan of an Optimizer waits for approval; None if it is to be carried out.

    In mode Recommend nothing waits: only `desiredAlloc` is written.
    """
    if optimizer.spec.mode == "Recommend":
        return None
    if optimizer.spec.mode == "Approve":
        return Hold("AwaitsApproval", "the Optimizer has mode Approve")
    guard = optimizer.spec.guard or Guard()
    if problems := list(_beyond(guard, totals)):
        return Hold("BeyondGuard", "; ".join(problems))
    end = max(filter(None, (window.end(now) for window in guard.freeze)), default=None)
    if end is None:
        return None
    until = end.strftime("%Y-%m-%d %H:%M UTC")
    return Hold("Frozen", f"plans are frozen until {until} (spec.guard.freeze)", end)


def _beyond(guard: Guard, totals: PlanTotals) -> Iterator[str]:
    """Return by how much a plan is beyond the limits."""
    most = guard.max_servers_changed
    if most is not None and totals.servers > most:
        yield f"{totals.servers} Servers change, spec.guard.maxServersChanged is {most}"
    limit, before, after = guard.max_cost_increase_percent, totals.cost_before, totals.cost_after
    if limit is not None and after > before * (1 + limit / 100):
        percent = f"{100 * (after / before - 1):.1f} %" if before > 0 else "from nothing"
        yield (
            f"the cost rises from {before:g} to {after:g} cents/hour ({percent}),"
            f" spec.guard.maxCostIncreasePercent is {limit:g}"
        )
    emptied = totals.reduction.emptied if totals.reduction else ()
    if emptied and guard.way_down.share < 1:
        named = ", ".join(emptied[:NAMED]) + ", ..." * (len(emptied) > NAMED)
        yield (
            f"{named} would lose the last replica under load,"
            f" spec.guard.maxDecreasePercent is {100 * guard.way_down.share:g}"
        )
