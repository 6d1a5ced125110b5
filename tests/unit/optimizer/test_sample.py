"""The published small sample, with the answers that the original gave for it."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from inferno_optimizer.optimize import optimize
from inferno_optimizer.system import Allocation, Options, System
from inferno_optimizer.wire.codec import decode_system

SAMPLE = Path(__file__).parents[2] / "data" / "systems" / "small.json"
PREMIUM, FREE = "Premium-granite-13b", "Free-granite-13b"


def sample() -> System:
    system = decode_system(json.loads(SAMPLE.read_text()))
    return replace(system, options=Options(unlimited=True))


def premium_at(cost: float) -> System:
    """The sample with another current cost of the premium server."""
    system = sample()
    servers = (
        replace(s, current=replace(s.current, cost=cost)) if s.name == PREMIUM else s
        for s in system.servers
    )
    return replace(system, servers=tuple(servers))


def test_the_sample_is_the_published_one() -> None:
    current = {server.name: server.current for server in sample().servers}
    premium, free = current[PREMIUM], current[FREE]

    assert (premium.accelerator, premium.replicas, premium.cost) == ("A100", 4, 160)
    assert (free.accelerator, free.replicas, free.cost) == ("G2", 8, 200)
    assert (premium.load.arrival_rate, premium.load.tokens_per_request) == (40, 1024)
    assert (free.load.arrival_rate, free.load.tokens_per_request) == (80, 512)


def numbers(allocation: Allocation) -> tuple[str, int, float, int]:
    return (
        allocation.accelerator,
        allocation.replicas,
        allocation.cost,
        allocation.max_batch_size,
    )


def test_both_servers_are_moved_to_few_cheap_cards() -> None:
    plan = optimize(sample()).allocations

    assert numbers(plan[PREMIUM]) == ("G2", 2, 50, 19)
    assert numbers(plan[FREE]) == ("G2", 1, 25, 38)
    assert plan[PREMIUM].itl_ms == pytest.approx(19.79, abs=5e-3)
    assert plan[FREE].itl_ms == pytest.approx(22.78, abs=5e-3)


def test_a_high_current_cost_makes_moving_too_dear() -> None:
    premium = optimize(premium_at(1600)).allocations[PREMIUM]

    assert numbers(premium) == ("A100", 2, 80, 16)
    assert premium.itl_ms == pytest.approx(24.40, abs=5e-3)
    assert premium.wait_ms == pytest.approx(84.95, abs=5e-3)
