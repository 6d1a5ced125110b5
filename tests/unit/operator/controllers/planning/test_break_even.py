"""How long an idle replica may cost before a cold start would have been the better choice."""

import math

import pytest

from inferno_operator.controllers.planning.conversions import find_break_even_s


@pytest.mark.parametrize(("priority", "seconds"), [(1, 2120.0), (100, 140.0)])
def test_the_examples_of_the_guide(priority: int, seconds: float) -> None:
    """A replica for 180 cents/hour that starts in two minutes."""
    assert find_break_even_s(120.0, 0.0, 180.0, priority) == pytest.approx(seconds)


def test_requests_that_come_meanwhile_wait_for_half_of_the_start_on_average() -> None:
    alone, several = (find_break_even_s(60.0, rate, 100.0, 1) for rate in (0.0, 0.1))

    assert several - 60 == pytest.approx((1 + 0.1 * 60 / 2) * (alone - 60))


def test_a_replica_that_costs_nothing_never_sleeps() -> None:
    assert find_break_even_s(60.0, 0.0, 0.0, 1) == math.inf
