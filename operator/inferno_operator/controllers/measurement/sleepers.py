"""Servers without replicas: the requests that are seen for them; pure."""

from collections.abc import Mapping

from inferno_operator.controllers.measurement.quality import NOTHING, STAYS
from inferno_operator.engines.demand import DemandReading, DemandReadings
from inferno_operator.resources import DemandSource, Measured, MeasuredDemand, Quality, Server
from inferno_operator.resources.objects import Key
from inferno_operator.resources.observation import Observation

UNSEEN: frozenset[Quality] = frozenset({"Stale", "Missing"})
"""Qualities of a server of which no replica reports."""

DIGITS = 3
"""Decimals of numbers of requests."""


def demand_sources(servers: Mapping[Key, Observation]) -> dict[Key, DemandSource]:
    """Return `spec.measure.demand` of the Servers that have it."""
    return {
        key: server.spec.measure.demand
        for key, observation in servers.items()
        if isinstance(server := observation.resource, Server)
        and server.spec.measure
        and server.spec.measure.demand
    }


def sleeping(servers: Mapping[Key, Observation]) -> dict[Key, DemandSource]:
    """Return the same of the Servers without replicas."""
    return demand_sources(
        {
            key: observation
            for key, observation in servers.items()
            if isinstance(server := observation.resource, Server) and server.sleeps
        }
    )


def wanted(readings: DemandReadings) -> set[Key]:
    """Return the Servers for which there are requests."""
    return {key for key, reading in readings.items() if reading.requests}


def with_demand(
    newest: Measured,
    server: Server,
    before: Measured | None,
    reading: DemandReading | None,
    mean_rate: float | None,
) -> Measured:
    """Add what is seen of requests, and since when there are none.

    Parameters
    ----------
    newest, before
        What was measured at the replicas now, and what was known before.
    server
        The Server.
    reading
        What its `measure.demand` sees; None without one.
    mean_rate
        Mean of the rates of the last day [requests/min], if any is known.
    """
    if reading is None:
        return newest
    newest = _without_replicas(newest, server, reading)
    if newest.quality == "Idle" and newest.message == NOTHING + STAYS:
        newest = newest.model_copy(update={"message": NOTHING})
    last = (before.demand if before else None) or MeasuredDemand()
    is_idle = newest.quality == "Idle" and reading.requests == 0
    demand = MeasuredDemand(
        requests=_rounded(reading.requests),
        mean_rate=_rounded(last.mean_rate if mean_rate is None else mean_rate),
        idle_since=(last.idle_since or newest.time) if is_idle else None,
        message=reading.problem,
    )
    return newest.model_copy(update={"demand": demand})


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, DIGITS)


def _without_replicas(newest: Measured, server: Server, reading: DemandReading) -> Measured:
    """What was measured; where nothing runs, what is seen of requests stands in for it."""
    current = server.spec.current_alloc
    runs = current is not None and current.num_replicas > 0
    if newest.quality not in UNSEEN or reading.requests is None or runs:
        return newest
    if reading.requests:
        change = {"quality": "Partial", "message": "requests come, and no replica serves yet"}
        return newest.model_copy(update=change)
    if not server.sleeps:
        return newest
    change = {"quality": "Idle", "message": "no replica runs, and no request is seen"}
    return newest.model_copy(update={**change, "arrival_rate": 0.0, "waiting": None})


def with_requests_seen(reading: DemandReading, measured: Measured) -> Measured:
    """Return what was measured of a Server without replicas, with what is seen now."""
    last = measured.demand or MeasuredDemand()
    seen = {"requests": reading.requests, "message": reading.problem, "idle_since": None}
    return measured.model_copy(update={"demand": last.model_copy(update=seen)})
