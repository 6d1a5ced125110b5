"""What the operator would decide for a namespace, worked out here; nothing is written."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from inferno_operator.cli.selection import choose_optimizer
from inferno_operator.controllers.optimization.snapshot import Snapshot, build_system
from inferno_operator.resources import Optimizer
from inferno_operator.resources.observation import Observation, readable
from inferno_optimizer.explain.changes import parse_change
from inferno_optimizer.optimize import optimize
from inferno_optimizer.system import Solution
from inferno_optimizer.wire.what_if import apply_changes


@dataclass(frozen=True, slots=True)
class Outcome:
    """An Optimizer, the system that it would see, and what would be decided.

    `idle` are the changes that change nothing, a line each.
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
) -> Outcome:
    """Solve what an Optimizer would.

    Parameters
    ----------
    observations
        All objects of the namespace.
    namespace, optimizer
        Whose parameters to use; without a name those of the only one.
    changes
        What if: changes to the system, as `parse_change` reads them.
    time_limit
        What the exact solver may take [s].

    Raises
    ------
    InputError
        It is not clear which Optimizer is meant, or a change makes no sense.
    """
    chosen = choose_optimizer(observations, namespace, optimizer)
    snapshot = build_system(readable(observations), chosen, time_limit)
    changed, idle = apply_changes(snapshot.system, map(parse_change, changes))
    return Outcome(chosen, replace(snapshot, system=changed), optimize(changed), idle)
