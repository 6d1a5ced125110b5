"""How long new replicas take to serve, and which of them have just started; pure."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from math import ceil

from inferno_operator.resources import MeasuredLeadTime, Server
from inferno_operator.resources.objects import Manifest, Place

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
    before = {item.accelerator: item for item in server.status.lead_times}
    found = []
    for place, starts in seconds.items():
        old, new = before.get(place), _measured(place, starts)
        has_moved = old is None or (new is not None and _has_moved(old.seconds, new.seconds))
        found.append(new if new is not None and has_moved else old)
    return tuple(filter(None, found))


def _measured(place: str, seconds: Sequence[float]) -> MeasuredLeadTime | None:
    if not seconds:
        return None
    longest = sorted(seconds)[ceil(QUANTILE * len(seconds)) - 1]
    return MeasuredLeadTime(accelerator=place, seconds=longest, pods=len(seconds))


def _has_moved(old: float, new: float) -> bool:
    return abs(new - old) > MOVED * max(old, new)


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


@dataclass(slots=True)
class ClusterClock:
    """The clock of the API server, as the ages of pods tell it.

    No pod that was seen was created later than it was seen, so the operator's clock is ahead by no
    more than the age of any of them; by about as much as that of one that has just been created.
    An operator that has just started takes pods for younger than they are, until it sees a new one.
    """

    _ahead: timedelta | None = None

    def saw(self, pods: Iterable[Manifest], now: datetime) -> None:
        """Take note of the youngest pod."""
        created = max((pod["metadata"]["creationTimestamp"] for pod in pods), default=None)
        if created is not None:
            age = now - datetime.fromisoformat(created)
            self._ahead = age if self._ahead is None else min(self._ahead, age)

    @property
    def ahead(self) -> timedelta:
        """By how much the operator's clock is ahead, at most; negative if it is behind."""
        return self._ahead or timedelta()
