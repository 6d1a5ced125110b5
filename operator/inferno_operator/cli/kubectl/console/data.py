"""The objects of a namespace -> the page of its data: what is measured, how good, how old.

The Lease of the operators says who leads, since when, and whether it is renewed.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import get_args

from inferno_operator.cli.kubectl.console.page import NO_SERVERS, ConsolePage
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
from inferno_operator.resources.observation import Observation, only, readable
from inferno_operator.runtime.leader_election import Lease

LATE = 3.0
"""After so many times its time a plan or the renewal of a Lease is overdue: clocks differ."""

OVERDUE = "Overdue"
"""The state of what did not happen when it was due."""

BY_HAND = "entered by hand"
"""The source of a Server that is not measured."""

HEALTH = ("of", "state", "last", "known")
"""Names of the columns of health in JSON."""


@dataclass(frozen=True, slots=True)
class SeenLeader:
    """The Lease that a person may see, or why it is not known."""

    lease: Lease | None = None
    unknown: str = ""


def leader_row(seen: SeenLeader, now: datetime) -> Sequence[str]:
    """Return who leads as a row of the table of health."""
    lease = seen.lease
    if lease is None:
        return ("Leader", "not known", "-", seen.unknown)
    renewed = format_age(lease.renewed, now)
    if not lease.holder:
        return ("Leader", "none", renewed, "no operator holds the Lease")
    late = (now - lease.renewed).total_seconds() > LATE * lease.duration
    pod, since = _pod(lease), f"{lease.acquired:%Y-%m-%d %H:%M} UTC"
    words = f"{pod} leads since {since}; leaders before it: {lease.transitions}"
    return ("Leader", OVERDUE if late else "leads", renewed, words)


def leader_document(seen: SeenLeader) -> Mapping[str, object]:
    """Return who leads as JSON."""
    lease = seen.lease
    if lease is None:
        return {"unknown": seen.unknown}
    return {
        "holder": lease.holder,
        "since": lease.acquired.isoformat(),
        "renewed": lease.renewed.isoformat(),
        "transitions": lease.transitions,
    }


def _pod(lease: Lease) -> str:
    """The name of the pod, which is followed by what is unique of its process."""
    return lease.holder.partition("_")[0]


def data_view(
    observations: Sequence[Observation], now: datetime, leader: SeenLeader
) -> ConsolePage:
    """What is measured of each Server, its quality and age, and where it comes from."""
    resources = readable(observations)
    measurements = sorted(list_reported(resources), key=lambda item: item.server.metadata.name)
    health = _health(resources, measurements, leader, now)
    return ConsolePage(
        title="Data",
        parts=tuple(_parts(resources, measurements, now)),
        document=lambda: {
            **encode_measurements(measurements, ()),
            "health": [dict(zip(HEALTH, row, strict=True)) for row in health.rows],
            "leader": leader_document(leader),
        },
        figures=tuple(_figures(measurements, now)),
        before=(health, *_unreadable(observations)),
    )


def _health(
    resources: Sequence[Resource],
    measurements: Sequence[ServerMeasurement],
    leader: SeenLeader,
    now: datetime,
) -> TextTable:
    """Whether Prometheus answers, plans are made, and an operator leads."""
    rows = [_prometheus([item for item in measurements if item.server.spec.measure], now)]
    rows += [_planning(r, now) for r in only(Optimizer, resources)]
    rows.append(leader_row(leader, now))
    return TextTable(("HEALTH OF", "STATE", ">LAST", "WHAT IS KNOWN"), rows)


def _prometheus(asked: Sequence[ServerMeasurement], now: datetime) -> Sequence[str]:
    usable = [item.measured for item in asked if item.measured and item.measured.quality in USABLE]
    if not asked:
        return ("Prometheus", "not asked", "-", "no Server has spec.measure")
    newest = max((item.time for item in usable), default=None)
    counts = f"{len(usable)} of {len(asked)} measured Servers have new numbers"
    state = "answers" if usable else "nothing new"
    return ("Prometheus", state, format_age(newest, now) if newest else "-", counts)


def _planning(optimizer: Optimizer, now: datetime) -> Sequence[str]:
    """The last plan of an Optimizer, and whether the next one is late, so that no leader works."""
    last, interval = optimizer.status.last_optimization, optimizer.spec.interval
    optimized = optimizer.status.condition(OPTIMIZED)
    state = optimized.reason if optimized else "not yet"
    since = (now - last.time).total_seconds() if last else 0.0
    if interval and last and since > LATE * interval:
        state = OVERDUE
    every = f"a plan every {interval} s" if interval else "on demand (no interval)"
    message = optimized.message if optimized and optimized.status != "True" else every
    name = f"Optimizer {optimizer.metadata.name}"
    return (name, state, format_age(last.time, now) if last else "-", message)


def _figures(measurements: Sequence[ServerMeasurement], now: datetime) -> Iterator[KeyFigure]:
    qualities = Counter(item.measured.quality for item in measurements if item.measured)
    asked = sum(item.server.spec.measure is not None for item in measurements)
    yield KeyFigure(
        "Servers", str(len(measurements)), f"{asked} are measured, the others entered by hand"
    )
    usable = sum(count for quality, count in qualities.items() if quality in USABLE)
    good = _counts(qualities, lambda quality: quality in USABLE)
    yield KeyFigure("Fresh", str(usable), good or "of those that are measured")
    bad = _counts(qualities, lambda quality: quality not in USABLE)
    yield KeyFigure("Stale", str(asked - usable), bad or "of those that are measured")
    times = [item.measured.time for item in measurements if item.measured]
    yield KeyFigure(
        "Oldest measurement", format_age(min(times), now) if times else "-", "ago" if times else ""
    )


def _counts(qualities: Mapping[Quality, int], counts: Callable[[Quality], bool]) -> str:
    """How many Servers have each of some qualities, in words."""
    shown = [q for q in get_args(Quality) if counts(q) and qualities.get(q)]
    return ", ".join(f"{qualities[quality]} {quality}" for quality in shown)


def _unreadable(observations: Sequence[Observation]) -> Iterator[str]:
    """Yield which Servers are left out, as their manifest is wrong."""
    yield from group_notes(
        sorted(
            (o.reference.key.name, f"InvalidSpec: {o.problem}")
            for o in observations
            if o.kind is Server and o.resource is None
        )
    )


def _parts(
    resources: Sequence[Resource], measurements: Sequence[ServerMeasurement], now: datetime
) -> Iterator[Part]:
    if not measurements:
        yield NO_SERVERS
        return
    yield from describe_measurements(measurements, (), now)
    yield _sources(measurements, now)
    yield from _conditions(resources, now)


def _sources(measurements: Sequence[ServerMeasurement], now: datetime) -> TextTable:
    """Return the sources with how many Servers each has, and how good their numbers are."""
    by_source: dict[str, list[ServerMeasurement]] = {}
    for item in measurements:
        measure = item.server.spec.measure
        by_source.setdefault(measure.source if measure else BY_HAND, []).append(item)
    rows = [_source_row(name, items, now) for name, items in sorted(by_source.items())]
    return TextTable(("SOURCE", ">SERVERS", "QUALITY", ">OLDEST", "EXAMPLE"), rows)


def _source_row(name: str, items: Sequence[ServerMeasurement], now: datetime) -> Sequence[str]:
    qualities = Counter(item.measured.quality for item in items if item.measured)
    missing = len(items) - qualities.total()
    counts = [f"{count} {quality}" for quality, count in sorted(qualities.items())]
    counts += [f"{missing} not yet"] if missing and name != BY_HAND else []
    times = [item.measured.time for item in items if item.measured]
    return (
        name,
        str(len(items)),
        ", ".join(counts) or "-",
        format_age(min(times), now) if times else "-",
        _labels(items[0]),
    )


def _labels(item: ServerMeasurement) -> str:
    """The labels by which the series of a Server are found, with its name."""
    measure, name = item.server.spec.measure, item.server.metadata.name
    if measure is None:
        return f"{name}: spec.currentAlloc"
    labels = ", ".join(f'{key}="{value}"' for key, value in sorted(measure.labels.items()))
    return f"{name}: {{{labels}}}"


def _conditions(resources: Sequence[Resource], now: datetime) -> Iterator[Part]:
    """Yield the conditions of the Optimizers, which say whether plans are made."""
    rows = [
        (resource.metadata.name, condition.type, condition.status, condition.reason,
         format_age(condition.last_transition_time, now), condition.message)
        for resource in resources
        if isinstance(resource, Optimizer)
        for condition in resource.status.conditions
    ]  # fmt: skip
    if rows:
        yield TextTable(("OPTIMIZER", "CONDITION", "STATUS", "REASON", ">AGE", "MESSAGE"), rows)
