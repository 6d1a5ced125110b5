"""Robust lines against SciPy and closed forms, what lies above them, and changes of the engine."""

import numpy as np
import pytest
from scipy import optimize

from inferno_optimizer.calibration.confidence import GroupRequests, Line, Z, chords
from inferno_optimizer.calibration.drift import shifts
from inferno_optimizer.calibration.fit import interference_ms
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


# The parameters for sizing lie above what they are derived from


NONE = np.zeros((1, 2, 2))
UNCERTAIN = np.array([[[0.04, -0.001], [-0.001, 0.0001]]])


def line(intercept: float, slope: float, covariance: np.ndarray = NONE) -> Line:
    return Line(np.array([intercept]), np.array([slope]), covariance)


def requests(largest: float, inputs: float = 512.0, outputs: float = 200.0) -> GroupRequests:
    return GroupRequests(*(np.array([value]) for value in (largest, inputs, outputs, 1.0)))


def test_without_prefills_and_uncertainty_the_chord_is_the_line() -> None:
    found = chords(line(8, 0.1), line(0, 0), requests(64), 0.0)

    assert (found.alpha[0], found.beta[0]) == pytest.approx((8, 0.1))


@pytest.mark.parametrize("largest", [2.0, 16.0, 64.0, 256.0])
def test_no_latency_up_to_the_largest_batch_is_above_the_chord(largest: float) -> None:
    decode, prefill = line(8, 0.1, UNCERTAIN), line(20, 0.0008, UNCERTAIN * 1e-6)
    found = chords(decode, prefill, requests(largest), Z)
    batch = np.linspace(1, largest, 50)

    for n in batch:
        prefill_ms = prefill.upper(np.array([512 * (n + 1)]), Z)
        itl = decode.upper(np.array([n]), Z) + interference_ms(n, prefill_ms, np.array([200.0]))
        assert found.alpha[0] + found.beta[0] * n >= itl[0] - 1e-9
        first = prefill.upper(np.array([512 * n]), Z)[0]
        assert found.gamma[0] + found.delta[0] * 512 * n >= first - 1e-9


def test_parameters_for_sizing_are_never_negative() -> None:
    found = chords(line(1, 0.1), line(200, 0.01), requests(100, outputs=10.0), Z)

    assert found.alpha[0] == 0
    assert found.beta[0] * 100 == pytest.approx(11 + 99 * (200 + 0.01 * 512 * 101) / 9)


def test_uncertainty_widens_the_lines() -> None:
    certain, uncertain = (
        chords(line(8, 0.1, covariance), line(20, 0.0008), requests(64), Z)
        for covariance in (NONE, UNCERTAIN)
    )

    error = np.sqrt(0.04 - 2 * 64 * 0.001 + 64**2 * 0.0001)
    difference = (
        uncertain.alpha[0] + 64 * uncertain.beta[0] - (certain.alpha[0] + 64 * certain.beta[0])
    )

    assert difference == pytest.approx(Z * error)


# A change of the engine is noticed; outliers and a change long ago are not


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
