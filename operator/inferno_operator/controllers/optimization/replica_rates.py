"""What a replica of a Server carries on each accelerator, within the targets; pure."""

from collections.abc import Container, Mapping
from dataclasses import replace

from inferno_operator.resources import ServerAllocation
from inferno_optimizer.explain.rates import rates
from inferno_optimizer.system import System

ReplicaRates = Mapping[tuple[str, str], float]
"""What a replica carries [requests/min], by spec.name of a Server and by accelerator.

A replica of a role has a place of its own, see `place_of`.
"""


def replica_rates(
    system: System, servers: Container[str], accelerators: Container[str]
) -> ReplicaRates:
    """Return what a replica carries, of servers under load; none where it misses the targets.

    Parameters
    ----------
    system
        The system that has them; that a server keeps its accelerator does not count.
    servers, accelerators
        The names of those that are asked about; roles count on all accelerators, as they need
        each other.
    """
    asked = [replace(s, keep_accelerator=False) for s in system.servers if s.name in servers]
    models = {server.model for server in asked}
    profiles = [p for p in system.profiles if p.model in models and p.accelerator in accelerators]
    roles = [role for role in system.roles if role.model in models]
    small = replace(system, servers=tuple(asked), profiles=tuple(profiles), roles=tuple(roles))
    return rates(small).replica


def carried(whole: ServerAllocation | None, server: str, replica: ReplicaRates) -> float:
    """Return what the replicas of a Server carry [requests/min], 0 for those of unknown speed."""
    if whole is None:
        return 0.0
    if whole.roles is not None:
        return min(
            part.num_replicas * replica.get((server, place), 0.0)
            for place, part in whole.roles.by_place.items()
        )
    return sum(
        part.num_replicas * replica.get((server, part.accelerator), 0.0) for part in whole.parts
    )
