"""Objects and a solution -> the changes that an optimization would write to Servers; pure."""

from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from functools import partial
from typing import Any

from inferno_operator.controllers.planning.allocations import Label, plain, price_current
from inferno_operator.controllers.planning.snapshot import Snapshot
from inferno_operator.controllers.planning.updates import Update, plan_updates
from inferno_operator.controllers.scaling.decision import UNDECIDED
from inferno_operator.resources import (
    DESIRED_ALLOC,
    Allocation,
    Optimizer,
    Server,
    ServerAllocation,
)
from inferno_operator.resources.conditions import WARNINGS, absence
from inferno_operator.resources.objects import kind_of
from inferno_operator.resources.observation import Observation
from inferno_optimizer.sizing.cases import Catalogue
from inferno_optimizer.solution import Solution
from inferno_optimizer.wire.codec import encode_solution


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


SERVER = kind_of(Server)


@dataclass(frozen=True, slots=True)
class Preview:
    """One Server with its current, its desired and its planned allocation.

    `action` is the difference of the last two; a Server that loses all that runs or was desired
    stops. One with an unreadable spec does not change.
    `warnings` are those of the planned allocation, in one line; `absence` says why there is nothing
    that the operator could scale, "" if there is. `label` is how accelerators are shown for it.
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
    label: Label = field(default=plain, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class PlanPreview:
    """Servers sorted by name, and one line for each invalid object of another kind."""

    servers: tuple[Preview, ...]
    troubles: tuple[str, ...]


def preview(
    observations: Iterable[Observation], snapshot: Snapshot, solution: Solution
) -> PlanPreview:
    """Return what the operator would write to the objects, computed in the same way."""
    read = [o for o in observations if o.kind is not Optimizer]
    read.sort(key=lambda observation: observation.reference.key)
    updates, catalogue = plan_updates(read, snapshot, solution), Catalogue(snapshot.system)
    servers = (
        _preview(observation, update, catalogue)
        for observation, update in zip(read, updates, strict=True)
        if observation.kind is Server
    )
    return PlanPreview(tuple(servers), tuple(_troubles(updates)))


def plan_document(
    optimizer: str, changes: Iterable[str], plan: PlanPreview, solution: Solution
) -> dict[str, Any]:
    """Return a plan as JSON; allocations have the form of the Servers."""
    return {
        "optimizer": optimizer,
        "changes": list(changes),
        "servers": [_server_document(item) for item in plan.servers],
        "troubles": list(plan.troubles),
        "cost": solution.cost,
        "capacity": [asdict(use) for use in solution.capacity],
        "certificate": encode_solution(solution)["certificate"],
    }


def _server_document(item: Preview) -> dict[str, Any]:
    parts = (("current", item.current), ("desired", item.desired), ("planned", item.planned))
    return {
        "name": item.name,
        "action": str(item.action) or None,
        "reason": item.reason,
        "message": item.message,
        **({"warnings": item.warnings} if item.warnings else {}),
        **({"absence": item.absence} if item.absence else {}),
        **{name: part.to_json() for name, part in parts if part},
    }


def _troubles(updates: Iterable[Update]) -> Iterator[str]:
    for update in updates:
        reference, verdict = update.reference, update.ready
        if reference.kind != SERVER and verdict.holds is False:
            yield f"{reference.kind.kind} {reference.key.name}: {verdict.message}"


def runs(allocation: Allocation | None) -> bool:
    """Return whether an allocation names an accelerator."""
    return allocation is not None and bool(allocation.accelerator)


def _preview(observation: Observation, update: Update, catalogue: Catalogue) -> Preview:
    name, verdict = observation.reference.key.name, update.ready
    resource = observation.resource
    if not isinstance(resource, Server):
        return Preview(name, "", None, None, None, Action.NONE, verdict.reason, verdict.message)
    spec, current = resource.spec, price_current(resource, catalogue)
    is_held = verdict.reason in UNDECIDED and not runs(spec.desired_alloc)
    stays = current if is_held else spec.desired_alloc
    planned = _planned(update, stays)
    had = max(_replicas(current), _replicas(spec.desired_alloc))
    stops = had > 0 and _replicas(planned) == 0
    action = Action.STOP if stops else _action(spec.desired_alloc, planned)
    return Preview(
        name=name,
        service_class=spec.service_class,
        current=current,
        desired=spec.desired_alloc,
        planned=planned,
        action=action if update.spec else Action.NONE,
        reason=verdict.reason,
        message=verdict.message,
        warnings=next((v.message for v in update.verdicts if v.type == WARNINGS), ""),
        absence=absence(observation.status),
        label=partial(catalogue.label, spec.model),
    )


def _replicas(allocation: Allocation | None) -> int:
    return (
        sum(part.num_replicas for part in allocation.parts if part.accelerator) if allocation else 0
    )


def _planned(update: Update, stays: ServerAllocation | None) -> ServerAllocation | None:
    if update.spec is None:
        return stays
    return ServerAllocation.model_validate(update.spec[DESIRED_ALLOC])


def _action(before: Allocation | None, after: Allocation | None) -> Action:
    """Return the most important change between two allocations."""
    if not (before and before.accelerator and after and after.accelerator):
        return Action.PLACE if runs(after) and not runs(before) else Action.UPDATE
    if before.accelerator != after.accelerator:
        return Action.MOVE
    if before.num_replicas != after.num_replicas:
        more = after.num_replicas > before.num_replicas
        return Action.SCALE_UP if more else Action.SCALE_DOWN
    return Action.UPDATE if before.max_batch == after.max_batch else Action.BATCH
