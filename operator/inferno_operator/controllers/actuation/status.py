"""What is said on a Server about its actuation; pure."""

from datetime import datetime, timedelta

from inferno_operator.controllers.actuation.targets import dialect
from inferno_operator.resources import Condition, ModelBoosterRef, Status
from inferno_operator.resources.conditions import Verdict, merge_conditions
from inferno_operator.resources.objects import Kind

ACTUATED = "Actuated"
"""Type of the condition."""

RELEASED = "Released"
"""Its reason when actuation owns nothing any more."""

PAUSE = timedelta(minutes=5)
"""For how long a field that was taken from another writer, and lost again, is left to it."""


def condition(
    status: Status, verdict: Verdict | None, generation: int, now: datetime
) -> Condition | None:
    """The condition to write; None if the status says so already, or there is nothing to say.

    Parameters
    ----------
    status, generation
        Of the Server.
    verdict
        What to say.
    now
        The time.
    """
    if verdict is None:
        return None
    (merged,) = merge_conditions(status, [verdict], generation, now)
    return None if merged == status.condition(ACTUATED) else merged


def refusal(reason: str, message: str) -> Verdict:
    """Say that the decision is not carried out."""
    return Verdict(ACTUATED, holds=False, reason=reason, message=message)


def crd_missing(kind: Kind) -> Verdict:
    """Say that a kind is not served."""
    message = f"{kind} is not served: install the custom resource definitions of {kind.group}"
    return refusal("CRDMissing", message)


def no_booster(reference: ModelBoosterRef) -> Verdict:
    """Say that the booster is not there, or about to go."""
    kind = dialect(reference).booster.kind
    message = f"{kind} {reference.name!r} is not there: create it, or correct modelBooster.name"
    return refusal("NoModelBooster", message)


def conflict(problem: str) -> Verdict:
    """Say that another writer sets our fields."""
    message = (
        f"{problem}; it was set already, and set back: stop that writer, or choose another"
        f" modelBooster.target; set again {PAUSE.total_seconds():g} s after the last time"
    )
    return refusal("Conflict", message)


def taken(reference: ModelBoosterRef, other: str) -> Verdict:
    """Say that an older Server has the booster."""
    message = (
        f"Server {other!r}, which is older, refers to {reference.name!r} too:"
        f" let only one of them do so"
    )
    return refusal("Conflict", message)


def released() -> Verdict:
    """Say that the operator owns nothing any more."""
    message = "the numbers of replicas stay as they were, and belong to nobody now"
    return refusal(RELEASED, message)
