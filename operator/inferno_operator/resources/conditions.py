"""Conditions of an object's status, merged with the existing ones; pure."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime

from inferno_operator.resources import Condition, Status
from inferno_optimizer.solution import Reason

READY = "Ready"
ALLOCATED = "Allocated"
ACTUATED = "Actuated"
OPTIMIZED = "Optimized"
CALIBRATED = "Calibrated"
COUNTED = "Counted"

PROPOSED = "Proposed"
"""Reason of `Allocated` without a decision while the first one is in a Plan that waits."""

UNDECIDED = frozenset({*(reason.value for reason in Reason if not reason.decided), PROPOSED})
"""Reasons of `Allocated` for which what runs stays as it is."""

CORRECTED = "Corrected"
"""Condition that is there only while more load is planned for than is measured."""

RECOMMENDED = "Recommended"
"""Reason of `Actuated` in mode Recommend: decisions are made, and not carried out."""

WARNINGS = "Warnings"
"""Condition that is there only while there is something to be warned of."""

NOT_FOUND = "NotFound"
"""Reason of `Actuated` where a workload does not exist."""

ABSENT = frozenset({NOT_FOUND, "NoScale", "CRDMissing", "NoModelBooster", "NoBackend", "NoBinding"})
"""Reasons of `Actuated` where there is nothing that the operator could scale."""

NOT_REQUESTED = "NotRequested"
"""Reason of `Optimized` before anybody asks for the first optimization."""

WAITING = "waiting: kubectl inferno optimize"
"""What is said where nothing is decided, as nobody has asked for it."""

MAX_MESSAGE = 32768
"""Maximum length of a condition's message [characters]."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """A condition to report; `holds` is None if it is not known yet."""

    type: str
    holds: bool | None
    reason: str
    message: str = ""

    @classmethod
    def of(cls, condition: Condition) -> "Verdict":
        """Return the verdict that a condition reports."""
        holds = {"True": True, "False": False}.get(condition.status)
        return cls(condition.type, holds, condition.reason, condition.message)

    @property
    def status(self) -> str:
        """The status of the condition."""
        return {True: "True", False: "False", None: "Unknown"}[self.holds]


def absence(status: Status) -> str:
    """Return why there is nothing to scale that a Server names; "" if there is, as far as known."""
    actuated = status.condition(ACTUATED)
    return actuated.message if actuated is not None and actuated.reason in ABSENT else ""


def merge_conditions(
    status: Status, verdicts: Iterable[Verdict], generation: int, now: datetime
) -> tuple[Condition, ...]:
    """Return a condition for each verdict; its time changes only if its status changes.

    Parameters
    ----------
    status
        The current status of the object.
    verdicts
        The verdicts, one for each type of condition.
    generation
        The generation of the object that the verdicts are about.
    now
        The time.
    """
    return tuple(_merged(status.condition(v.type), v, generation, now) for v in verdicts)


def _merged(old: Condition | None, verdict: Verdict, generation: int, now: datetime) -> Condition:
    same = old is not None and old.status == verdict.status
    return Condition.model_validate(
        {
            "type": verdict.type,
            "status": verdict.status,
            "observedGeneration": generation,
            "lastTransitionTime": old.last_transition_time if old and same else now,
            "reason": verdict.reason,
            "message": verdict.message[:MAX_MESSAGE],
        }
    )


def is_new_verdict(status: Status, verdict: Verdict) -> bool:
    """Whether a verdict differs from the condition in status, reason or message."""
    old = status.condition(verdict.type)
    if old is None:
        return True
    return (old.status, old.reason, old.message) != (
        verdict.status,
        verdict.reason,
        verdict.message[:MAX_MESSAGE],
    )
