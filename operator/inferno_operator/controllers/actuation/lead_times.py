"""How long new replicas take to serve, from their pods; pure."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import ceil

from inferno_operator.resources import MeasuredLeadTime, Server
from inferno_operator.resources.objects import Place

QUANTILE = 0.9
"""Share of the pods that serve within the lead time."""

MOVED = 0.1
"""Relative change of a lead time that is worth a write."""

LONGEST_START_SECONDS = 3600.0
"""A pod that took longer to be ready has been ready before."""


@dataclass(frozen=True, slots=True)
class FirstStarts:
    """Time from created to ready of pods when they were ready first, by workload and uid [s]."""

    _known: dict[Place, Mapping[str, float]] = field(default_factory=dict)

    def saw_ready(self, place: Place, seconds: Mapping[str, float]) -> tuple[float, ...]:
        """Take note of the ready pods of a workload; returns how long each took to start."""
        before = self._known.get(place, {})
        newest = {uid: before.get(uid, took) for uid, took in seconds.items()}
        self._known[place] = newest
        return tuple(took for took in newest.values() if took < LONGEST_START_SECONDS)


def lead_times(
    server: Server, seconds: Mapping[str, Sequence[float]]
) -> tuple[MeasuredLeadTime, ...]:
    """Return the lead times of a Server by place, in the order of how long its pods took [s].

    A place keeps its earlier lead time if it has no ready pod, or if the new one hardly differs.
    """
    return tuple(_lead_times(server, seconds))


def _lead_times(
    server: Server, seconds: Mapping[str, Sequence[float]]
) -> Iterator[MeasuredLeadTime]:
    before = {item.accelerator: item for item in server.status.lead_times}
    for place, starts in seconds.items():
        old, new = before.get(place), _measured(place, starts)
        if new is not None and (old is None or _has_moved(old.seconds, new.seconds)):
            yield new
        elif old is not None:
            yield old


def _measured(place: str, seconds: Sequence[float]) -> MeasuredLeadTime | None:
    if not seconds:
        return None
    longest = sorted(seconds)[ceil(QUANTILE * len(seconds)) - 1]
    return MeasuredLeadTime(accelerator=place, seconds=longest, pods=len(seconds))


def _has_moved(old: float, new: float) -> bool:
    return abs(new - old) > MOVED * max(old, new)
