"""Which replicas have just started, so that nothing is in their prefix caches yet; pure."""

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta

from inferno_operator.resources import Server

WARM_UP = timedelta(minutes=10)
"""Time for which a replica that became ready counts as cold."""

ReadySince = Mapping[str, Sequence[datetime]]
"""When the replicas that compute prompts became ready, by place."""


def cold_replicas(server: Server, ready: ReadySince, now: datetime) -> Mapping[str, int]:
    """Return the cold replicas by place; none where no prompt is cached anyway."""
    if not _finds_prompts(server):
        return {}
    return {name: len(list(_seconds_left(since, now))) for name, since in ready.items()}


def warm_after(server: Server, ready: ReadySince, now: datetime) -> float | None:
    """Return after how many seconds the next cold replica is warm; None without one."""
    if not _finds_prompts(server):
        return None
    return min(
        (left for since in ready.values() for left in _seconds_left(since, now)), default=None
    )


def _seconds_left(ready: Iterable[datetime], now: datetime) -> Iterable[float]:
    """Yield for how long each cold replica stays so.

    Where the clock of a node is ahead by more than the time of warming up, it says nothing.
    """
    cold = (since for since in ready if abs(now - since) < WARM_UP)
    return ((since + WARM_UP - now).total_seconds() for since in cold)


def _finds_prompts(server: Server) -> bool:
    """Whether a part of the prompts of a Server is in prefix caches, as far as is known."""
    measured, current = server.status.measured, server.spec.current_alloc
    load = (measured and measured.load) or (current and current.load)
    return bool(load and load.cached_tokens)
