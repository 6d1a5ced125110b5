"""The interface of the optimization controller to the optimizer."""

from typing import Protocol

from inferno_optimizer.system import Solution, System


class Optimizer(Protocol):
    """Solves systems, in this process or remotely."""

    async def optimize(self, system: System) -> Solution:
        """Solve a system; see `inferno_optimizer.optimize`."""
