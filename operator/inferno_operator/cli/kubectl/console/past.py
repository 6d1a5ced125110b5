"""What the Plans of a namespace say about its past: the loads that they were made for."""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from inferno_operator.controllers.approval.contents import UnreadablePlanError, inflate
from inferno_operator.resources import Plan, ServerSpec
from inferno_optimizer.errors import InputError
from inferno_optimizer.system import System
from inferno_optimizer.wire.codec import decode_system

MOST_OBJECTS = 3000
"""Objects in a namespace whose past is shown of all Servers: each Plan has all of them."""

Loads = Mapping[str, float]
"""Arrival rate by `spec.name` of a Server [requests/min]."""


@dataclass(frozen=True, slots=True)
class PastLoads:
    """The loads of all Servers at a moment."""

    time: datetime
    loads: Loads


def loads_of(
    server: ServerSpec, past: Sequence[PastLoads], now: datetime
) -> Sequence[tuple[datetime, float]]:
    """When a Server had which load [requests/min]: when Plans were made, and now."""
    name, current = server.name, server.current_alloc
    found = [(item.time, item.loads[name]) for item in past if name in item.loads]
    return [*found, (now, current.load.arrival_rate)] if current and current.load else found


class PlanLoads:
    """The loads of the past, each Plan unpacked once: a Plan does not change."""

    def __init__(self) -> None:
        self._known: dict[str, Loads] = {}

    def loads(self, plans: Iterable[Plan]) -> Sequence[PastLoads]:
        """Return the loads that Plans were made for, the oldest first."""
        known, found = dict[str, Loads](), list[PastLoads]()
        for plan in plans:
            digest, time = plan.spec.digest, plan.metadata.creation_timestamp
            loads = self._known[digest] if digest in self._known else _loads_of(plan)
            known[digest] = loads
            if time and loads:
                found.append(PastLoads(time, loads))
        self._known = known
        return sorted(found, key=lambda item: item.time)


def _loads_of(plan: Plan) -> Loads:
    system = inputs_of(plan)
    return {s.name: s.load.arrival_rate for s in system.servers} if system else {}


def inputs_of(plan: Plan) -> System | None:
    """The system that a Plan was made for; None if it was left out, or cannot be read."""
    if not plan.spec.inputs:
        return None
    try:
        return decode_system(json.loads(inflate(plan.spec.inputs)))
    except (UnreadablePlanError, InputError, ValueError):
        return None
