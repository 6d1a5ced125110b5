"""How fast the replicas of a Server go, and what its status remembers of those that went; pure."""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta

from pydantic import ValidationError

from inferno_operator.resources import (
    MAX_REDUCTIONS,
    Guard,
    ReplicaReduction,
    ServedReplicas,
    Server,
)
from inferno_operator.resources.objects import Manifest
from inferno_optimizer.way_down import StepDown, WayDown

AT_ONCE = WayDown(share=1.0)
"""The way down of what a person approved."""

Replicas = Mapping[str, int]
"""Replicas by place: an accelerator, with the role if it is one half of each request."""


class Guards:
    """The guards of Optimizers as they could be read last: a mistake lets no replica go faster."""

    def __init__(self) -> None:
        self._known: dict[str, dict[str, Guard]] = {}
        """By namespace and name of the Optimizer."""

    def way_down(self, namespace: str, optimizers: Iterable[Manifest]) -> WayDown:
        """Return how fast replicas go in a namespace: as the slowest of its Optimizers says."""
        before = self._known.pop(namespace, {})
        guards = {
            name: _read_guard(optimizer, before.get(name))
            for optimizer in optimizers
            for name in [optimizer["metadata"]["name"]]
        }
        if guards:
            self._known[namespace] = guards
        rules = [guard.way_down for guard in guards.values()] or [Guard().way_down]
        return WayDown(min(r.share for r in rules), max(r.window_s for r in rules))


def _read_guard(optimizer: Manifest, before: Guard | None) -> Guard:
    """Return the guard of an Optimizer, else the one before, else what can be read of it."""
    fields = (optimizer.get("spec") or {}).get("guard") or {}
    try:
        return Guard.model_validate(fields, by_alias=True, by_name=False)
    except ValidationError as invalid:
        if before is not None:
            return before
        wrong = {error["loc"][0] for error in invalid.errors() if error["loc"]}
    if not isinstance(fields, Mapping):
        return Guard()
    readable = {name: value for name, value in fields.items() if name not in wrong}
    return Guard.model_validate(readable, by_alias=True, by_name=False)


def is_approved(server: Server, wanted: Replicas | None) -> bool:
    """Whether a person approved the decision that stands."""
    approved = server.status.approved
    return approved is not None and wanted is not None and approved.is_for(wanted)


def list_served(
    known: Iterable[ReplicaReduction], way_down: WayDown, now: datetime
) -> tuple[Replicas, ...]:
    """Return what served before each reduction of the window; one that goes on is of now."""
    steps = (
        StepDown(max((now if each.going else each.time).timestamp(), 0.0), each.served)
        for each in known
    )
    return tuple(each.replicas for each in way_down.select_recent(steps, now.timestamp()))


def update_reductions(
    known: Iterable[ReplicaReduction],
    serving: Replicas,
    way_down: WayDown,
    now: datetime,
    *,
    loses: bool = False,
    goes: bool = False,
) -> tuple[ReplicaReduction, ...]:
    """Return the reductions that the status of a Server is to have, after those in `known`.

    `serving` is what serves now. Some of it goes in this step if it `loses`, and by this step or
    an earlier one if it `goes`.
    """
    recent, later = _within_window(known, way_down, now), _full_second(now)
    if loses:
        return _add_reduction(recent, serving, later, is_going=True)
    if goes:
        return tuple(recent)
    return tuple(
        r.model_copy(update={"going": False, "time": later}) if r.going else r for r in recent
    )


def add_fallen(
    known: Iterable[ReplicaReduction],
    serving: Replicas,
    reported: Replicas,
    way_down: WayDown,
    now: datetime,
    standing: Replicas | None = None,
) -> tuple[ReplicaReduction, ...]:
    """Return the reductions of a Server, also where fewer serve than were `reported` last.

    Replicas fail, are evicted, or are not ready for a while: they served in the window all the
    same, and are no reason why others may go. `standing` is what counts of the places where
    nothing fell; None: all that serves.
    """
    recent = _within_window(known, way_down, now)
    fallen = {place: n for place, n in reported.items() if serving.get(place, 0) < n}
    before = {**(serving if standing is None else standing), **fallen}
    going = [r for r in recent if r.going]
    if not fallen or any(_has_all(r.served, before) for r in going):
        return tuple(recent)
    return _add_reduction(recent, before, _full_second(now), is_going=bool(going))


def _add_reduction(
    recent: Sequence[ReplicaReduction], served: Replicas, time: datetime, *, is_going: bool
) -> tuple[ReplicaReduction, ...]:
    """Return the reductions with one more, which takes in those that go on or are within it."""
    most = _most([served, *(r.served for r in recent if r.going)])
    others = [r for r in recent if not r.going and not _has_all(most, r.served)]
    found = [*others, _reduction(time, most, is_going=is_going)]
    while len(found) > MAX_REDUCTIONS:
        first, second, *rest = found
        both = _most([first.served, second.served])
        merged = _reduction(max(first.time, second.time), both, is_going=second.going)
        found = [merged, *rest]
    return tuple(found)


def find_next_time(
    choices: Collection[Replicas],
    serving: Replicas,
    reductions: Sequence[ReplicaReduction],
    weights: Sequence[Mapping[str, float]],
    way_down: WayDown,
    now: datetime,
) -> datetime | None:
    """Return when the first of some choices may serve; None if that cannot be told yet."""
    if not choices or any(each.going for each in reductions):
        return None
    recent = [StepDown(r.time.timestamp(), r.served) for r in reductions]
    time_s = way_down.next_s(choices, serving, recent, weights)
    return None if time_s is None else max(datetime.fromtimestamp(time_s, UTC), now)


def list_window_ends(
    reductions: Iterable[ReplicaReduction], way_down: WayDown
) -> Iterator[datetime]:
    """Return when the windows end of replicas that have gone."""
    window = timedelta(seconds=way_down.window_s)
    return (each.time + window for each in reductions if not each.going)


def _within_window(
    known: Iterable[ReplicaReduction], way_down: WayDown, now: datetime
) -> list[ReplicaReduction]:
    """Return the reductions of the window; one in the future of another clock is of now."""
    window, later = timedelta(seconds=way_down.window_s), _full_second(now)
    return [
        r if r.time <= later else r.model_copy(update={"time": later})
        for r in known
        if r.going or now - r.time < window
    ]


def _reduction(time: datetime, replicas: Replicas, *, is_going: bool) -> ReplicaReduction:
    served = (
        ServedReplicas(accelerator=place, replicas=n) for place, n in sorted(replicas.items()) if n
    )
    return ReplicaReduction(time=time, going=is_going, replicas=tuple(served))


def _most(served: Iterable[Replicas]) -> Replicas:
    most: Counter[str] = Counter()
    for each in served:
        most |= Counter(each)
    return most


def _has_all(replicas: Replicas, others: Replicas) -> bool:
    return all(replicas.get(place, 0) >= n for place, n in others.items())


def _full_second(now: datetime) -> datetime:
    """Return the next full second, as the API server keeps no fractions."""
    whole = now.replace(microsecond=0)
    return whole if whole == now else whole + timedelta(seconds=1)
