"""The allocations of a Server: replicas that were decided, and those that run; pure.

Which Optimizer made a decision cannot be told from a Server. So one Optimizer with the mode
Recommend stops scaling in its whole namespace. A reconcile reads the Optimizers themselves: a
decision is written after its Optimizer, so no decision is seen without the mode of its Optimizer.
If the Optimizer is deleted, what it recommended stays a recommendation until there is another one.
"""

from collections.abc import Collection, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from inferno_operator.resources import (
    DIGITS,
    Allocation,
    Optimizer,
    ReplicaAllocation,
    Server,
    ServerAllocation,
    describe_change,
)
from inferno_operator.resources.conditions import ACTUATED, ALLOCATED, RECOMMENDED, UNDECIDED
from inferno_operator.resources.objects import Manifest, kind_of
from inferno_optimizer.solution import IDLE, Reason
from inferno_optimizer.system import Role, can_answer, place_of

OPTIMIZER = kind_of(Optimizer)


def is_recommending(optimizer: Manifest | None) -> bool:
    """Whether an Optimizer has the mode Recommend, also if the rest of its spec is invalid."""
    return optimizer is not None and optimizer.get("spec", {}).get("mode") == "Recommend"


def explain_recommendation(optimizers: Collection[Manifest]) -> str | None:
    """Return why only recommendations are made in a namespace; "" if decisions are actuated.

    None if there is no Optimizer.
    """
    if not optimizers:
        return None
    names = sorted(m["metadata"]["name"] for m in optimizers if is_recommending(m))
    return f"Optimizer {names[0]!r} has mode Recommend" if names else ""


@dataclass(frozen=True, slots=True)
class WantedReplicas:
    """Wanted replicas by place; None leaves them as they are, for the reason in `why`.

    `reason` is the word for `why` in the condition `Actuated`. `is_written` is False while only
    one of `desiredAlloc` and the condition `Allocated` is written: then nothing is changed or
    reported.
    """

    replicas: Mapping[str, int] | None
    why: str = ""
    is_written: bool = True
    reason: str = ""


def read_decision(server: Server, recommending: str | None = "") -> WantedReplicas:
    """Read the decision for a Server; `recommending` is that of `explain_recommendation`.

    `desiredAlloc` is written before the condition `Allocated`. In between, a `desiredAlloc`
    that was cleared because no decision is possible looks like a decision for no replicas. So
    replicas are only removed if the condition is about the same generation.
    """
    before, allocated = server.status.condition(ACTUATED), server.status.condition(ALLOCATED)
    if recommending is None and before is not None and before.reason == RECOMMENDED:
        recommending = "its Optimizer, which had mode Recommend, was deleted"
    if recommending:
        return WantedReplicas(None, recommending, reason=RECOMMENDED)
    if allocated is None:
        why = "nothing was decided yet; set spec.optimize of an Optimizer to true"
        return WantedReplicas(None, why, reason="Held")
    if allocated.reason in UNDECIDED:
        return WantedReplicas(None, f"{allocated.reason}: {allocated.message}", reason="Held")
    desired = server.spec.desired_alloc
    replicas = desired.by_place if desired else {}
    if replicas:
        is_written = allocated.status == "True"
    else:
        # The reason or the message of the condition may say that it is about the cleared decision,
        # also after other writes to the Server: of its load, and of the replicas that run, which
        # change with each step. A cleared one names no accelerator.
        is_written = (
            bool(desired is not None and desired.accelerator)
            or allocated.reason == Reason.NO_CAPACITY
            or allocated.message == IDLE
            or allocated.observed_generation == server.metadata.generation
        )
    return WantedReplicas(replicas) if is_written else WantedReplicas(None, is_written=False)


def is_as_decided(server: Server) -> bool:
    """Whether the load is that of the decision, within the tolerance for Plans."""
    desired, current = server.spec.desired_alloc, server.spec.current_alloc
    if desired is None or desired.load is None or current is None or current.load is None:
        return False
    return not describe_change(desired.load, current.load)


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


def select_roles(
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
    reported = {
        PlacedReplicas.reported_in(part, role)
        for role, part in current.parts_by_role
        if current.roles or part.placed_replicas
    }
    placed = _rank(replicas)
    return current.accelerator != _find_main(server, placed).accelerator or reported != {*placed}


def is_mistyped(
    server: Server, replicas: Iterable[PlacedReplicas], unit_costs: Mapping[str, float]
) -> bool:
    """Whether replicas run on an accelerator that there is not, and others were reported before.

    A mistyped name must not replace the accelerator whose cards the replicas hold.
    """
    current = server.spec.current_alloc
    parts = current.parts if current else ()
    reported = {part.accelerator for part in parts if part.num_replicas > 0}
    unknown = (each for each in replicas if each.ready and each.place not in unit_costs)
    return bool(reported) and any(each.accelerator not in reported for each in unknown)


def build_current_alloc(
    server: Server, replicas: Iterable[PlacedReplicas], unit_costs: Mapping[str, float]
) -> Manifest:
    """Return `currentAlloc` from the replicas that run, without the load, which users set.

    If several accelerators have replicas, `accelerator` is the one with the most (the first of
    the reference among equals), replicas and cost are totals, and the mix has one entry for
    each accelerator, as in a desired allocation. Replicas of two roles are the parts of `roles`.
    `unit_costs` are by place.
    """
    placed = _rank(replicas)
    parts: list[dict[str, Any]] = [
        {
            "accelerator": each.accelerator,
            "num_replicas": each.ready,
            "starting_replicas": each.starting or None,
            "cold_replicas": each.cold or None,
            "max_batch": _find_max_batch(server, each),
            "cost": round(each.ready * unit_costs.get(each.place, 0.0), DIGITS),
        }
        for each in placed
    ]
    if len(parts) == 1:
        return Allocation.json_of(**parts[0])
    main, divided = _find_main(server, placed), dict[str, object]()
    if placed and placed[0].role is Role.BOTH:
        divided["mix"] = [Allocation.json_of(**part) for part in parts]
    elif placed:
        pairs = zip(placed, parts, strict=True)
        divided["roles"] = {e.role.lower(): ReplicaAllocation.json_of(**part) for e, part in pairs}
    return ServerAllocation.json_of(
        accelerator=main.accelerator,
        num_replicas=sum(each.ready for each in placed),
        starting_replicas=sum(each.starting for each in placed) or None,
        cold_replicas=sum(each.cold for each in placed) or None,
        max_batch=_find_max_batch(server, main),
        cost=round(sum(part["cost"] for part in parts), DIGITS),
        **divided,
    )


def _rank(replicas: Iterable[PlacedReplicas]) -> Sequence[PlacedReplicas]:
    """Return the replicas that hold cards, the most first."""
    placed = (each for each in replicas if any(each.rank))
    return sorted(placed, key=lambda each: each.rank, reverse=True)


def _find_main(server: Server, placed: Sequence[PlacedReplicas]) -> PlacedReplicas:
    """Return the replicas whose accelerator names the whole: those that decode, else the most.

    If there are none, a Server with `keepAccelerator` keeps its accelerator, because the optimizer
    needs its name; any other Server has none ("").
    """
    if placed:
        return next((each for each in placed if each.role is Role.DECODE), placed[0])
    current = server.spec.current_alloc
    kept = current.accelerator if current and server.spec.keep_accelerator else ""
    return PlacedReplicas(kept, ready=0)


def _find_max_batch(server: Server, replicas: PlacedReplicas) -> int:
    """Return the batch size that was decided for the place of replicas, else the one before."""
    desired, current = server.spec.desired_alloc, server.spec.current_alloc
    wholes = [whole for whole in (desired, current) if whole]
    parts: list[ReplicaAllocation]
    if replicas.role is Role.BOTH:
        every = [part for whole in wholes for part in whole.parts if part.num_replicas > 0]
        every += filter(None, [current])
        parts = [part for part in every if part.accelerator == replicas.accelerator != ""]
    else:
        roles = [whole.roles.by_place for whole in wholes if whole.roles]
        parts = [each[replicas.place] for each in roles if replicas.place in each]
    return next((part.max_batch for part in parts if part.max_batch), 0)
