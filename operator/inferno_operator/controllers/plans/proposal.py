"""From an optimization to the spec of a Plan; pure."""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate

from inferno_operator.controllers.actuation.decision import UNDECIDED
from inferno_operator.controllers.optimization.permission import Optimization
from inferno_operator.controllers.optimization.plan import Update
from inferno_operator.controllers.optimization.snapshot import priced_current
from inferno_operator.controllers.optimization.status import certificate_of
from inferno_operator.controllers.plans.contents import (
    MAX_DECISIONS,
    MAX_INPUTS,
    MAX_LISTED,
    StoredDecision,
    pack,
    pack_decisions,
)
from inferno_operator.controllers.plans.inputs import digest_of, inputs_digest
from inferno_operator.resources import (
    DIGITS,
    MAX_STEPS,
    Allocation,
    Count,
    Placement,
    PlanSpec,
    PlanStep,
    PlanTotals,
    Server,
    ServerAllocation,
)
from inferno_operator.resources.conditions import ALLOCATED
from inferno_operator.resources.objects import Manifest
from inferno_operator.resources.observation import Observation, readable
from inferno_optimizer.sizing.cases import Catalogue
from inferno_optimizer.system import Reason
from inferno_optimizer.wire.codec import encode_system


@dataclass(frozen=True, slots=True)
class Proposal:
    """The changes that an optimization decided.

    Parameters
    ----------
    spec
        The spec of the Plan.
    steps
        All changes by name of the Server object, also those that the spec does not list.
    """

    spec: PlanSpec
    steps: Mapping[str, PlanStep]


def proposal_of(optimization: Optimization) -> Proposal | None:
    """Return the changes that an optimization decided; None if no Server changes.

    A Server changes if it gets another accelerator or number of replicas, which is what actuation
    carries out. Other numbers of a decision are no change: batch sizes and latencies follow
    measured loads, which move all the time. Neither is that no decision was possible: what runs
    then stays as it is.
    """
    catalogue = Catalogue(optimization.snapshot.system)
    pairs = list(zip(optimization.observations, optimization.updates, strict=True))
    steps = {step.server: step for step in _steps(pairs, catalogue)}
    if not steps:
        return None
    decisions = [StoredDecision.of(o, u) for o, u in pairs if _name(u) in steps]
    return Proposal(_spec(optimization, steps, decisions, catalogue), steps)


def is_undecided(update: Update) -> bool:
    """Whether no decision was possible for a Server."""
    return update.verdicts[-1].reason in UNDECIDED


def placements(whole: ServerAllocation | Allocation | None) -> tuple[Placement, ...]:
    """Return the replicas by accelerator of an allocation, in order of the accelerators."""
    parts = whole.parts if whole else ()
    found = (
        Placement(accelerator=p.accelerator, replicas=p.num_replicas, batch=p.max_batch or 0)
        for p in parts
        if p.accelerator and p.num_replicas > 0
    )
    return tuple(sorted(found, key=lambda placement: placement.accelerator))


def replicas(placed: Iterable[Placement]) -> Mapping[str, int]:
    """Return the replicas by accelerator."""
    return {placement.accelerator: placement.replicas for placement in placed}


def _name(update: Update) -> str:
    return update.reference.key.name if update.reference.kind.kind == Server.kind else ""


def _steps(pairs: Iterable[tuple[Observation, Update]], catalogue: Catalogue) -> Iterator[PlanStep]:
    """Return the changes of Servers."""
    for observation, update in pairs:
        server = observation.resource
        if not isinstance(server, Server) or update.spec is None or is_undecided(update):
            continue
        before = _before(server, catalogue)
        after = ServerAllocation.model_validate(update.spec["desiredAlloc"])
        if replicas(placements(before)) == replicas(placements(after)):
            continue
        verdict = update.verdicts[-1]
        yield PlanStep(
            server=server.metadata.name,
            before=placements(before),
            after=placements(after),
            cost_change=round((after.cost or 0.0) - _cost(before), DIGITS),
            reason=verdict.reason,
            message="" if verdict.reason == Reason.ALLOCATED else verdict.message,
        )


def _before(server: Server, catalogue: Catalogue) -> ServerAllocation | None:
    """Return what was decided before, or what runs if nothing was.

    A decision that was cleared because none was possible left what runs as it is.
    """
    desired, told = server.spec.desired_alloc, server.status.condition(ALLOCATED)
    is_cleared = not placements(desired) and told is not None and told.reason in UNDECIDED
    if desired is None or is_cleared:
        return priced_current(server, catalogue)
    return desired


def _cost(allocation: Allocation | None) -> float:
    return (allocation.cost if allocation else None) or 0.0


def _spec(
    optimization: Optimization,
    steps: Mapping[str, PlanStep],
    decisions: Iterable[StoredDecision],
    catalogue: Catalogue,
) -> PlanSpec:
    system, resources = optimization.snapshot.system, readable(optimization.observations)
    inputs, stored = pack(encode_system(system)), pack_decisions(decisions)
    digest = inputs_digest(resources, optimization.optimizer)
    ordered = sorted(steps.values(), key=lambda step: (-abs(step.cost_change), step.server))
    listed = _listed(ordered)
    totals = _totals(resources, steps, catalogue, _cards(optimization))
    return PlanSpec(
        optimizer=optimization.optimizer.metadata.name,
        digest=digest_of([digest, [step.to_json() for step in ordered], stored]),
        inputs_digest=digest,
        totals=totals,
        steps=tuple(listed),
        steps_omitted=len(ordered) - len(listed),
        decisions=stored if len(stored) <= MAX_DECISIONS else "",
        inputs=inputs if len(inputs) <= MAX_INPUTS else "",
        omitted=_omitted(len(inputs), len(stored)),
        certificate=certificate_of(optimization.solution.certificate),
    )


def _listed(steps: Sequence[PlanStep]) -> Sequence[PlanStep]:
    """Return the first steps, as many as a Plan lists."""
    sizes = accumulate(len(json.dumps(step.to_json())) for step in steps[:MAX_STEPS])
    return steps[: sum(size <= MAX_LISTED for size in sizes)]


def _omitted(inputs: int, decisions: int) -> str:
    """Return what is left out of a Plan, because it is too large."""
    sizes = (("inputs", inputs, MAX_INPUTS), ("decisions", decisions, MAX_DECISIONS))
    return "; ".join(
        f"{name}: {size // 1024} KiB are more than {limit // 1024} KiB"
        for name, size, limit in sizes
        if size > limit
    )


def _totals(
    resources: Iterable[object],
    steps: Mapping[str, PlanStep],
    catalogue: Catalogue,
    cards: Sequence[Count],
) -> PlanTotals:
    servers = (resource for resource in resources if isinstance(resource, Server))
    before = sum(_cost(_before(server, catalogue)) for server in servers)
    change = sum(step.cost_change for step in steps.values())
    return PlanTotals(
        servers=len(steps),
        cost_before=round(before, DIGITS),
        cost_after=round(before + change, DIGITS),
        cards=tuple(cards),
    )


def _cards(optimization: Optimization) -> Sequence[Count]:
    """Return the cards that the Servers take; none if the optimization ignored capacity."""
    if optimization.optimizer.spec.data.optimizer.unlimited:
        return ()
    uses = optimization.solution.capacity
    return [Count(type=use.type, count=use.used) for use in uses if use.used]


def spec_manifest(spec: PlanSpec) -> Manifest:
    """Return the spec as it is written, without empty fields."""
    return {key: value for key, value in spec.to_json().items() if value not in ("", 0)}
