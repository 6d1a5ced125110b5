"""The objects of a namespace -> the page of its data: what is measured, how good, how old.

The Lease of the operators says who leads, since when, and whether it is renewed.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import get_args

from inferno_operator.cli.kubectl.console.page import NO_SERVERS, ConsolePage, SeenNamespace
from inferno_operator.cli.tables.measurement import (
    ServerMeasurement,
    describe_measurements,
    encode_measurements,
    list_reported,
)
from inferno_operator.cli.tables.table import Part, TextTable, format_age, group_notes
from inferno_operator.pages.html import KeyFigure
from inferno_operator.resources import Optimizer, Resource, Server
from inferno_operator.resources.conditions import OPTIMIZED
from inferno_operator.resources.measurement import USABLE, Quality
from inferno_operator.resources.observation import only, readable
from inferno_operator.runtime.leader_election import Lease

# After so many times its time a plan or the renewal of a Lease is overdue: clocks differ.
LATE = 3.0

OVERDUE = "Overdue"  # the state of what did not happen when it was due
BY_HAND = "entered by hand"  # the source of a Server that is not measured
HEALTH = ("of", "state", "last", "known")  # names of the columns of health in JSON


@dataclass(frozen=True, slots=True)
class SeenLeader:
    """The Lease that a person may see, or why it is not known."""

    lease: Lease | None = None
    unknown: str = ""

    def to_json(self) -> Mapping[str, object]:
        """Return who leads as JSON."""
        if self.lease is None:
            return {"unknown": self.unknown}
        return {
            "holder": self.lease.holder,
            "since": self.lease.acquired.isoformat(),
            "renewed": self.lease.renewed.isoformat(),
            "transitions": self.lease.transitions,
        }


def view_data(seen: SeenNamespace, leader: SeenLeader) -> ConsolePage:
    """What is measured of each Server, its quality and age, and where it comes from."""
    resources, now = readable(seen.objects), seen.now
    measurements = sorted(list_reported(resources), key=lambda item: item.server.metadata.name)
    rows = [
        _describe_prometheus([item for item in measurements if item.server.spec.measure], now),
        *(_describe_optimizer(optimizer, now) for optimizer in only(Optimizer, resources)),
        _describe_leader(leader, now),
    ]
    unreadable = sorted(
        (o.reference.key.name, f"InvalidSpec: {o.problem}")
        for o in seen.objects
        if o.kind is Server and o.resource is None
    )
    return ConsolePage(
        title="Data",
        parts=tuple(_describe_data(resources, measurements, now)),
        document=lambda: {
            **encode_measurements(measurements, ()),
            "health": [dict(zip(HEALTH, row, strict=True)) for row in rows],
            "leader": leader.to_json(),
        },
        figures=tuple(_list_figures(measurements, now)),
        before=(
            TextTable(("HEALTH OF", "STATE", ">LAST", "WHAT IS KNOWN"), rows),
            *group_notes(unreadable),
        ),
    )


def _describe_prometheus(asked: Sequence[ServerMeasurement], now: datetime) -> Sequence[str]:
    if not asked:
        return ("Prometheus", "not asked", "-", "no Server has spec.measure")
    usable = [item.measured for item in asked if item.measured and item.measured.quality in USABLE]
    newest = max((item.time for item in usable), default=None)
    counts = f"{len(usable)} of {len(asked)} measured Servers have new numbers"
    state = "answers" if usable else "nothing new"
    return ("Prometheus", state, format_age(newest, now) if newest else "-", counts)


def _describe_optimizer(optimizer: Optimizer, now: datetime) -> Sequence[str]:
    """Return the last plan of an Optimizer, and whether the next is late, so that nobody leads."""
    last, interval = optimizer.status.last_optimization, optimizer.spec.interval
    optimized = optimizer.status.condition(OPTIMIZED)
    state = optimized.reason if optimized else "not yet"
    since = (now - last.time).total_seconds() if last else 0.0
    if interval and last and since > LATE * interval:
        state = OVERDUE
    message = f"a plan every {interval} s" if interval else "on demand (no interval)"
    if optimized and optimized.status != "True":
        message = optimized.message
    name = f"Optimizer {optimizer.metadata.name}"
    return (name, state, format_age(last.time, now) if last else "-", message)


def _describe_leader(seen: SeenLeader, now: datetime) -> Sequence[str]:
    lease = seen.lease
    if lease is None:
        return ("Leader", "not known", "-", seen.unknown)
    renewed = format_age(lease.renewed, now)
    if not lease.holder:
        return ("Leader", "none", renewed, "no operator holds the Lease")
    is_late = (now - lease.renewed).total_seconds() > LATE * lease.duration
    pod = lease.holder.partition("_")[0]  # what is unique of its process follows
    since = f"{lease.acquired:%Y-%m-%d %H:%M} UTC"
    words = f"{pod} leads since {since}; leaders before it: {lease.transitions}"
    return ("Leader", OVERDUE if is_late else "leads", renewed, words)


def _list_figures(measurements: Sequence[ServerMeasurement], now: datetime) -> Iterator[KeyFigure]:
    found = [item.measured for item in measurements if item.measured]
    qualities: Counter[Quality] = Counter(measured.quality for measured in found)
    asked = sum(item.server.spec.measure is not None for item in measurements)
    yield KeyFigure(
        "Servers", str(len(measurements)), f"{asked} are measured, the others entered by hand"
    )
    usable = sum(count for quality, count in qualities.items() if quality in USABLE)
    for title, count, is_usable in (("Fresh", usable, True), ("Stale", asked - usable, False)):
        counts = (
            f"{qualities[quality]} {quality}"
            for quality in get_args(Quality)
            if (quality in USABLE) is is_usable and qualities.get(quality)
        )
        yield KeyFigure(title, str(count), ", ".join(counts) or "of those that are measured")
    oldest = format_age(min(measured.time for measured in found), now) if found else "-"
    yield KeyFigure("Oldest measurement", oldest, "ago" if found else "")


def _describe_data(
    resources: Sequence[Resource], measurements: Sequence[ServerMeasurement], now: datetime
) -> Iterator[Part]:
    if not measurements:
        yield NO_SERVERS
        return
    yield from describe_measurements(measurements, (), now)
    by_source: dict[str, list[ServerMeasurement]] = {}
    for item in measurements:
        measure = item.server.spec.measure
        by_source.setdefault(measure.source if measure else BY_HAND, []).append(item)
    rows = [_describe_source(name, items, now) for name, items in sorted(by_source.items())]
    yield TextTable(("SOURCE", ">SERVERS", "QUALITY", ">OLDEST", "EXAMPLE"), rows)
    conditions = [
        (optimizer.metadata.name, condition.type, condition.status, condition.reason,
         format_age(condition.last_transition_time, now), condition.message)
        for optimizer in only(Optimizer, resources)
        for condition in optimizer.status.conditions
    ]  # fmt: skip
    if conditions:
        headings = ("OPTIMIZER", "CONDITION", "STATUS", "REASON", ">AGE", "MESSAGE")
        yield TextTable(headings, conditions)


def _describe_source(name: str, items: Sequence[ServerMeasurement], now: datetime) -> Sequence[str]:
    """Return how many Servers a source has, how good their numbers are, and where one's are."""
    found = [item.measured for item in items if item.measured]
    qualities = Counter(measured.quality for measured in found)
    counts = [f"{count} {quality}" for quality, count in sorted(qualities.items())]
    if len(items) > len(found) and name != BY_HAND:
        counts.append(f"{len(items) - len(found)} not yet")
    measure, example = items[0].server.spec.measure, "spec.currentAlloc"
    if measure is not None:
        labels = (f'{key}="{value}"' for key, value in sorted(measure.labels.items()))
        example = f"{{{', '.join(labels)}}}"
    return (
        name,
        str(len(items)),
        ", ".join(counts) or "-",
        format_age(min(measured.time for measured in found), now) if found else "-",
        f"{items[0].server.metadata.name}: {example}",
    )
