"""What the condition `Actuated` of a Server says, and the fields of its status; pure."""

import re
from collections import Counter
from collections.abc import Iterable, Sequence
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
)
from inferno_operator.resources.conditions import ACTUATED, Verdict, merge_conditions
from inferno_operator.resources.objects import Manifest

RELEASED = "Released"
"""The reason of the condition when the scaler owns no fields any more."""

FOREIGN_WRITER = "ForeignWriter"
"""The reason of the condition while another writer of a number is left alone."""

PAUSE = timedelta(minutes=5)
"""Time for which another writer is left alone."""

RECHECK = timedelta(seconds=60)
"""Time until what is not watched is read again: kinds, autoscalers; and writes are tried again."""

CAUSES_NAMED = 8
"""How many causes a message names; some have an identifier of their own for each pod."""

_GIVEN_UP = "pods found no node and were given up: "
_AGAIN = "; the operator tries again"
_UNSCHEDULABLE = re.compile("Unschedulable, ([^;]*)")


def merge_condition(
    status: Status, verdict: Verdict | None, generation: int, now: datetime
) -> Condition | None:
    """Return the condition to write; None if there is no verdict or it is reported already."""
    if verdict is None:
        return None
    (merged,) = merge_conditions(status, [verdict], generation, now)
    return None if merged == status.condition(ACTUATED) else merged


def build_status(
    actuated: Condition | None,
    lead_times: Sequence[MeasuredLeadTime],
    workloads: Sequence[RecordedWorkload] = (),
    reductions: Sequence[ReplicaReduction] = (),
) -> Manifest:
    """Return the fields of the status that the scaler owns: its condition and what it knows."""
    conditions = () if actuated is None else (actuated,)
    times = tuple(lead_times)
    status = ServerStatus(conditions=conditions, lead_times=times, workloads=tuple(workloads))
    if reductions:
        status = status.model_copy(update={"reductions": tuple(reductions)})
    return status.to_json()


def build_refusal(reason: str, message: str) -> Verdict:
    """Return the verdict that the decision is not actuated."""
    return Verdict(ACTUATED, holds=False, reason=reason, message=message)


def has_given_up_pods(condition: Condition | None) -> bool:
    """Whether a condition reports pods that found no node and were given up."""
    return condition is not None and _GIVEN_UP in condition.message


def judge_progress(
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
    steps = _describe_steps_down(server, progress, next_reduction)
    message = f"{_describe_replicas(server.targets)}{steps}{troubles}"
    if progress.state == State.STEADY:
        return Verdict(ACTUATED, holds=True, reason="Actuated", message=message)
    if progress.state != State.BLOCKED:
        return Verdict(ACTUATED, holds=None, reason="Moving", message=message)
    if server.is_paused or gives_up:
        # The scheduler's words, also when its pods are gone.
        said = _UNSCHEDULABLE.search(troubles)
        known = (before.message if before else "").partition(_GIVEN_UP)[2].rpartition(_AGAIN)[0]
        words = known or (said[1] if said else "check that nodes have the cards of Capacity")
        obstacle = f"{_GIVEN_UP}{words}{_AGAIN}"
    elif server.is_unplaced:
        obstacle = (
            "these pods find no node, and fewer replicas would take ready ones: compare what the"
            " pods ask for with the nodes"
        )
    elif server.is_overdue:
        obstacle = _describe_standstill(server.targets, troubles)
    elif progress.missing:
        cards = ", ".join(f"{count} x {type_}" for type_, count in sorted(progress.missing.items()))
        obstacle = f"cards that are not free: {cards}; add them to Capacity, or optimize again"
        return build_refusal("NoRoom", f"{message}; {obstacle}")
    else:
        obstacle = "waiting to scale down: the remaining replicas could not carry the present load"
    return build_refusal("Blocked", f"{message}; {obstacle}")


def _describe_replicas(targets: Iterable[ReplicaTarget]) -> str:
    """Return the ready replicas, and the wanted ones where they differ, by accelerator."""
    parts = []
    for target in targets:
        if target.is_ceiling and target.wanted:
            wanted = f" ({target.wanted} at most)"
        else:
            wanted = "" if target.ready == target.wanted else f" ({target.wanted} wanted)"
        if target.ready or target.wanted:
            parts.append(f"{target.ready} x {target.accelerator}{wanted}")
    return " + ".join(parts) or "no replicas"


def _describe_steps_down(
    server: ServerTargets, progress: ServerProgress, next_reduction: datetime | None
) -> str:
    """Return how replicas go step by step; "" where none do."""
    if not progress.slowed:
        return ""
    numbers = progress.slowed.items()
    steps = " + ".join(f"{n} -> {m} x {place}" for place, (n, m) in numbers if m < n)
    way_down = server.way_down
    when = (
        f"at {next_reduction:%H:%M:%S} UTC"
        if next_reduction is not None
        else f"{way_down.window_s:g} s after these have gone"
    )
    rule = f"spec.guard.maxDecreasePercent is {100 * way_down.share:g}"
    return f"{f'; now {steps}' if steps else ''}; more may go {when}: {rule}"


def _describe_standstill(targets: Iterable[ReplicaTarget], troubles: str) -> str:
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


def describe_pod_troubles(pods: Iterable[PodCounts]) -> str:
    """Return what hinders pods, to be said after what runs; "" if nothing does."""
    total = sum((Counter(counts.troubles) for counts in pods), Counter[str]())
    often = sorted(total.items(), key=lambda item: (-item[1], item[0]))
    parts = [f"{n} x {why}" for why, n in often[:CAUSES_NAMED]]
    if rest := sum(n for _, n in often[CAUSES_NAMED:]):
        parts.append(f"{rest} for other causes")
    return "".join(f"; not ready: {part}" for part in parts)
