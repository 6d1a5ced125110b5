"""The interfaces of the optimization controller: to the optimizer, and to measured loads."""

from collections.abc import Sequence
from typing import Protocol

from inferno_operator.resources.observation import Observation
from inferno_optimizer.system import Solution, System


class Optimizer(Protocol):
    """Solves systems, in this process or remotely."""

    async def optimize(self, system: System) -> Solution:
        """Solve a system; see `inferno_optimizer.optimize`."""


class Loads(Protocol):
    """Knows the newest loads of Servers."""

    async def with_loads(self, observations: Sequence[Observation]) -> Sequence[Observation]:
        """Return objects in which Servers that are measured have their newest load."""


class TypedLoads:
    """Leaves Servers the load that their manifest has."""

    async def with_loads(self, observations: Sequence[Observation]) -> Sequence[Observation]:
        """Return the objects as they are."""
        return observations
