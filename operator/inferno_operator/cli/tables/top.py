"""Output of `kubectl inferno top`: servers, cards, and the last optimizations.

Costs are in cents/hour where no currency is asked for, latencies in ms, loads in requests/min.
"""

from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime

from inferno_operator.cli.options.currency import CENTS, Money
from inferno_operator.cli.overview import CardUse, Overview, ServerView, latest_optimization
from inferno_operator.cli.tables.cluster import cost, cost_cell, placement
from inferno_operator.cli.tables.solution import (
    Part,
    TextTable,
    cached_prompts,
    grouped,
    one_more_card,
)
from inferno_operator.resources import (
    Condition,
    CountedCards,
    LastOptimization,
    Load,
    Optimizer,
    ServerAllocation,
)
from inferno_operator.resources.conditions import OPTIMIZED
from inferno_optimizer.solution import Reason

LATENCIES = (("itl", "ITL"), ("wait", "WAIT"), ("ttft", "TTFT"))

UNKNOWN = "unknown"
"""Shown where nothing is measured."""

LATE = (
    "new since the last optimization; the next one decides,"
    " and 'kubectl inferno optimize' asks for it"
)
"""What is said of a Server that no optimization has seen."""

TOO_MANY = "!"
"""Stands at a number of cards in use that is above what there is."""

LEAST_LEFT = -9.99
"""Least share of a target that is shown: a latency of eleven times the target."""

OPTIONAL = (
    *("CLASS", "MEASURED", "WAIT/SLO", "TTFT/SLO", "ITL/SLO", "COST", "LOAD"),
    "CURRENT",
)
"""Columns of servers that a narrow terminal does not show."""

UNITS = ((86400, "d"), (3600, "h"), (60, "m"))


def top_parts(seen: Overview, now: datetime, money: Money = CENTS) -> Iterator[Part]:
    """Yield servers with their problems, totals, cards, and each Optimizer's last result."""
    if not seen.servers and seen.left_out:
        yield f"none of the {seen.left_out} Servers in this namespace"
    elif not seen.servers:
        yield "No Servers in this namespace. Use -n to choose another."
    else:
        yield servers_table(seen.servers, money)
        yield ""
        if notes := list(notes_of(seen)):
            yield from notes
            yield ""
    yield from summary_parts(seen, now, money)


def summary_parts(
    seen: Overview, now: datetime, money: Money, *, failures: bool = True
) -> Iterator[Part]:
    """Yield totals, cards, and each Optimizer's last result, with why it failed if asked for."""
    if seen.servers:
        shown, left_out = len(seen.servers), seen.left_out
        of_all = f"{shown} of {shown + left_out} Servers are shown; " if left_out else ""
        yield of_all + _totals(seen.servers, money)
    if seen.cards:
        yield ""
        yield _cards(seen.cards, money)
        yield from excess_notes(seen.cards)
    if seen.optimizers:
        yield ""
    for optimizer in seen.optimizers:
        yield from _optimizer(optimizer, now, money, failures=failures)


def age(since: datetime, now: datetime) -> str:
    """Return the time between two moments in one unit, as kubectl does."""
    return duration((now - since).total_seconds())


def duration(time_s: float) -> str:
    """Return a time in one unit, rounded down."""
    seconds = max(0, int(time_s))
    return next(
        (f"{seconds // size}{unit}" for size, unit in UNITS if seconds >= size), f"{seconds}s"
    )


def condition_parts(conditions: Sequence[Condition], now: datetime) -> Iterator[Part]:
    """Yield a table of the conditions of an object, if it has any."""
    if conditions:
        headings = ("CONDITION", "STATUS", "REASON", ">AGE", "MESSAGE")
        rows = [
            (c.type, c.status, c.reason, age(c.last_transition_time, now), c.message)
            for c in conditions
        ]
        yield ""
        yield TextTable(headings, rows)


def servers_table(views: Sequence[ServerView], money: Money = CENTS) -> TextTable:
    """Return the servers; only headings where there are none."""
    shown = [key for key, _ in LATENCIES if any(view.headroom(key) for view in views)]
    latencies = [f">{name}/SLO" for key, name in LATENCIES if key in shown]
    headings = ["SERVER", "CLASS", "CURRENT", "DESIRED", ">LOAD"]
    for heading in latencies:
        headings += [heading, f"{heading}:LEFT"]
    measured = ["MEASURED"] if any(view.is_measured for view in views) else []
    rows = [_row(view, shown, money, measured=bool(measured)) for view in views]
    optional = [*OPTIONAL, *_least_missed_first(views, shown)]
    return TextTable((*headings, ">COST", *measured, "READY"), rows, optional)


def _least_missed_first(views: Sequence[ServerView], latencies: Sequence[str]) -> Sequence[str]:
    """Return the columns of what is left of targets, the one last that misses most of its own."""

    def least_left(latency: str) -> float:
        return min(h.share for view in views if (h := view.headroom(latency)))

    worst_last = sorted(latencies, key=least_left, reverse=True)
    names = dict(LATENCIES)
    return [f"{names[latency]}/SLO LEFT" for latency in worst_last]


def _row(
    view: ServerView, latencies: Sequence[str], money: Money, *, measured: bool
) -> tuple[str, ...]:
    spec = view.spec
    current = spec.current_alloc if spec else None
    return (
        view.name,
        spec.service_class if spec else "-",
        placement(current, view.label),
        placement(spec.desired_alloc if spec else None, view.label),
        _load(current.load if current else None),
        *(cell for latency in latencies for cell in _headroom_cells(view, latency)),
        cost_cell(current, money),
        *([_quality(view)] if measured else []),
        view.state or "-",
    )


def _quality(view: ServerView) -> str:
    """Return how good the measurement is, a dash for a Server that is not measured."""
    if not view.is_measured:
        return "-"
    return view.measured.quality if view.measured else UNKNOWN


def _load(load: Load | None) -> str:
    return f"{load.arrival_rate:g}" if load else "-"


def _headroom_cells(view: ServerView, latency: str) -> tuple[str, str]:
    headroom = view.headroom(latency)
    if headroom is None:
        return (UNKNOWN if view.is_measured else "-"), ""
    return f"{headroom.value_ms:.1f}/{headroom.target_ms:g}", _left(headroom.share)


def _left(share: float) -> str:
    """Return the share of a target that is left; how much exactly one is missed matters little."""
    return f"<{LEAST_LEFT:.0%}" if share < LEAST_LEFT else f"{share:.0%}"


def notes_of(seen: Overview) -> Iterator[str]:
    """Yield what is wrong with servers and other objects, as sentences."""
    yield from grouped(
        (view.name, note) for view in seen.servers for note in _notes_of_server(view)
    )
    if latest_optimization(seen.optimizers):
        yield from grouped((v.name, LATE) for v in seen.servers if v.spec and not v.reason)
    yield from (f"warning: {trouble}" for trouble in seen.troubles)


def _notes_of_server(view: ServerView) -> Iterator[str]:
    if view.reason not in ("", Reason.ALLOCATED) and view.message:
        yield view.message
    if view.measured and view.measured.message:
        yield f"{view.measured.quality}: {view.measured.message}"
    if view.warnings:
        yield f"warning: {view.warnings}"
    if view.correction:
        yield view.correction
    current = view.spec.current_alloc if view.spec else None
    if current and current.load and current.load.cached_tokens:
        yield _saved_work(current, current.load)


def _saved_work(current: ServerAllocation, load: Load) -> str:
    """Return what prefix caches save; of two roles, the replicas that compute prompts count."""
    warm = sum(part.num_replicas - (part.cold_replicas or 0) for part in current.parts)
    several = current.num_replicas
    if current.roles:
        warm = several = current.roles.prefill.num_replicas
    return cached_prompts(load.avg_in_tokens or 0, load.cached_tokens or 0, max(warm, 0), several)


def _totals(views: Sequence[ServerView], money: Money) -> str:
    specs = [view.spec for view in views if view.spec]
    running = money.amount(sum(cost(spec.current_alloc) for spec in specs))
    decided = [spec.desired_alloc for spec in specs if spec.desired_alloc]
    desired = f"{money.amount(sum(map(cost, decided)))} desired"
    if not decided:
        desired = "no desired allocation"
    elif len(decided) < len(views):
        desired += f" for {len(decided)} of them"
    return f"{_missed(views)}; cost {running} now, {desired} ({money.rate})"


def _missed(views: Sequence[ServerView]) -> str:
    """Return how many servers miss a target, of those of which that is known."""
    measured = [view for view in views if view.is_known]
    missed, unknown = sum(view.misses_target for view in measured), len(views) - len(measured)
    if not unknown:
        return f"{missed} of {len(views)} servers miss a target now"
    unmeasured = sum(view.is_measured and view.measured is None for view in views)
    note = f" ({unmeasured} not measured yet)" if unmeasured else ""
    if not measured:
        return f"no measured latencies yet{note}"
    said = f"{missed} of {len(measured)} servers with measured latencies miss a target now"
    return f"{said}; unknown: {unknown}{note}"


def excess_notes(cards: Iterable[CardUse]) -> Iterator[str]:
    """Yield of which cards more are in use than there are."""
    for item in cards:
        if item.running > item.available:
            yield (
                f"{TOO_MANY} {item.running} cards of {item.type} in use, and only {item.available}"
                " available: correct Capacity or currentAlloc"
            )


def _cards(cards: Sequence[CardUse], money: Money) -> TextTable:
    """Return the cards by type; of counted ones also those of others, and what limits them."""
    are_counted = any(item.counted for item in cards)
    rows = [
        (
            item.type,
            _in_use(item),
            "-" if item.planned is None else str(item.planned),
            "-" if item.held is None else str(item.held),
            str(item.available),
            one_more_card(item.price, item.gain, money, estimated=item.estimated),
            *(_count(item.counted) if are_counted else ()),
        )
        for item in cards
    ]
    headings = ("CARDS", ">IN USE", ">PLANNED", ">HELD", ">AVAILABLE", ">PRICE")
    counts = (">TOTAL", ">OTHERS", "LIMITED BY") if are_counted else ()
    return TextTable((*headings, *counts), rows, ("LIMITED BY", "OTHERS", "HELD", "PLANNED"))


def _in_use(item: CardUse) -> str:
    """Return the cards that run, marked where they are more than there are."""
    return f"{item.running}{TOO_MANY if item.running > item.available else ''}"


def _count(counted: CountedCards | None) -> tuple[str, str, str]:
    if counted is None:
        return "-", "-", "-"
    return str(counted.total), str(counted.others), counted.bound_by


def _optimizer(
    optimizer: Optimizer, now: datetime, money: Money, *, failures: bool
) -> Iterator[str]:
    name, last = optimizer.metadata.name, optimizer.status.last_optimization
    condition = optimizer.status.condition(OPTIMIZED)
    yield f"Optimizer {name}: {_last(last, now, money)}"
    if failure := failure_of(optimizer):
        if failures:
            yield failure
    elif condition and condition.status != "True" and (optimizer.spec.optimize or last):
        yield _said_of(optimizer, condition)


def failure_of(optimizer: Optimizer) -> str:
    """Return why an Optimizer could not make its plan, as a sentence; "" if it did not fail."""
    condition = optimizer.status.condition(OPTIMIZED)
    if condition is None or condition.status != "False":
        return ""
    return _said_of(optimizer, condition)


def _said_of(optimizer: Optimizer, condition: Condition) -> str:
    return f"Optimizer {optimizer.metadata.name}: {condition.reason}: {condition.message}"


def _last(last: LastOptimization | None, now: datetime, money: Money) -> str:
    if last is None:
        return "not optimized yet"
    text = (
        f"optimized {age(last.time, now)} ago, {last.allocated} of {last.servers} servers,"
        f" {money.amount(last.cost)} {money.rate}"
    )
    proof = last.certificate
    if proof is None:
        return text
    gap = "not known" if proof.gap is None else f"{proof.gap:.2g}"
    return f"{text}; solver {proof.solver}: {proof.status}, gap {gap}, {proof.seconds or 0:.3f} s"
