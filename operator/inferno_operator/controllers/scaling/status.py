"""What the condition `Actuated` of a Server says; pure."""

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta

from inferno_operator.controllers.scaling.pods import PodCounts
from inferno_operator.controllers.scaling.steps import (
    ReplicaTarget,
    ServerProgress,
    ServerTargets,
    State,
)
from inferno_operator.resources import (
    Condition,
    MeasuredLeadTime,
    RecordedWorkload,
    ReplicaReduction,
    ServerStatus,
    Status,
    Workload,
)
from inferno_operator.resources.conditions import ACTUATED, NOT_FOUND, Verdict, merge_conditions
from inferno_operator.resources.objects import Kind, Manifest
from inferno_operator.resources.workload_kinds import kind_of_workload
from inferno_optimizer.way_down import WayDown

RELEASED = "Released"
"""The reason of the condition when the scaler owns no fields any more."""

FOREIGN_WRITER = "ForeignWriter"
"""The reason of the condition while another writer of a number is left alone."""

PAUSE = timedelta(minutes=5)
"""Time for which another writer is left alone."""

WAY_DOWN = "spec.guard.maxDecreasePercent"
"""The field of an Optimizer by which replicas go step by step."""

RECHECK = timedelta(seconds=60)
"""Time until what is not watched is read again: kinds, autoscalers; and writes are tried again."""


def condition(
    status: Status, verdict: Verdict | None, generation: int, now: datetime
) -> Condition | None:
    """Return the condition to write; None if there is no verdict or it is reported already.

    Parameters
    ----------
    status, generation
        The status and generation of the Server.
    verdict
        The verdict to report.
    now
        The time.
    """
    if verdict is None:
        return None
    (merged,) = merge_conditions(status, [verdict], generation, now)
    return None if merged == status.condition(ACTUATED) else merged


def status_of(
    actuated: Condition | None,
    times: Sequence[MeasuredLeadTime],
    workloads: Sequence[RecordedWorkload] = (),
    reductions: Sequence[ReplicaReduction] = (),
) -> Manifest:
    """Return the fields of the status that the scaler owns: its condition and what it knows."""
    conditions = () if actuated is None else (actuated,)
    status = ServerStatus(
        conditions=conditions, lead_times=tuple(times), workloads=tuple(workloads)
    )
    if reductions:
        status = status.model_copy(update={"reductions": tuple(reductions)})
    return status.to_json()


def steps_down(
    slowed: Mapping[str, tuple[int, int]], way_down: WayDown, following: datetime | None
) -> str:
    """Return how replicas go step by step, to be said after what runs; "" where none do.

    Parameters
    ----------
    slowed
        Replicas before and after this step, by place.
    way_down
        How fast replicas go.
    following
        When more may go; None if some still go.
    """
    if not slowed:
        return ""
    steps = " + ".join(f"{n} -> {m} x {place}" for place, (n, m) in slowed.items() if m < n)
    when = (
        f"at {following:%H:%M:%S} UTC"
        if following is not None
        else f"{way_down.window_s:g} s after these have gone"
    )
    now = f"; now {steps}" if steps else ""
    return f"{now}; more may go {when}: {WAY_DOWN} is {100 * way_down.share:g}"


def refusal(reason: str, message: str) -> Verdict:
    """Return the verdict that the decision is not actuated."""
    return Verdict(ACTUATED, holds=False, reason=reason, message=message)


def crd_missing(kind: Kind) -> Verdict:
    """Return the verdict that a kind is not served."""
    message = f"{kind} is not served: install the custom resource definitions of {kind.group}"
    return refusal("CRDMissing", message)


def no_booster(kind: Kind, name: str) -> Verdict:
    """Return the verdict that a booster does not exist or is being deleted."""
    message = f"{kind.kind} {name!r} does not exist: create it, or correct spec.modelBooster"
    return refusal("NoModelBooster", message)


def no_backend(booster: str, backend: str) -> Verdict:
    """Return the verdict that a booster does not have a backend."""
    message = (
        f"{booster!r} has no backend {backend!r}: add it there, or correct modelBooster.backends"
    )
    return refusal("NoBackend", message)


def no_serving(kind: Kind, name: str) -> Verdict:
    """Return the verdict that the serving of a backend does not exist or is being deleted."""
    message = (
        f"{kind.kind} {name!r} does not exist: check that a controller of ModelBoosters runs, which"
        f" makes it"
    )
    return refusal(NOT_FOUND, message)


def no_binding(kinds: Iterable[Kind], backend: str) -> Verdict:
    """Return the verdict that nothing binds an autoscaler to a backend."""
    names = " or ".join(kind.kind for kind in kinds)
    message = (
        f"no {names} scales the replicas of backend {backend!r}:"
        f" create one, or choose another modelBooster.target"
    )
    return refusal("NoBinding", message)


def booster_in_use(other: str, booster: str) -> Verdict:
    """Return the verdict that an older Server refers to a booster."""
    message = (
        f"the older Server {other!r} refers to {booster!r} too:"
        f" remove spec.modelBooster from one of the two Servers"
    )
    return refusal("Conflict", message)


def released() -> Verdict:
    """Return the verdict that the scaler owns no fields any more."""
    message = "the numbers of replicas stay as they are; the operator does not own them any more"
    return refusal(RELEASED, message)


CAUSES_NAMED = 8
"""How many causes a message names; some have an identifier of their own for each pod."""


def no_scale(workload: Workload) -> Verdict:
    """Return the verdict that a kind has no scale subresource."""
    instead = kind_of_workload(workload).instead
    message = f"{workload.kind} of {workload.api_version} has no scale subresource: name {instead}"
    return refusal("NoScale", message)


def no_selector(workload: Workload) -> Verdict:
    """Return the verdict that the scale subresource of a workload does not tell its pods."""
    if kind_of_workload(workload).publishes_selector:
        remedy = "check that its controller runs, which fills that field"
    else:
        remedy = f"add labelSelectorPath to the definition of {workload.kind}, and fill that field"
    message = (
        f"the scale subresource of {workload.kind} {workload.name!r} has no selector"
        f" (status.selector), so its pods cannot be seen: {remedy}"
    )
    return refusal("NoScale", message)


def not_served(workload: Workload) -> Verdict:
    """Return the verdict that the API server does not know a kind."""
    message = (
        f"the API server does not serve {workload.kind} of {workload.api_version}: install its"
        f" definition, or correct spec.workloads"
    )
    return refusal(NOT_FOUND, message)


def unusable(workload: Workload, problem: str) -> Verdict:
    """Return the verdict that a workload is not there, or not as it has to be."""
    message = f"{workload.kind} {workload.name!r} {problem}, or correct spec.workloads"
    return refusal(NOT_FOUND, message)


def several_groups(workload: Workload, groups: int) -> Verdict:
    """Return the verdict that each number of a role counts in several groups, or in none."""
    message = (
        f"{workload.kind} {workload.name!r} has {groups} groups: set its spec.replicas to 1, as"
        f" the operator scales the roles of one group"
    )
    return refusal("SeveralGroups", message)


def no_workload(accelerators: Iterable[str]) -> Verdict:
    """Return the verdict that no workload runs on accelerators that were decided."""
    names = ", ".join(map(repr, accelerators))
    message = f"no item of spec.workloads runs on accelerator {names}: add one"
    return refusal(NOT_FOUND, message)


def no_part(accelerators: Iterable[str]) -> Verdict:
    """Return the verdict that no backend runs on accelerators that were decided."""
    names = ", ".join(map(repr, accelerators))
    message = f"no backend in modelBooster.backends runs on accelerator {names}: add one"
    return refusal("NoBackend", message)


def in_use(workload: Workload, other: str) -> Verdict:
    """Return the verdict that an older Server, or the same one, names the workload too."""
    message = (
        f"Server {other!r} names {workload.kind} {workload.name!r} already: each workload runs"
        f" one server on one accelerator"
    )
    return refusal("Conflict", message)


def published(wanted: Mapping[str, int], troubles: str) -> Verdict:
    """Return the verdict that the decision is left to others."""
    message = f"{_sum(wanted)}{troubles}; spec.actuation is Publish: the operator scales nothing"
    return Verdict(ACTUATED, holds=True, reason="Published", message=message)


def not_written(problem: str) -> Verdict:
    """Return the verdict that writes have failed again and again."""
    return refusal("Blocked", f"the number of replicas cannot be written: {problem}")


def tells_given_up(condition: Condition | None) -> bool:
    """Whether a condition reports pods that found no node and were given up."""
    return condition is not None and _GIVEN_UP in condition.message


def progress_verdict(
    server: ServerTargets,
    progress: ServerProgress,
    troubles: str,
    before: Condition | None = None,
    *,
    gives_up: bool = False,
    next_reduction: datetime | None = None,
) -> Verdict:
    """Return the verdict on the progress of a server whose pods have these troubles.

    `gives_up` says that pods that found no node were just given up; `before` is the condition
    that the server has, which still knows why. `next_reduction` is when more replicas of one that
    loses them step by step may go, if known.
    """
    steps = steps_down(progress.slowed, server.way_down, next_reduction)
    message = f"{_progress(server.targets)}{steps}{troubles}"
    if progress.state == State.STEADY:
        return Verdict(ACTUATED, holds=True, reason="Actuated", message=message)
    if progress.state != State.BLOCKED:
        return Verdict(ACTUATED, holds=None, reason="Moving", message=message)
    if server.is_paused or gives_up:
        obstacle = _given_up(troubles, before.message if before else "")
    elif server.is_held:
        obstacle = _NO_NODE
    elif server.is_overdue:
        obstacle = _overdue(server.targets, troubles)
    elif progress.missing:
        return refusal("NoRoom", f"{message}; {_no_room(progress.missing)}")
    else:
        obstacle = _LOADED
    return refusal("Blocked", f"{message}; {obstacle}")


def pod_troubles(pods: Iterable[PodCounts]) -> str:
    """Return what hinders pods, to be said after what runs; "" if nothing does."""
    total = sum((Counter(counts.troubles) for counts in pods), Counter[str]())
    often = sorted(total.items(), key=lambda item: (-item[1], item[0]))
    parts = [f"{n} x {why}" for why, n in often[:CAUSES_NAMED]]
    if rest := sum(n for _, n in often[CAUSES_NAMED:]):
        parts.append(f"{rest} for other causes")
    return "".join(f"; not ready: {part}" for part in parts)


def rollout_waits(workload: Workload, most: str, replicas: int) -> str:
    """Return that a rollout waits for a card, as it may not remove an old pod first."""
    return (
        f"the rollout of {workload.kind} {workload.name!r} waits for a card: its maxUnavailable"
        f" ({most} of {replicas} replicas) is 0; set it to 1, or add a card"
    )


def is_paused(workload: Workload) -> str:
    """Return why a workload that is paused has fewer pods than it asks for."""
    return f"{workload.kind} {workload.name!r} is paused: set its spec.paused to false"


def left_behind(replicas: Mapping[Workload, int]) -> str:
    """Return which workloads a Server names no more and have replicas, to be said at the end."""
    return "".join(
        f"; {workload.kind} {workload.name!r} has {n} replicas on {workload.place} and is not in"
        " spec.workloads any more: name it again, or scale it to 0"
        for workload, n in replicas.items()
    )


def left_unknown(problems: Mapping[Workload, str]) -> str:
    """Return which workloads a Server names no more may have replicas, and why nobody knows."""
    return "".join(
        f"; the replicas of {workload.kind} {workload.name!r}, which is not in spec.workloads any"
        f" more, are not known: {problem}"
        for workload, problem in problems.items()
    )


_GIVEN_UP = "pods found no node and were given up: "
_AGAIN = "; the operator tries again"
_UNSCHEDULABLE = re.compile("Unschedulable, ([^;]*)")
_NO_NODE = (
    "these pods find no node, and fewer replicas would take ready ones: compare what the pods ask"
    " for with the nodes"
)
_LOADED = "waiting to scale down: the remaining replicas could not carry the present load"


def _given_up(troubles: str, before: str) -> str:
    """Return that pods were given up, with the words of the scheduler, also when they are gone."""
    said = _UNSCHEDULABLE.search(troubles)
    words = before.partition(_GIVEN_UP)[2].rpartition(_AGAIN)[0] or (said[1] if said else "")
    return f"{_GIVEN_UP}{words or 'check that nodes have the cards of Capacity'}{_AGAIN}"


def _overdue(targets: Iterable[ReplicaTarget], troubles: str) -> str:
    """Return that nothing has changed for too long, and what to check unless `troubles` tell."""
    missing = [(t.accelerator, t.spec - t.live) for t in targets if t.spec > t.live]
    if troubles:
        return "no progress for too long"
    if missing:
        created = ", ".join(f"{count} on {accelerator}" for accelerator, count in missing)
        return (
            f"no progress for too long: pods are not created ({created}): see the events of the"
            f" workload"
        )
    return "no progress for too long: pods neither become ready nor end; see `kubectl describe pod`"


def _no_room(missing: Mapping[str, int]) -> str:
    cards = ", ".join(f"{count} x {card_type}" for card_type, count in sorted(missing.items()))
    return f"cards that are not free: {cards}; add them to Capacity, or optimize again"


def _progress(targets: Iterable[ReplicaTarget]) -> str:
    """Return the ready replicas, and the wanted ones where they differ, by accelerator."""

    def told(target: ReplicaTarget) -> str:
        count = f"{target.ready} x {target.accelerator}"
        if target.is_ceiling and target.wanted:
            return f"{count} ({target.wanted} at most)"
        return count if target.ready == target.wanted else f"{count} ({target.wanted} wanted)"

    return " + ".join(told(t) for t in targets if t.ready or t.wanted) or "no replicas"


def _sum(replicas: Mapping[str, int]) -> str:
    return " + ".join(f"{n} x {name}" for name, n in replicas.items() if n) or "no replicas"
