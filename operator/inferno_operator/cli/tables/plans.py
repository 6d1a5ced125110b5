"""Output of `kubectl inferno plans` and `diff`: recorded Plans, and what one changes.

Costs are in cents/hour where no currency is asked for.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial

from inferno_operator.cli.options.currency import CENTS, Money
from inferno_operator.cli.tables.cluster import Labels, band_cell
from inferno_operator.cli.tables.solution import BAND, Part, TextTable, grouped
from inferno_operator.cli.tables.top import age
from inferno_operator.controllers.planning.allocations import Label, plain
from inferno_operator.controllers.planning.plan_status import NOT_SIGNED, describe_answers
from inferno_operator.resources import Placement, Plan, PlanStep, Reduction
from inferno_optimizer.system import Role, place_of


def no_labels(server: str) -> Label:  # noqa: ARG001 - Labels
    """Return names of accelerators as they are, where it is not known what a replica takes."""
    return plain


UNCHANGED = "as before"
"""Shown of a Server that a Plan does not change."""

PHASE_UNKNOWN = "-"
"""Shown until the operator has looked at a Plan."""


def plans_parts(plans: Sequence[Plan], now: datetime, money: Money = CENTS) -> Iterator[Part]:
    """Yield a table of Plans, and what those wait for that are not finished."""
    if not plans:
        yield "no Plans in this namespace"
        return
    headings = ("PLAN", "OPTIMIZER", "PHASE", ">SERVERS", ">COST", ">CHANGE", "BY", ">AGE")
    rows = [_row(plan, now, money) for plan in plans]
    yield TextTable(headings, rows, ("BY", "OPTIMIZER", "COST"))
    yield from money.named()
    if unfinished := [plan for plan in plans if plan.status.phase in ("Proposed", "Acting")]:
        yield ""
        yield from grouped((plan.metadata.name, why(plan)) for plan in unfinished)


def waiting_parts(plans: Sequence[Plan], money: Money = CENTS) -> Iterator[Part]:
    """Yield what each Plan that waits would change, and how to answer it."""
    for plan in plans:
        name = plan.metadata.name
        yield f"Plan {name} waits for approval: {summary(plan, money)}; {describe_answers(name)}"


@dataclass(frozen=True, slots=True)
class Alternative:
    """What else a Server could get, and what that costs more than what is decided [cents/hour]."""

    placement: str
    price: float


def diff_parts(
    plan: Plan,
    money: Money = CENTS,
    alternatives: Mapping[str, Alternative] | None = None,
    labels: Labels = no_labels,
) -> Iterator[Part]:
    """Yield what a Plan changes, its totals, and where it is.

    Of a Plan that the operator has not recognized as its own, that comes before what it says.
    `alternatives` are by name of the Server; None if nobody asks for them.
    """
    is_unknown = plan.status.phase is None or is_of_strangers(plan)
    if is_unknown:
        yield state_line(plan)
        yield ""
    yield from change_parts(plan, money, alternatives, labels)
    if not is_unknown:
        yield state_line(plan)


def is_of_strangers(plan: Plan) -> bool:
    """Whether the operator says of a Plan that it did not make it."""
    return any(condition.reason == NOT_SIGNED for condition in plan.status.conditions)


def change_parts(
    plan: Plan,
    money: Money = CENTS,
    alternatives: Mapping[str, Alternative] | None = None,
    labels: Labels = no_labels,
) -> Iterator[Part]:
    """Yield what a Plan changes, and its totals; see `diff_parts`."""
    spec = plan.spec
    rows = [_step_row(step, money, alternatives, labels) for step in spec.steps]
    besides = ("BEST ELSEWHERE", ">BEST ELSEWHERE:PRICE") if alternatives is not None else ()
    table = TextTable(("SERVER", "FROM", "TO", ">CHANGE", *besides, "REASON"), rows)
    yield table.with_last(BAND, list(map(band_cell, spec.steps)))
    yield ""
    if notes := list(_notes(spec.steps)):
        yield from notes
        yield ""
    if spec.steps_omitted:
        yield f"and {spec.steps_omitted} more Servers, which the Plan does not list"
    yield summary(plan, money)
    yield from filter(None, [shrinkage(plan, labels)])
    yield from _taken(spec.totals.reduction)


def state_line(plan: Plan) -> str:
    """Return where a Plan is, and what the operator says of it, which may begin with the same."""
    phase, cause = plan.status.phase or PHASE_UNKNOWN, why(plan)
    if cause.lower().startswith((f"{phase} ".lower(), f"{phase}:".lower())):
        return cause[:1].upper() + cause[1:]
    return f"{phase}: {cause}"


def difference_parts(
    plan: Plan, other: Plan, money: Money = CENTS, labels: Labels = no_labels
) -> Iterator[Part]:
    """Yield the Servers that two Plans leave in different states, and what both cost.

    A Plan leaves the Servers that it does not list as they were.
    """
    names = plan.metadata.name, other.metadata.name
    for each in filter(is_of_strangers, (plan, other)):
        yield f"{each.metadata.name}: {state_line(each)}"
        yield ""
    first, second = ({step.server: step for step in p.spec.steps} for p in (plan, other))
    rows = [
        (
            server,
            *_after(first.get(server), money, labels),
            *_after(second.get(server), money, labels),
        )
        for server in sorted({*first, *second})
        if _left(first.get(server)) != _left(second.get(server))
    ]
    if rows:
        headings = [text for name in names for text in (f"{name} TO", f">{name} CHANGE")]
        yield TextTable(("SERVER", *headings), rows)
    else:
        yield f"{names[0]} and {names[1]} leave all Servers in the same state"
    yield ""
    for each in (plan, other):
        if each.spec.steps_omitted:
            omitted = each.spec.steps_omitted
            yield f"{each.metadata.name}: Servers that it does not list: {omitted}"
        yield f"{each.metadata.name}: {summary(each, money)}"


def _left(step: PlanStep | None) -> Sequence[Placement] | None:
    """What runs after a step; None if the Plan does not change the Server."""
    return step.after if step else None


def _after(step: PlanStep | None, money: Money, labels: Labels) -> tuple[str, str]:
    if step is None:
        return UNCHANGED, ""
    return placed_cell(step.after, labels(step.server)), money.change(step.cost_change)


def summary(plan: Plan, money: Money = CENTS) -> str:
    """Return how much a Plan changes, in one line."""
    totals = plan.spec.totals
    is_one = totals.servers == 1
    servers = "1 Server changes" if is_one else f"{totals.servers} Servers change"
    change = totals.cost_after - totals.cost_before
    before, after = money.amount(totals.cost_before), money.amount(totals.cost_after)
    return f"{servers}; cost {before} -> {after} {money.rate} ({money.change(change)})"


def _taken(reduction: Reduction | None) -> Iterator[str]:
    """Yield what a Plan takes away, if it does."""
    if reduction is None:
        return
    if reduction.load_lost:
        lost, load = reduction.load_lost, reduction.load
        yield f"{lost:g} of {load:g} requests/min are not served any more"
    if reduction.emptied:
        yield f"under load without a replica: {', '.join(reduction.emptied)}"


def why(plan: Plan) -> str:
    """Return what the operator says of a Plan."""
    messages = (condition.message for condition in plan.status.conditions)
    return next(messages, "the operator has not looked at it yet")


def _row(plan: Plan, now: datetime, money: Money) -> tuple[str, ...]:
    totals, created = plan.spec.totals, plan.metadata.creation_timestamp
    return (
        plan.metadata.name,
        plan.spec.optimizer,
        plan.status.phase or PHASE_UNKNOWN,
        str(totals.servers),
        money.amount(totals.cost_after),
        money.change(totals.cost_after - totals.cost_before),
        plan.status.by,
        age(created, now) if created else "",
    )


def _step_row(
    step: PlanStep,
    money: Money,
    alternatives: Mapping[str, Alternative] | None,
    labels: Labels,
) -> tuple[str, ...]:
    other = alternatives.get(step.server) if alternatives is not None else None
    price = (other.placement, money.change(other.price)) if other else ("-", "")
    return (
        step.server,
        placed_cell(step.before, labels(step.server)),
        placed_cell(step.after, labels(step.server)),
        money.change(step.cost_change),
        *(price if alternatives is not None else ()),
        step.reason,
    )


def placed_cell(placements: Iterable[Placement], label: Label = plain) -> str:
    """Return replicas with their cards, and batch sizes; a dash if nothing runs."""
    return " + ".join(map(partial(_placed, label=label), placements)) or "-"


def _placed(placement: Placement, label: Label) -> str:
    role = Role(placement.role)
    place = place_of(label(placement.accelerator, role), role)
    batch = f" (batch {placement.batch})" if placement.batch else ""
    return f"{placement.replicas} x {place}{batch}"


def shrinkage(plan: Plan, labels: Labels = no_labels) -> str:
    """Return by how much a Plan shrinks what serves; "" if it does not."""
    reduction = plan.spec.totals.reduction
    if reduction is None or not reduction.replicas_taken:
        return ""
    percent = f"{reduction.replicas_taken / reduction.replicas:.0%}".replace("%", " %")
    moved = ""
    if len(plan.spec.steps) == 1 and not plan.spec.steps_omitted:
        (step,), label = plan.spec.steps, labels(plan.spec.steps[0].server)
        sides = (
            " + ".join(f"{p.replicas} x {label(p.accelerator, Role(p.role))}" for p in side) or "0"
            for side in (step.before, step.after)
        )
        moved = f" ({' -> '.join(sides)})"
    return f"capacity shrinks by {percent}{moved or f' of {reduction.replicas} replicas'}"


def _notes(steps: Iterable[PlanStep]) -> Iterator[str]:
    steps = list(steps)
    yield from grouped((step.server, step.message) for step in steps if step.message)
    yield from grouped((step.server, _way_down(step)) for step in steps if step.via)


def _way_down(step: PlanStep) -> str:
    """Return the numbers of replicas by which a Server loses them."""
    before, after = (sum(p.replicas for p in placed) for placed in (step.before, step.after))
    numbers = " -> ".join(map(str, (before, *step.via, after)))
    return f"{numbers} replicas, step by step (spec.guard.window); at once if a person approves"
