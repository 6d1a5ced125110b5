"""A change of the engine is noticed; outliers and a change long ago are not."""

import numpy as np
import pytest

from inferno_optimizer.calibration.drift import shifts
from inferno_optimizer.calibration.regression import Estimate


def noticed(residuals: np.ndarray, scale: float = 0.05) -> float:
    rows = residuals[None]
    empty = np.zeros((1, 2))
    estimate = Estimate(empty, empty, np.zeros((1, 2, 2)), rows, np.array([scale]), np.ones(1))
    return float(shifts(estimate, np.ones(rows.shape, dtype=bool))[0])


@pytest.fixture
def noise() -> np.ndarray:
    return np.random.default_rng(1).normal(0, 0.05, 240)


@pytest.mark.parametrize("change", [0.2, -0.2])
def test_a_change_is_noticed_with_its_size(noise: np.ndarray, change: float) -> None:
    noise[-15:] += change

    assert noticed(noise) == pytest.approx(change, abs=0.05)


def test_a_change_to_which_the_fit_has_adapted_is_over(noise: np.ndarray) -> None:
    noise[:60] -= 0.2

    assert noticed(noise) == 0


def test_noise_and_outliers_seldom_are_a_change() -> None:
    generator = np.random.default_rng(2)
    alarms = 0
    for _ in range(500):
        residuals = generator.normal(0, 0.05, 240)
        residuals[generator.random(240) < 0.05] += 1.0
        alarms += noticed(residuals) != 0

    assert alarms <= 5
