"""The interfaces of the optimization controller: to the optimizer, measured loads and nodes."""

from collections.abc import Sequence
from typing import Protocol

from inferno_operator.resources.observation import Observation
from inferno_optimizer.placement import Node
from inferno_optimizer.solution import Solution
from inferno_optimizer.system import System


class SystemOptimizer(Protocol):
    """Solves systems, in this process or remotely."""

    async def optimize(self, system: System) -> Solution:
        """Solve a system; see `inferno_optimizer.optimize`."""


class Loads(Protocol):
    """Knows the newest loads of Servers."""

    async def with_loads(self, observations: Sequence[Observation]) -> Sequence[Observation]:
        """Return objects in which Servers that are measured have their newest load.

        Servers that were never measured are waited for.
        """

    def with_known_loads(self, observations: Sequence[Observation]) -> Sequence[Observation]:
        """Return the same without any wait: Servers that were never measured stay as they are."""


class Machines(Protocol):
    """Knows the nodes whose cards the Servers of a namespace may use."""

    async def nodes(self, namespace: str) -> Sequence[Node]:
        """Return the nodes; none if they are not counted."""


class NoNodes:
    """Knows no nodes: the cards are those that Capacity objects declare."""

    async def nodes(self, namespace: str) -> Sequence[Node]:
        """Return no nodes."""
        del namespace
        return ()


class TypedLoads:
    """Leaves Servers the load that their manifest has."""

    async def with_loads(self, observations: Sequence[Observation]) -> Sequence[Observation]:
        """Return the objects as they are."""
        return observations

    def with_known_loads(self, observations: Sequence[Observation]) -> Sequence[Observation]:
        """Return the objects as they are."""
        return observations
