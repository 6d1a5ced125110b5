"""How often loads of the shipped traces stay within the bound."""

from pathlib import Path

import numpy as np
import pytest

from inferno_operator.cli.offline.traces import read_trace
from inferno_optimizer.forecast import QUANTILE, ConformalBound, first_ratio
from inferno_optimizer.sizing.queueing import FloatArray
from tests.tiers import sampled

ROOT = Path(__file__).parents[4]

STEP_S = 600.0
DAY = round(86400 / STEP_S)
KNOWN = 2 * DAY
"""Steps after which a day of its own errors is known."""

TRACES = {"first": "servegen-m-large", "second": "servegen-m-mid"}
AHEAD = {"10 min": 1, "30 min": 3}


def loads(trace: str) -> dict[str, FloatArray]:
    """The rates of the clients of a trace, and of all together."""
    rates = read_trace(str(ROOT / f"samples/traces/{trace}.csv")).rate
    return {"each client": rates, "all together": rates.sum(axis=1, keepdims=True)}


@pytest.mark.parametrize("ahead", AHEAD.values(), ids=AHEAD)
@pytest.mark.parametrize("trace", sampled(TRACES.values()), ids=TRACES)
def test_the_bound_covers_about_the_share_that_it_names(trace: str, ahead: int) -> None:
    for rates in loads(trace).values():
        found = ConformalBound(rates.shape[1], ahead * STEP_S, STEP_S)
        bounds = np.empty_like(rates)
        for step, rate in enumerate(rates):
            found.add(rate)
            bounds[step] = rate * found.ratio(rate)

        covered = (rates[KNOWN + ahead :] <= bounds[KNOWN:-ahead]).mean()
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
