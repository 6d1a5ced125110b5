"""Which replicas have just started, so that nothing is in their prefix caches yet; pure."""

from collections.abc import Iterator, Mapping
from datetime import datetime, timedelta

from inferno_operator.controllers.actuation.workloads.scaled_server import ScaledServer
from inferno_operator.resources import Server

WARM_UP = timedelta(minutes=10)
"""Time for which a replica that became ready counts as cold."""


def cold_replicas(scaled: ScaledServer, now: datetime) -> Mapping[str, int]:
    """Return the cold replicas by accelerator; none where no prompt is cached anyway."""
    if not _finds_prompts(scaled.server):
        return {}
    return {
        item.workload.accelerator: sum(now - since < WARM_UP for since in item.pods.ready_since)
        for item in scaled.undivided
    }


def warm_after(scaled: ScaledServer, now: datetime) -> float | None:
    """Return after how many seconds the next cold replica is warm; None without one."""
    if not _finds_prompts(scaled.server):
        return None
    return min(_seconds_left(scaled, now), default=None)


def _seconds_left(scaled: ScaledServer, now: datetime) -> Iterator[float]:
    for item in scaled.undivided:
        for since in item.pods.ready_since:
            if now - since < WARM_UP:
                yield (since + WARM_UP - now).total_seconds()


def _finds_prompts(server: Server) -> bool:
    """Whether a part of the prompts of a Server is in prefix caches, as far as is known."""
    measured, current = server.status.measured, server.spec.current_alloc
    found = (measured and measured.load) or (current and current.load)
    return bool(found and found.cached_tokens)
