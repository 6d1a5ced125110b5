"""Solve in this process, off the event loop."""

import asyncio

from inferno_optimizer.optimize import optimize
from inferno_optimizer.system import Solution, System


class LocalOptimizer:
    """The embedded optimizer."""

    async def optimize(self, system: System) -> Solution:
        """Solve in a thread: NumPy and the solver leave the event loop its time."""
        return await asyncio.to_thread(optimize, system)
