"""Calibration of simulated engines with known parameters, and its refusals."""

import re
from dataclasses import replace

import pytest

from inferno_optimizer.calibration.calibrate import Calibration, Evidence, calibrate
from inferno_optimizer.calibration.confidence import Z
from inferno_optimizer.calibration.verdict import CalibrationReason, next_batch
from inferno_optimizer.calibration.windows import Rejection, Window
from inferno_optimizer.system import PrefillDecodeParameters
from tests.tiers import extended
from tests.unit.optimizer.calibration.engine import Engine, repeatable, windows

TRUTH = PrefillDecodeParameters(15.0, 0.4, 10.0, 0.001)
HIGHEST_RATE = 5.5
"""Arrivals at which the engine has 50 requests in its batch [requests/s]."""


def engine(seed: int, slower: float = 1.0, *, counts_at_end: bool = False) -> Engine:
    return Engine(
        slower * TRUTH.alpha,
        slower * TRUTH.beta,
        slower * TRUTH.gamma,
        slower * TRUTH.delta,
        inputs=(256, 768),
        outputs=(100, 300),
        counts_at_end=counts_at_end,
        chance=repeatable(seed),
    )


def rates(count: int, seed: int = 0, low: float = 0.5, high: float = HIGHEST_RATE) -> list[float]:
    chance = repeatable(seed)
    return [chance.uniform(low, high) for _ in range(count)]


def calibrated(seen: list[Window], largest: float = 0.0) -> Calibration:
    (result,) = calibrate([Evidence(seen, largest_batch=largest)], seen[-1].end)
    return result


@pytest.fixture(scope="module")
def measured() -> list[Window]:
    """What an engine did in an hour, with errors of 5 %."""
    return windows(engine(1), rates(60), noise=0.05)


@pytest.mark.parametrize("counts_at_end", [False, True])
@pytest.mark.parametrize("seed", [1, *extended(2, 3)])
def test_parameters_are_found_in_spite_of_noise_outliers_and_interference(
    seed: int, counts_at_end: bool
) -> None:
    measured_engine = engine(seed, counts_at_end=counts_at_end)
    seen = windows(measured_engine, rates(240, seed), noise=0.05, outliers=0.05, seed=seed)

    facts = calibrated(seen).facts

    assert facts.decode.intercept == pytest.approx(TRUTH.alpha, rel=0.05)
    assert facts.decode.slope == pytest.approx(TRUTH.beta, rel=0.05)
    assert facts.prefill.intercept == pytest.approx(TRUTH.gamma, rel=0.05)
    assert facts.prefill.slope == pytest.approx(TRUTH.delta, rel=0.05)
    twice = 2 * facts.batches[1]
    predicted = facts.decode.intercept + facts.decode.slope * twice
    assert predicted == pytest.approx(TRUTH.alpha + TRUTH.beta * twice, rel=0.1)


def test_what_sizing_takes_is_above_what_was_measured(measured: list[Window]) -> None:
    found = calibrated(measured)

    undisturbed = windows(engine(3), rates(40, seed=5))
    above = [found.upper.alpha + found.upper.beta * w.batch >= w.itl_ms for w in undisturbed]

    assert sum(above) >= 0.9 * len(above)


def test_the_upper_confidence_is_above_the_truth_in_nine_of_ten_cases() -> None:
    chance, repeated = repeatable(4), []
    for _ in range(300):
        batches = [chance.uniform(2, 30) for _ in range(60)]
        repeated.append(Evidence([_exact(n, chance.gauss(1, 0.05)) for n in batches]))

    results = calibrate(repeated, 0.0)

    for batch in (1, 15, 60):
        truth = TRUTH.alpha + TRUTH.beta * batch
        lines = [result.facts.decode for result in results]
        above = sum(line.at(batch) + Z * line.error(batch) >= truth for line in lines)
        assert above == pytest.approx(0.9 * len(lines), rel=0.05)


def _exact(batch: float, noise: float) -> Window:
    """A window as the parameters have it, with an error of the latency between tokens."""
    prefill, others = (TRUTH.gamma + TRUTH.delta * 512 * n for n in (batch, batch + 1))
    itl = TRUTH.alpha + TRUTH.beta * batch + (batch - 1) * others / 199
    return Window(0.0, noise * itl, 5000, batch, prefill, 50, 512, 200)


def test_the_expected_latency_has_the_waits_for_other_prefills(measured: list[Window]) -> None:
    found = calibrated(measured)
    (steady,) = windows(engine(4), [HIGHEST_RATE * 0.9])

    pure = found.facts.decode.intercept + found.facts.decode.slope * steady.batch
    expected = found.expected.alpha + found.expected.beta * steady.batch

    assert pure < 0.9 * steady.itl_ms
    assert expected == pytest.approx(steady.itl_ms, rel=0.1)


def test_too_few_windows_are_refused(measured: list[Window]) -> None:
    result = calibrated(measured[:29])

    assert result.reason is CalibrationReason.NOT_ENOUGH_DATA
    assert result.message == "29 of 30 windows, about a minute more at this traffic"


def test_the_time_that_is_left_follows_from_the_windows_of_the_last_minutes(
    measured: list[Window],
) -> None:
    usable = {1: 10, 2: 5, 3: 4}  # of the newest ten, when each n-th window can be used
    for each, count in usable.items():
        seen = [
            window if number % each == 0 else replace(window, restarts=1)
            for number, window in enumerate(measured[:20])
        ]

        message = calibrated(seen).message

        found = re.fullmatch(
            r"(\d+) of (\d+) windows, about (\d+) minutes more at this traffic", message
        )
        assert found is not None
        rows, needed, minutes = map(int, found.groups())
        assert rows == sum(window.restarts == 0 for window in seen)
        assert minutes == pytest.approx((needed - rows) * 10 / count, rel=0.25)


def test_windows_of_which_none_can_be_used_promise_no_time(measured: list[Window]) -> None:
    result = calibrated([replace(window, restarts=1) for window in measured[:20]])

    assert result.message == "0 of 12 windows, and none of the newest can be used: see rejected"


@pytest.mark.parametrize("seed", range(5))
def test_steady_windows_of_two_replicas_are_enough_after_six_minutes(seed: int) -> None:
    spread = [1.0, 4.5, 2.0, 5.0, 1.5, 3.5]  # the load of each minute
    pair = [windows(engine(seed + 10 * n), spread, noise=0.01, seed=seed + n) for n in (1, 2)]
    seen = sorted((window for one in pair for window in one), key=lambda window: window.end)

    early, result = calibrated(seen[:10]), calibrated(seen)

    assert early.message == "10 of 12 windows, about a minute more at this traffic"
    assert result.reason.usable
    for batch in (1, 16, 32):
        above = result.facts.decode.at(batch) + 2.5 * result.facts.decode.error(batch)
        assert above >= TRUTH.alpha + TRUTH.beta * batch


def test_windows_far_from_the_line_must_be_more(measured: list[Window]) -> None:
    result = calibrated(measured[:20])  # errors of 5 %

    assert result.reason is CalibrationReason.NOT_ENOUGH_DATA
    assert "20 of 30 windows" in result.message


def test_what_to_measure_with_is_realistic_where_no_window_can_be_used(
    measured: list[Window],
) -> None:
    rejected = [replace(window, restarts=1) for window in measured[:20]]
    cases = {
        "nothing at all": ([], 0.0, (16, 512, 128)),
        "rejected windows": (rejected, 0.0, (16, 512, 200)),
        "a model with a largest batch": (rejected, 8.0, (8, 512, 200)),
    }
    for seen, largest, expected in cases.values():
        (result,) = calibrate([Evidence(seen, largest_batch=largest)], 0.0)
        facts = result.facts

        found = (next_batch(facts), facts.input_tokens, facts.output_tokens)

        assert found == pytest.approx(expected, rel=0.1)


def test_no_window_at_all_is_refused_and_keeps_what_is_believed() -> None:
    (result,) = calibrate([Evidence([], TRUTH)], 0.0)

    assert result.reason is CalibrationReason.NOT_ENOUGH_DATA
    assert result.facts.decode.slope == pytest.approx(TRUTH.beta)


def test_nothing_to_calibrate_is_no_calibration() -> None:
    assert calibrate([], 0.0) == []


def test_a_steady_load_is_refused_with_the_batch_that_would_help() -> None:
    steady = windows(engine(1), [2.5] * 60, noise=0.02)

    result = calibrated(steady, largest=64)

    assert result.reason is CalibrationReason.NO_SPREAD
    assert "measure at a batch of 64" in result.message


def test_a_latency_that_falls_with_the_batch_is_refused(measured: list[Window]) -> None:
    falling = [replace(w, itl_ms=80 / (1 + w.batch) ** 0.2) for w in measured]

    assert calibrated(falling).reason is CalibrationReason.NEGATIVE_SLOPE


def test_an_engine_that_mixes_prefills_with_decode_steps_is_calibrated_with_the_waits() -> None:
    mixing = [
        Window(0.0, 7 + 0.027 * n, 5000, n, 15 + 0.17 * n, 50, 128, 128) for n in range(1, 65)
    ]

    result = calibrated(mixing)

    assert result.reason is CalibrationReason.CALIBRATED
    assert "waits for prefills are a part of alpha and beta" in result.message
    assert (result.expected.alpha, result.expected.beta) == pytest.approx((7, 0.027), rel=0.01)


def test_windows_that_lie_on_no_line_are_refused(measured: list[Window]) -> None:
    chance = repeatable(1)
    scattered = [replace(w, itl_ms=w.itl_ms * chance.choice((0.6, 1.4))) for w in measured]

    assert calibrated(scattered).reason is CalibrationReason.POOR_FIT


def test_batches_far_beyond_those_seen_widen_the_upper_confidence(measured: list[Window]) -> None:
    near, far = calibrated(measured, largest=50), calibrated(measured, largest=200)

    assert near.reason is CalibrationReason.CALIBRATED
    assert far.reason is CalibrationReason.EXTRAPOLATING
    assert far.reason.usable
    assert far.upper.beta > near.upper.beta


def test_two_pod_templates_are_refused_until_the_rollout_is_complete(
    measured: list[Window],
) -> None:
    last = measured[-1].end
    old = [replace(w, shape="old") for w in measured]
    new = [replace(w, shape="new", end=last + 60.0 * i) for i, w in enumerate(measured, 1)]

    during, after = calibrated([*old, *new[:2]]), calibrated([*old, *new])

    assert during.reason is CalibrationReason.MIXED
    assert during.rejected == {Rejection.OTHER_SHAPE: 60}
    assert after.reason is CalibrationReason.CALIBRATED


def test_two_workloads_have_pod_templates_of_their_own(measured: list[Window]) -> None:
    """Servers that share a model have Deployments of their own; only one is rolled out."""
    last = measured[-1].end
    both = [replace(w, workload=f"{i % 2}", shape=f"{i % 2}") for i, w in enumerate(measured)]
    new = [
        replace(w, workload="1", shape="new", end=last + 60.0 * i)
        for i, w in enumerate(measured[:2], 1)
    ]

    steady, during = calibrated(both), calibrated([*both, *new])

    assert steady.reason is CalibrationReason.CALIBRATED
    assert steady.rejected == calibrated(measured).rejected
    assert during.reason is CalibrationReason.MIXED
    assert during.rejected == {Rejection.OTHER_SHAPE: len(measured) // 2}


def test_a_slower_engine_is_noticed_within_30_windows(measured: list[Window]) -> None:
    slower = windows(engine(1, 1.2), rates(120, seed=3), noise=0.05, outliers=0.05, first=60)

    reasons = [calibrated([*measured, *slower[:n]]).reason for n in range(31)]

    assert reasons[0] is CalibrationReason.CALIBRATED
    assert CalibrationReason.SHIFTED in reasons


def test_after_a_change_the_parameters_are_those_of_the_present_engine(
    measured: list[Window],
) -> None:
    slower = windows(engine(1, 1.2), rates(120, seed=3), noise=0.05, first=60)

    result = calibrated([*measured, *slower])

    assert result.reason.usable
    assert result.facts.decode.intercept == pytest.approx(1.2 * TRUTH.alpha, rel=0.07)
    assert result.facts.decode.slope == pytest.approx(1.2 * TRUTH.beta, rel=0.1)


def test_outliers_are_no_change_of_the_engine(measured: list[Window]) -> None:
    disturbed = [
        replace(w, itl_ms=3 * w.itl_ms) if i % 15 == 0 else w for i, w in enumerate(measured)
    ]

    assert calibrated(disturbed).reason is CalibrationReason.CALIBRATED


def test_parameters_of_generation_3_are_told_where_they_fit_better(measured: list[Window]) -> None:
    alpha, beta, gamma = 15.0, 0.05, 0.001
    chance = repeatable(3)

    def budget(window: Window) -> Window:
        n, h, k = window.batch, chance.choice((128.0, 512.0, 2048.0)), chance.choice((40.0, 300.0))
        decode = (beta + gamma * (h + (k + 1) / 2)) * k
        prefill = (beta + gamma) * h
        share = (prefill + decode) / (1 + k)
        itl = (k * alpha + k * n * share + share - prefill) / k
        first = alpha + (n - 1) * share + prefill + itl
        return replace(window, itl_ms=itl, prefill_ms=first, input_tokens=h, output_tokens=k)

    found = calibrated([budget(window) for window in measured]).budget

    assert calibrated(measured).budget is None
    assert found is not None
    assert (found.alpha, found.beta, found.gamma) == pytest.approx((alpha, beta, gamma), rel=1e-3)


def test_groups_do_not_influence_each_other(measured: list[Window]) -> None:
    other = windows(engine(5), rates(40, seed=7), noise=0.05)
    now = measured[-1].end

    together = calibrate([Evidence(measured), Evidence([]), Evidence(other)], now)

    alone = calibrate([Evidence(measured)], now)[0]
    assert together[0].facts.decode.slope == pytest.approx(alone.facts.decode.slope, rel=1e-3)
    assert together[0].upper.alpha == pytest.approx(alone.upper.alpha, rel=1e-3)
