"""Systems whose models also run with prefill and decode apart."""

import random
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from inferno_optimizer.sizing.apart import SizedPairs, size_pairs
from inferno_optimizer.sizing.cases import Case, Catalogue
from inferno_optimizer.sizing.pairs import sorted_types
from inferno_optimizer.system import (
    Accelerator,
    Allocation,
    Load,
    Options,
    PerformanceProfile,
    Role,
    RoleProfile,
    Server,
    ServiceClass,
    StepParameters,
    System,
    Target,
    Transfer,
)
from tests.unit.optimizer.systems import NO_TARGET, NOTHING

STEPS = StepParameters(alpha=8.95, kappa=5.5e-5, delta=0.022, ahead=1, budget=8192)
"""Like those of an H100."""

TRANSFER = Transfer(5.0, 0.002)

ROLES = (Role.PREFILL, Role.DECODE)


def roles_of(
    model: str,
    accelerator: str,
    steps: StepParameters = STEPS,
    batch: int = 128,
    prompts: int = 64,
    cards: int = 1,
    transfer: Transfer = TRANSFER,
) -> tuple[RoleProfile, ...]:
    """Both roles of a model on an accelerator, with batches at 256 tokens."""
    most = {Role.PREFILL: prompts, Role.DECODE: batch}
    return tuple(
        RoleProfile(model, accelerator, role, steps, most[role], 256, cards, transfer=transfer)
        for role in ROLES
    )


def one_server(
    roles: Sequence[RoleProfile],
    load: Load,
    target: Target = NO_TARGET,
    current: Allocation = NOTHING,
    min_replicas: int = 0,
    **prices: float,
) -> System:
    """A server with one model, which has no replicas that do both."""
    return System(
        accelerators=tuple(Accelerator(n, n, cost) for n, cost in prices.items()),
        roles=tuple(roles),
        classes=(ServiceClass("c", 1, {"m": target}),),
        servers=(Server("s", "c", "m", replace(current, load=load), min_replicas=min_replicas),),
        capacity=dict.fromkeys(prices, 1000),
    )


def sized(system: System) -> SizedPairs:
    """The pairs of all servers of a system."""
    catalogue = Catalogue(system.by_name())
    cases = [catalogue.case(server) for server in catalogue.system.servers]
    costs = [catalogue.unit_cost(r.model, r.accelerator, r.role) for r in catalogue.system.roles]
    known = [case for case in cases if isinstance(case, Case)]
    return size_pairs(catalogue, known, sorted_types(system), np.array(costs))


def random_apart(numbers: random.Random, options: Options, servers: int = 3) -> System:
    """Three accelerators, and servers of models of which some also run together."""
    names = ("A", "B", "C")
    accelerators = tuple(
        Accelerator(name, name if numbers.random() < 0.8 else "A", numbers.choice((1, 3, 5, 8)))
        for name in names
    )
    models = [f"m{i}" for i in range(servers)]
    return System(
        accelerators=accelerators,
        profiles=tuple(
            PerformanceProfile(model, name, _steps(numbers), 64, 256)
            for model in models
            for name in names
            if numbers.random() < 0.6
        ),
        roles=tuple(
            role
            for model in models
            for name in names
            for role in roles_of(model, name, _steps(numbers), cards=numbers.choice((1, 1, 2)))
            if numbers.random() < 0.7
        ),
        classes=tuple(
            ServiceClass(f"c{i}", numbers.choice((1, 2)), {model: _target(numbers)})
            for i, model in enumerate(models)
        ),
        servers=tuple(
            Server(f"s{i}", f"c{i}", model, _current(numbers, names))
            for i, model in enumerate(models)
        ),
        capacity={name: numbers.randint(0, 9) for name in names},
        options=options,
    )


def random_competition(numbers: random.Random, options: Options) -> System:
    """The same with loads for which a mix may be the best; nothing runs."""
    system = random_apart(numbers, options)
    loads = (replace(s.load, arrival_rate=numbers.uniform(200, 1500)) for s in system.servers)
    return replace(
        system,
        capacity={name: numbers.randint(2, 7) for name in system.capacity},
        servers=tuple(
            replace(server, current=Allocation(load=load))
            for server, load in zip(system.servers, loads, strict=True)
        ),
    )


def _steps(numbers: random.Random) -> StepParameters:
    slower = numbers.uniform(1.0, 3.0)
    return replace(STEPS, alpha=STEPS.alpha * numbers.uniform(1.0, 2.0), delta=0.022 * slower)


def _target(numbers: random.Random) -> Target:
    return Target(itl_ms=numbers.choice((0, 15, 25)), ttft_ms=numbers.choice((0, 900, 2500)))


def _current(numbers: random.Random, names: Sequence[str]) -> Allocation:
    load = Load(
        arrival_rate=numbers.uniform(20, 300),
        input_tokens=numbers.choice((512, 4096, 8192)),
        output_tokens=numbers.choice((64, 256)),
    )
    kind, cost = numbers.random(), numbers.uniform(1, 30)
    if kind < 0.4:
        return Allocation(load=load)
    if kind < 0.6:
        return Allocation(numbers.choice(names), numbers.randint(1, 4), cost=cost, load=load)
    parts = tuple(
        Allocation(numbers.choice(names), numbers.randint(1, 3), cost=cost / 2, role=role)
        for role in ROLES
    )
    several = sum(part.replicas for part in parts)
    return Allocation(parts[1].accelerator, several, cost=cost, load=load, roles=parts)
