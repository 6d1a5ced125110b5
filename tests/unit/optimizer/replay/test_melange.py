"""Melange's mixes against all mixes that there are, and its policy in a replay."""

import itertools
import math
from collections.abc import Iterator

import numpy as np
import pytest

from inferno_optimizer.replay.fleet import SizedFleet
from inferno_optimizer.replay.plant import StepLoad
from inferno_optimizer.replay.policy import Seen, Setting
from inferno_optimizer.sizing.queueing import FloatArray
from samples.policies.melange import SLICES, Melange, buckets_of, cheapest_mix
from tests.tiers import sampled
from tests.unit.optimizer.replay.fleets import fleet, load, plant, trace


def placements(accelerators: int) -> Iterator[tuple[int, ...]]:
    """All ways to put the slices of a bucket on accelerators."""
    for some in itertools.product(range(SLICES + 1), repeat=accelerators):
        if sum(some) == SLICES:
            yield some


def least_cost(loads: FloatArray, cost: FloatArray) -> float:
    """The least cost over all ways to place all slices."""
    buckets, accelerators = loads.shape
    found = math.inf
    for places in itertools.product(placements(accelerators), repeat=buckets):
        used = np.array(places) * np.where(np.isfinite(loads), loads, 1e9) / SLICES
        found = min(found, float(cost @ np.ceil(used.sum(axis=0) - 1e-9)))
    return found


@pytest.mark.parametrize("seed", sampled(range(40)))
def test_no_mix_costs_less(seed: int) -> None:
    random = np.random.default_rng(seed)
    buckets, accelerators = (1, 4) if seed % 2 else (2, 3)
    loads = random.uniform(0.05, 3.0, (buckets, accelerators))
    loads[random.random(loads.shape) < 0.2] = np.inf
    loads[:, 0] = random.uniform(0.05, 3.0, buckets)  # one can serve all
    cost = random.integers(1, 20, accelerators).astype(np.float64)

    mix = cheapest_mix(loads, cost, 0)

    assert cost @ mix == pytest.approx(least_cost(loads, cost))


def test_a_mix_costs_less_than_each_accelerator_alone() -> None:
    loads, cost = np.array([[1.25, 5.0]]), np.array([10.0, 4.5])

    mix = cheapest_mix(loads, cost, 0)

    assert mix.tolist() == [1, 2]
    assert cost @ mix < min(10.0 * 2, 4.5 * 5)


def test_large_and_small_requests_go_where_they_are_cheap() -> None:
    loads = np.array([[4.0, 40.0], [10.0, 4.0]])  # large on the first, small on the second

    assert cheapest_mix(loads, np.array([2.0, 1.0]), 0).tolist() == [4, 4]


def test_an_idle_server_keeps_its_fewest_replicas_where_they_are_cheapest() -> None:
    assert cheapest_mix(np.zeros((1, 3)), np.array([3.0, 1.0, 2.0]), 2).tolist() == [0, 2, 0]


def test_what_nobody_can_serve_is_left_out() -> None:
    loads = np.array([[np.inf, np.inf], [0.5, 0.5]])

    assert cheapest_mix(loads, np.array([2.0, 1.0]), 1).tolist() == [0, 1]


def test_requests_of_a_size_are_a_bucket() -> None:
    rate = np.array([1.0, 3.0, 0.0, 4.0])
    lengths = np.array([[100.0, 110.0, 9e9, 2000.0], [200.0, 200.0, 9e9, 200.0]])

    share, mean = buckets_of(rate, lengths)

    assert share.tolist() == [0.5, 0.5]
    assert mean.tolist() == [[107.5, 2000.0], [200.0, 200.0]]


def test_without_requests_the_newest_size_is_all() -> None:
    share, mean = buckets_of(np.zeros(2), np.array([[10.0, 20.0], [30.0, 40.0]]))

    assert (share.tolist(), mean.tolist()) == ([1.0], [[20.0], [40.0]])


@pytest.mark.parametrize("rate", [0.5, 3.0, 11.0, 24.0])
def test_the_policy_takes_the_cheapest_replicas_that_carry_the_load(rate: float) -> None:
    of = fleet()
    able = SizedFleet(of).at(load(rate).lengths).max_rate[0]
    most = np.ceil(rate / able).astype(int)
    counts = itertools.product(range(most[0] + 1), range(most[1] + 1))
    # One bucket in slices: its parts may round to more than the sum of all rates needs.
    enough = (c for c in counts if np.floor(np.array(c) * able / rate * SLICES).sum() >= SLICES)
    least = min(float(np.dot(c, of.unit_cost[0])) for c in enough)
    setting = Setting(of, 60.0, 120.0, of.home, trace([rate]))

    wanted = Melange(setting)(seen(rate))

    assert of.cost(wanted).tolist() == [least]


def seen(rate: float) -> Seen:
    of = fleet()
    there = plant(of, 1)
    return Seen(60.0, load(rate), there.serve(load(rate)), there.present, there.ready)


def test_a_server_that_nothing_can_serve_keeps_what_it_has() -> None:
    of, shown = fleet(), seen(1.0)
    too_long = StepLoad(np.array([1.0]), np.array([[1e6], [1e6]]))
    decide = Melange(Setting(of, 60.0, 120.0, of.home, trace([1.0])))

    wanted = decide(Seen(60.0, too_long, shown.served, shown.present, shown.ready))

    assert (SizedFleet(of).at(too_long.lengths).max_rate == 0).all()
    assert wanted.tolist() == shown.present.tolist()
