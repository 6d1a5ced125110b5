"""Robust regression against SciPy, least squares and closed forms."""

import numpy as np
import pytest
from scipy import optimize

from inferno_optimizer.calibration.regression import (
    HUBER,
    Estimate,
    Prior,
    Rows,
    condition_numbers,
    robust_fit,
    weighted_median,
)

X = np.linspace(1.0, 40.0, 60)
NOTHING = Prior(np.zeros((1, 2)), np.zeros((1, 2)))


def fitted(y: np.ndarray, prior: Prior = NOTHING, weights: np.ndarray | None = None) -> Estimate:
    """One group on the points X."""
    design = np.stack([np.ones_like(X), X], axis=1)[None]
    weights = np.ones_like(X) if weights is None else weights
    return robust_fit(Rows(design, y[None], np.zeros((1, len(X))), weights[None]), prior)


def test_the_estimate_is_that_of_scipy_with_the_same_loss() -> None:
    noise = np.random.default_rng(1).normal(0, 0.05, X.shape)
    y = (8 + 0.1 * X) * (1 + noise)
    y[::15] *= 3
    estimate = fitted(y)

    def residuals(theta: np.ndarray) -> np.ndarray:
        level = estimate.coefficients[0] @ [np.ones_like(X), X]
        return np.asarray((y - theta[0] - theta[1] * X) / level / (HUBER * estimate.scale[0]))

    other = optimize.least_squares(residuals, [5.0, 1.0], loss="huber")

    assert estimate.coefficients[0] == pytest.approx(other.x, rel=1e-3)


def test_a_slope_below_zero_becomes_zero_and_the_rest_is_fitted_again() -> None:
    estimate = fitted(10 - 0.01 * X)

    assert estimate.free[0] == pytest.approx([10, -0.01])
    assert estimate.coefficients[0, 1] == 0
    assert estimate.coefficients[0, 0] == pytest.approx(10 - 0.01 * X.mean(), rel=0.01)


def test_what_the_rows_do_not_tell_stays_as_believed() -> None:
    design = np.array([[[1.0, 20.0]] * 50])
    rows = Rows(design, np.full((1, 50), 12.0), np.zeros((1, 50)), np.ones((1, 50)))
    prior = Prior(np.array([[8.0, 0.1]]), 1 / (0.5 * np.array([[8.0, 0.1]])) ** 2)

    alpha, beta = robust_fit(rows, prior).coefficients[0]

    assert alpha + 20 * beta == pytest.approx(12, rel=1e-3)
    moved = np.array([alpha - 8, beta - 0.1]) / np.array([8.0, 0.1]) ** 2
    assert moved[0] / moved[1] == pytest.approx(1 / 20, rel=1e-3)  # along the rows' direction


def test_standard_errors_are_those_of_repeated_experiments() -> None:
    generator = np.random.default_rng(3)
    noise = generator.normal(0, 0.05, (400, len(X)))
    design = np.broadcast_to(np.stack([np.ones_like(X), X], axis=1), (400, len(X), 2))
    rows = Rows(design, (8 + 0.1 * X) * (1 + noise), np.zeros_like(noise), np.ones_like(noise))
    nothing = Prior(np.zeros((400, 2)), np.zeros((400, 2)))

    estimate = robust_fit(rows, nothing)

    spread = estimate.coefficients.std(axis=0)
    assert estimate.errors.mean(axis=0) == pytest.approx(spread, rel=0.15)


def test_rows_without_weight_are_not_looked_at() -> None:
    y = 8 + 0.1 * X
    y[::2] = np.nan

    estimate = fitted(y, weights=np.tile([0.0, 1.0], len(X) // 2))

    assert estimate.coefficients[0] == pytest.approx([8, 0.1])


def test_a_group_without_rows_has_the_prior() -> None:
    prior = Prior(np.array([[8.0, 0.1]]), np.array([[1.0, 1.0]]))

    estimate = fitted(np.full(len(X), np.nan), prior, np.zeros(len(X)))

    assert estimate.coefficients[0] == pytest.approx([8, 0.1])
    assert np.isinf(estimate.condition[0])


@pytest.mark.parametrize("n", [(1.0, 2.0), (1.0, 40.0), (19.0, 21.0)])
def test_condition_numbers_are_those_of_numpy(n: tuple[float, float]) -> None:
    design = np.array([[1.0, n[0]], [1.0, n[1]]])

    expected = np.linalg.cond(design / np.linalg.norm(design, axis=0))

    assert condition_numbers(design[None])[0] == pytest.approx(expected)


def test_a_weighted_median_is_that_of_repeated_values() -> None:
    values, weights = np.array([[5.0, 1.0, 3.0, 9.0]]), np.array([[1.0, 3.0, 2.0, 1.0]])

    repeated = np.repeat(values, weights.astype(int)[0])

    assert weighted_median(values, weights)[0] == np.median(repeated)
