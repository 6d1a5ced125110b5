"""The live ledger counts what a replay of the same load counts."""

import numpy as np
import pytest

from inferno_optimizer.replay.ledger import (
    DRAIN_S,
    SIMULATED,
    LedgerEntry,
    SimulatedPolicies,
    counted,
    homes,
)
from inferno_optimizer.replay.plant import LeadTime
from inferno_optimizer.replay.policies import POLICIES
from inferno_optimizer.replay.replay import Scenario, loads_of, replay
from tests.unit.optimizer.replay.fleets import fleet, trace

STEP_S, LEAD_S = 60.0, 120.0
RATES = [2.0] * 20 + [8.0] * 20 + [1.0] * 30


def entry_of(rates: list[float]) -> LedgerEntry:
    """What is counted of one server at home on the small card."""
    servers = fleet()
    loads = list(loads_of(trace(rates)))
    simulated = SimulatedPolicies(servers, servers.home, loads[0], STEP_S, LEAD_S)
    entry = LedgerEntry()
    for load in loads:
        (step,) = simulated.step(load)
        own = LedgerEntry(paid=3.0, planned=2.0, kept=step.requests)
        entry = counted(entry, step, own)
    return entry


@pytest.mark.parametrize("name", SIMULATED)
def test_a_policy_costs_what_it_costs_in_a_replay(name: str) -> None:
    servers = fleet()
    scenario = Scenario(servers, servers, trace(RATES), LeadTime(LEAD_S), drain_s=DRAIN_S)
    account = replay(scenario, POLICIES[name], servers.home)

    entry = entry_of(RATES)

    assert entry.cost[name] == pytest.approx(account.total_cost)
    kept = np.where(account.history.within[:, 0] >= 0.95, np.array(RATES) * STEP_S, 0.0)
    assert entry.kept_by[name] == pytest.approx(kept.sum())


def test_sums_are_those_of_all_steps_and_the_peak_is_the_highest() -> None:
    entry = entry_of(RATES)

    assert entry.seconds == STEP_S * len(RATES)
    assert (entry.paid, entry.planned) == (3.0 * len(RATES), 2.0 * len(RATES))
    assert entry.requests == entry.kept == pytest.approx(STEP_S * sum(RATES))
    assert entry.home == "Small"
    assert entry.peak == entry_of([8.0]).peak > entry_of([2.0]).peak


def test_a_server_stays_at_the_home_that_is_kept_of_it() -> None:
    servers = fleet(2)

    found = homes(servers, {"s0": "Big", "s1": "gone"})

    assert [servers.accelerators[place] for place in found] == ["Big", "Small"]
