"""What the optimization controller needs besides the API server."""

from typing import Protocol

from inferno_optimizer.system import Solution, System


class Optimizer(Protocol):
    """Where systems are solved."""

    async def optimize(self, system: System) -> Solution:
        """Solve; see `inferno_optimizer.optimize`."""
