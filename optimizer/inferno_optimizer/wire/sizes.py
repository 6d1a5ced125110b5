"""What servers take on each accelerator, to compare with the answers of other optimizers."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple, Self

from inferno_optimizer.decisions import size_servers
from inferno_optimizer.sizing.candidates import Candidates
from inferno_optimizer.sizing.cases import Catalogue
from inferno_optimizer.system import Allocation, Server, ServiceClass, System, Target

ROUNDING = 0.01
"""Relative error of a load in the sizing of optimizers that compute with 32 bits."""


class RowReplicas(NamedTuple):
    """A row of the candidates, and replicas of it."""

    row: int
    replicas: int


@dataclass(frozen=True)
class Sizes:
    """What each server of a system takes on each accelerator, by our own sizing.

    `is_ours` tells that the optimizer is one of Inferno, which knows all fields; the sizing for
    others leaves out those that they ignore.
    """

    system: System
    candidates: Candidates
    is_ours: bool

    @classmethod
    def of(cls, system: System, *, is_ours: bool) -> Self:
        """Size all servers of a system."""
        system = system.with_least_replicas()
        understood = system if is_ours else _as_others_read(system)
        candidates, _ = size_servers(Catalogue(understood), understood.servers)
        return cls(system, candidates, is_ours)

    @cached_property
    def _rows(self) -> Mapping[str, Mapping[int, int]]:
        """Rows by server and place; servers that cannot be sized have none."""
        pairs = self.candidates.pairs
        names = [case.server.name for case in self.candidates.cases]
        rows: dict[str, dict[int, int]] = {name: {} for name in names}
        keys = zip(pairs.case.tolist(), pairs.accelerator.tolist(), strict=True)
        for row, (case, place) in enumerate(keys):
            rows[names[case]][place] = row
        return rows

    def parts(self, server: str, allocation: Allocation) -> list[RowReplicas]:
        """The replicas of an allocation by row."""
        rows, catalogue = self._rows.get(server, {}), Catalogue(self.candidates.system)
        parts = allocation.mix or (allocation,)
        placed = ((rows.get(catalogue.place(part)), part) for part in parts)
        return [
            RowReplicas(row, self.candidates.replicas_of(row, part))
            for row, part in placed
            if row is not None
        ]

    def has_demand(self, server: str) -> bool:
        """Whether a server has a load, or a minimum to provide for."""
        demand = self.candidates.pairs.demand
        return any(demand[row] for row in self._rows.get(server, {}).values())

    def share(self, server: str, allocation: Allocation) -> float:
        """Share of the demand that an allocation carries within the targets; 1 without demand."""
        rate, demand = self.candidates.sizing.max_rate, self.candidates.pairs.demand
        if not self.has_demand(server):
            return 1.0
        parts = self.parts(server, allocation)
        return float(sum(part.replicas * rate[part.row] / demand[part.row] for part in parts))

    def suffices(self, server: Server, allocation: Allocation) -> bool:
        """Whether an allocation carries the demand of a server, and has its minimum of replicas."""
        enough = allocation.replicas >= server.min_replicas
        return enough and self.share(server.name, allocation) >= 1 - ROUNDING


def data_of(server: Server, catalogue: Catalogue) -> str:
    """The performance data of a server's model with their generation, as words of a message."""
    profiles = (catalogue.system.profiles[i] for i in catalogue.profiles[server.model])
    generations = sorted({int(profile.parameters.generation) for profile in profiles})
    return f"performance data of generation {' and '.join(map(str, generations))}"


def _as_others_read(system: System) -> System:
    """The system without percentiles of targets, because other optimizers ignore them.

    They ignore the bounds of a replica's memory as well.
    """
    profiles = tuple(replace(p, max_tokens=0, max_sequences=0) for p in system.profiles)
    classes = tuple(map(_without_percentiles, system.classes))
    return replace(system, profiles=profiles, classes=classes)


def _without_percentiles(service_class: ServiceClass) -> ServiceClass:
    def plain(target: Target) -> Target:
        return replace(target, wait_percentile=0.0, ttft_percentile=0.0, itl_percentile=0.0)

    return replace(
        service_class, targets={m: plain(target) for m, target in service_class.targets.items()}
    )
