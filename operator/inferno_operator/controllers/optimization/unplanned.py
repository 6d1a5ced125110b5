"""Servers for which nobody plans any more, as their Optimizer was deleted; pure."""

from collections.abc import Iterable, Iterator
from dataclasses import replace

from inferno_operator.controllers.optimization.changes import Update
from inferno_operator.resources.conditions import ALLOCATED, READY, WARNINGS, Verdict
from inferno_operator.resources.observation import Observation

NO_OPTIMIZER = Verdict(
    READY,
    holds=None,
    reason="NoOptimizer",
    message="no Optimizer in this namespace: the last decision stays in force;"
    " create an Optimizer to resume planning",
)
DUE = replace(
    NO_OPTIMIZER,
    reason="NotOptimized",
    message="there is an Optimizer again; waiting for the next optimization",
)


def check_planned(observations: Iterable[Observation], *, has_optimizer: bool) -> Iterator[Update]:
    """Yield the updates of Servers with a decision for which nobody plans, or somebody does again.

    Parameters
    ----------
    observations
        The Servers of a namespace.
    has_optimizer
        Whether there is an Optimizer in it.
    """
    for observation in observations:
        ready, allocated = map(observation.status.condition, (READY, ALLOCATED))
        is_told = ready is not None and ready.reason == NO_OPTIMIZER.reason
        if allocated is not None and is_told is has_optimizer:
            yield _update(observation, DUE if has_optimizer else NO_OPTIMIZER)


def _update(observation: Observation, ready: Verdict) -> Update:
    """Return the update of a Server whose decision stays as it is."""
    conditions = map(observation.status.condition, (WARNINGS, ALLOCATED))
    stay = (Verdict.of(condition) for condition in conditions if condition)
    return Update.of(observation, (ready, *stay), active=observation.status.active)
