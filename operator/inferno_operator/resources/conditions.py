"""Conditions of an object's status: what we say, merged with what is there; pure."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime

from inferno_operator.resources import Condition, Status

READY = "Ready"
ALLOCATED = "Allocated"
OPTIMIZED = "Optimized"

WARNINGS = "Warnings"
"""Condition that is there only while there is something to be warned of."""

MAX_MESSAGE = 32768
"""Characters that a condition's message may have."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """What we say about one aspect of an object; `holds` is None where it is not known yet."""

    type: str
    holds: bool | None
    reason: str
    message: str = ""

    @property
    def status(self) -> str:
        """The condition's status."""
        return {True: "True", False: "False", None: "Unknown"}[self.holds]


def merge_conditions(
    status: Status, verdicts: Iterable[Verdict], generation: int, now: datetime
) -> tuple[Condition, ...]:
    """Our conditions as they are to be: the time moves only when the status does.

    Parameters
    ----------
    status
        The object's status so far.
    verdicts
        One for each of our types.
    generation
        Of the object that the verdicts are about.
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


def changed(status: Status, verdict: Verdict) -> bool:
    """Whether a verdict says something new, beyond the generation that it is about."""
    old = status.condition(verdict.type)
    if old is None:
        return True
    return (old.status, old.reason, old.message) != (
        verdict.status,
        verdict.reason,
        verdict.message[:MAX_MESSAGE],
    )
