"""What becomes of a Plan next: it waits, is carried out, or is finished; pure."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import lru_cache

from inferno_operator.controllers.approval import status
from inferno_operator.controllers.approval.contents import (
    unpack_decisions,
)
from inferno_operator.controllers.approval.guard import Hold, hold_of
from inferno_operator.controllers.approval.inputs import moved_load
from inferno_operator.controllers.approval.proposal import Proposal
from inferno_operator.controllers.approval.status import Arrivals
from inferno_operator.controllers.optimization.changes import Update
from inferno_operator.controllers.optimization.placements import placements, replicas
from inferno_operator.resources import (
    Approval,
    Optimizer,
    Placement,
    Plan,
    Resource,
    Server,
)
from inferno_operator.resources.conditions import ACTUATED, absence
from inferno_operator.resources.observation import Observation

SOMEBODY = "somebody"
"""Who answered, if the client does not say."""


@dataclass(frozen=True, slots=True)
class Next:
    """What to do with a Plan that is not finished and not carried out yet.

    `update` is its status to write; without one it is to be carried out, in the name of `by`.
    `again_after` are the seconds until it is to be looked at again, if any.
    """

    update: Update | None = None
    by: str = ""
    again_after: float | None = None


def next_of(
    observation: Observation,
    plan: Plan,
    optimizer: Optimizer,
    objects: Iterable[Observation],
    now: datetime,
) -> Next:
    """Decide what to do with a Plan; an answer of a person counts more than mode and guard."""
    if plan.status.approval is not None:
        return _answered(observation, plan, plan.status.approval, now)
    hold = hold_of(optimizer, plan.spec.totals, now)
    if hold is None:
        return Next(by=f"mode {optimizer.spec.mode}")
    left = None if hold.until is None else max((hold.until - now).total_seconds(), 0.0)
    absent = absences(plan, objects)
    return Next(status.waiting(observation, hold, absent), again_after=left)


def _answered(observation: Observation, plan: Plan, approval: Approval, now: datetime) -> Next:
    """Decide what to do with a Plan that a person approved or rejected."""
    by = approval.by or SOMEBODY
    if approval.digest != plan.spec.digest:
        message = (
            f"the answer of {by} is for a Plan with digest {approval.digest}, not for this one"
        )
        return Next(status.waiting(observation, Hold("WrongDigest", message)))
    if approval.state == "Rejected":
        message = f"rejected by {by}"
        return Next(status.finished(observation, "Rejected", "NotApproved", message, now, by))
    if approval.until is not None and approval.until <= now:
        message = f"the approval of {by} was valid until {approval.until:%Y-%m-%d %H:%M:%S UTC}"
        return Next(status.finished(observation, "Expired", "Expired", message, now, by))
    return Next(by=by)


def written(observation: Observation, plan: Plan, mode: str, by: str, now: datetime) -> Update:
    """Return the status of a Plan whose decisions are written on the Servers."""
    if mode == "Recommend":
        return status.recommended(observation, by, plan.spec.totals.servers, now)
    return status.acting(observation, by, Arrivals(0, plan.spec.totals.servers))


def replaced(plans: Sequence[Observation]) -> Iterator[tuple[Observation, str]]:
    """Yield the Plans that a newer one supersedes, with the name of the newer one.

    A Plan that waits is superseded by any newer one, a Plan that is being carried out only by
    one that was carried out too. `plans` are all Plans of a namespace, the oldest first.
    """
    for place, observation in enumerate(plans):
        plan = observation.resource
        if not isinstance(plan, Plan) or plan.is_finished:
            continue
        newer = [o for o in plans[place + 1 :] if plan.status.phase != "Acting" or _has_acted(o)]
        if newer:
            yield observation, newer[-1].reference.key.name


def _has_acted(observation: Observation) -> bool:
    plan = observation.resource
    return isinstance(plan, Plan) and plan.status.phase in ("Acting", "Done", "Written")


def pruned(
    plans: Sequence[Observation], strangers: Sequence[Observation], history: Mapping[str, int]
) -> Iterator[Observation]:
    """Yield the finished Plans beyond the history of their Optimizer, the oldest first.

    Strangers, which the operator did not make, go before all others.
    """
    for optimizer, kept in history.items():
        own = [o for o in (*strangers, *plans) if _is_finished_of(o, optimizer)]
        yield from own[: max(len(own) - kept, 0)]


def _is_finished_of(observation: Observation, optimizer: str) -> bool:
    plan = observation.resource
    return isinstance(plan, Plan) and plan.is_finished and plan.spec.optimizer == optimizer


def arrivals(plan: Plan, servers: Iterable[Observation]) -> Arrivals:
    """Return which Servers of a Plan run what was decided, and which the operator does not scale.

    Nothing is awaited for the latter: those that name no workloads, or are only published.
    """
    by_name = {o.reference.key.name: o for o in servers}
    changed = _changed(plan)
    gone = tuple(name for name in changed if name not in by_name)
    present = [by_name[name] for name in changed if name in by_name]
    scaled = [observation for observation in present if _is_scaled(observation)]
    unscaled = tuple(o.reference.key.name for o in present if not _is_scaled(o))
    others = tuple(filter(None, map(_lag, scaled)))
    return Arrivals(len(scaled) - len(others), len(changed), others, gone, unscaled)


def _is_scaled(observation: Observation) -> bool:
    """Whether the operator scales a Server."""
    server = observation.resource
    return (
        isinstance(server, Server) and server.names_workloads and server.spec.actuation != "Publish"
    )


def _lag(observation: Observation) -> str:
    """Return what a Server waits for, "" if for nothing."""
    name, actuated = observation.reference.key.name, observation.status.condition(ACTUATED)
    if actuated is None or actuated.observed_generation != observation.generation:
        return f"{name} (not reported yet)"
    if actuated.status == "True":
        return ""
    return f"{name} ({absence(observation.status) or actuated.reason})"


def absences(plan: Plan, objects: Iterable[Observation]) -> Sequence[str]:
    """Return why there is nothing to scale of Servers that a Plan changes."""
    changed = set(_changed(plan))
    named = [o for o in objects if o.kind is Server and o.reference.key.name in changed]
    return [f"{o.reference.key.name}: {what}" for o in named if (what := absence(o.status))]


def _changed(plan: Plan) -> Sequence[str]:
    """Return the names of the Servers that a Plan changes, as `decided` has them, in order."""
    if _is_listed(plan):
        return sorted(step.server for step in plan.spec.steps)
    return _names_in(plan.spec.decisions)


@lru_cache(maxsize=8)
def _names_in(decisions: str) -> Sequence[str]:
    """Return the names of the Servers in packed decisions, in order.

    They are kept: a Plan that is carried out is looked at each second at first, and to unpack the
    decisions for 10,000 Servers takes most of a second.
    """
    return tuple(sorted(decision.server for decision in unpack_decisions(decisions)))


def _is_listed(plan: Plan) -> bool:
    """Whether the steps that a Plan lists are all that is known of its decisions."""
    return not plan.spec.steps_omitted or not plan.spec.decisions


def decided(plan: Plan) -> Mapping[str, tuple[Placement, ...]]:
    """Return what a Plan decides, by name of the Server object.

    If its decisions are left out, these are only the changes that it lists.
    """
    if _is_listed(plan):
        return {step.server: step.after for step in plan.spec.steps}
    return {
        decision.server: placements(decision.after)
        for decision in unpack_decisions(plan.spec.decisions)
    }


def is_same(plan: Plan, proposal: Proposal) -> bool:
    """Whether a Plan from the same inputs has all changes of a proposal.

    It may have more: those that are written already.
    """
    if plan.spec.inputs_digest != proposal.spec.inputs_digest:
        return False
    placed = decided(plan)
    return all(
        name in placed and replicas(placed[name]) == replicas(step.after)
        for name, step in proposal.steps.items()
    )


def is_close(plan: Plan, proposal: Proposal, resources: Iterable[Resource]) -> bool:
    """Whether an answer to a Plan is an answer to a proposal too, although the two may differ.

    Loads that are measured move all the time, so decisions move too. The proposal is close if it
    has the same inputs, changes no other Server, and no load has moved by more than the tolerance.
    """
    if not plan.spec.decisions or plan.spec.inputs_digest != proposal.spec.inputs_digest:
        return False
    if not proposal.steps.keys() <= decided(plan).keys():
        return False
    return not moved_load(unpack_decisions(plan.spec.decisions), resources)
