"""From an optimization to the spec of a Plan; pure."""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate

from inferno_operator.controllers.actuation.decision import UNDECIDED
from inferno_operator.controllers.approval.contents import (
    MAX_DECISIONS,
    MAX_INPUTS,
    MAX_LISTED,
    MAX_UNPACKED,
    StoredDecision,
    in_order,
    pack,
    pack_decisions,
)
from inferno_operator.controllers.approval.inputs import inputs_digest
from inferno_operator.controllers.approval.seal import plan_digest
from inferno_operator.controllers.approval.totals import standing, totals_of
from inferno_operator.controllers.optimization.changes import Update
from inferno_operator.controllers.optimization.permission import Optimization
from inferno_operator.controllers.optimization.placements import placements, replicas
from inferno_operator.controllers.optimization.status import certificate_of
from inferno_operator.resources import (
    MAX_STEPS,
    MAX_VIA,
    Count,
    Guard,
    Placement,
    PlanSpec,
    PlanStep,
    Server,
)
from inferno_operator.resources.observation import Observation, readable
from inferno_optimizer.sizing.cases import Catalogue
from inferno_optimizer.system import Role
from inferno_optimizer.way_down import WayDown
from inferno_optimizer.wire.codec import encode_system

UNSEALED = "-"
"""The digest of a Plan until all that it says is known."""


@dataclass(frozen=True, slots=True)
class Proposal:
    """The changes that an optimization decided.

    Parameters
    ----------
    spec
        The spec of the Plan.
    steps
        All changes by name of the Server object, also those that the spec does not list.
    decisions
        The decisions that these changes are about.
    """

    spec: PlanSpec
    steps: Mapping[str, PlanStep]
    decisions: Sequence[StoredDecision]


def proposal_of(optimization: Optimization) -> Proposal | None:
    """Return the changes that an optimization decided; None if no Server changes.

    A Server changes if it gets another accelerator or number of replicas, which is what actuation
    carries out. Other numbers of a decision are no change: batch sizes and latencies follow
    measured loads, which move all the time. Neither is that no decision was possible: what runs
    then stays as it is.
    """
    catalogue = Catalogue(optimization.snapshot.system)
    pairs = list(zip(optimization.observations, optimization.updates, strict=True))
    decisions = list(_changes(pairs, catalogue))
    if not decisions:
        return None
    way_down = (optimization.optimizer.spec.guard or Guard()).way_down
    scaled = {
        o.reference.key.name
        for o in optimization.observations
        if isinstance(o.resource, Server) and o.resource.is_actuated
    }
    steps = {
        decision.server: _in_steps(decision.step, way_down)
        if decision.server in scaled
        else decision.step
        for decision in decisions
    }
    return Proposal(_spec(optimization, steps, decisions, catalogue), steps, decisions)


def _in_steps(step: PlanStep, way_down: WayDown) -> PlanStep:
    """Return a step with the replicas in between, where a Server only loses replicas."""
    before, after = replicas(step.before), replicas(step.after)
    if any(n > before.get(place, 0) for place, n in after.items()):
        return step
    pairs = ((_of_role(step.before, role), _of_role(step.after, role)) for role in Role)
    via = way_down.numbers([pair for pair in pairs if pair[0]])
    return step.model_copy(update={"via": tuple(via[:MAX_VIA])}) if via else step


def _of_role(placed: Iterable[Placement], role: Role) -> int:
    return sum(placement.replicas for placement in placed if placement.role == role)


def is_undecided(update: Update) -> bool:
    """Whether no decision was possible for a Server."""
    return update.main.reason in UNDECIDED


def _changes(
    pairs: Iterable[tuple[Observation, Update]], catalogue: Catalogue
) -> Iterator[StoredDecision]:
    """Return the decisions that change Servers."""
    for observation, update in pairs:
        server = observation.resource
        if not isinstance(server, Server) or update.spec is None or is_undecided(update):
            continue
        decision = StoredDecision.of(observation, update, standing(server, catalogue))
        if replicas(decision.before) != replicas(placements(decision.after)):
            yield decision


def _spec(
    optimization: Optimization,
    steps: Mapping[str, PlanStep],
    decisions: Sequence[StoredDecision],
    catalogue: Catalogue,
) -> PlanSpec:
    resources = readable(optimization.observations)
    inputs, stored = pack(encode_system(catalogue.system)), pack_decisions(decisions)
    digest = inputs_digest(resources, optimization.optimizer)
    ordered = in_order(steps.values())
    listed = _listed(ordered)
    totals = totals_of(decisions, resources, catalogue, _cards(optimization))
    spec = PlanSpec(
        optimizer=optimization.optimizer.metadata.name,
        digest=UNSEALED,
        inputs_digest=digest,
        totals=totals,
        steps=tuple(listed),
        steps_omitted=len(ordered) - len(listed),
        decisions=stored if len(stored) <= MAX_DECISIONS else "",
        inputs=inputs if len(inputs) <= MAX_INPUTS else "",
        omitted=_omitted(len(inputs), len(stored)),
        certificate=certificate_of(optimization.solution.certificate),
    )
    return spec.model_copy(update={"digest": plan_digest(spec)})


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
    ) or ("" if decisions else f"decisions: they are more than {MAX_UNPACKED // 1024} KiB")


def _cards(optimization: Optimization) -> Sequence[Count]:
    """Return the cards that the Servers take; none if the optimization ignored capacity."""
    if optimization.optimizer.spec.data.optimizer.unlimited:
        return ()
    uses = optimization.solution.capacity
    return [Count(type=use.type, count=use.used) for use in uses if use.used]
