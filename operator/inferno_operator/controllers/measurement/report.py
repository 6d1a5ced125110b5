"""What metrics say about measured Servers; pure."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime

from inferno_operator.controllers.measurement.quality import against_targets
from inferno_operator.resources import Measured, Server, Target
from inferno_operator.resources.objects import Key
from inferno_operator.runtime.observer import MeasuredServer, ObservedLatency

ReportedServer = tuple[Key, Server, Measured, Target | None]
"""A Server, what was measured of it, and its target."""


def by_namespace(
    servers: Iterable[ReportedServer], now: datetime
) -> Mapping[str, Sequence[MeasuredServer]]:
    """Return the measured Servers of each namespace."""
    servers_of: defaultdict[str, list[MeasuredServer]] = defaultdict(list)
    for key, server, measured, target in servers:
        servers_of[key.namespace].append(_measured_server(server, measured, target, now))
    return servers_of


def _measured_server(
    server: Server, measured: Measured, target: Target | None, now: datetime
) -> MeasuredServer:
    compared = against_targets(measured, target) if target else ()
    is_known = measured.arrival_rate is not None
    return MeasuredServer(
        server=server.spec.name,
        quality=measured.quality,
        arrival_rate=measured.arrival_rate,
        age=max(0.0, (now - measured.time).total_seconds()) if is_known else None,
        latencies=_latencies(server, measured, target),
        misses={name: value > limit for name, value, limit in compared},
        correction=measured.correction.factor if measured.correction else 1.0,
    )


def _latencies(
    server: Server, measured: Measured, target: Target | None
) -> Mapping[str, ObservedLatency]:
    desired = server.spec.desired_alloc
    limits = {
        "itl": target.slo_itl if target else None,
        "ttft": target.slo_ttft if target else None,
        "wait": target.slo_ttw if target else None,
    }
    return {
        name: ObservedLatency(
            getattr(measured, f"{name}_average"), getattr(desired, f"{name}_average", None), limit
        )
        for name, limit in limits.items()
    }
