"""What measured Servers keep while nothing shows that less is enough; pure.

Such a Server has as many replicas as its minimum as run, or were decided. Elsewhere as many are
needed as carry what these carry: of faster ones fewer. By their number alone, a Server that misses
its targets would stay on what has become the wrong accelerator, or lose by a move to slower ones.
"""

from collections.abc import Container, Iterable, Iterator, Mapping
from dataclasses import replace
from datetime import datetime

from inferno_operator.controllers.planning.allocations import placed_current, placements
from inferno_operator.resources import Server, ServerAllocation
from inferno_optimizer.explain.rates import rates
from inferno_optimizer.sizing.cases import Catalogue
from inferno_optimizer.system import System

ReplicaRates = Mapping[tuple[str, str], float]
"""What a replica carries [requests/min], by spec.name of a Server and by place, see `place_of`."""

SPARE = 1e-6
"""Share of what replicas carry that is not asked for: rounding must not ask for one more."""


def with_held_rates(
    system: System, servers: Iterable[Server], unmeasured: Iterable[Server], now: datetime
) -> System:
    """Return a system in which Servers keep what their replicas carry, in place of their number.

    Parameters
    ----------
    system
        The system of the Servers.
    servers
        Those that may keep replicas, with their measured loads: these are in their minimum.
    unmeasured
        The same as they are on the API server, whose minimum is what somebody asks for.
    now
        The time, for which they may ask for more.

    Returns
    -------
    System
        Where it is not known what replicas carry, their number stays the minimum.
    """
    asked = {server.metadata.uid: server.fewest_replicas(now) for server in unmeasured}
    held = {
        server.spec.name: server
        for server in servers
        if server.spec.min_num_replicas > asked[server.metadata.uid]
    }
    if not held:
        return system
    kept = _kept(system, held)
    fewest = {name: max(asked[held[name].metadata.uid], 1) for name in kept}
    return replace(
        system,
        servers=tuple(
            replace(s, least_rate=kept[s.name], min_replicas=fewest[s.name])
            if s.name in kept
            else s
            for s in system.servers
        ),
    )


def _kept(system: System, held: Mapping[str, Server]) -> Mapping[str, float]:
    """What Servers keep, where it is known [requests/min]."""
    catalogue = Catalogue(system)
    wholes = {name: [*_wholes(server, catalogue)] for name, server in held.items()}
    cards = {
        p.accelerator for found in wholes.values() for whole in found for p in placements(whole)
    }
    replica = _replica_rates(system, held.keys(), cards)
    known = {
        name: min((_carried(whole, name, replica) for whole in found), default=0.0)
        for name, found in wholes.items()
    }
    return {name: rate * (1.0 - SPARE) for name, rate in known.items() if rate > 0}


def _wholes(server: Server, catalogue: Catalogue) -> Iterator[ServerAllocation]:
    """What runs, and what was decided where fewer replicas than run are kept."""
    runs, decided = placed_current(server, catalogue), server.spec.desired_alloc
    if runs is None:
        return
    yield runs
    if decided is not None and server.spec.min_num_replicas < runs.num_replicas:
        yield decided


def _replica_rates(
    system: System, servers: Container[str], accelerators: Container[str]
) -> ReplicaRates:
    """What a replica of Servers under load carries; none where it misses the targets.

    That a Server keeps its accelerator does not count. Roles count on all accelerators, as they
    need each other.
    """
    asked = [replace(s, keep_accelerator=False) for s in system.servers if s.name in servers]
    models = {server.model for server in asked}
    profiles = [p for p in system.profiles if p.model in models and p.accelerator in accelerators]
    roles = [role for role in system.roles if role.model in models]
    small = replace(system, servers=tuple(asked), profiles=tuple(profiles), roles=tuple(roles))
    return rates(small).replica


def _carried(whole: ServerAllocation, server: str, replica: ReplicaRates) -> float:
    """What the replicas of a Server carry [requests/min], 0 for those of unknown speed."""
    if whole.roles is not None:
        return min(
            part.num_replicas * replica.get((server, place), 0.0)
            for place, part in whole.roles.by_place.items()
        )
    return sum(
        part.num_replicas * replica.get((server, part.accelerator), 0.0) for part in whole.parts
    )
