"""The allocations of a Server: replicas that were decided, and those that run.

Which Optimizer made a decision cannot be told from a Server. So one Optimizer with the mode
Recommend stops scaling in its whole namespace. A reconcile reads the Optimizers themselves: a
decision is written after its Optimizer, so no decision is seen without the mode of its Optimizer.
If the Optimizer is deleted, what it recommended stays a recommendation until there is another one.
"""

from collections import Counter
from collections.abc import Collection, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from inferno_operator.resources import (
    DIGITS,
    Allocation,
    Condition,
    Optimizer,
    ReplicaAllocation,
    Server,
    ServerAllocation,
    moved,
)
from inferno_operator.resources.conditions import ACTUATED, ALLOCATED, RECOMMENDED
from inferno_operator.resources.objects import Manifest, kind_of
from inferno_operator.runtime.cache import ObjectDifference
from inferno_optimizer.solution import IDLE, Reason
from inferno_optimizer.system import Role, can_answer, place_of

PROPOSED = "Proposed"
"""The reason of a Server without a decision whose first one is in a Plan that waits."""

UNDECIDED = frozenset({*(reason.value for reason in Reason if not reason.decided), PROPOSED})
"""Reasons of the condition `Allocated` for which what runs stays as it is."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """Wanted replicas by place; None leaves them as they are, for the reason in `why`.

    `reason` is the word for `why` in the condition `Actuated`.
    `fresh` is False while only one of `desiredAlloc` and the condition `Allocated` is written:
    then nothing is changed or reported.
    """

    replicas: Mapping[str, int] | None
    why: str = ""
    fresh: bool = True
    reason: str = ""


def wanted(server: Server) -> Wanted:
    """Read the decision for a Server.

    `desiredAlloc` is written before the condition `Allocated`. In between, a `desiredAlloc`
    that was cleared because no decision is possible looks like a decision for no replicas. So
    replicas are only removed if the condition is about the same generation.
    """
    condition = server.status.condition(ALLOCATED)
    if condition is None:
        why = "nothing was decided yet; set spec.optimize of an Optimizer to true"
        return Wanted(None, why, reason="Held")
    if condition.reason in UNDECIDED:
        return Wanted(None, f"{condition.reason}: {condition.message}", reason="Held")
    replicas = _replicas(server)
    if not replicas and not _is_about(condition, server):
        return Wanted(None, fresh=False)
    if replicas and condition.status != "True":
        return Wanted(None, fresh=False)
    return Wanted(replicas)


def placements(whole: ServerAllocation | None) -> tuple[Allocation, ...]:
    """Return the allocation on each accelerator that has replicas."""
    if whole is None:
        return ()
    return tuple(part for part in whole.parts if part.num_replicas > 0)


def is_as_decided(server: Server) -> bool:
    """Whether the load is that of the decision, within the tolerance for Plans."""
    desired, current = server.spec.desired_alloc, server.spec.current_alloc
    if desired is None or desired.load is None or current is None or current.load is None:
        return False
    return not moved(desired.load, current.load)


def _replicas(server: Server) -> Mapping[str, int]:
    replicas: Counter[str] = Counter()
    desired = server.spec.desired_alloc
    if desired is not None and desired.roles is not None:
        return {place: part.num_replicas for place, part in desired.roles.by_place.items()}
    for part in placements(desired):
        replicas[part.accelerator] += part.num_replicas
    return replicas


def _is_about(condition: Condition, server: Server) -> bool:
    """Whether a condition is about the cleared decision.

    Its reason or its message may say so, also after other writes to the Server: of its load, and
    of the replicas that run, which change with each step. A cleared one names no accelerator.
    """
    desired = server.spec.desired_alloc
    if desired is not None and desired.accelerator:
        return True
    if condition.reason == Reason.NO_CAPACITY or condition.message == IDLE:
        return True
    return condition.observed_generation == server.metadata.generation


OPTIMIZER = kind_of(Optimizer)


def recommended_by(optimizers: Collection[Manifest]) -> str | None:
    """Return why only recommendations are made in a namespace; "" if decisions are actuated.

    None if there is no Optimizer.
    """
    if not optimizers:
        return None
    names = sorted(m["metadata"]["name"] for m in optimizers if recommends(m))
    return f"Optimizer {names[0]!r} has mode Recommend" if names else ""


def decision_for(server: Server, why: str | None) -> Wanted:
    """Read the decision for a Server; `why` is that of `recommended_by`."""
    before = server.status.condition(ACTUATED)
    if why is None and before is not None and before.reason == RECOMMENDED:
        why = "its Optimizer, which had mode Recommend, was deleted"
    return Wanted(None, why, reason=RECOMMENDED) if why else wanted(server)


def recommends(manifest: Manifest | None) -> bool:
    """Whether an Optimizer has the mode, also if the rest of its spec is invalid."""
    return manifest is not None and manifest.get("spec", {}).get("mode") == "Recommend"


def is_change_of_mode(difference: ObjectDifference) -> bool:
    """Whether an Optimizer got or lost the mode."""
    return recommends(difference.before) != recommends(difference.after)


@dataclass(frozen=True, slots=True)
class PlacedReplicas:
    """The replicas of a Server on one accelerator, in one role.

    `cold` of those that are ready have just started; those that are `starting` come on top.
    """

    accelerator: str
    ready: int
    cold: int = 0
    starting: int = 0
    role: Role = Role.BOTH

    @classmethod
    def reported_in(cls, part: ReplicaAllocation, role: Role = Role.BOTH) -> "PlacedReplicas":
        """The replicas that an allocation reports."""
        cold, starting = part.cold_replicas or 0, part.starting_replicas or 0
        return cls(part.accelerator, part.num_replicas, cold, starting, role)

    @property
    def place(self) -> str:
        """The accelerator with the role."""
        return place_of(self.accelerator, self.role)

    @property
    def rank(self) -> tuple[int, int]:
        """By what some replicas are more than others; zeros if none hold cards."""
        return self.ready, self.starting


def together_or_apart(
    replicas: Iterable[PlacedReplicas], decided: Container[str]
) -> Sequence[PlacedReplicas]:
    """Return the replicas that a current allocation can tell.

    These are the replicas that do both, or those of each role. While a server changes from one to
    the other, it is those that leave: the decision tells the others, and so all cards are known
    that either of them holds. Of several accelerators of a role it is the one with the most.
    """
    placed = [each for each in replicas if any(each.rank)]
    whole = [each for each in placed if each.role is Role.BOTH]
    ranked = sorted(placed, key=lambda each: each.rank)
    pair = {each.role: each for each in ranked if each.role is not Role.BOTH}
    if not can_answer(pair):
        return whole
    leaves = any(each.place in decided for each in whole)
    return [*pair.values()] if leaves or not whole else whole


def has_changed(server: Server, replicas: Iterable[PlacedReplicas]) -> bool:
    """Whether the Server's current allocation differs from the replicas that run, cold or not."""
    current = server.spec.current_alloc
    if current is None or current.cost is None:
        return True
    placed = _in_order(replicas)
    reported = current.accelerator, _reported(current)
    return reported != (_main(server, placed).accelerator, set(placed))


def _reported(current: ServerAllocation) -> set[PlacedReplicas]:
    if current.roles:
        roles = current.roles.by_role.items()
        return {PlacedReplicas.reported_in(part, role) for role, part in roles}
    parts = (part for part in current.parts if part.placed_replicas)
    return set(map(PlacedReplicas.reported_in, parts))


def reported_on(server: Server, place: str) -> int:
    """Return the replicas of a place that were there when they were last read."""
    current = server.spec.current_alloc
    if current is not None and current.roles is not None:
        roles = current.roles.by_place
        return roles[place].num_replicas if place in roles else 0
    parts = placements(current)
    return sum(part.num_replicas for part in parts if part.accelerator == place)


def is_mistyped(
    server: Server, replicas: Iterable[PlacedReplicas], unit_costs: Mapping[str, float]
) -> bool:
    """Whether replicas run on an accelerator that there is not, and others were reported before.

    A mistyped name must not replace the accelerator whose cards the replicas hold.
    """
    reported = {part.accelerator for part in placements(server.spec.current_alloc)}
    unknown = (each for each in replicas if each.ready and each.place not in unit_costs)
    return bool(reported) and any(each.accelerator not in reported for each in unknown)


def current_allocation(
    server: Server, replicas: Iterable[PlacedReplicas], unit_costs: Mapping[str, float]
) -> Manifest:
    """Return `currentAlloc` from the replicas that run, without the load, which users set.

    If several accelerators have replicas, `accelerator` is the one with the most (the first of
    the reference among equals), replicas and cost are totals, and the mix has one entry for
    each accelerator, as in a desired allocation. Replicas of two roles are the parts of `roles`.
    `unit_costs` are by place.
    """
    placed = _in_order(replicas)
    parts = [_fields(server, each, unit_costs) for each in placed]
    if len(parts) == 1:
        return Allocation.json_of(**parts[0])
    main = _main(server, placed)
    return ServerAllocation.json_of(
        accelerator=main.accelerator,
        num_replicas=sum(each.ready for each in placed),
        starting_replicas=sum(each.starting for each in placed) or None,
        cold_replicas=sum(each.cold for each in placed) or None,
        max_batch=_max_batch(server, main),
        cost=round(sum(part["cost"] for part in parts), DIGITS),
        **_divided(placed, parts),
    )


def _divided(
    placed: Sequence[PlacedReplicas], parts: Sequence[dict[str, Any]]
) -> dict[str, object]:
    """Return the roles of an allocation, or its mix; nothing without replicas."""
    if not placed:
        return {}
    if placed[0].role is Role.BOTH:
        return {"mix": [Allocation.json_of(**part) for part in parts]}
    pairs = zip(placed, parts, strict=True)
    return {"roles": {e.role.lower(): ReplicaAllocation.json_of(**part) for e, part in pairs}}


def _fields(
    server: Server, replicas: PlacedReplicas, unit_costs: Mapping[str, float]
) -> dict[str, Any]:
    """Return the fields of the allocation on one accelerator."""
    return {
        "accelerator": replicas.accelerator,
        "num_replicas": replicas.ready,
        "starting_replicas": replicas.starting or None,
        "cold_replicas": replicas.cold or None,
        "max_batch": _max_batch(server, replicas),
        "cost": round(replicas.ready * unit_costs.get(replicas.place, 0.0), DIGITS),
    }


def _in_order(replicas: Iterable[PlacedReplicas]) -> Sequence[PlacedReplicas]:
    """Return the replicas that hold cards, the most first."""
    placed = (each for each in replicas if any(each.rank))
    return sorted(placed, key=lambda each: each.rank, reverse=True)


def _main(server: Server, placed: Sequence[PlacedReplicas]) -> PlacedReplicas:
    """Return the replicas whose accelerator names the whole: those that decode, else the most.

    If there are none, a Server with `keepAccelerator` keeps its accelerator, because the optimizer
    needs its name; any other Server has none ("").
    """
    if placed:
        return next((each for each in placed if each.role is Role.DECODE), placed[0])
    current = server.spec.current_alloc
    kept = current.accelerator if current and server.spec.keep_accelerator else ""
    return PlacedReplicas(kept, ready=0)


def _max_batch(server: Server, replicas: PlacedReplicas) -> int:
    """Return the batch size that was decided for the place of replicas, else the one before."""
    desired, current = server.spec.desired_alloc, server.spec.current_alloc
    wholes = [*filter(None, [desired, current])]
    parts: list[ReplicaAllocation]
    if replicas.role is Role.BOTH:
        every = [*placements(desired), *placements(current), *filter(None, [current])]
        parts = [part for part in every if part.accelerator == replicas.accelerator != ""]
    else:
        roles = [whole.roles.by_place for whole in wholes if whole.roles]
        parts = [each[replicas.place] for each in roles if replicas.place in each]
    return next((part.max_batch for part in parts if part.max_batch), 0)
