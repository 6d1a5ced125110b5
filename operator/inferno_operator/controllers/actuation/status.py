"""The condition `Actuated` of a Server; pure."""

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta

from inferno_operator.controllers.actuation.targets import dialect
from inferno_operator.resources import (
    Condition,
    MeasuredLeadTime,
    ModelBoosterRef,
    RecordedWorkload,
    ReplicaReduction,
    ServerStatus,
    Status,
)
from inferno_operator.resources.conditions import ACTUATED, Verdict, merge_conditions
from inferno_operator.resources.objects import Kind, Manifest, Place
from inferno_optimizer.way_down import WayDown

RELEASED = "Released"
"""The reason of the condition when actuation owns no fields any more."""

PAUSE = timedelta(minutes=5)
"""Time between two takeovers of a field from the same field manager."""

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
    """Return the fields of the status that actuation owns: its condition and what it knows."""
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


def no_booster(reference: ModelBoosterRef, names: Iterable[str]) -> Verdict:
    """Return the verdict that boosters do not exist or are being deleted."""
    kind = dialect(reference).booster.kind
    message = f"{kind} {_quoted(names)} does not exist: create it, or correct spec.modelBooster"
    return refusal("NoModelBooster", message)


def no_backend(booster: str, backend: str) -> Verdict:
    """Return the verdict that a booster does not have a backend."""
    message = (
        f"{booster!r} has no backend {backend!r}: add it there, or correct modelBooster.backends"
    )
    return refusal("NoBackend", message)


def no_binding(reference: ModelBoosterRef, backends: Iterable[str]) -> Verdict:
    """Return the verdict that nothing binds an autoscaler to backends."""
    kinds = " or ".join(kind.kind for kind in dialect(reference).scalers)
    message = (
        f"no {kinds} scales the replicas of backend {_quoted(backends)}:"
        f" create one, or choose another modelBooster.target"
    )
    return refusal("NoBinding", message)


def booster_failed(booster: str, report: str, progress: str) -> Verdict:
    """Return the verdict that the controller of a booster calls it failed."""
    return refusal(
        "ModelBoosterFailed", f"the controller of {booster!r} reports: {report}; {progress}"
    )


def _quoted(names: Iterable[str]) -> str:
    return ", ".join(map(repr, names))


def conflict(problem: str) -> Verdict:
    """Return the verdict that another field manager changes the fields of actuation."""
    message = (
        f"{problem}; that manager changed the field back: stop it, or choose another"
        f" modelBooster.target; the operator sets the field every {PAUSE.total_seconds():g} s,"
        f" and earlier only where replicas would be lost"
    )
    return refusal("Conflict", message)


def autoscaled(name: str, serving: Place) -> Verdict:
    """Return the verdict that another autoscaler chooses the replicas of a serving."""
    message = (
        f"{name} scales {serving.kind.kind} {serving.key.name!r} too: remove it, or set"
        f" modelBooster.bounds to Ceiling"
    )
    return refusal("Conflict", message)


def booster_in_use(other: str, booster: str) -> Verdict:
    """Return the verdict that an older Server refers to a booster."""
    message = (
        f"the older Server {other!r} refers to {booster!r} too:"
        f" remove spec.modelBooster from one of the two Servers"
    )
    return refusal("Conflict", message)


def released() -> Verdict:
    """Return the verdict that actuation owns no fields any more."""
    message = "the numbers of replicas stay as they are; the operator does not own them any more"
    return refusal(RELEASED, message)
