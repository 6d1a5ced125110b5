"""Random systems with everything in them that makes servers differ."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from random import Random
from types import MappingProxyType

from inferno_optimizer.system import (
    Accelerator,
    Allocation,
    DecodeParameters,
    Generation,
    Load,
    Options,
    PerformanceParameters,
    PerformanceProfile,
    PrefillDecodeParameters,
    SaturationPolicy,
    Server,
    ServiceClass,
    System,
    Target,
    TokenBudgetParameters,
)

UNITS = (
    Accelerator("S", "small", 11.5),
    Accelerator("L", "large", 40.0),
    Accelerator("2xL", "large", 76.0, 2),
    Accelerator("3xS", "small", 33.0, 3),
)
"""Two types of cards, alone and in groups."""

MODELS = ("one", "two", "three")
PARAMETERS: Mapping[Generation, Sequence[PerformanceParameters]] = MappingProxyType(
    {
        Generation.DECODE: (
            DecodeParameters(20.58, 0.41),
            DecodeParameters(17.15, 0.34),
            DecodeParameters(6.5, 0.0),
        ),
        Generation.PREFILL_DECODE: (
            PrefillDecodeParameters(18.0, 0.3, 12.0, 0.004),
            PrefillDecodeParameters(7.0, 0.9, 25.0, 0.001),
        ),
        Generation.TOKEN_BUDGET: (
            TokenBudgetParameters(8.0, 0.03, 0.00002),
            TokenBudgetParameters(14.0, 0.1, 0.0001),
        ),
    }
)

GENERATIONS = tuple(PARAMETERS)
"""Those that plain oracles exist of."""

TARGETS = (
    Target(),
    Target(itl_ms=12.0),
    Target(itl_ms=22.0),
    Target(itl_ms=40.0, wait_ms=300.0),
    Target(ttft_ms=150.0),
    Target(itl_ms=30.0, ttft_ms=900.0),
    Target(tokens_per_second=40.0),
    Target(itl_ms=60.0, tokens_per_second=15.0),
)


@dataclass(frozen=True)
class Kind:
    """How large the systems are; the batches are those of the performance data."""

    servers: int
    batches: Sequence[int]
    tokens: Sequence[int] = (64, 128)


def random_system(random: Random, kind: Kind, options: Options) -> System:
    """A system of up to four accelerators and three priorities, mostly with too few cards."""
    units = UNITS[: random.randint(1, len(UNITS))]
    servers = tuple(
        _server(random, kind, place) for place in range(random.randint(1, kind.servers))
    )
    return System(
        accelerators=units,
        profiles=tuple(_profiles(random, kind, units)),
        classes=tuple(_class(random, priority) for priority in (1, 2, 3)),
        servers=servers,
        capacity={unit.type: random.randint(0, 4 * len(servers)) for unit in units},
        options=options,
    )


def random_options(random: Random, *, milp: bool = False, unlimited: bool = False) -> Options:
    """One solver, and any policy."""
    return Options(
        milp=milp,
        unlimited=unlimited,
        saturation_policy=random.choice(list(SaturationPolicy)),
        delayed_best_effort=random.random() < 0.5,
        hold_undecided=random.random() < 0.5,
    )


def _profiles(
    random: Random, kind: Kind, units: Sequence[Accelerator]
) -> Sequence[PerformanceProfile]:
    return [
        PerformanceProfile(
            model,
            unit.name,
            random.choice(PARAMETERS[random.choice(GENERATIONS)]),
            max_batch_size=random.choice(kind.batches),
            at_tokens=kind.tokens[0],
            accelerator_count=random.choice((1, 1, 2)),
        )
        for model in MODELS
        for unit in units
        if unit is units[0] or random.random() < 0.8
    ]


def _class(random: Random, priority: int) -> ServiceClass:
    targets = {model: random.choice(TARGETS) for model in MODELS}
    return ServiceClass(f"priority-{priority}", priority, targets)


def _server(random: Random, kind: Kind, place: int) -> Server:
    return Server(
        name=f"server-{place}",
        service_class=f"priority-{random.randint(1, 3)}",
        model=random.choice(MODELS),
        current=_current(random, _load(random, kind)),
        keep_accelerator=random.random() < 0.2,
        min_replicas=random.choice((0, 0, 0, 1, 3)),
        max_batch_size=random.choice((0, 0, 0, kind.batches[-1])),
        max_queue_size=random.choice((0, 10)),
    )


def _load(random: Random, kind: Kind) -> Load:
    """Mostly whole requests a minute, so that sums of them are exact."""
    rate = float(random.choice((0, *(random.randint(1, 900) for _ in range(6)))))
    tokens = random.choice(kind.tokens)
    inputs = random.choice((1, tokens // 2, 4 * tokens))
    return Load(rate, tokens, input_tokens=inputs, output_tokens=tokens)


def _current(random: Random, load: Load) -> Allocation:
    """Nothing, or some replicas at what they cost, now and then at what they do not."""
    if random.random() < 0.4:
        return Allocation(load=load)
    unit, replicas = random.choice(UNITS), random.randint(1, 5)
    cost = random.choice((unit.cost * replicas, unit.cost * replicas, 70.25))
    return Allocation(unit.name, replicas, cost=cost, load=load)
