"""Replicas are cold for ten minutes, and never for as long as two clocks differ."""

from datetime import timedelta

import pytest

from inferno_operator.controllers.scaling.pods import (
    WARM_UP,
    count_cold,
    find_next_warm,
)
from inferno_operator.resources import Server
from tests.unit.operator.objects import NOW, observed, server

MINUTE = timedelta(minutes=1)
HOUR = timedelta(hours=1)


def caching() -> Server:
    """A Server of whose prompts a part is in caches."""
    load = {"arrivalRate": 60, "avgInTokens": 9, "avgOutTokens": 1, "cachedTokens": 5}
    current = {"accelerator": "A", "numReplicas": 1, "load": load}
    found = observed(server(spec={"currentAlloc": current})).resource
    assert isinstance(found, Server)
    return found


def test_a_replica_is_cold_until_it_has_been_ready_for_ten_minutes() -> None:
    ready = {"A": [NOW - 3 * MINUTE, NOW - WARM_UP]}

    assert count_cold(caching(), ready, NOW) == {"A": 1}
    assert find_next_warm(caching(), ready, NOW) == 7 * 60


@pytest.mark.parametrize("skew", [-HOUR, HOUR], ids=["an hour back", "an hour ahead"])
def test_a_clock_that_differs_by_an_hour_makes_no_replica_cold_for_an_hour(
    skew: timedelta,
) -> None:
    """Pods say when they became ready by the clock of their nodes."""
    ready = {"A": [NOW - 3 * MINUTE]}

    assert count_cold(caching(), ready, NOW + skew) == {"A": 0}
    assert find_next_warm(caching(), ready, NOW + skew) is None


def test_clocks_that_differ_by_seconds_make_no_difference() -> None:
    ready = {"A": [NOW + timedelta(seconds=2)]}

    assert count_cold(caching(), ready, NOW) == {"A": 1}
