"""How often loads of the shipped traces stay within the bound, beside other ways to foretell."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from inferno_operator.cli.offline.traces import read_trace
from inferno_optimizer.forecast import MOST, QUANTILE, ConformalBound, first_ratio, growth_bound
from inferno_optimizer.sizing.queueing import FloatArray
from tests.tiers import sampled

ROOT = Path(__file__).parents[4]

STEP_S = 600.0
DAY = round(86400 / STEP_S)
KNOWN = 2 * DAY
"""Steps after which all ways know a day of their own errors."""

TRACES = {"first": "servegen-m-large", "second": "servegen-m-mid"}
AHEAD = {"10 min": 1, "30 min": 3}

Bound = Callable[[FloatArray, int], FloatArray]
"""From rates (steps, clients) and steps ahead to the bounds of the rates so many steps later."""


def conformal(rates: FloatArray, ahead: int) -> FloatArray:
    found = ConformalBound(rates.shape[1], ahead * STEP_S, STEP_S)
    bounds = np.empty_like(rates)
    for step, rate in enumerate(rates):
        found.add(rate)
        bounds[step] = rate * found.ratio(rate)
    return bounds


def day_before(rates: FloatArray, ahead: int) -> FloatArray:
    """The rate that there was a day before, times the quantile of how loads differed from it."""
    bounds = np.full_like(rates, np.nan)
    for step in range(KNOWN, len(rates) - ahead):
        # Both days in a row: so the pairs of the quantile are a day apart.
        growth = growth_bound(rates[step + 1 - KNOWN : step + 1], DAY, first_ratio(ahead * STEP_S))
        before = rates[step + ahead - DAY]
        bounds[step] = before * growth.at(before)
    return bounds


def season(rates: FloatArray, ahead: int) -> FloatArray:
    """The last value, grown as on the days before at this time, times the quantile of its errors.

    The growth is the median of all days that are known; 1 where nothing was known to grow.
    """
    foretold, bounds = np.full_like(rates, np.nan), np.full_like(rates, np.nan)
    for step in range(DAY, len(rates) - ahead):
        days = np.arange(step - DAY, -1, -DAY)
        before, after = rates[days], rates[days + ahead]
        growth = np.where(before > 0, after / np.where(before > 0, before, 1.0), 1.0)
        foretold[step] = rates[step] * np.minimum(np.median(growth, axis=0), MOST)
    errors = np.full_like(rates, np.nan)
    known = np.nan_to_num(foretold[:-ahead]) > 0
    errors[:-ahead][known] = rates[ahead:][known] / foretold[:-ahead][known]
    for step in range(KNOWN, len(rates) - ahead):
        day = np.minimum(errors[step + 1 - ahead - DAY : step + 1 - ahead], MOST)
        day[:, np.isnan(day).all(axis=0)] = first_ratio(ahead * STEP_S)
        bounds[step] = foretold[step] * np.nanquantile(day, QUANTILE, axis=0)
    return bounds


def judged(rates: FloatArray, way: Bound, ahead: int) -> tuple[float, float, float]:
    """The share of steps within the bound, the mean bound and what exceeds it, of the load."""
    bound, after = way(rates, ahead)[KNOWN:-ahead], rates[KNOWN + ahead :]
    exceeding = np.maximum(after - bound, 0.0)
    covered = float((after <= bound).mean())
    return covered, float(bound.sum() / after.sum()), float(exceeding.sum() / after.sum())


def loss(rates: FloatArray, way: Bound, ahead: int) -> float:
    """The quantile loss, of the load: what a bound is judged by that is to hold in 9 of 10 steps.

    Koenker and Bassett, Econometrica 46 (1978) 33-50.
    """
    over = rates[KNOWN + ahead :] - way(rates, ahead)[KNOWN:-ahead]
    lost = np.maximum(QUANTILE * over, (QUANTILE - 1.0) * over)
    return float(lost.sum() / rates[KNOWN + ahead :].sum())


def loads(trace: str) -> dict[str, FloatArray]:
    """The rates of the clients of a trace, and of all together."""
    rates = read_trace(str(ROOT / f"samples/traces/{trace}.csv")).rate
    return {"each client": rates, "all together": rates.sum(axis=1, keepdims=True)}


@pytest.mark.parametrize("ahead", AHEAD.values(), ids=AHEAD)
@pytest.mark.parametrize("trace", sampled(TRACES.values()), ids=TRACES)
def test_the_bound_covers_about_the_share_that_it_names(trace: str, ahead: int) -> None:
    for rates in loads(trace).values():
        covered, _, _ = judged(rates, conformal, ahead)

        assert abs(covered - QUANTILE) <= 0.03


@pytest.mark.parametrize("steps", [1, 3, 6], ids=["10 min", "30 min", "1 h"])
@pytest.mark.parametrize("trace", TRACES.values(), ids=TRACES)
def test_the_ratio_without_history_covers_the_same_share_of_the_clients_steps(
    trace: str, steps: int
) -> None:
    rates = loads(trace)["each client"]
    before, after = rates[:-steps], rates[steps:]

    within = (after <= before * first_ratio(steps * STEP_S))[before > 0]

    assert abs(within.mean() - QUANTILE) <= 0.03


@pytest.mark.parametrize("ahead", AHEAD.values(), ids=AHEAD)
@pytest.mark.parametrize("trace", sampled(TRACES.values()), ids=TRACES)
def test_the_day_before_covers_less_at_a_higher_bound(trace: str, ahead: int) -> None:
    for rates in loads(trace).values():
        covered, bound, _ = judged(rates, conformal, ahead)
        covered_by_day, bound_by_day, _ = judged(rates, day_before, ahead)

        assert covered_by_day < covered
        assert bound_by_day > bound


@pytest.mark.parametrize("ahead", AHEAD.values(), ids=AHEAD)
@pytest.mark.parametrize("trace", sampled(TRACES.values()), ids=TRACES)
def test_no_season_pays_on_these_traces(trace: str, ahead: int) -> None:
    for rates in loads(trace).values():
        assert loss(rates, conformal, ahead) < loss(rates, season, ahead)
        assert loss(rates, conformal, ahead) < loss(rates, day_before, ahead)


def test_a_season_would_pay_where_each_day_is_like_the_one_before() -> None:
    time = np.arange(5 * DAY)
    rates = (5.0 + 4.0 * np.sin(2 * np.pi * time / DAY))[:, None]

    assert loss(rates, season, 3) < loss(rates, conformal, 3) / 10
