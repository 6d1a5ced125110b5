"""From a decision and the current objects to the next writes and the condition; pure.

If replicas do not become available in time, the condition reports it, and the old replicas keep
running: replicas that serve are not removed for replicas that do not.
"""

from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

from inferno_operator.controllers.actuation.booster_bounds import Write
from inferno_operator.controllers.actuation.decision import Wanted
from inferno_operator.controllers.actuation.move import Limits, Move
from inferno_operator.controllers.actuation.reductions import (
    next_time,
    reductions_of,
    remember,
)
from inferno_operator.controllers.actuation.status import (
    RECHECK,
    autoscaled,
    booster_in_use,
    crd_missing,
    no_booster,
    refusal,
    steps_down,
)
from inferno_operator.controllers.actuation.targets import ScaledObjects
from inferno_operator.resources import ModelBoosterRef, ReplicaReduction, Status
from inferno_operator.resources.conditions import ACTUATED, Verdict
from inferno_operator.resources.objects import Kind, Place

MOVE_TIMEOUT = timedelta(minutes=10)
"""Time after which a move is reported as `MoveTimedOut`."""


SETTLED = 0.1
"""Time after the end of a window at which the next replicas go [s]."""


@dataclass(frozen=True, slots=True)
class ActuationPlan:
    """Writes, the verdict to report (None: unchanged), and the next reconcile [s].

    `reductions` are what the status is to remember of replicas that went (None: unchanged);
    `takes` says that it must do so before the writes, and before what runs is reported.
    """

    verdict: Verdict | None
    writes: tuple[Write, ...] = ()
    again_after: float | None = None
    reductions: tuple[ReplicaReduction, ...] | None = None
    takes: bool = False


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
    limits
        What limits how fast replicas go.
    fallen
        The reductions of its status, with what has failed since the last report; None: no more.
    """

    reference: ModelBoosterRef
    wanted: Wanted
    status: Status
    workload: ScaledObjects | None = None
    rival: tuple[str, str] | None = None
    unserved: Kind | None = None
    autoscaler: tuple[str, Place] | None = None
    limits: Limits = field(default_factory=Limits)
    fallen: tuple[ReplicaReduction, ...] | None = None

    @property
    def move(self) -> Move | None:
        """The move to the decision; None if there is nothing to move, or no decision."""
        if self.workload is None or self.wanted.replicas is None or not self.wanted.fresh:
            return None
        return Move(self.reference, self.wanted.replicas, self.workload, self.limits)


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
    move = Move(inputs.reference, inputs.wanted.replicas, inputs.workload, inputs.limits)
    return _remembering(_step(inputs, move, now), move, inputs, now)


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
    began = max([began, *(r.time for r in reductions_of(status) if r.time <= now)])
    if move.slowed:
        began = now  # it waits for the way down
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


def _remembering(plan: ActuationPlan, move: Move, inputs: Inputs, now: datetime) -> ActuationPlan:
    """Return a plan with what is to be remembered of replicas that go, and said of the others."""
    limits, status = inputs.limits, inputs.status
    loses = any(move.after[place] < n for place, n in move.serving.items())
    goes = loses and any(write.reduces for write in plan.writes)
    takes = goes or inputs.fallen is not None
    known = reductions_of(status) if inputs.fallen is None else inputs.fallen
    reductions = remember(known, move.served_before, limits.way_down, now, loses=goes, goes=loses)
    if not move.slowed or plan.verdict is None or plan.verdict.reason != "Moving":
        return replace(plan, reductions=reductions, takes=takes)
    after = move.after
    choices = [{**after, place: after[place] - 1} for place in move.slowed]
    following = next_time(choices, after, reductions, move.weights, limits.way_down, now)
    steps = steps_down(move.slowed, limits.way_down, following)
    verdict = replace(plan.verdict, message=f"{plan.verdict.message}{steps}")
    # A moment later than the window ends; a time of 0 would mean that nothing is due.
    left = None if following is None else (following - now).total_seconds() + SETTLED
    return replace(plan, verdict=verdict, reductions=reductions, takes=takes, again_after=left)
