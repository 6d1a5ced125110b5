"""What an optimization would change, recorded Plans, and what one changes, as text and JSON.

Costs are in cents/hour where no currency is asked for, latencies in ms.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import datetime
from enum import StrEnum
from functools import partial
from typing import Any

from inferno_operator.cli.options import CENTS, Money
from inferno_operator.cli.tables.servers import (
    Labels,
    count_replicas,
    find_cost,
    format_band,
    format_cost,
    format_load,
    format_placement,
)
from inferno_operator.cli.tables.solution import (
    BAND,
    describe_proof,
    has_ttft,
    list_latency_headings,
    list_parts,
    tabulate_cards,
    warn_of_single_replicas,
)
from inferno_operator.cli.tables.table import (
    Columns,
    Part,
    ServerPart,
    ServerParts,
    TextTable,
    format_age,
    group_notes,
)
from inferno_operator.controllers.planning.conversions import (
    Label,
    allocation_of,
    name_accelerator,
    price_current,
)
from inferno_operator.controllers.planning.snapshot import Snapshot
from inferno_operator.controllers.planning.status import NOT_SIGNED, describe_answers
from inferno_operator.controllers.planning.updates import Update, plan_updates
from inferno_operator.resources import (
    DESIRED_ALLOC,
    Allocation,
    Optimizer,
    Placement,
    Plan,
    PlanStep,
    Server,
    ServerAllocation,
    ServerSpec,
)
from inferno_operator.resources.conditions import UNDECIDED, WARNINGS, absence
from inferno_operator.resources.objects import kind_of
from inferno_operator.resources.observation import Observation
from inferno_optimizer.sizing.cases import Catalogue
from inferno_optimizer.solution import Reason, Solution
from inferno_optimizer.system import Role, place_of
from inferno_optimizer.wire.codec import encode_solution

SERVER = kind_of(Server)

# Columns of servers that a narrow terminal does not show.
OPTIONAL = (
    *("CLASS", "BATCH", BAND, "WAIT MS", "ITL MS", "TTFT MS", "LOAD", "DESIRED COST", "DESIRED"),
    *("CURRENT COST", "PLANNED COST", "CURRENT"),
)

UNCHANGED = "as before"  # shown of a Server that a Plan does not change
PHASE_UNKNOWN = "-"  # shown until the operator has looked at a Plan


class Action(StrEnum):
    """Change of the desired allocation of a Server."""

    NONE = ""
    PLACE = "place"
    STOP = "stop"
    MOVE = "move"
    SCALE_UP = "scale up"
    SCALE_DOWN = "scale down"
    BATCH = "change batch"
    UPDATE = "update numbers"


@dataclass(frozen=True, slots=True)
class ServerPreview:
    """One Server with its current, its desired and its planned allocation.

    `action` is the difference of the last two; a Server that loses all that runs or was desired
    stops. One with an unreadable spec does not change.
    `warnings` are those of the planned allocation, in one line; `absence` says why there is nothing
    that the operator could scale, "" if there is. `label` is how accelerators are shown for it, and
    `find_parts` returns those of the planned allocation.
    """

    name: str
    service_class: str
    current: Allocation | None
    desired: Allocation | None
    planned: Allocation | None
    action: Action
    reason: str
    message: str
    warnings: str = ""
    absence: str = ""
    label: Label = field(default=name_accelerator, compare=False, repr=False)
    find_parts: Callable[[], Sequence[ServerPart]] = field(default=tuple, compare=False, repr=False)

    def to_json(self) -> dict[str, Any]:
        """Return what changes as JSON; allocations have the form of the Servers."""
        parts = {"current": self.current, "desired": self.desired, "planned": self.planned}
        return {
            "name": self.name,
            "action": str(self.action) or None,
            "reason": self.reason,
            "message": self.message,
            **({"warnings": self.warnings} if self.warnings else {}),
            **({"absence": self.absence} if self.absence else {}),
            **{name: part.to_json() for name, part in parts.items() if part},
        }


@dataclass(frozen=True, slots=True)
class PlanPreview:
    """Servers sorted by name, and one line for each invalid object of another kind."""

    servers: tuple[ServerPreview, ...]
    troubles: tuple[str, ...]


def preview_plan(
    observations: Iterable[Observation], snapshot: Snapshot, solution: Solution
) -> PlanPreview:
    """Return what the operator would write to the objects, computed in the same way."""
    read = [o for o in observations if o.kind is not Optimizer]
    read.sort(key=lambda observation: observation.reference.key)
    updates, catalogue = plan_updates(read, snapshot, solution), Catalogue(snapshot.system)
    servers = tuple(
        _preview_server(observation, update, catalogue)
        for observation, update in zip(read, updates, strict=True)
        if observation.kind is Server
    )
    troubles = tuple(
        f"{update.reference.kind.kind} {update.reference.key.name}: {update.ready.message}"
        for update in updates
        if update.reference.kind != SERVER and update.ready.holds is False
    )
    return PlanPreview(servers, troubles)


def _preview_server(
    observation: Observation, update: Update, catalogue: Catalogue
) -> ServerPreview:
    name, verdict = observation.reference.key.name, update.ready
    resource, about = observation.resource, (update.ready.reason, update.ready.message)
    if not isinstance(resource, Server):
        return ServerPreview(name, "", None, None, None, Action.NONE, *about)
    spec, current = resource.spec, price_current(resource, catalogue)
    is_held = verdict.reason in UNDECIDED and not is_running(spec.desired_alloc)
    planned = current if is_held else spec.desired_alloc
    action = Action.NONE
    if update.spec is not None:
        planned = ServerAllocation.model_validate(update.spec[DESIRED_ALLOC])
        action = _compare_allocations(spec.desired_alloc, planned)
        had = max(_count_running(current), _count_running(spec.desired_alloc))
        if had > 0 and _count_running(planned) == 0:
            action = Action.STOP
    return ServerPreview(
        name,
        spec.service_class,
        current,
        spec.desired_alloc,
        planned,
        action,
        *about,
        warnings=next((v.message for v in update.verdicts if v.type == WARNINGS), ""),
        absence=absence(observation.status),
        label=partial(catalogue.label, spec.model),
        find_parts=partial(_find_parts, spec, planned, catalogue),
    )


def _find_parts(
    spec: ServerSpec, planned: ServerAllocation | None, catalogue: Catalogue
) -> Sequence[ServerPart]:
    if planned is None:
        return ()
    return list_parts(spec.service_class, spec.model, allocation_of(planned), catalogue)


def is_running(allocation: Allocation | None) -> bool:
    """Whether an allocation names an accelerator."""
    return allocation is not None and bool(allocation.accelerator)


def _count_running(allocation: Allocation | None) -> int:
    parts = allocation.parts if allocation else ()
    return sum(part.num_replicas for part in parts if part.accelerator)


def _compare_allocations(before: Allocation | None, after: Allocation | None) -> Action:
    if not (before and before.accelerator and after and after.accelerator):
        return Action.PLACE if is_running(after) and not is_running(before) else Action.UPDATE
    if before.accelerator != after.accelerator:
        return Action.MOVE
    if before.num_replicas != after.num_replicas:
        more = after.num_replicas > before.num_replicas
        return Action.SCALE_UP if more else Action.SCALE_DOWN
    return Action.UPDATE if before.max_batch == after.max_batch else Action.BATCH


def encode_preview(
    optimizer: str, changes: Iterable[str], plan: PlanPreview, solution: Solution
) -> dict[str, Any]:
    """Return a plan as JSON."""
    return {
        "optimizer": optimizer,
        "changes": list(changes),
        "servers": [item.to_json() for item in plan.servers],
        "troubles": list(plan.troubles),
        "cost": solution.cost,
        "capacity": [asdict(use) for use in solution.capacity],
        "certificate": encode_solution(solution)["certificate"],
    }


def describe_preview(plan: PlanPreview, solution: Solution, money: Money = CENTS) -> Iterator[Part]:
    """Yield servers that change, notes on servers that get too little, totals, cards, proof."""
    changes = tabulate_changes(plan, solution, money)
    if changes.rows:
        yield changes
        yield ""
    notes = []
    for item in plan.servers:
        if item.reason != Reason.ALLOCATED:
            notes.append((item.name, item.message))
        if item.warnings:
            notes.append((item.name, f"warning: {item.warnings}"))
        if item.action and item.absence:
            notes.append((item.name, f"warning: {item.absence}"))
    if lines := [*group_notes(notes), *plan.troubles]:
        yield from lines
        yield ""
    yield _sum_changes(plan.servers, money)
    replicas = (count_replicas(item.current, item.planned) for item in plan.servers)
    yield from warn_of_single_replicas(replicas, money)
    if solution.capacity:
        yield ""
        yield tabulate_cards(solution.capacity, money)
    yield ""
    yield from describe_proof(solution)


def tabulate_changes(plan: PlanPreview, solution: Solution, money: Money = CENTS) -> TextTable:
    """Return the servers that change; only headings where nothing does."""
    ttft = has_ttft(solution.allocations.values())
    changed = [item for item in plan.servers if item.action]
    rows = []
    for item in changed:
        planned, cells = item.planned, ("-", *[""] * (4 + ttft))
        if planned is not None and planned.accelerator:
            latencies = (planned.itl_average, planned.wait_average, planned.ttft_average)
            cells = (
                format_placement(planned, item.label),
                str(planned.max_batch or 0),
                format_cost(planned, money),
                *(f"{latency or 0:.2f}" for latency in latencies[: 2 + ttft]),
            )
        rows.append(
            (
                item.name,
                item.service_class,
                format_load(item.current),
                *(format_placement(item.current, item.label), format_cost(item.current, money)),
                *(format_placement(item.desired, item.label), format_cost(item.desired, money)),
                *cells,
                item.action,
                item.reason,
            )
        )
    now = ("SERVER", "CLASS", ">LOAD", "CURRENT", ">CURRENT:COST", "DESIRED", ">DESIRED:COST")
    then = ("PLANNED", ">BATCH", ">PLANNED:COST", *list_latency_headings(ttft=ttft))
    by_name = {item.name: item for item in changed}
    parts = ServerParts(lambda name: by_name[name].find_parts(), money, len(plan.servers))
    table = TextTable((*now, *then, "ACTION", "REASON"), rows, OPTIONAL, parts)
    return table.with_last(BAND, [format_band(item.planned) for item in changed])


def _sum_changes(previews: Sequence[ServerPreview], money: Money) -> str:
    changing = sum(item.action is not Action.NONE for item in previews)
    planned, total = sum(is_running(item.planned) for item in previews), len(previews)
    now, desired, then = (
        money.amount(sum(find_cost(getattr(item, which)) for item in previews))
        for which in ("current", "desired", "planned")
    )
    changes = f"{changing} of {total} servers would change" if changing else "nothing would change"
    return (
        f"{changes}; {planned} of {total} would have an allocation;"
        f" cost {now} now, {desired} desired -> {then} {money.rate}"
    )


def describe_plans(plans: Sequence[Plan], now: datetime, money: Money = CENTS) -> Iterator[Part]:
    """Yield a table of Plans, and what those wait for that are not finished."""
    if not plans:
        yield "no Plans in this namespace"
        return
    columns: Columns[Plan] = {
        "PLAN": lambda plan: plan.metadata.name,
        "OPTIMIZER": lambda plan: plan.spec.optimizer,
        "PHASE": lambda plan: plan.status.phase or PHASE_UNKNOWN,
        ">SERVERS": lambda plan: str(plan.spec.totals.servers),
        ">COST": lambda plan: money.amount(plan.spec.totals.cost_after),
        ">CHANGE": lambda plan: money.change(find_cost_change(plan)),
        "BY": lambda plan: plan.status.by,
        ">AGE": lambda plan: (
            format_age(created, now) if (created := plan.metadata.creation_timestamp) else ""
        ),
    }
    yield TextTable.of(plans, columns, ("BY", "OPTIMIZER", "COST"))
    yield from money.named()
    if unfinished := [plan for plan in plans if plan.status.phase in ("Proposed", "Acting")]:
        yield ""
        yield from group_notes((plan.metadata.name, describe_status(plan)) for plan in unfinished)


def describe_waiting(plans: Sequence[Plan], money: Money = CENTS) -> Iterator[Part]:
    """Yield what each Plan that waits would change, and how to answer it."""
    for plan in plans:
        name = plan.metadata.name
        yield f"Plan {name} waits for approval: {summarize(plan, money)}; {describe_answers(name)}"


@dataclass(frozen=True, slots=True)
class Alternative:
    """What else a Server could get, and what that costs more than what is decided [cents/hour]."""

    placement: str
    price: float


def name_accelerators(_: str) -> Label:
    """Return names of accelerators as they are, where it is not known what a replica takes."""
    return name_accelerator


def describe_plan(
    plan: Plan,
    money: Money = CENTS,
    alternatives: Mapping[str, Alternative] | None = None,
    labels: Labels = name_accelerators,
) -> Iterator[Part]:
    """Yield what a Plan changes, its totals, and where it is.

    Of a Plan that the operator has not recognized as its own, that comes before what it says.
    `alternatives` are by name of the Server; None if nobody asks for them.
    """
    is_unknown = plan.status.phase is None or is_of_strangers(plan)
    if is_unknown:
        yield describe_phase(plan)
        yield ""
    yield from describe_steps(plan, money, alternatives, labels)
    if not is_unknown:
        yield describe_phase(plan)


def is_of_strangers(plan: Plan) -> bool:
    """Whether the operator says of a Plan that it did not make it."""
    return any(condition.reason == NOT_SIGNED for condition in plan.status.conditions)


def describe_steps(
    plan: Plan,
    money: Money = CENTS,
    alternatives: Mapping[str, Alternative] | None = None,
    labels: Labels = name_accelerators,
) -> Iterator[Part]:
    """Yield what a Plan changes, and its totals; see `describe_plan`."""
    steps, reduction, rows = plan.spec.steps, plan.spec.totals.reduction, []
    for step in steps:
        label, other = labels(step.server), (alternatives or {}).get(step.server)
        price = (other.placement, money.change(other.price)) if other else ("-", "")
        rows.append(
            (
                step.server,
                format_placements(step.before, label),
                format_placements(step.after, label),
                money.change(step.cost_change),
                *(price if alternatives is not None else ()),
                step.reason,
            )
        )
    extra = ("BEST ELSEWHERE", ">BEST ELSEWHERE:PRICE") if alternatives is not None else ()
    table = TextTable(("SERVER", "FROM", "TO", ">CHANGE", *extra, "REASON"), rows)
    yield table.with_last(BAND, list(map(format_band, steps)))
    yield ""
    notes = [(step.server, step.message) for step in steps if step.message]
    ways_down = [(step.server, _describe_way_down(step)) for step in steps if step.via]
    if lines := [*group_notes(notes), *group_notes(ways_down)]:
        yield from lines
        yield ""
    if plan.spec.steps_omitted:
        yield f"and {plan.spec.steps_omitted} more Servers, which the Plan does not list"
    yield summarize(plan, money)
    if shrinkage := describe_shrinkage(plan, labels):
        yield shrinkage
    if reduction and reduction.load_lost:
        lost, load = reduction.load_lost, reduction.load
        yield f"{lost:g} of {load:g} requests/min are not served any more"
    if reduction and reduction.emptied:
        yield f"under load without a replica: {', '.join(reduction.emptied)}"


def _describe_way_down(step: PlanStep) -> str:
    """Return the numbers of replicas by which a Server loses them."""
    before, after = (sum(p.replicas for p in placed) for placed in (step.before, step.after))
    numbers = " -> ".join(map(str, (before, *step.via, after)))
    return f"{numbers} replicas, step by step (spec.guard.window); at once if a person approves"


def describe_phase(plan: Plan) -> str:
    """Return where a Plan is, and what the operator says of it, which may begin with the same."""
    phase, message = plan.status.phase or PHASE_UNKNOWN, describe_status(plan)
    if message.lower().startswith((f"{phase} ".lower(), f"{phase}:".lower())):
        return message[:1].upper() + message[1:]
    return f"{phase}: {message}"


def describe_difference(
    plan: Plan, other: Plan, money: Money = CENTS, labels: Labels = name_accelerators
) -> Iterator[Part]:
    """Yield the Servers that two Plans leave in different states, and what both cost.

    A Plan leaves the Servers that it does not list as they were.
    """
    both, names = (plan, other), (plan.metadata.name, other.metadata.name)
    for each in filter(is_of_strangers, both):
        yield f"{each.metadata.name}: {describe_phase(each)}"
        yield ""
    steps = [{step.server: step for step in each.spec.steps} for each in both]
    rows = []
    for server in sorted({*steps[0], *steps[1]}):
        found = [each.get(server) for each in steps]
        if found[0] and found[1] and found[0].after == found[1].after:
            continue
        cells = list[str]()
        for step in found:
            after = format_placements(step.after, labels(server)) if step else UNCHANGED
            cells += (after, money.change(step.cost_change) if step else "")
        rows.append((server, *cells))
    if rows:
        headings = [text for name in names for text in (f"{name} TO", f">{name} CHANGE")]
        yield TextTable(("SERVER", *headings), rows)
    else:
        yield f"{names[0]} and {names[1]} leave all Servers in the same state"
    yield ""
    for each in both:
        if each.spec.steps_omitted:
            omitted = each.spec.steps_omitted
            yield f"{each.metadata.name}: Servers that it does not list: {omitted}"
        yield f"{each.metadata.name}: {summarize(each, money)}"


def summarize(plan: Plan, money: Money = CENTS) -> str:
    """Return how much a Plan changes, in one line."""
    totals = plan.spec.totals
    servers = "1 Server changes" if totals.servers == 1 else f"{totals.servers} Servers change"
    before, after = money.amount(totals.cost_before), money.amount(totals.cost_after)
    change = money.change(find_cost_change(plan))
    return f"{servers}; cost {before} -> {after} {money.rate} ({change})"


def find_cost_change(plan: Plan) -> float:
    """Return by how much a Plan changes the cost of all Servers [cents/hour]."""
    return plan.spec.totals.cost_after - plan.spec.totals.cost_before


def describe_status(plan: Plan) -> str:
    """Return what the operator says of a Plan."""
    messages = (condition.message for condition in plan.status.conditions)
    return next(messages, "the operator has not looked at it yet")


def format_placements(placements: Iterable[Placement], label: Label = name_accelerator) -> str:
    """Return replicas with their cards, and batch sizes; a dash if nothing runs."""
    parts = []
    for placement in placements:
        role = Role(placement.role)
        name = place_of(label(placement.accelerator, role), role)
        batch = f" (batch {placement.batch})" if placement.batch else ""
        parts.append(f"{placement.replicas} x {name}{batch}")
    return " + ".join(parts) or "-"


def describe_shrinkage(plan: Plan, labels: Labels = name_accelerators) -> str:
    """Return by how much a Plan shrinks what serves; "" if it does not."""
    reduction = plan.spec.totals.reduction
    if reduction is None or not reduction.replicas_taken:
        return ""
    percent = f"{reduction.replicas_taken / reduction.replicas:.0%}".replace("%", " %")
    if len(plan.spec.steps) != 1 or plan.spec.steps_omitted:
        return f"capacity shrinks by {percent} of {reduction.replicas} replicas"
    (step,), label = plan.spec.steps, labels(plan.spec.steps[0].server)
    sides = (
        " + ".join(f"{p.replicas} x {label(p.accelerator, Role(p.role))}" for p in side) or "0"
        for side in (step.before, step.after)
    )
    return f"capacity shrinks by {percent} ({' -> '.join(sides)})"
