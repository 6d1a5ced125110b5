"""The correction of the planned load, against replicas whose latencies follow a closed form."""

from collections.abc import Callable, Iterator

import numpy as np
import pytest

from inferno_optimizer.correction import MISSED, Correction

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
