"""Why a Plan waits for a person: the mode of its Optimizer, or the guard; pure."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime

from inferno_operator.resources import Guard, Optimizer, PlanTotals, Reduction

DEFAULT_LIMIT = 50.0
"""Largest decrease without approval where the guard does not say [%]."""

NO_LIMIT = 100.0

SMALL_DECREASE = 2
"""Replicas that may always be taken away where the guard does not say."""

NAMED = 3
"""How many Servers a message names."""

REPLICAS = "maxReplicasDecreasePercent"
LOAD = "maxServedLoadDecreasePercent"


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
    if problems := [*_beyond(guard, totals), *_reduced(guard, totals.reduction)]:
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
    if totals.inflated and limit is None:
        yield (
            f"{_named(totals.inflated)} would cost less than half with the trusted performance"
            " data: a replica is planned to carry less than a quarter of what earlier plans counted"
            " on (check its Model), spec.guard.maxCostIncreasePercent is not set"
        )


def _reduced(guard: Guard, reduction: Reduction | None) -> Iterator[str]:
    """Return by how much more a plan takes away than the limits allow."""
    if reduction is None:
        return
    limit, most = guard.max_replicas_decrease_percent, reduction.replicas
    is_small = limit is None and reduction.replicas_taken <= SMALL_DECREASE
    if not is_small and _exceeds(reduction.replicas_taken, most, limit):
        taken, percent = reduction.replicas_taken, _percent(reduction.replicas_taken, most)
        what = (
            f"{taken:g} of {most} replicas are taken away ({percent})"
            if float(taken).is_integer()  # replicas on other cards count as parts of what runs
            else f"capacity shrinks by {percent} of {most} replicas"
        )
        yield f"{what}, {_told(REPLICAS, limit)}"
    limit = guard.max_served_load_decrease_percent
    if _exceeds(reduction.load_lost, reduction.load, limit):
        yield (
            f"{reduction.load_lost:g} of {reduction.load:g} requests/min are not served any more"
            f" ({_percent(reduction.load_lost, reduction.load)}), {_told(LOAD, limit)}"
        )
    elif reduction.emptied and limit != NO_LIMIT:
        named = _named(reduction.emptied)
        yield f"{named} would lose the last replica under load, {_told(LOAD, limit)}"
    if reduction.doubted and limit != NO_LIMIT:
        yield (
            f"{_named(reduction.doubted)} would not be served with the trusted performance data:"
            f" a replica is planned to carry more than twice what earlier plans counted on (check"
            f" its Model, and maxBatch of spec.desiredAlloc), {_told(LOAD, limit)}"
        )


def _named(servers: Sequence[str]) -> str:
    """Return the first of some Servers."""
    return ", ".join(servers[:NAMED]) + ", ..." * (len(servers) > NAMED)


def _exceeds(part: float, whole: float, limit: float | None) -> bool:
    """Whether a decrease is beyond a limit [%]."""
    return part > whole * (DEFAULT_LIMIT if limit is None else limit) / NO_LIMIT


def _percent(part: float, whole: float) -> str:
    return f"{100 * part / whole:.0f} %"


def _told(field: str, limit: float | None) -> str:
    """Return what a limit is, and whether somebody wrote it."""
    return (
        f"spec.guard.{field} is {DEFAULT_LIMIT:g} by default"
        if limit is None
        else (f"spec.guard.{field} is {limit:g}")
    )
