"""By how much loads grow, from those that are known, against a slow answer."""

import numpy as np
import pytest

from inferno_optimizer.forecast import first_ratio, growth_bound, spread_over
from tests.unit.optimizer.oracles import growth_of


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
