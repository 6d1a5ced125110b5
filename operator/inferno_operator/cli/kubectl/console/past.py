"""What the Plans of a namespace say about its past: the Servers that they were made for."""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from sys import intern
from typing import NamedTuple

from inferno_operator.controllers.planning.proposal import UnreadablePlanError, inflate
from inferno_operator.resources import Plan, Server, ServerSpec
from inferno_optimizer.errors import InputError
from inferno_optimizer.system import Allocation, System
from inferno_optimizer.wire.codec import decode_system

MOST_OBJECTS = 3000
"""Objects in a namespace whose past is shown of all Servers: each Plan has all of them."""


class PastServer(NamedTuple):
    """A Server at a moment: arrival rate [requests/min], mean latencies [ms], 0 if not known."""

    rate: float
    itl: float
    wait: float
    ttft: float


@dataclass(frozen=True, slots=True)
class PastLoads:
    """All Servers at a moment, by their `spec.name`."""

    time: datetime
    servers: Mapping[str, PastServer]


def loads_of(
    server: ServerSpec, past: Sequence[PastLoads], now: datetime
) -> Sequence[tuple[datetime, float]]:
    """When a Server had which load [requests/min]: when Plans were made, and now."""
    name, current = server.name, server.current_alloc
    rates = [(item.time, item.servers[name].rate) for item in past if name in item.servers]
    return [*rates, (now, current.load.arrival_rate)] if current and current.load else rates


def latencies_of(
    server: Server, past: Sequence[PastLoads]
) -> Sequence[tuple[datetime, PastServer]]:
    """What was measured of a Server when Plans were made, and last; nothing if it is not."""
    name, last = server.spec.name, server.status.measured
    if server.spec.measure is None:
        return ()
    measured = [(item.time, item.servers[name]) for item in past if name in item.servers]
    if last is not None:
        values = (last.arrival_rate, last.itl_average, last.wait_average, last.ttft_average)
        measured.append((last.time, PastServer(*(value or 0.0 for value in values))))
    return [(time, there) for time, there in measured if there.itl or there.ttft]


class PlanLoads:
    """The past, each Plan unpacked once: a Plan does not change."""

    def __init__(self) -> None:
        self._read: dict[str, Mapping[str, PastServer]] = {}
        """The Servers of Plans that are unpacked, by digest."""

    def loads(self, plans: Iterable[Plan]) -> Sequence[PastLoads]:
        """Return the Servers that Plans were made for, the oldest first."""
        read, past = dict[str, Mapping[str, PastServer]](), list[PastLoads]()
        for plan in plans:
            digest, time = plan.spec.digest, plan.metadata.creation_timestamp
            servers = self._read[digest] if digest in self._read else _servers_of(plan)
            read[digest] = servers
            if time and servers:
                past.append(PastLoads(time, servers))
        self._read = read
        return sorted(past, key=lambda item: item.time)


def _servers_of(plan: Plan) -> Mapping[str, PastServer]:
    """The Servers of a Plan; names are interned, as all Plans have the same ones."""
    system = inputs_of(plan)
    return {intern(s.name): _past(s.current) for s in system.servers} if system else {}


def _past(current: Allocation) -> PastServer:
    return PastServer(current.load.arrival_rate, current.itl_ms, current.wait_ms, current.ttft_ms)


def inputs_of(plan: Plan) -> System | None:
    """The system that a Plan was made for; None if it was left out, or cannot be read."""
    if not plan.spec.inputs:
        return None
    try:
        return decode_system(json.loads(inflate(plan.spec.inputs)))
    except (UnreadablePlanError, InputError, ValueError):
        return None
