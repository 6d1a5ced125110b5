"""Windows of an engine, and the lines fitted to them: against scipy and simulated engines."""

import csv
from dataclasses import replace
from math import inf, nan
from pathlib import Path

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
from inferno_optimizer.calibration.warm_up import warm_up_share
from inferno_optimizer.calibration.windows import (
    LIVE,
    NEWEST,
    PER_BIN,
    Rejection,
    Window,
    WindowTable,
    lagged,
    rejections,
    retained,
)
from inferno_optimizer.sizing.queueing import FloatArray

GOOD = Window(
    end=600.0,
    itl_ms=10.0,
    intervals=5000,
    batch=8.0,
    prefill_ms=30.0,
    prefills=60,
    input_tokens=512,
    output_tokens=200,
    kv_usage=0.4,
    batch_cov=0.3,
    age_s=900.0,
    served=400.0,
    shape="a",
)


def rejected(window: Window) -> Rejection | None:
    """Why a window is rejected beside a good, newer one."""
    table = WindowTable.of([[replace(GOOD, end=700.0), window]])
    number = int(rejections(table, LIVE)[0, 0])
    return None if number < 0 else list(Rejection)[number]


@pytest.mark.parametrize(
    ("window", "reason"),
    [
        (GOOD, None),
        (replace(GOOD, itl_ms=nan), Rejection.INVALID),
        (replace(GOOD, itl_ms=0.0), Rejection.INVALID),
        (replace(GOOD, prefill_ms=inf), Rejection.INVALID),
        (replace(GOOD, output_tokens=1.0), Rejection.INVALID),
        (replace(GOOD, shape="b"), Rejection.OTHER_SHAPE),
        (replace(GOOD, age_s=60.0), Rejection.COLD),
        (replace(GOOD, served=19.0), Rejection.COLD),
        (replace(GOOD, restarts=1.0), Rejection.RESTARTED),
        (replace(GOOD, preemptions=1.0), Rejection.PREEMPTED),
        (replace(GOOD, kv_usage=0.97), Rejection.CACHE_FULL),
        (replace(GOOD, kv_usage=nan), None),
        (replace(GOOD, batch_cov=0.9), Rejection.UNSTEADY),
        (replace(GOOD, batch_cov=nan), None),
        (replace(GOOD, batch=2.0, batch_cov=1.0), None),  # as random arrivals have it
        (replace(GOOD, intervals=499), Rejection.FEW_TOKENS),
        (replace(GOOD, prefills=9), Rejection.FEW_PREFILLS),
    ],
)
def test_a_window_is_rejected_for_its_reason(window: Window, reason: Rejection | None) -> None:
    assert rejected(window) == reason


def test_groups_may_have_different_lengths_and_any_order() -> None:
    late, early = replace(GOOD, end=900.0, batch=3.0), replace(GOOD, end=300.0, batch=5.0)

    table = WindowTable.of([[late, early], [], [GOOD]])

    assert table.present.tolist() == [[True, True], [False, False], [True, False]]
    assert table.batch[0].tolist() == [5.0, 3.0]
    assert np.isnan(table.batch[1]).all()


def test_the_newest_windows_are_remembered_and_some_at_each_batch() -> None:
    rare = [replace(GOOD, end=float(i), batch=64.0) for i in range(50)]
    usual = [replace(GOOD, end=100.0 + i, batch=8.0) for i in range(500)]

    kept = retained([*rare, *usual])

    assert kept == [*rare[-PER_BIN:], *usual[-NEWEST:]]


def test_a_quiet_night_does_not_displace_the_day() -> None:
    day = [replace(GOOD, end=float(i)) for i in range(100)]
    night = [replace(GOOD, end=100.0 + i, batch=nan, itl_ms=nan, prefills=0) for i in range(500)]

    assert retained([*day, *night]) == [*day, *night[-PER_BIN:]]


@pytest.mark.parametrize(
    ("service_s", "batch"),
    [
        (0.0, 11.0),  # all prefills were in this window
        (30.0, (5 * 6 + 10 * 11) / 15),  # half of the time, with half as many requests before
        (60.0, 6.0),
        (600.0, 6.0),
    ],
)
def test_prefills_of_requests_that_end_now_were_in_the_window_before(
    service_s: float, batch: float
) -> None:
    before = replace(GOOD, end=540.0, batch=6.0)
    now = replace(GOOD, batch=11.0, itl_ms=10.0, output_tokens=1 + 100 * service_s)

    assert lagged(now, before).prefill_batch == pytest.approx(batch)


def test_without_a_batch_of_their_own_prefills_have_that_of_the_decode_steps() -> None:
    known, unknown = replace(GOOD, prefill_batch=5.0), GOOD

    assert WindowTable.of([[known, unknown]]).batch_of_prefills().tolist() == [[5.0, GOOD.batch]]


@pytest.mark.parametrize(
    "now", [replace(GOOD, batch=nan), replace(GOOD, batch=inf), replace(GOOD, itl_ms=nan)]
)
def test_what_is_unknown_leaves_the_batch_of_prefills_unknown(now: Window) -> None:
    before = replace(GOOD, end=540.0)

    assert np.isnan(lagged(now, before).prefill_batch)


# Runs that begin slower than they go on


RECORDED = Path(__file__).parents[3] / "data/h100-qwen3-4b/captures.csv"


def recorded(clients: str) -> FloatArray:
    """Times between tokens in a run on a GPU with so many clients [ms]; each step makes theirs."""
    with RECORDED.open(encoding="utf-8") as file:
        rows = [row for row in csv.DictReader(file) if row["clients"] == clients]
    return np.repeat([float(row["step_ms"]) for row in rows], int(clients))


def share(gaps: FloatArray) -> float:
    """Of a run with these gaps, one after the other."""
    return warm_up_share(np.cumsum(gaps), gaps)


def test_graphs_that_a_gpu_engine_made_in_a_run_are_seen() -> None:
    """In the first 7 of 15.5 s; a run with 18 clients made two."""
    many = recorded("48")

    assert share(many) == pytest.approx(many.mean() / many[len(many) // 2 :].mean() - 1, abs=0.01)
    assert share(many) > 0.03
    assert share(recorded("18")) == 0.0


def gaps_of_mixed_steps(chance: np.random.Generator, number: int) -> FloatArray:
    """Decode steps, each tenth of which computes a prompt of random length."""
    prompts = (chance.random(number) < 0.1) * chance.uniform(10.0, 30.0, number)
    return 10.0 + prompts + chance.normal(0.0, 0.3, number)


@pytest.mark.parametrize("number", [1000, 3000])
def test_chance_is_no_warm_up(number: int) -> None:
    chance = np.random.default_rng(number)
    runs = 2000

    found = sum(share(gaps_of_mixed_steps(chance, number)) > 0 for _ in range(runs))

    assert found <= 0.02 * runs


@pytest.mark.parametrize("slow", [0.1, 0.25, 0.5])
def test_a_slow_beginning_is_what_it_adds(slow: float) -> None:
    chance = np.random.default_rng(1)
    gaps = gaps_of_mixed_steps(chance, 2000)
    gaps[: round(slow * len(gaps))] *= 1.5

    order = chance.permutation(len(gaps))
    found = warm_up_share(np.cumsum(gaps)[order], gaps[order])

    assert found == pytest.approx(0.5 * slow, rel=0.25)


def test_an_engine_that_becomes_slower_does_not_warm_up() -> None:
    assert share(np.linspace(10.0, 20.0, 2000)) == 0.0


@pytest.mark.parametrize("number", [0, 1, 999])
def test_few_tokens_tell_nothing(number: int) -> None:
    assert share(np.linspace(20.0, 10.0, number)) == 0.0


# Robust lines against SciPy and closed forms, what lies above them, and changes of the engine


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
