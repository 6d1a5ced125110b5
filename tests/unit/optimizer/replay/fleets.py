"""Fleets and loads for the tests of replays."""

from collections.abc import Sequence

import numpy as np

from inferno_optimizer.replay.fleet import ReplayFleet, build_fleet
from inferno_optimizer.replay.plant import LeadTime, Plant, StepLoad
from inferno_optimizer.replay.trace import Trace
from inferno_optimizer.system import (
    Accelerator,
    Allocation,
    DecodeParameters,
    Load,
    Options,
    PerformanceProfile,
    SaturationPolicy,
    Server,
    ServiceClass,
    System,
    Target,
)

INPUT, OUTPUT = 0, 256
BATCH = 32


def system(servers: int = 1, *, cards: int = 100, rate: float = 60.0) -> System:
    """Servers of one model on a small card, or on one that costs and does twice as much."""
    load = Load(arrival_rate=rate, tokens_per_request=OUTPUT)
    return System(
        accelerators=(Accelerator("Big", "B", 40.0), Accelerator("Small", "S", 20.0)),
        profiles=(
            PerformanceProfile("m", "Big", DecodeParameters(10.0, 0.2), BATCH, OUTPUT),
            PerformanceProfile("m", "Small", DecodeParameters(20.0, 0.4), BATCH, OUTPUT),
        ),
        classes=(ServiceClass("Premium", 1, {"m": Target(itl_ms=80.0, wait_ms=1000.0)}),),
        servers=tuple(
            Server(f"s{i}", "Premium", "m", Allocation("Small", 1, 0, 20.0, load=load))
            for i in range(servers)
        ),
        capacity={"B": cards, "S": cards},
        options=Options(saturation_policy=SaturationPolicy.HOLD),
    )


def fleet(servers: int = 1, *, cards: int = 100) -> ReplayFleet:
    """The fleet of `system`."""
    found, refused = build_fleet(system(servers, cards=cards))
    assert not refused
    return found


def trace(rates: Sequence[float], step_s: float = 60.0, clients: Sequence[str] = ("s0",)) -> Trace:
    """The same rates [requests/s] for each client."""
    rate = np.repeat(np.array(rates, dtype=np.float64)[:, None], len(clients), axis=1)
    lengths = (np.full_like(rate, INPUT), np.full_like(rate, OUTPUT))
    return Trace(tuple(clients), step_s, rate, *lengths)


def plant(
    of: ReplayFleet, replicas: int, *, step_s: float = 60.0, lead_s: float = 120.0, place: int = 1
) -> Plant:
    """A plant where each server has replicas on one accelerator, the small one if none is named."""
    made = Plant(of, step_s, LeadTime(lead_s), np.random.default_rng(0))
    counts = np.full(len(of.servers), replicas)
    made.begin(of.at_home(counts, np.full(len(of.servers), place)))
    return made


def load(rate: float, servers: int = 1) -> StepLoad:
    """The same rate for each server [requests/s]."""
    lengths = np.repeat(np.array([[float(INPUT)], [float(OUTPUT)]]), servers, axis=1)
    return StepLoad(np.full(servers, rate), lengths)
