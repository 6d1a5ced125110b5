"""What is said on an Optimizer of its request, and on a Plan of what becomes of it; pure."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from inferno_operator.controllers.planning.updates import VALID, Update
from inferno_operator.resources import (
    DIGITS,
    CapacityUse,
    Certificate,
    Gain,
    Guard,
    LastOptimization,
    Level,
    Optimizer,
    OptimizerStatus,
    Phase,
    PlanStatus,
    PlanTotals,
    Unserved,
)
from inferno_operator.resources.conditions import (
    NOT_REQUESTED,
    OPTIMIZED,
    READY,
    WAITING,
    Verdict,
)
from inferno_operator.resources.objects import EVENTS, Event, Manifest
from inferno_operator.resources.observation import Observation
from inferno_optimizer import solution as core
from inferno_optimizer.errors import InfernoError
from inferno_optimizer.solution import Reason, Solution

UNSERVED_NAMED = 100
"""How many servers without an allocation a status names: the size of objects is limited."""

TROUBLES_NAMED = 10
"""How many problems of objects the message names."""

UNASKED = Verdict(
    OPTIMIZED, holds=None, reason=NOT_REQUESTED, message=f"{WAITING}, or set spec.optimize to true"
)


def report_unreadable_optimizer(observation: Observation) -> Update:
    """Return the update of an Optimizer whose spec cannot be read."""
    verdicts = tuple(
        Verdict(aspect, holds=False, reason=Reason.INVALID_SPEC, message=observation.problem)
        for aspect in (READY, OPTIMIZED)
    )
    return _build_update(observation, verdicts, done=False)


def report_start(observation: Observation) -> Update:
    """Return the update at the start of an optimization; an earlier failure stays reported."""
    before = observation.status.condition(OPTIMIZED)
    if before and before.status == "False" and before.observed_generation == observation.generation:
        verdict = Verdict.of(before)
    else:
        message = "reading the objects of the namespace and solving"
        verdict = Verdict(OPTIMIZED, holds=None, reason="Optimizing", message=message)
    return _build_update(observation, (VALID, verdict), done=False)


def report_result(
    observation: Observation,
    solution: Solution,
    now: datetime,
    troubles: Sequence[str] = (),
    waits: str = "",
) -> Update:
    """Return the update after an optimization: its result, and the problems of its objects.

    `waits` says why decisions are not written yet.
    """
    last = _build_last(observation, solution, now)
    failures = (f"the solver failed at {text}" for text in solution.certificate.failures)
    parts = (_summarize(solution), waits, *failures, *troubles[:TROUBLES_NAMED])
    message = "; ".join(filter(None, parts))
    if len(troubles) > TROUBLES_NAMED:
        message += f"; and {len(troubles) - TROUBLES_NAMED} more problems"
    verdict = Verdict(OPTIMIZED, holds=True, reason="Optimized", message=message)
    return _build_update(observation, (VALID, verdict), done=True, last=last)


def summarize_events(observation: Observation, updates: Sequence[Update]) -> tuple[Event, ...]:
    """Return events that summarize those of all objects; none if there are few of those."""
    events = [event for update in updates for event in update.events()]
    if len(events) <= EVENTS:
        return ()
    counted = Counter((event.type, event.reason) for event in events)
    return tuple(
        Event(observation.reference, type_, reason, f"{count} objects; see their conditions")
        for (type_, reason), count in sorted(counted.items())
    )


def report_failure(observation: Observation, error: InfernoError) -> Update:
    """Return the update after a failure; the request stays and is tried again."""
    verdict = Verdict(OPTIMIZED, holds=False, reason=error.reason, message=str(error))
    return _build_update(observation, (VALID, verdict), done=False)


def report_settled(observation: Observation) -> Update:
    """Return the update of an Optimizer that is not due; its last result stays."""
    last = _find_last_verdict(observation)
    ready = replace(VALID, message=WAITING) if last.reason == NOT_REQUESTED else VALID
    return _build_update(observation, (ready, last), done=_is_still_done(observation))


def report_rival(observation: Observation, rival: str) -> Update:
    """Return the update of an Optimizer that does not optimize, as another does at an interval."""
    message = (
        f"Optimizer {rival!r} already optimizes this namespace every interval, so this one is"
        " ignored: set spec.optimize of that one, or remove its spec.interval"
    )
    refusal = Verdict(READY, holds=False, reason="SeveralIntervals", message=message)
    last = _find_last_verdict(observation)
    if last.reason == NOT_REQUESTED:  # what would be refused is no advice
        last = replace(last, message=message)
    return _build_update(observation, (refusal, last), done=_is_still_done(observation))


def _find_last_verdict(observation: Observation) -> Verdict:
    before = observation.status.condition(OPTIMIZED)
    if before is None or before.reason in ("Optimizing", Reason.INVALID_SPEC, NOT_REQUESTED):
        return UNASKED
    return Verdict.of(before)


def _is_still_done(observation: Observation) -> bool:
    """Whether the spec is that of the last optimization, apart from the cleared request."""
    last = _find_last(observation)
    return last is not None and observation.generation <= last.requested_generation + 1


def _find_last(observation: Observation) -> LastOptimization | None:
    status = observation.status
    return status.last_optimization if isinstance(status, OptimizerStatus) else None


def _build_update(
    observation: Observation,
    verdicts: tuple[Verdict, ...],
    *,
    done: bool,
    last: LastOptimization | None = None,
) -> Update:
    """Return an update that keeps the last optimization, unless there is a new one.

    An apply removes owned fields that it leaves out, so every update has all of them.
    """
    newest = last or _find_last(observation)
    status = OptimizerStatus(done=done, last_optimization=newest).to_json()
    active = verdicts[0].holds is True
    return Update.of(observation, verdicts, active=active, extra_status=status)


def _summarize(solution: Solution) -> str:
    total, unserved = len(solution.decisions), len(solution.unserved)
    text = f"{total - unserved} of {total} servers have an allocation, {solution.cost:g} cents/hour"
    if not unserved:
        return text
    first = solution.unserved[0]
    return f"{text}; {first.server}: {first.reason}" + (
        f" and {unserved - 1} more" * (unserved > 1)
    )


def convert_certificate(certificate: core.Certificate) -> Certificate:
    """Return the certificate of a solution as a status has it."""
    return Certificate(
        solver=certificate.solver,
        status=certificate.status,
        objective=round(certificate.objective, DIGITS),
        bound=None if certificate.bound is None else round(certificate.bound, DIGITS),
        gap=None if certificate.gap is None else round(certificate.gap, DIGITS),
        seconds=round(certificate.seconds, DIGITS),
        levels=tuple(
            Level(
                priority=level.priority,
                served=round(level.served, DIGITS),
                bound=round(level.bound, DIGITS),
            )
            for level in certificate.levels
        ),
        failures=certificate.failures or None,
    )


def _build_last(observation: Observation, solution: Solution, now: datetime) -> LastOptimization:
    resource = observation.resource
    is_unlimited = isinstance(resource, Optimizer) and resource.spec.data.optimizer.unlimited
    return LastOptimization(
        time=now,
        requested_generation=observation.generation,
        servers=len(solution.decisions),
        allocated=len(solution.allocations),
        cost=round(solution.cost, DIGITS),
        certificate=convert_certificate(solution.certificate),
        unserved=tuple(
            Unserved(server=d.server, reason=d.reason, message=d.message)
            for d in solution.unserved[:UNSERVED_NAMED]
        ),
        capacity=tuple(
            CapacityUse(
                type=use.type,
                used=use.used,
                available=None if is_unlimited else use.available,
                held=use.held or None,
                price=None if use.price is None else round(use.price, DIGITS),
                gain=None
                if use.gain is None
                else Gain(priority=use.gain.priority, load=round(use.gain.load, DIGITS)),
                estimated=use.estimated or None,
            )
            for use in solution.capacity
        ),
    )


NAMED = 3
"""How many Servers a message names."""


@dataclass(frozen=True, slots=True)
class Hold:
    """Why a Plan waits; `until` is the time after which it does not wait by itself, if any."""

    reason: str
    message: str
    until: datetime | None = None


def find_hold(optimizer: Optimizer, totals: PlanTotals, now: datetime) -> Hold | None:
    """Return why a plan of an Optimizer waits for approval; None if it is to be carried out.

    In mode Recommend nothing waits: only `desiredAlloc` is written.
    """
    if optimizer.spec.mode == "Recommend":
        return None
    if optimizer.spec.mode == "Approve":
        return Hold("AwaitsApproval", "the Optimizer has mode Approve")
    guard = optimizer.spec.guard or Guard()
    if problems := list(_find_excesses(guard, totals)):
        return Hold("BeyondGuard", "; ".join(problems))
    end = max(filter(None, (window.end(now) for window in guard.freeze)), default=None)
    if end is None:
        return None
    until = end.strftime("%Y-%m-%d %H:%M UTC")
    return Hold("Frozen", f"plans are frozen until {until} (spec.guard.freeze)", end)


def _find_excesses(guard: Guard, totals: PlanTotals) -> Iterator[str]:
    most = guard.max_servers_changed
    if most is not None and totals.servers > most:
        yield f"{totals.servers} Servers change, spec.guard.maxServersChanged is {most}"
    limit, before, after = guard.max_cost_increase_percent, totals.cost_before, totals.cost_after
    if limit is not None and after > before * (1 + limit / 100):
        percent = f"{100 * (after / before - 1):.1f} %" if before > 0 else "from nothing"
        yield (
            f"the cost rises from {before:g} to {after:g} cents/hour ({percent}),"
            f" spec.guard.maxCostIncreasePercent is {limit:g}"
        )
    emptied = totals.reduction.emptied if totals.reduction else ()
    if emptied and guard.way_down.share < 1:
        yield (
            f"{_list_names(emptied)} would lose the last replica under load,"
            f" spec.guard.maxDecreasePercent is {100 * guard.way_down.share:g}"
        )


CARRIED_OUT = "CarriedOut"
"""The type of the condition of a Plan."""

NOT_SIGNED = "NotSigned"
"""The reason of a Plan that the operator did not make."""

STRANGER = (
    "it has no signature of this operator, so it is not carried out: another writer made or changed"
    " it, or the operator made it with another key, such as before an upgrade; the next"
    " optimization proposes what is still to be changed (set spec.optimize of its Optimizer)"
)
"""What is said on a Plan that the operator did not make."""

UNSCALED = "the operator scales none of these Servers"
"""Why a Plan is only written whose Servers name no workloads, or are published."""


@dataclass(frozen=True, slots=True)
class Arrivals:
    """Servers of a Plan that run what was decided, of how many, and why others do not yet.

    `gone` are those that were deleted meanwhile, `unscaled` those that the operator does not scale.
    """

    arrived: int
    servers: int
    others: tuple[str, ...] = ()
    gone: tuple[str, ...] = ()
    unscaled: tuple[str, ...] = ()

    @property
    def is_complete(self) -> bool:
        """Whether all have arrived that are still there and that the operator scales."""
        return self.arrived + len(self.gone) + len(self.unscaled) >= self.servers


def describe_answers(name: str) -> str:
    """Return what a person does with a Plan of this name that waits."""
    return (
        f"review: kubectl inferno diff {name}; approve: kubectl inferno approve {name};"
        f" reject: kubectl inferno reject {name}"
    )


def report_waiting(observation: Observation, hold: Hold, absences: Sequence[str] = ()) -> Update:
    """Return the update of a Plan that waits for a person; `absences` say what does not exist."""
    shown = [*absences[:NAMED], *(["..."] if len(absences) > NAMED else [])]
    how = describe_answers(observation.reference.key.name)
    message = "; ".join((hold.message, *shown, how))
    verdict = Verdict(CARRIED_OUT, holds=False, reason=hold.reason, message=message)
    return _build_plan_update(observation, "Proposed", verdict)


def report_approved(observation: Observation, by: str) -> Update:
    """Return the update of a Plan that was approved, and is not written yet."""
    verdict = Verdict(CARRIED_OUT, holds=None, reason="Approved", message=f"approved by {by}")
    return _build_plan_update(observation, "Approved", verdict, by=by)


def report_not_written(observation: Observation, error: InfernoError) -> Update:
    """Return the update of a Plan whose decisions the API server refuses."""
    verdict = Verdict(CARRIED_OUT, holds=False, reason="NotWritten", message=str(error))
    return _build_plan_update(observation, "Approved", verdict)


def report_acting(observation: Observation, by: str, arrivals: Arrivals) -> Update:
    """Return the update of a Plan whose decisions are written on the Servers."""
    message = f"{arrivals.arrived} of {arrivals.servers} Servers run what was decided"
    if arrivals.others:
        message += f"; not yet: {_list_names(arrivals.others)}"
    message += _describe_unscaled(arrivals) + _describe_gone(arrivals)
    verdict = Verdict(CARRIED_OUT, holds=None, reason="Acting", message=message)
    return _build_plan_update(observation, "Acting", verdict, by=by, arrived=arrivals.arrived)


def report_done(observation: Observation, by: str, arrivals: Arrivals, now: datetime) -> Update:
    """Return the update of a Plan whose Servers run what was decided, or that is only written."""
    count = arrivals.arrived
    if not count and not arrivals.unscaled:
        names = _list_names(arrivals.gone)
        why = f"its Servers were deleted: {names}; their replicas stay as they are"
        return report_superseded(observation, why, now)
    if not count:
        message = _describe_written(len(arrivals.unscaled), UNSCALED) + _describe_gone(arrivals)
        verdict = Verdict(CARRIED_OUT, holds=True, reason="Written", message=message)
        return _build_plan_update(observation, "Written", verdict, by=by, arrived=0, finished=now)
    message = f"{_count_of(count, 'Server')} {'runs' if count == 1 else 'run'} what was decided"
    message += _describe_unscaled(arrivals) + _describe_gone(arrivals)
    verdict = Verdict(CARRIED_OUT, holds=True, reason="Done", message=message)
    return _build_plan_update(observation, "Done", verdict, by=by, arrived=count, finished=now)


def report_recommended(observation: Observation, by: str, decisions: int, now: datetime) -> Update:
    """Return the update of a Plan that is only a recommendation, and is written."""
    message = _describe_written(decisions, "in mode Recommend the operator scales nothing")
    verdict = Verdict(CARRIED_OUT, holds=True, reason="Recommended", message=message)
    return _build_plan_update(observation, "Written", verdict, by=by, arrived=0, finished=now)


def _describe_written(decisions: int, why: str) -> str:
    return f"written: {_count_of(decisions, 'decision')}; {why}"


def _count_of(number: int, noun: str) -> str:
    return f"{number} {noun}" + "s" * (number != 1)


def report_end(
    observation: Observation,
    phase: Phase,
    reason: str,
    message: str,
    now: datetime,
    by: str = "",
) -> Update:
    """Return the update of a Plan that is not carried out, or not to its end."""
    verdict = Verdict(CARRIED_OUT, holds=False, reason=reason, message=message)
    return _build_plan_update(observation, phase, verdict, by=by, finished=now)


def report_unreadable_plan(observation: Observation, now: datetime) -> Update:
    """Return the update of a Plan whose spec cannot be read."""
    return report_end(observation, "Failed", "Unreadable", observation.problem, now)


def report_stranger(observation: Observation, now: datetime) -> Update:
    """Return the update of a Plan that the operator did not make."""
    return report_end(observation, "Superseded", NOT_SIGNED, STRANGER, now)


def report_superseded(observation: Observation, why: str, now: datetime) -> Update:
    """Return the update of a Plan that something newer replaces.

    How far it got is unknown if it was being carried out: that is no reason for a warning.
    """
    before = observation.status
    is_acting = isinstance(before, PlanStatus) and before.phase == "Acting"
    holds = None if is_acting else False
    verdict = Verdict(CARRIED_OUT, holds, reason="Superseded", message=why)
    return _build_plan_update(observation, "Superseded", verdict, finished=now)


def count_time_acting(observation: Observation, now: datetime) -> timedelta:
    """Return for how long a Plan has been in its phase Acting."""
    condition = observation.status.condition(CARRIED_OUT)
    return now - condition.last_transition_time if condition else timedelta()


def _list_names(servers: Sequence[str]) -> str:
    return ", ".join(servers[:NAMED]) + ", ..." * (len(servers) > NAMED)


def _describe_unscaled(arrivals: Arrivals) -> str:
    if not arrivals.unscaled:
        return ""
    servers = _count_of(len(arrivals.unscaled), "Server")
    return f"; written, not scaled by the operator: {servers} ({_list_names(arrivals.unscaled)})"


def _describe_gone(arrivals: Arrivals) -> str:
    if not arrivals.gone:
        return ""
    return f"; deleted meanwhile: {_list_names(arrivals.gone)}; their replicas stay as they are"


def _build_plan_update(
    observation: Observation,
    phase: Phase,
    verdict: Verdict,
    *,
    by: str = "",
    arrived: int | None = None,
    finished: datetime | None = None,
) -> Update:
    before = observation.status
    last = before if isinstance(before, PlanStatus) else PlanStatus()
    status = PlanStatus(
        phase=phase,
        by=by or last.by,
        arrived=last.arrived if arrived is None else arrived,
        finished=finished,
    )
    extra: Manifest = {
        key: value for key, value in status.to_json().items() if value not in ("", None)
    }
    return Update.of(observation, (verdict,), active=finished is None, extra_status=extra)
