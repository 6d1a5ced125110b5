"""What a planner learns of its replicas, against the parameters that they really have."""

from dataclasses import replace

import numpy as np
import pytest

from inferno_optimizer.replay.fleet import ReplayFleet, build_fleet, slow_down
from inferno_optimizer.replay.planning import TYPED_ERROR, CalibratedFleet
from inferno_optimizer.replay.plant import LeadTime
from inferno_optimizer.replay.policies import POLICIES
from inferno_optimizer.replay.policy import Seen, Setting
from inferno_optimizer.replay.replay import Scenario, replay
from inferno_optimizer.sizing.queueing import FloatArray
from inferno_optimizer.system import DecodeParameters
from tests.unit.optimizer.replay.fleets import fleet, load, plant, system, trace

SLOWER = 1.5


def learned(rates: FloatArray, replicas: int = 3) -> CalibratedFleet:
    """What is believed after replicas on the small card were half slower than the Models say."""
    typed, true = fleet(), build_fleet(slow_down(system(), SLOWER))[0]
    found = CalibratedFleet(Setting(typed, 60.0, 120.0, typed.home, trace(rates.tolist())))
    really = plant(true, replicas)
    for step, rate in enumerate(rates.tolist(), start=1):
        served = really.serve(load(rate))
        found.add(Seen(60.0 * step, load(rate), served, really.present, really.ready))
    return found


def parameters(of: ReplayFleet) -> dict[str, tuple[float, float]]:
    found = {}
    for profile in of.system.profiles:
        assert isinstance(profile.parameters, DecodeParameters)
        found[profile.accelerator] = (profile.parameters.alpha, profile.parameters.beta)
    return found


def test_the_true_parameters_are_found_from_what_replicas_do() -> None:
    found = parameters(learned(np.linspace(1.0, 6.0, 120)).fleet)
    batch = np.array([4.0, 16.0, 30.0])
    alpha, beta = found["Small"]

    true = SLOWER * (20.0 + 0.4 * batch)
    assert alpha + beta * batch == pytest.approx(true, rel=0.05)


def test_what_nobody_measured_has_the_error_of_typed_times() -> None:
    found = parameters(learned(np.linspace(1.0, 6.0, 120)).fleet)

    assert found["Big"] == pytest.approx((10.0 * (1 + TYPED_ERROR), 0.2 * (1 + TYPED_ERROR)))


def test_a_refused_calibration_changes_nothing() -> None:
    constant = learned(np.full(120, 3.0))  # one batch: many lines fit

    assert parameters(constant.fleet)["Small"] == pytest.approx((24.0, 0.48))


def test_a_planner_that_calibrates_keeps_targets_where_the_models_are_wrong() -> None:
    typed, true = fleet(), build_fleet(slow_down(system(), SLOWER))[0]
    rates = 6.0 - 4.0 * np.cos(np.linspace(0, 8 * np.pi, 480))
    shown = Scenario(true, typed, trace(rates.tolist()), LeadTime(120.0))

    kept = {
        name: replay(shown, POLICIES[name], typed.home).attainment
        for name in ("inferno", "inferno-calibrated")
    }

    assert kept["inferno-calibrated"] > 0.97 > kept["inferno"]


def test_a_server_that_misses_a_target_gets_no_replica_less() -> None:
    of = fleet()
    decide = POLICIES["inferno"].make(Setting(of, 60.0, 60.0, of.home, trace([1.0])))
    there = plant(of, 6)
    calm = there.serve(load(1.0))
    late = replace(calm, delay_within=np.array([0.5]))

    wanted = [
        [int(decide(Seen(60.0 * step, load(1.0), served, there.present, there.ready)).max())
         for step in range(first, first + 10)]
        for first, served in ((1, late), (11, calm))
    ]  # fmt: skip

    assert set(wanted[0]) == {6}
    assert wanted[1][-1] < 6
