"""A policy that plans for more load where replicas miss targets that the Models say they keep."""

import numpy as np

from inferno_optimizer.replay.account import Account
from inferno_optimizer.replay.fleet import ReplayFleet, build_fleet, slow_down
from inferno_optimizer.replay.plant import LeadTime
from inferno_optimizer.replay.policies import POLICIES
from inferno_optimizer.replay.replay import Scenario, replay
from tests.unit.optimizer.replay.fleets import fleet, system, trace

RATE = 9.0


def account(policy: str, true: ReplayFleet, hours: int) -> Account:
    """A constant load, whose random arrivals the policy counts."""
    load, believed = trace([RATE] * (hours * 60)), fleet()
    shown = Scenario(true, believed, load, LeadTime(120.0), poisson=True)
    return replay(shown, POLICIES[policy], believed.home)


def test_replicas_that_are_slower_than_the_models_say_get_more() -> None:
    true = build_fleet(slow_down(system(), 1.5))[0]

    believes, corrects = (account(p, true, 4) for p in ("inferno-uncorrected", "inferno"))

    assert corrects.attainment > 0.9 > believes.attainment


def test_nothing_is_corrected_in_a_day_where_the_models_are_right() -> None:
    believes, corrects = (account(p, fleet(), 24) for p in ("inferno-uncorrected", "inferno"))

    assert np.array_equal(corrects.history.ready, believes.history.ready)
