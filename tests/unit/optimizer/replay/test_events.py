"""Single requests against closed forms, and the fluid plant against single requests."""

import math
from collections.abc import Sequence

import numpy as np
import pytest

from inferno_optimizer.units import MS_PER_SECOND
from tests.unit.optimizer.replay.event_plant import EventPhase, EventPlant, departure_rates
from tests.unit.optimizer.replay.fleets import fleet, load, plant
from tests.unit.optimizer.replay.test_plant import SMALL_RATE
from tests.unit.optimizer.simulation import interval

RUNS = 10
WARM_UP_S = 300.0


def erlang_c(servers: int, offered: float) -> float:
    """The share of requests that wait [Erlang, 1917]."""
    terms = [offered**n / math.factorial(n) for n in range(servers + 1)]
    last = terms[-1] * servers / (servers - offered)
    return last / (sum(terms[:-1]) + last)


@pytest.mark.parametrize(("servers", "load_of_each"), [(1, 0.5), (2, 0.8), (8, 0.7)])
def test_single_requests_reproduce_the_closed_form_of_mmc(
    servers: int, load_of_each: float
) -> None:
    rate = load_of_each * servers
    delayed = erlang_c(servers, rate)
    means, shares = [], []
    for seed in range(RUNS):
        alone = EventPlant([float(n) for n in range(servers + 1)], np.random.default_rng(seed))
        _, seen = alone.run([EventPhase(WARM_UP_S, rate, 1), EventPhase(900.0, rate, 1)])
        means.append(float(seen.waits_s.mean()))
        shares.append(float((seen.waits_s > 0).mean()))

    assert delayed in interval(shares)
    assert delayed / (servers - rate) in interval(means)


def watched(share: float, replicas: int) -> tuple[list[float], list[float], list[float]]:
    """Mean and P90 of the wait [ms], and requests in service, of independent runs."""
    of, means, percentiles, running = fleet(), [], [], []
    each = share * SMALL_RATE
    rates = departure_rates(of, 0, 1, load(1.0).lengths, each)
    for seed in range(RUNS):
        events = EventPlant(rates, np.random.default_rng(seed))
        phases = [EventPhase(s, each * replicas, replicas) for s in (WARM_UP_S, 900.0)]
        _, seen = events.run(phases)
        means.append(MS_PER_SECOND * float(seen.waits_s.mean()))
        percentiles.append(MS_PER_SECOND * float(np.quantile(seen.waits_s, 0.9)))
        running.append(seen.running)
    return means, percentiles, running


@pytest.mark.parametrize(("share", "replicas"), [(0.6, 2), (0.85, 2), (0.92, 1)])
def test_both_plants_agree_on_a_constant_load(share: float, replicas: int) -> None:
    rate = share * SMALL_RATE * replicas
    means, percentiles, running = watched(share, replicas)
    constant = plant(fleet(), replicas)
    for _ in range(60):
        served = constant.serve(load(rate))

    assert served.wait_ms[0] in interval(means)
    assert served.wait_p90_ms[0] in interval(percentiles)
    assert served.running[0] in interval(running)


def backlogs(rates: Sequence[float], counts: Sequence[int], step_s: float) -> list[list[float]]:
    """Requests that wait at the end of each step, in independent runs."""
    departures = departure_rates(fleet(), 0, 1, load(1.0).lengths, SMALL_RATE)
    found = []
    for seed in range(RUNS):
        events = EventPlant(departures, np.random.default_rng(seed))
        phases = (EventPhase(step_s, *one) for one in zip(rates, counts, strict=True))
        found.append([float(seen.waiting) for seen in events.run(phases)])
    return found


def test_both_plants_agree_on_a_shortage_until_it_is_worked_off() -> None:
    step_s, rates, counts = 30.0, [2.0] * 4 + [8.0] * 12, [1] * 10 + [4] * 6
    stepped, fluid = plant(fleet(), 1, step_s=step_s), []
    for rate, count in zip(rates, counts, strict=True):
        stepped.ready = stepped.fleet.at_home(np.array([count]), np.array([1]))
        fluid.append(float(stepped.serve(load(rate)).waiting[0]))

    for step, seen in list(enumerate(zip(*backlogs(rates, counts, step_s), strict=True)))[4:13]:
        assert fluid[step] in interval(seen)
