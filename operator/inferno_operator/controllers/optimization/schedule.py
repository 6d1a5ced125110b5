"""Decide whether an Optimizer is due, or only its status is to be updated; pure."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta

from inferno_operator.controllers.optimization import status
from inferno_operator.controllers.optimization.changes import Update
from inferno_operator.resources import Optimizer, OptimizerStatus
from inferno_operator.resources.observation import Observation


@dataclass(frozen=True, slots=True)
class ScheduleStep:
    """The next step for an Optimizer.

    Parameters
    ----------
    update
        The update of its status, before the optimization if there is one.
    resource
        The Optimizer, if an optimization is due now.
    again_after
        Seconds until the next reconcile; None: when the Optimizer changes.
    interval
        Seconds between two optimizations; None if there are none without a request.
    """

    update: Update
    resource: Optimizer | None = None
    again_after: float | None = None
    interval: float | None = None

    @property
    def is_requested(self) -> bool:
        """Whether `spec.optimize` requested it, so that the request is to be cleared."""
        return self.resource is not None and self.resource.spec.optimize


def next_step(
    observation: Observation,
    others: Iterable[Observation],
    now: datetime,
    *,
    is_urgent: bool = False,
) -> ScheduleStep:
    """Decide the next step for an Optimizer.

    Parameters
    ----------
    observation
        The Optimizer.
    others
        All Optimizers of its namespace.
    now
        The time.
    is_urgent
        Whether an Optimizer with an interval does not wait for it.
    """
    resource = observation.resource
    if not isinstance(resource, Optimizer):
        return ScheduleStep(status.unreadable(observation))
    other = rival(observation, others)
    if other is not None:
        update = status.refused(observation, other.metadata.name)
        return ScheduleStep(update, again_after=other.spec.interval)
    waits, interval = seconds_until_due(observation, now), resource.spec.interval
    if waits and is_urgent:
        waits = 0.0
    if waits != 0:
        return ScheduleStep(status.settled(observation), again_after=waits, interval=interval)
    return ScheduleStep(status.working(observation), resource, interval, interval)


def seconds_until_due(observation: Observation, now: datetime) -> float | None:
    """Return the seconds until an optimization is due; None if none is requested.

    A request by `spec.optimize` does not wait for the interval; the next interval begins after
    it. If the last optimization is in the future, the clock was set back: then one is due at
    once, as the time since the last one is not known.
    """
    resource, before = observation.resource, observation.status
    if not isinstance(resource, Optimizer):
        return None
    if resource.spec.optimize:
        return 0.0
    if resource.spec.interval is None:
        return None
    last = before.last_optimization if isinstance(before, OptimizerStatus) else None
    if last is None:
        return 0.0
    if last.time > now:
        return 0.0
    due = last.time + timedelta(seconds=resource.spec.interval)
    return max(0.0, (due - now).total_seconds())


def rival(observation: Observation, others: Iterable[Observation]) -> Optimizer | None:
    """Return the oldest Optimizer with an interval, unless it is this one: it alone optimizes.

    Two Optimizers would overwrite each other's decisions for the same Servers: a request to one is
    undone at the next interval of the other.
    """
    resources = [o.resource for o in (observation, *others) if o.deleted is None]
    regular = [r for r in resources if isinstance(r, Optimizer) and r.spec.interval is not None]
    oldest = min(regular, key=lambda r: r.age, default=None)
    own = observation.reference.key.name
    return None if oldest is None or oldest.metadata.name == own else oldest
