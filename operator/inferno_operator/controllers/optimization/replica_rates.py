"""What a replica of a Server carries on each accelerator, within the targets; pure."""

from collections.abc import Container, Mapping
from dataclasses import replace

from inferno_optimizer.sizing.candidates import NO_PAIR
from inferno_optimizer.sizing.cases import Case, Catalogue
from inferno_optimizer.sizing.table import build_candidates
from inferno_optimizer.system import System
from inferno_optimizer.units import MS_PER_MINUTE

ReplicaRates = Mapping[tuple[str, str], float]
"""What a replica carries [requests/min], by spec.name of a Server and by accelerator."""


def replica_rates(
    system: System, servers: Container[str], accelerators: Container[str]
) -> ReplicaRates:
    """Return what a replica carries, of servers under load; none where it misses the targets.

    Parameters
    ----------
    system
        The system that has them; that a server keeps its accelerator does not count.
    servers, accelerators
        The names of those that are asked about.
    """
    asked = [replace(s, keep_accelerator=False) for s in system.servers if s.name in servers]
    models = {server.model for server in asked}
    profiles = [p for p in system.profiles if p.model in models and p.accelerator in accelerators]
    small = Catalogue(replace(system, servers=tuple(asked), profiles=tuple(profiles)))
    cases = [case for server in asked if isinstance(case := small.case(server), Case)]
    if not cases:
        return {}
    table = build_candidates(small, cases)
    rows = zip(table.pairs.case, table.pairs.profile, table.sizing.max_rate, strict=True)
    return {
        (cases[case].server.name, profiles[profile].accelerator): float(rate) * MS_PER_MINUTE
        for case, profile, rate in rows
        if profile != NO_PAIR and 0 < rate < float("inf")
    }
