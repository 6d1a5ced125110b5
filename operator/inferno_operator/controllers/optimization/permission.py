"""What an optimization decided, and which of its updates may be written now."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from inferno_operator.controllers.optimization.changes import Update
from inferno_operator.controllers.optimization.snapshot import Snapshot
from inferno_operator.resources import Optimizer
from inferno_operator.resources.observation import Observation
from inferno_optimizer.solution import Solution


@dataclass(frozen=True, slots=True)
class Optimization:
    """An optimization and its result.

    Parameters
    ----------
    optimizer
        The Optimizer that asks for it.
    observations, updates
        The objects that were read, and the update of each, in the same order.
    snapshot, solution
        What was optimized, and the result.
    is_requested
        Whether `spec.optimize` requested it, not an interval.
    """

    optimizer: Optimizer
    observations: Sequence[Observation]
    updates: Sequence[Update]
    snapshot: Snapshot
    solution: Solution
    is_requested: bool


@dataclass(frozen=True, slots=True)
class Permission:
    """The updates that may be written; `message` says why others may not, or is "".

    `plan` is the Plan that is carried out by writing them, if there is one, and `afterwards` its
    status when they are written.
    """

    updates: Sequence[Update]
    message: str = ""
    plan: Observation | None = None
    afterwards: Update | None = None


class Approver(Protocol):
    """Records what optimizations decide, and says what may be written."""

    async def permit(self, optimization: Optimization) -> Permission:
        """Record an optimization, of which nothing is written yet."""

    async def permit_additions(self, optimization: Optimization) -> Permission:
        """Return the updates of Servers that only get replicas, and need no approval for them.

        Nothing is recorded, so that a Plan that waits goes on waiting.
        """

    async def written(self, permission: Permission) -> None:
        """Note that everything that was permitted is written."""


class ApproveAll:
    """Permits everything, and records nothing."""

    async def permit(self, optimization: Optimization) -> Permission:
        """Permit all updates."""
        return Permission(optimization.updates)

    async def permit_additions(self, optimization: Optimization) -> Permission:
        """Permit all updates that change something."""
        return Permission([update for update in optimization.updates if update.moves])

    async def written(self, permission: Permission) -> None:
        """Do nothing."""
