"""The plant against the sizing, and against the formula of a fluid queue."""

from dataclasses import replace

import numpy as np
import pytest

from inferno_optimizer.optimize import optimize
from inferno_optimizer.replay.fleet import build_fleet
from inferno_optimizer.replay.plant import LeadTime, Plant
from tests.unit.optimizer.replay.fleets import BATCH, OUTPUT, fleet, load, plant, system

SMALL_RATE = BATCH / (OUTPUT * (20.0 + 0.4 * BATCH) / 1000.0)
"""Departures of a full batch on the small card [requests/s]."""


@pytest.mark.parametrize("share", [0.1, 0.4, 0.7, 0.85, 0.95])
def test_a_constant_load_has_the_latencies_of_the_sizing(share: float) -> None:
    rate = share * SMALL_RATE
    wanted = system(rate=rate * 60)
    server = wanted.servers[0]
    pinned = replace(server, keep_accelerator=True, min_replicas=1)
    solution = optimize(replace(wanted, servers=(pinned,)))
    sized = solution.allocations["s0"]
    of = fleet()
    served = None
    constant = plant(of, sized.replicas)

    for _ in range(60):
        constant.begin_step()
        served = constant.serve(load(rate))

    assert served is not None
    assert served.itl_ms[0] == pytest.approx(sized.itl_ms, rel=0.01)
    assert served.wait_ms[0] == pytest.approx(sized.wait_ms, rel=0.03, abs=0.5)


def test_a_step_of_load_under_a_lead_time_leaves_the_backlog_of_the_fluid_formula() -> None:
    rate, step_s, lead_s = 3 * SMALL_RATE, 10.0, 300.0
    stepped = plant(fleet(), 1, step_s=step_s, lead_s=lead_s)
    contents = []

    stepped.carry_out(stepped.fleet.at_home(np.array([5]), np.array([1])))
    for _ in range(round(lead_s / step_s)):
        contents.append(stepped.requests[0])
        stepped.serve(load(rate))
        stepped.begin_step()
    backlog = stepped.requests[0]

    assert backlog - contents[15] == pytest.approx((rate - SMALL_RATE) * 150.0, rel=1e-3)
    assert backlog == pytest.approx((rate - SMALL_RATE) * lead_s, rel=0.1)
    assert stepped.ready[0, 1] == 5

    stepped.serve(load(rate))

    assert backlog - stepped.requests[0] == pytest.approx((5 * SMALL_RATE - rate) * step_s)


def test_requests_that_meet_no_replica_wait() -> None:
    empty = plant(fleet(), 0)

    served = empty.serve(load(2.0))

    assert served.waiting[0] == pytest.approx(120.0)
    assert served.delay_within[0] == 0


def test_replicas_serve_after_their_lead_time_and_count_at_once() -> None:
    growing = plant(fleet(), 1, step_s=60.0, lead_s=120.0)
    ready = []

    growing.carry_out(growing.fleet.at_home(np.array([4]), np.array([1])))
    for _ in range(3):
        ready.append((int(growing.ready.sum()), int(growing.present.sum())))
        growing.begin_step()

    assert ready == [(1, 4), (1, 4), (4, 4)]


def test_no_more_replicas_start_than_there_are_cards_for() -> None:
    crowded = plant(fleet(3, cards=7), 2)

    crowded.carry_out(crowded.fleet.at_home(np.array([5, 5, 5]), np.array([1, 1, 1])))

    assert crowded.present[:, 1].tolist() == [3, 2, 2]


def test_a_server_keeps_what_it_has_until_its_replicas_elsewhere_are_ready() -> None:
    moving = plant(fleet(), 2)
    wanted = moving.fleet.at_home(np.array([1]), np.array([0]))
    states = []

    for _ in range(4):
        moving.carry_out(wanted)
        states.append(moving.present[0].tolist())
        moving.begin_step()

    assert states == [[1, 2], [1, 2], [1, 0], [1, 0]]


def test_a_server_that_finds_no_card_elsewhere_gives_up_one_at_a_time_but_not_the_last() -> None:
    of, _ = build_fleet(replace(system(), capacity={"B": 0, "S": 5}))
    stuck = plant(of, 3)
    states = []

    for _ in range(4):
        stuck.begin_step()
        stuck.carry_out(of.at_home(np.array([2]), np.array([0])))
        states.append(stuck.present[0].tolist())

    assert states == [[0, 2], [0, 1], [0, 1], [0, 1]]


@pytest.mark.parametrize(("replicas", "left"), [(0.5, 1), (1.5, 2), (2.5, 3)])
def test_a_server_that_finds_no_card_elsewhere_keeps_what_carries_its_load(
    replicas: float, left: int
) -> None:
    of, _ = build_fleet(replace(system(), capacity={"B": 0, "S": 5}))
    stuck = plant(of, 3)

    for _ in range(4):
        stuck.serve(load(replicas * SMALL_RATE))
        stuck.carry_out(of.at_home(np.array([2]), np.array([0])))

    assert stuck.present[0].tolist() == [0, left]


def test_two_servers_swap_full_pools_and_both_serve_all_the_time() -> None:
    of, _ = build_fleet(replace(system(2), capacity={"B": 3, "S": 3}))
    both = plant(of, 0, lead_s=120.0)
    both.begin(np.array([[3, 0], [0, 3]]))
    ready = []

    for _ in range(12):
        both.begin_step()
        both.carry_out(np.array([[0, 3], [3, 0]]))
        ready.append(both.ready.sum(axis=1).min())

    assert both.ready.tolist() == [[0, 3], [3, 0]]
    assert min(ready) >= 1


def test_a_reduction_cancels_what_would_be_ready_last() -> None:
    home = np.array([1])
    eager = plant(fleet(), 1)
    eager.carry_out(eager.fleet.at_home(np.array([2]), home))
    eager.begin_step()
    eager.carry_out(eager.fleet.at_home(np.array([5]), home))

    eager.carry_out(eager.fleet.at_home(np.array([2]), home))
    eager.begin_step()

    assert eager.ready[0, 1] == 2
    assert eager.drained.sum() == 0


def test_lead_times_have_their_mean_and_spread() -> None:
    drawn = LeadTime(200.0, 0.3).draw(20_000, np.random.default_rng(1))

    assert drawn.mean() == pytest.approx(200.0, rel=0.01)
    assert drawn.std() == pytest.approx(60.0, rel=0.03)


def test_two_accelerators_share_the_load_as_they_are_able_to_serve() -> None:
    of = build_fleet(system())[0]
    both = Plant(of, 60.0, LeadTime(0.0), np.random.default_rng(0))
    both.begin(np.array([[1, 2]]))
    alone = plant(of, 1, place=0)

    for _ in range(30):
        mixed, half = both.serve(load(4.0)), alone.serve(load(2.0))

    assert mixed.running[0] == pytest.approx(3 * half.running[0], rel=1e-3)
