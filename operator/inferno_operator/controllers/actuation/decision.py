"""The decision for a Server: replicas by accelerator, or to leave them as they are.

Which Optimizer made a decision cannot be told from a Server. So one Optimizer with the mode
Recommend stops scaling in its whole namespace. A reconcile reads the Optimizers themselves: a
decision is written after its Optimizer, so no decision is seen without the mode of its Optimizer.
If the Optimizer is deleted, what it recommended stays a recommendation until there is another one.
"""

from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from inferno_operator.resources import (
    Allocation,
    Condition,
    Optimizer,
    Server,
    ServerAllocation,
    moved,
)
from inferno_operator.resources.conditions import ACTUATED, ALLOCATED, RECOMMENDED
from inferno_operator.resources.objects import Manifest, kind_of
from inferno_operator.resources.observation import Observation
from inferno_operator.runtime.cache import ObjectDifference
from inferno_operator.runtime.ports import Cluster, GoneError
from inferno_optimizer.solution import IDLE, Reason

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


def wanted(observation: Observation) -> Wanted:
    """Read the decision for a Server.

    `desiredAlloc` is written before the condition `Allocated`. In between, a `desiredAlloc`
    that was cleared because no decision is possible looks like a decision for no replicas. So
    replicas are only removed if the condition is about the same generation.
    """
    server, condition = observation.resource, observation.status.condition(ALLOCATED)
    if not isinstance(server, Server) or condition is None:
        why = "nothing was decided yet; set spec.optimize of an Optimizer to true"
        return Wanted(None, why, reason="Held")
    if condition.reason in UNDECIDED:
        return Wanted(None, f"{condition.reason}: {condition.message}", reason="Held")
    replicas = _replicas(server)
    if not replicas and not _is_about(condition, observation):
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


def _is_about(condition: Condition, observation: Observation) -> bool:
    """Whether a condition is about the cleared decision.

    Its reason or its message may say so, also after other writes to the Server: of its load, and
    of the replicas that run, which change with each step. A cleared one names no accelerator.
    """
    server = observation.resource
    desired = server.spec.desired_alloc if isinstance(server, Server) else None
    if desired is not None and desired.accelerator:
        return True
    if condition.reason == Reason.NO_CAPACITY or condition.message == IDLE:
        return True
    return condition.observed_generation == observation.generation


OPTIMIZER = kind_of(Optimizer)


async def recommending(namespace: str, cluster: Cluster) -> str | None:
    """Return what `recommended_by` returns for the Optimizers of a namespace."""
    try:
        listing = await cluster.list(OPTIMIZER, namespace)
    except GoneError:  # the kind is not installed
        return None
    return recommended_by(listing.manifests)


def recommended_by(optimizers: Collection[Manifest]) -> str | None:
    """Return why only recommendations are made in a namespace; "" if decisions are actuated.

    None if there is no Optimizer.
    """
    if not optimizers:
        return None
    names = sorted(m["metadata"]["name"] for m in optimizers if recommends(m))
    return f"Optimizer {names[0]!r} has mode Recommend" if names else ""


def decision_for(observation: Observation, why: str | None) -> Wanted:
    """Read the decision for a Server; `why` is that of `recommending`."""
    before = observation.status.condition(ACTUATED)
    if why is None and before is not None and before.reason == RECOMMENDED:
        why = "its Optimizer, which had mode Recommend, was deleted"
    return Wanted(None, why, reason=RECOMMENDED) if why else wanted(observation)


def recommends(manifest: Manifest | None) -> bool:
    """Whether an Optimizer has the mode, also if the rest of its spec is invalid."""
    return manifest is not None and manifest.get("spec", {}).get("mode") == "Recommend"


def is_change_of_mode(difference: ObjectDifference) -> bool:
    """Whether an Optimizer got or lost the mode."""
    return recommends(difference.before) != recommends(difference.after)
