"""Fifty fleets with too few cards: what the exact solver makes better, and never worse."""

from dataclasses import replace

import pytest

from inferno_optimizer.optimize import optimize
from inferno_optimizer.system import Allocation, Options, System
from inferno_optimizer.wire.codec import decode_system
from tests.generate import fleet
from tests.tiers import sampled
from tests.unit.optimizer.enumeration import served

ROUNDING = 1e-9


def tight_fleet(seed: int) -> System:
    return decode_system(fleet(20, 8, seed, demand=2.0))


def solved_exactly(system: System) -> System:
    return replace(system, options=Options(milp=True))


@pytest.mark.parametrize("seed", sampled(range(50)))
def test_no_class_pays_for_another_and_the_same_service_is_no_worth_less(seed: int) -> None:
    system = tight_fleet(seed)

    greedy, exact = optimize(system), optimize(solved_exactly(system))

    more, less = served(system, exact), served(system, greedy)
    assert more >= less
    if more == less:
        worst = greedy.certificate.objective
        assert exact.certificate.objective <= worst + ROUNDING * max(1.0, abs(worst))


def with_nothing_running(system: System) -> System:
    """Nobody moves, so that value and cost are in proportion."""
    servers = (replace(s, current=Allocation(load=s.load)) for s in system.servers)
    return replace(system, servers=tuple(servers))


@pytest.mark.parametrize("seed", sampled(range(50, 65)))
def test_the_same_service_from_nothing_never_costs_more(seed: int) -> None:
    system = with_nothing_running(tight_fleet(seed))

    greedy, exact = optimize(system), optimize(solved_exactly(system))

    more, less = served(system, exact), served(system, greedy)
    assert more >= less
    if more == less:
        assert exact.cost <= greedy.cost * (1 + ROUNDING)
