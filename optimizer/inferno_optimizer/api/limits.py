"""Limits of a server: sizes, times and counts; it refuses what exceeds them."""

import os
from dataclasses import dataclass

MEBIBYTE = 2**20


@dataclass(frozen=True, slots=True)
class ServerLimits:
    """Limits of a server; times in seconds.

    Attributes
    ----------
    head_seconds
        Until the headers of a request have arrived.
    body_bytes, body_seconds
        Size of a request's body, and until it has arrived.
    time_limit
        When the exact solver stops and gives the best plan found.
    solve_seconds
        For a whole optimization, with the start of its process; it is broken off then.
    queue_seconds
        Until an optimization begins.
    workers
        Optimizations at once.
    waiting
        Optimizations that may wait for others to end.
    stop_seconds
        For requests that run when the server is told to stop; then they get 503.
    connections
        Open connections; a new one closes that which waits longest for its client.
    """

    head_seconds: float = 10.0
    body_bytes: int = 64 * MEBIBYTE
    body_seconds: float = 30.0
    time_limit: float = 30.0
    solve_seconds: float = 60.0
    queue_seconds: float = 30.0
    workers: int = 2
    waiting: int = 100
    stop_seconds: float = 5.0
    connections: int = 400

    @classmethod
    def for_solver(cls, time_limit: float) -> "ServerLimits":
        """Limits that leave an exact solver its time, on this machine's cores."""
        workers = max(2, len(os.sched_getaffinity(0)))
        return cls(time_limit=time_limit, solve_seconds=2 * time_limit + 10, workers=workers)
