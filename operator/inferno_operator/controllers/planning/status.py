"""The status of an Optimizer: its request is being worked on, done or failed; pure."""

from collections import Counter
from collections.abc import Sequence
from datetime import datetime

from inferno_operator.controllers.planning.updates import VALID, Update
from inferno_operator.resources import (
    DIGITS,
    CapacityUse,
    Certificate,
    Gain,
    LastOptimization,
    Level,
    Optimizer,
    OptimizerStatus,
    Unserved,
)
from inferno_operator.resources.conditions import OPTIMIZED, READY, Verdict
from inferno_operator.resources.objects import EVENTS, Event
from inferno_operator.resources.observation import Observation
from inferno_optimizer import solution as core
from inferno_optimizer.errors import InfernoError
from inferno_optimizer.solution import Reason, Solution

UNSERVED_NAMED = 100
"""How many servers without an allocation a status names: the size of objects is limited."""

TROUBLES_NAMED = 10
"""How many problems of objects the message names."""

NOT_REQUESTED = Verdict(
    OPTIMIZED, holds=None, reason="NotRequested", message="set spec.optimize to true to optimize"
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
    verdicts = (VALID, _find_last_verdict(observation))
    return _build_update(observation, verdicts, done=_is_still_done(observation))


def report_rival(observation: Observation, rival: str) -> Update:
    """Return the update of an Optimizer that does not optimize, as another does at an interval."""
    message = (
        f"Optimizer {rival!r} already optimizes this namespace every interval, so this one is"
        " ignored: set spec.optimize of that one, or remove its spec.interval"
    )
    refusal = Verdict(READY, holds=False, reason="SeveralIntervals", message=message)
    verdicts = (refusal, _find_last_verdict(observation))
    return _build_update(observation, verdicts, done=_is_still_done(observation))


def _find_last_verdict(observation: Observation) -> Verdict:
    before = observation.status.condition(OPTIMIZED)
    if before is None or before.reason in ("Optimizing", Reason.INVALID_SPEC):
        return NOT_REQUESTED
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
