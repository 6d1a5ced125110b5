"""When an Optimizer is to optimize again, and which one may by itself; pure."""

from collections.abc import Iterable
from datetime import datetime, timedelta

from inferno_operator.resources import Optimizer, OptimizerStatus
from inferno_operator.resources.observation import Observation


def seconds_until_due(observation: Observation, now: datetime) -> float | None:
    """How long until an Optimizer is to optimize; None if it does not ask for it.

    Asked for at once, it waits for no interval, and the next one begins anew.
    """
    resource, status = observation.resource, observation.status
    if not isinstance(resource, Optimizer):
        return None
    if resource.spec.optimize:
        return 0.0
    if resource.spec.interval is None:
        return None
    last = status.last_optimization if isinstance(status, OptimizerStatus) else None
    if last is None:
        return 0.0
    due = last.time + timedelta(seconds=resource.spec.interval)
    return max(0.0, (due - now).total_seconds())


def rival(observation: Observation, others: Iterable[Observation]) -> str | None:
    """Name of the oldest other Optimizer with an interval, if that is older than this one.

    Two that plan for the same servers in turn would undo each other's work for ever.
    """
    resources = [o.resource for o in (observation, *others) if o.deleted is None]
    regular = [r for r in resources if isinstance(r, Optimizer) and r.spec.interval is not None]
    oldest = min(regular, key=lambda r: r.age, default=None)
    own = observation.reference.key.name
    return None if oldest is None or oldest.metadata.name == own else oldest.metadata.name
