"""What an Optimizer says about its request: being worked on, done, failed; pure."""

from collections import Counter
from collections.abc import Sequence
from datetime import datetime

from inferno_operator.controllers.optimization.plan import DIGITS, VALID, Update
from inferno_operator.resources import (
    CapacityUse,
    Certificate,
    LastOptimization,
    Level,
    Optimizer,
    OptimizerStatus,
    Unserved,
)
from inferno_operator.resources.conditions import OPTIMIZED, READY, Verdict
from inferno_operator.resources.objects import Event
from inferno_operator.resources.observation import Observation
from inferno_optimizer.errors import InfernoError
from inferno_optimizer.system import Reason, Solution

UNSERVED_NAMED = 100
"""How many unserved servers a status names: an object has room for so much only."""

TROUBLES_NAMED = 10
"""How many problems of objects a message names."""

EVENTS = 500
"""How many objects may have an event each: clusters keep them for an hour, beside all else."""

NOT_REQUESTED = Verdict(
    OPTIMIZED, holds=None, reason="NotRequested", message="set spec.optimize to true to optimize"
)


def unreadable(observation: Observation) -> Update:
    """Say that the Optimizer's own spec cannot be read."""
    verdicts = tuple(
        Verdict(aspect, holds=False, reason=Reason.INVALID_SPEC, message=observation.problem)
        for aspect in (READY, OPTIMIZED)
    )
    return _update(observation, verdicts, done=False)


def working(observation: Observation) -> Update:
    """Say that the request is being worked on; a failure before stays told until it is over."""
    before = observation.status.condition(OPTIMIZED)
    if before and before.status == "False" and before.observed_generation == observation.generation:
        verdict = Verdict(OPTIMIZED, holds=False, reason=before.reason, message=before.message)
    else:
        message = "reading the objects of the namespace and solving"
        verdict = Verdict(OPTIMIZED, holds=None, reason="Optimizing", message=message)
    return _update(observation, (VALID, verdict), done=False)


def optimized(
    observation: Observation, solution: Solution, now: datetime, troubles: Sequence[str] = ()
) -> Update:
    """Say that the request is done, what came out, and what was wrong with its objects."""
    last = _last_optimization(observation, solution, now)
    message = "; ".join([_summary(solution), *troubles[:TROUBLES_NAMED]])
    if len(troubles) > TROUBLES_NAMED:
        message += f"; and {len(troubles) - TROUBLES_NAMED} more problems"
    verdict = Verdict(OPTIMIZED, holds=True, reason="Optimized", message=message)
    return _update(observation, (VALID, verdict), done=True, last=last)


def digest(observation: Observation, updates: Sequence[Update]) -> tuple[Event, ...]:
    """Events of the Optimizer in place of those of too many objects; none if they are few."""
    events = [event for update in updates for event in update.events()]
    if len(events) <= EVENTS:
        return ()
    counted = Counter((event.type, event.reason) for event in events)
    return tuple(
        Event(observation.reference, type_, reason, f"{count} objects; see their conditions")
        for (type_, reason), count in sorted(counted.items())
    )


def failed(observation: Observation, error: InfernoError) -> Update:
    """Say why the request is not done yet; it stays, and is tried again."""
    verdict = Verdict(OPTIMIZED, holds=False, reason=error.reason, message=str(error))
    return _update(observation, (VALID, verdict), done=False)


def settled(observation: Observation) -> Update:
    """Say that nothing is asked for; what the last request brought stays."""
    verdicts = (VALID, _last_verdict(observation))
    return _update(observation, verdicts, done=_still_done(observation))


def refused(observation: Observation, rival: str) -> Update:
    """Say that the interval has no effect, for another Optimizer has one."""
    message = f"Optimizer {rival!r} has an interval too, and is older: remove one of the two"
    refusal = Verdict(READY, holds=False, reason="SeveralIntervals", message=message)
    verdicts = (refusal, _last_verdict(observation))
    return _update(observation, verdicts, done=_still_done(observation))


def _last_verdict(observation: Observation) -> Verdict:
    """What was said about the last request."""
    before = observation.status.condition(OPTIMIZED)
    if before is None or before.reason in ("Optimizing", Reason.INVALID_SPEC):
        return NOT_REQUESTED
    holds = {"True": True, "False": False}.get(before.status)
    return Verdict(OPTIMIZED, holds=holds, reason=before.reason, message=before.message)


def _still_done(observation: Observation) -> bool:
    """Whether the last request is the newest: since then only the request itself was cleared."""
    last = _before(observation)
    return last is not None and observation.generation <= last.requested_generation + 1


def _before(observation: Observation) -> LastOptimization | None:
    """The last optimization that the status tells of."""
    status = observation.status
    return status.last_optimization if isinstance(status, OptimizerStatus) else None


def _update(
    observation: Observation,
    verdicts: tuple[Verdict, ...],
    *,
    done: bool,
    last: LastOptimization | None = None,
) -> Update:
    """An update that keeps the last optimization, unless there is a new one.

    What is applied is all that we own: a field left out would be removed.
    """
    told = last or _before(observation)
    extra_status = {"done": done, **({"lastOptimization": told.to_json()} if told else {})}
    active = verdicts[0].holds is True
    return Update.of(observation, verdicts, active=active, extra_status=extra_status)


def _unlimited(observation: Observation) -> bool:
    """Whether capacity was ignored."""
    resource = observation.resource
    return isinstance(resource, Optimizer) and resource.spec.data.optimizer.unlimited


def _summary(solution: Solution) -> str:
    total, unserved = len(solution.decisions), len(solution.unserved)
    text = f"{total - unserved} of {total} servers have an allocation, {solution.cost:g} cents/hour"
    if not unserved:
        return text
    first = solution.unserved[0]
    return f"{text}; {first.server}: {first.reason}" + (
        f" and {unserved - 1} more" * (unserved > 1)
    )


def _last_optimization(
    observation: Observation, solution: Solution, now: datetime
) -> LastOptimization:
    certificate = solution.certificate
    return LastOptimization(
        time=now,
        requested_generation=observation.generation,
        servers=len(solution.decisions),
        allocated=len(solution.allocations),
        cost=round(solution.cost, DIGITS),
        certificate=Certificate(
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
        ),
        unserved=tuple(
            Unserved(server=d.server, reason=d.reason, message=d.message)
            for d in solution.unserved[:UNSERVED_NAMED]
        ),
        capacity=tuple(
            CapacityUse(
                type=use.type,
                used=use.used,
                available=None if _unlimited(observation) else use.available,
                held=use.held or None,
                price=None if use.price is None else round(use.price, DIGITS),
            )
            for use in solution.capacity
        ),
    )
