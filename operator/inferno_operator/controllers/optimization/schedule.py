"""What an Optimizer asks for now: an optimization, or only a word on its status; pure."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta

from inferno_operator.controllers.optimization import status
from inferno_operator.controllers.optimization.plan import Update
from inferno_operator.resources import Optimizer, OptimizerStatus
from inferno_operator.resources.observation import Observation


@dataclass(frozen=True, slots=True)
class Step:
    """What to do about an Optimizer.

    Parameters
    ----------
    update
        What to write on it, before the optimization if there is one.
    resource
        The Optimizer, if it is to optimize now.
    again_after
        When to look again [s]; None: when something changes.
    """

    update: Update
    resource: Optimizer | None = None
    again_after: float | None = None

    @property
    def optimizes(self) -> bool:
        """Whether to optimize now."""
        return self.resource is not None

    @property
    def is_requested(self) -> bool:
        """Whether a person asked for it, so that the request is to be cleared."""
        return self.resource is not None and self.resource.spec.optimize


def next_step(observation: Observation, others: Iterable[Observation], now: datetime) -> Step:
    """Decide what to do about an Optimizer.

    Parameters
    ----------
    observation
        The Optimizer.
    others
        All Optimizers of its namespace.
    now
        The time.
    """
    resource = observation.resource
    if not isinstance(resource, Optimizer):
        return Step(status.unreadable(observation))
    older = None if resource.spec.optimize else rival(observation, others)
    if older is not None:
        return Step(status.refused(observation, older), again_after=resource.spec.interval)
    waits = seconds_until_due(observation, now)
    if waits != 0:
        return Step(status.settled(observation), again_after=waits)
    return Step(status.working(observation), resource, resource.spec.interval)


def seconds_until_due(observation: Observation, now: datetime) -> float | None:
    """How long until an Optimizer is to optimize; None if it does not ask for it.

    A request does not wait for the interval, and the next interval begins after it.
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
    due = last.time + timedelta(seconds=resource.spec.interval)
    return max(0.0, (due - now).total_seconds())


def rival(observation: Observation, others: Iterable[Observation]) -> str | None:
    """Name of the oldest other Optimizer with an interval, if this one has one and is younger.

    Two that plan for the same servers in turn would undo each other's work for ever.
    """
    resources = [o.resource for o in (observation, *others) if o.deleted is None]
    regular = [r for r in resources if isinstance(r, Optimizer) and r.spec.interval is not None]
    own = observation.reference.key.name
    if own not in {r.metadata.name for r in regular}:
        return None
    oldest = min(regular, key=lambda r: r.age).metadata.name
    return None if oldest == own else oldest
