"""When a load counts as another one: only where chance does not explain the difference."""

from collections.abc import Callable, Iterator

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from inferno_optimizer.correction import MISSED, Correction
from inferno_optimizer.forecast import first_ratio, growth_bound, spread_over
from inferno_optimizer.noise import MOST_NOISE, find_moved, followed, noise, significant_rate
from tests.unit.optimizer.oracles import growth_of

LONG_S, SHORT_S = 300.0, 60.0
RATES = st.floats(0, 1000, allow_subnormal=False)


def column(*numbers: float) -> np.ndarray[tuple[int, ...], np.dtype[np.float64]]:
    """The numbers of one load."""
    return np.array(numbers, dtype=np.float64)[:, None]


def test_constant_arrivals_are_seldom_taken_for_more() -> None:
    random, rate = np.random.default_rng(1), 5.0
    short = random.poisson(rate * SHORT_S, 100_000) / SHORT_S
    rest = random.poisson(rate * (LONG_S - SHORT_S), 100_000) / (LONG_S - SHORT_S)
    long = (short * SHORT_S + rest * (LONG_S - SHORT_S)) / LONG_S

    seen = significant_rate(long, LONG_S, [(short, SHORT_S)])

    assert np.count_nonzero(seen != long) <= 1


@given(RATES, RATES)
def test_a_load_never_falls_below_the_newest_nor_rises_above_both(last: float, new: float) -> None:
    rate = float(followed(column(last), column(new), LONG_S)[0, 0])

    assert rate == last or new <= rate <= max(last, new)


@given(RATES, RATES)
def test_the_same_load_again_changes_nothing(last: float, new: float) -> None:
    once = followed(column(last), column(new), LONG_S)

    assert np.array_equal(followed(once, column(new), LONG_S), once)


@pytest.mark.parametrize(("last", "new", "changes"), [(500.0, 520.0, False), (500.0, 540.0, True)])
def test_lengths_count_from_a_twentieth_on(last: float, new: float, *, changes: bool) -> None:
    busy = 1000.0

    assert find_moved(column(busy, last), column(busy, new), LONG_S).tolist() == [changes]


def test_a_number_that_becomes_known_counts_and_one_that_stays_unknown_does_not() -> None:
    nothing = float("nan")

    assert find_moved(column(1, nothing), column(1, 500), LONG_S).tolist() == [True]
    assert find_moved(column(1, nothing), column(1, nothing), LONG_S).tolist() == [False]


def test_few_requests_are_noise_up_to_a_half() -> None:
    assert float(noise(0.01, LONG_S)) > MOST_NOISE
    assert not find_moved(column(0.02), column(0.011), LONG_S).any()
    assert find_moved(column(0.02), column(0.009), LONG_S).all()


# By how much loads grow, from those that are known, against a slow answer


@pytest.mark.parametrize("digits", [1, 17], ids=["with equal rates", "all different"])
@pytest.mark.parametrize("ahead", [1, 3])
def test_the_bound_is_the_quantile_of_the_known_ratios_from_rates_nearby(
    digits: int, ahead: int
) -> None:
    random = np.random.default_rng(ahead)
    rates = np.round(random.gamma(1.0, 1.0, (300, 6)), digits)
    rates[random.random(rates.shape) < 0.1] = np.nan
    columns = [[None if np.isnan(rate) else rate for rate in own] for own in rates.T.tolist()]
    bound = growth_bound(rates, ahead, 1.1)

    for rate in (0.0, 0.3, 0.9, 1.5, 4.0):
        expected = [growth_of(own, ahead, rate, 1.1) for own in columns]
        assert bound.at(np.full(6, rate)) == pytest.approx(expected)


def test_a_server_without_any_known_pair_has_the_first_ratio() -> None:
    rates = np.stack([np.zeros(200), np.full(200, np.nan), np.full(200, 3.0)], axis=1)

    assert growth_bound(rates, 3, 1.2).at(np.full(3, 5.0)) == pytest.approx([1.2, 1.2, 1.0])


def test_the_spread_without_history_is_that_of_which_one_in_ten_exceeds_the_first_ratio() -> None:
    random = np.random.default_rng(1).standard_normal(200_000)

    for horizon_s in (30.0, 300.0, 1200.0):
        ratios = np.exp(spread_over(horizon_s) * random)
        assert np.mean(ratios > first_ratio(horizon_s)) == pytest.approx(0.1, abs=0.003)


# The correction of the planned load, against replicas whose latencies follow a closed form


MINUTE_S = 60.0
WAIT_S = np.array([300.0])
STEP_MS, PER_REQUEST_MS, TARGET_MS = 10.0, 0.5, 25.0
PLANNED = 3
"""Replicas that the Model wants for the load, before a correction."""


def steps(
    ratio_of: Callable[[int], float], minutes: int, start: Correction | None = None
) -> Iterator[tuple[Correction, int]]:
    """Corrections minute by minute, with the replicas of a plan that follows each at once."""
    correction, replicas = start or Correction.none(1), PLANNED
    begin_s = correction.time_s
    for minute in range(1, minutes + 1):
        ratio, serving = np.array([ratio_of(replicas)]), np.array([replicas])
        enough, now_s = np.array([True]), begin_s + minute * MINUTE_S
        correction = correction.step(now_s, ratio, serving, enough, WAIT_S)
        replicas = int(np.ceil(PLANNED * correction.factor[0] - 1e-9))
        yield correction, replicas


def shared(slower: float) -> Callable[[int], float]:
    """Ratio of the ITL to its target; the Model has it at the target with the planned replicas."""
    requests = (TARGET_MS - STEP_MS) / PER_REQUEST_MS * PLANNED
    return lambda n: slower * (STEP_MS + PER_REQUEST_MS * requests / n) / TARGET_MS


def test_a_rise_waits_for_the_window_after_the_one_before() -> None:
    factors = [correction.factor[0] for correction, _ in steps(shared(1.5), 30)]
    rises = np.flatnonzero(np.diff([1.0, *factors]) > 0)

    assert factors[rises[0]] == pytest.approx(4 / 3)
    assert np.all(np.diff(rises) >= WAIT_S[0] / MINUTE_S)


def test_the_factor_falls_by_a_tenth_in_half_an_hour_of_room() -> None:
    *_, (risen, _) = steps(lambda n: 6.0 / n, 60)

    falls = [correction.factor[0] for correction, _ in steps(lambda _: 0.5, 36, risen)]

    assert falls[-1] == pytest.approx(0.9 * falls[5])
    assert falls[5] > 0.98 * risen.factor[0]


def test_a_night_with_one_replica_does_not_take_back_what_the_day_has_shown() -> None:
    risen, slower = Correction.none(1), 1.5
    factors = []
    for minute in range(1, 2 * 24 * 60):
        by_day = minute / 60 % 24 < 12
        load = PLANNED if by_day else 0.3  # in replicas that the Model wants
        replicas = int(np.ceil(load * risen.factor[0] - 1e-9))
        requests = (TARGET_MS - STEP_MS) / PER_REQUEST_MS * load / replicas
        ratio = slower * (STEP_MS + PER_REQUEST_MS * requests) / TARGET_MS
        enough = np.array([True])
        risen = risen.step(
            minute * MINUTE_S, np.array([ratio]), np.array([replicas]), enough, WAIT_S
        )
        factors.append(float(risen.factor[0]))

    assert factors[12 * 60 - 1] > 1.3
    assert factors[24 * 60 :] == [factors[12 * 60 - 1]] * len(factors[24 * 60 :])


def test_a_miss_that_something_else_explains_changes_nothing() -> None:
    correction = Correction.none(1)
    for minute in range(60):
        enough = np.array([minute % 5 > 0])
        now_s = minute * MINUTE_S
        correction = correction.step(now_s, np.array([2.0]), np.array([3]), enough, WAIT_S)

    assert correction.factor[0] == 1.0


@pytest.mark.parametrize("seed", range(5))
def test_chance_at_the_target_raises_nothing_in_a_day(seed: int) -> None:
    """Requests of a replica at its target: M/G/infinity, 5 requests/s of 6 s on average."""
    random, seconds = np.random.default_rng(seed), 24 * 3600
    begins = np.sort(random.uniform(0, seconds, random.poisson(5.0 * seconds)))
    ends = np.sort(begins + random.exponential(6.0, len(begins)))
    each = np.arange(0.5, seconds)
    running = np.searchsorted(begins, each) - np.searchsorted(ends, each)
    itl = STEP_MS + PER_REQUEST_MS * running.reshape(-1, 60).mean(axis=1)
    ratios = iter(itl / TARGET_MS)

    found = [correction.factor[0] for correction, _ in steps(lambda _: next(ratios), len(itl))]

    assert np.mean(itl / TARGET_MS > MISSED) > 0.01  # chance misses the target often
    assert max(found) == 1.0
