"""How long new replicas take to serve, from the pods of workloads; pure."""

from collections.abc import Iterator, Sequence
from math import ceil

from inferno_operator.controllers.actuation.workloads.scaled_server import ScaledServer
from inferno_operator.resources import MeasuredLeadTime

QUANTILE = 0.9
"""Share of the pods that serve within the lead time."""

MOVED = 0.1
"""Relative change of a lead time that is worth a write."""


def lead_times(scaled: ScaledServer) -> tuple[MeasuredLeadTime, ...]:
    """Return the lead times of a Server by accelerator, in the order of its workloads.

    An accelerator keeps its earlier lead time if it has no ready pod, or if the new one hardly
    differs.
    """
    return tuple(_lead_times(scaled))


def _lead_times(scaled: ScaledServer) -> Iterator[MeasuredLeadTime]:
    before = {found.accelerator: found for found in scaled.server.status.lead_times}
    for item in scaled.found:
        accelerator = item.workload.place
        old, new = before.get(accelerator), _measured(accelerator, item.start_seconds)
        if new is not None and (old is None or _has_moved(old.seconds, new.seconds)):
            yield new
        elif old is not None:
            yield old


def _measured(accelerator: str, seconds: Sequence[float]) -> MeasuredLeadTime | None:
    if not seconds:
        return None
    longest = sorted(seconds)[ceil(QUANTILE * len(seconds)) - 1]
    return MeasuredLeadTime(accelerator=accelerator, seconds=longest, pods=len(seconds))


def _has_moved(old: float, new: float) -> bool:
    return abs(new - old) > MOVED * max(old, new)
