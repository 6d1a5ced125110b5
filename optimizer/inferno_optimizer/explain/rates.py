"""What one replica of each server carries on each accelerator, whatever the plan."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np

from inferno_optimizer.decisions import size_servers
from inferno_optimizer.sizing.candidates import Candidates
from inferno_optimizer.sizing.cases import Catalogue
from inferno_optimizer.system import System, place_of
from inferno_optimizer.units import MS_PER_MINUTE


@dataclass(frozen=True, slots=True)
class Rates:
    """Rates of replicas that meet all targets.

    Parameters
    ----------
    demand
        Rate to provide for by server: the largest of its load, its least rate and its throughput
        target [requests/min]; servers that cannot be sized are left out.
    replica
        What one replica carries, by server and accelerator [requests/min]; idle servers and
        accelerators that do not meet the targets are left out. A role has a place of its own, see
        `place_of`; of several pairs with it, what it carries at least.
    """

    demand: Mapping[str, float] = field(default_factory=dict)
    replica: Mapping[tuple[str, str], float] = field(default_factory=dict)


def rates(system: System) -> Rates:
    """Return what every server needs, and what one replica of it carries on each accelerator."""
    catalogue = Catalogue(system.by_name())
    candidates, _ = size_servers(catalogue, catalogue.system.servers)
    demand: dict[str, float] = {}
    replica: dict[tuple[str, str], float] = {}
    carried = candidates.sizing.max_rate * MS_PER_MINUTE
    for row in range(len(carried)):
        server = candidates.case_of(row).server
        demand[server.name] = float(candidates.pairs.demand[row]) * MS_PER_MINUTE
        if not (np.isfinite(carried[row]) and carried[row] > 0):
            continue
        for place, rate in _of_each(candidates, row, float(carried[row])):
            replica[server.name, place] = min(rate, replica.get((server.name, place), np.inf))
    return Rates(demand, replica)


def _of_each(candidates: Candidates, row: int, carried: float) -> Iterator[tuple[str, float]]:
    """What one replica of a row carries, or one of each of its roles."""
    roles = candidates.roles(row, 1)
    for part in roles:
        yield place_of(part.accelerator, part.role), carried / part.replicas
    if not roles:
        yield candidates.placement(row), carried
