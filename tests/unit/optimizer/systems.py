"""Small systems for the tests, made so that a person can foretell every candidate."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType

from inferno_optimizer.optimize import optimize
from inferno_optimizer.system import (
    Accelerator,
    Allocation,
    DecodeParameters,
    Load,
    Options,
    PerformanceProfile,
    Server,
    ServiceClass,
    System,
    Target,
)

REPLICA_SHARE = 0.999 * 60_000
"""Requests/min that one replica may be given, for each request/ms that it can serve."""


GREEDY = Options()
UNLIMITED = Options(unlimited=True)
NO_CARDS: Mapping[str, int] = MappingProxyType({})
NO_TARGET = Target()
NOTHING = Allocation()


@dataclass(frozen=True)
class Demand:
    """A server with a model and a class of its own, and the replicas it needs by accelerator.

    With a batch of one, one token and no latency target a replica carries what alpha alone
    says; alpha is chosen so that the load takes just these replicas.
    """

    name: str
    needs: Mapping[str, int]
    priority: int = 1
    load: float = 60.0
    current: Allocation = NOTHING
    target: Target = NO_TARGET
    min_replicas: int = 0
    accelerators_per_replica: int = 1

    @property
    def server(self) -> Server:
        """The server, under the load."""
        current = replace(self.current, load=Load(self.load, 1))
        return Server(self.name, self.name, self.name, current, min_replicas=self.min_replicas)

    @property
    def service_class(self) -> ServiceClass:
        """Its class, with its priority and target."""
        return ServiceClass(self.name, self.priority, {self.name: self.target})

    @property
    def profiles(self) -> tuple[PerformanceProfile, ...]:
        """A profile for each accelerator that it can run on."""
        return tuple(
            PerformanceProfile(
                self.name,
                accelerator,
                DecodeParameters(REPLICA_SHARE * replicas / self.load, 0.0),
                max_batch_size=1,
                at_tokens=1,
                accelerator_count=self.accelerators_per_replica,
            )
            for accelerator, replicas in self.needs.items()
        )


def accelerators(**costs: float) -> tuple[Accelerator, ...]:
    """Accelerators of one card each, every one a type of its own."""
    return tuple(Accelerator(name, name, cost) for name, cost in costs.items())


def system_of(
    demands: Iterable[Demand],
    units: Iterable[Accelerator],
    capacity: Mapping[str, int] = NO_CARDS,
    options: Options = GREEDY,
) -> System:
    """The demands as one system."""
    demands = tuple(demands)
    return System(
        accelerators=tuple(units),
        profiles=tuple(profile for demand in demands for profile in demand.profiles),
        classes=tuple(demand.service_class for demand in demands),
        servers=tuple(demand.server for demand in demands),
        capacity=capacity,
        options=options,
    )


def one_server(
    server: Server,
    *profiles: PerformanceProfile,
    target: Target = NO_TARGET,
    units: Iterable[Accelerator] = (),
    options: Options = UNLIMITED,
    capacity: Mapping[str, int] = NO_CARDS,
) -> System:
    """A server with profiles of its model; without `units`, on cards at 10 cents/hour."""
    named = [Accelerator(p.accelerator, p.accelerator, 10.0) for p in profiles]
    return System(
        accelerators=tuple(units) or tuple(named),
        profiles=profiles,
        classes=(ServiceClass(server.service_class, 1, {server.model: target}),),
        servers=(server,),
        capacity=capacity,
        options=options,
    )


def outcome(system: System) -> dict[str, tuple[str, int]]:
    """Accelerator and replicas of each server in the plan; ('', 0) is nothing."""
    found = optimize(system).allocations
    chosen = {server.name: found.get(server.name, NOTHING) for server in system.servers}
    return {name: (a.accelerator, a.replicas) for name, a in chosen.items()}
