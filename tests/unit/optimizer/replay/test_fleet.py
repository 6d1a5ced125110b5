"""Replicas that perform otherwise than their parameters say."""

from dataclasses import asdict, replace

import numpy as np
import pytest

from inferno_optimizer.replay.fleet import perturb_profiles, slow_down
from inferno_optimizer.system import StepParameters, System
from tests.unit.optimizer.replay.fleets import system

STEPS = StepParameters(alpha=8.0, kappa=1e-4, delta=0.02, u=1e-4, ahead=1.0, budget=2048.0)


def with_steps() -> System:
    known = system(1)
    return replace(known, profiles=tuple(replace(p, parameters=STEPS) for p in known.profiles))


def test_what_is_slower_takes_longer_and_counts_as_much() -> None:
    (found, *_) = slow_down(with_steps(), 1.5).profiles

    expected = replace(STEPS, alpha=12.0, kappa=1.5e-4, delta=0.03, u=1.5e-4)
    assert asdict(found.parameters) == pytest.approx(asdict(expected))


def test_what_is_wrong_is_so_by_the_share_in_either_direction() -> None:
    ratios = [
        perturb_profiles(with_steps(), 0.2, np.random.default_rng(seed)).profiles[0].parameters
        for seed in range(30)
    ]
    alphas = {round(found.alpha / STEPS.alpha, 9) for found in ratios}

    assert alphas == {0.8, 1.2}
    assert {asdict(found)["budget"] for found in ratios} == {2048.0}
