"""From a decision and the current objects to the next writes and the condition; pure.

If replicas do not become available in time, the condition reports it, and the old replicas keep
running: replicas that serve are not removed for replicas that do not.
"""

from dataclasses import dataclass
from datetime import datetime, timedelta

from inferno_operator.controllers.actuation.decision import Wanted
from inferno_operator.controllers.actuation.holders import Write
from inferno_operator.controllers.actuation.move import Move
from inferno_operator.controllers.actuation.status import (
    RECHECK,
    autoscaled,
    booster_in_use,
    crd_missing,
    no_booster,
    refusal,
)
from inferno_operator.controllers.actuation.targets import ScaledObjects
from inferno_operator.resources import ModelBoosterRef, Status
from inferno_operator.resources.conditions import ACTUATED, Verdict
from inferno_operator.resources.objects import Kind, Place

MOVE_TIMEOUT = timedelta(minutes=10)
"""Time after which a move is reported as `MoveTimedOut`."""


@dataclass(frozen=True, slots=True)
class ActuationPlan:
    """Writes, the verdict to report (None: unchanged), and the next reconcile [s]."""

    verdict: Verdict | None
    writes: tuple[Write, ...] = ()
    again_after: float | None = None


@dataclass(frozen=True, slots=True)
class Inputs:
    """The inputs of a plan.

    Parameters
    ----------
    reference, wanted, status
        The Server's reference, the decision for it, and its status.
    workload
        The objects of the reference; None if none of its boosters exists.
    rival
        An older Server that refers to one of the boosters, and the name of that booster.
    unserved
        A kind that is needed and that the API server does not serve.
    autoscaler
        Another autoscaler that chooses the replicas of a serving, and that serving.
    """

    reference: ModelBoosterRef
    wanted: Wanted
    status: Status
    workload: ScaledObjects | None = None
    rival: tuple[str, str] | None = None
    unserved: Kind | None = None
    autoscaler: tuple[str, Place] | None = None


def decide(inputs: Inputs, now: datetime) -> ActuationPlan:
    """Decide the next writes, and the verdict to report."""
    obstacle = _obstacle(inputs)
    if obstacle is not None:
        return ActuationPlan(obstacle)
    if inputs.workload is None or not inputs.wanted.fresh:
        return ActuationPlan(None)
    if inputs.autoscaler is not None:
        return ActuationPlan(autoscaled(*inputs.autoscaler), again_after=RECHECK.total_seconds())
    if inputs.wanted.replicas is None:
        why = f"the replicas stay as they are: {inputs.wanted.why}"
        return ActuationPlan(refusal(inputs.wanted.reason, why))
    return _step(inputs, Move(inputs.reference, inputs.wanted.replicas, inputs.workload), now)


def _obstacle(inputs: Inputs) -> Verdict | None:
    """Return the verdict if nothing can be decided, else None."""
    if inputs.rival is not None:
        return booster_in_use(*inputs.rival)
    if inputs.unserved is not None:
        return crd_missing(inputs.unserved)
    if inputs.workload is None:
        return no_booster(inputs.reference, inputs.reference.boosters)
    return None


def _step(inputs: Inputs, move: Move, now: datetime) -> ActuationPlan:
    """Return the next step of a move."""
    writes = move.writes()
    problem = move.problem()
    if problem is not None:
        return ActuationPlan(problem, writes)
    if not writes and move.is_complete():
        return ActuationPlan(
            Verdict(ACTUATED, holds=True, reason="Actuated", message=move.progress())
        )
    return _moving(move, writes, inputs.status, now)


def _moving(move: Move, writes: tuple[Write, ...], status: Status, now: datetime) -> ActuationPlan:
    """Return the plan of a move that is not complete, in time or after the timeout."""
    before = status.condition(ACTUATED)
    began = before.last_transition_time if before and before.status == "Unknown" else now
    left = (began + MOVE_TIMEOUT - now).total_seconds()
    if left > 0:
        verdict = Verdict(ACTUATED, holds=None, reason="Moving", message=move.progress())
        return ActuationPlan(verdict, writes, left)
    wrong = "become ready, or correct Capacity and optimize again" if move.missing() else "end"
    message = (
        f"{move.progress()}; this takes longer than {MOVE_TIMEOUT.total_seconds() / 60:g} min:"
        f" check why the pods do not {wrong}"
    )
    return ActuationPlan(
        Verdict(ACTUATED, holds=None, reason="MoveTimedOut", message=message), writes
    )
