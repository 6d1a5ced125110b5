"""Compute locally the decisions of the operator for a namespace, and write nothing."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from inferno_operator.cli.kubectl.selection import choose_optimizer
from inferno_operator.controllers.measurement.load import (
    set_last_good_load,
    set_scheduled_replicas,
)
from inferno_operator.controllers.planning.snapshot import Inputs, Snapshot, take_snapshot
from inferno_operator.resources import Optimizer, Server
from inferno_operator.resources.observation import Observation, readable, still_running
from inferno_optimizer.explain.changes import parse_change
from inferno_optimizer.optimize import optimize
from inferno_optimizer.solution import Solution
from inferno_optimizer.wire.what_if import apply_changes


@dataclass(frozen=True, slots=True)
class DryRun:
    """An Optimizer, its system, and the decisions for this system.

    `idle` lists the changes that have no effect, one line each.
    """

    optimizer: Optimizer
    snapshot: Snapshot
    solution: Solution
    idle: tuple[str, ...]


def decide(
    observations: Sequence[Observation],
    namespace: str,
    optimizer: str | None,
    changes: Iterable[str] = (),
    time_limit: float = 30.0,
) -> DryRun:
    """Solve the system of an Optimizer.

    Parameters
    ----------
    observations
        All objects of the namespace.
    namespace, optimizer
        The Optimizer whose parameters to use; without a name, the only one of the namespace.
    changes
        Changes to the system, in the syntax of `parse_change`.
    time_limit
        Time limit of the exact solver [s].

    Raises
    ------
    InputError
        The Optimizer is ambiguous or does not exist, or a change is invalid.
    """
    chosen, time = choose_optimizer(observations, namespace, optimizer), datetime.now(UTC)
    known = readable(observations)
    resources = [
        set_last_good_load(set_scheduled_replicas(r, time)) if isinstance(r, Server) else r
        for r in known
    ]
    running = [*resources, *still_running(observations)]
    snapshot = take_snapshot(Inputs(running, chosen, time_limit, stored=known, now=time))
    changed, idle = apply_changes(snapshot.system, map(parse_change, changes))
    return DryRun(chosen, replace(snapshot, system=changed), optimize(changed), idle)
