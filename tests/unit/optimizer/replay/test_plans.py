"""Plans of a replay are those of the optimizer, and what is remembered is what was computed."""

from dataclasses import replace

import numpy as np
import pytest

from inferno_optimizer.optimize import optimize
from inferno_optimizer.replay.fleet import ReplayFleet, ResultCache, build_fleet, set_loads
from inferno_optimizer.replay.planning import NONE, FleetPlans
from inferno_optimizer.replay.policies import build_allocation_matrix
from inferno_optimizer.sizing.queueing import FloatArray, IntArray
from inferno_optimizer.system import Allocation, Options, SaturationPolicy, Server
from inferno_optimizer.wire.codec import decode_system
from tests.generate import fleet

SERVERS, ACCELERATORS = 12, 9


def planned(
    of: ReplayFleet, rate: FloatArray, lengths: FloatArray, present: IntArray, goal: IntArray
) -> IntArray:
    """The plan of a call of `optimize`."""
    system = set_loads(of.system, rate, lengths)
    servers = [
        as_it_is(of, server, counts, row, goal[row])
        for row, (server, counts) in enumerate(zip(system.servers, present, strict=True))
    ]
    return build_allocation_matrix(
        of, optimize(replace(system, servers=tuple(servers))).allocations
    )


def as_it_is(of: ReplayFleet, server: Server, counts: IntArray, row: int, goal: int) -> Server:
    place = int(counts.argmax())
    current = Allocation(load=server.load)
    if counts[place]:
        cost = float(counts[place] * of.unit_cost[row, place])
        current = Allocation(
            of.accelerators[place], int(counts[place]), cost=cost, load=server.load
        )
    destination = of.accelerators[goal] if goal != NONE else ""
    return replace(
        server, current=current, destination=destination, min_replicas=max(server.min_replicas, 1)
    )


@pytest.mark.parametrize("policy", [SaturationPolicy.HOLD, SaturationPolicy.ROUND_ROBIN])
@pytest.mark.parametrize("demand", [0.5, 3.0])
def test_make_plans_a_replay_are_those_of_the_optimizer(
    policy: SaturationPolicy, demand: float
) -> None:
    options = Options(saturation_policy=policy)
    system = decode_system(fleet(SERVERS, ACCELERATORS, 3, demand=demand))
    of, _ = build_fleet(replace(system, options=options))
    plans, random = FleetPlans(of, options, 1), np.random.default_rng(7)
    present, goal = np.zeros(of.shape, dtype=np.int64), np.full(SERVERS, NONE)
    load = np.array([server.load.arrival_rate / 60.0 for server in of.servers])
    for _ in range(8):
        rate = load * random.uniform(0.2, 2.0, SERVERS)
        lengths = np.rint(random.uniform(64.0, 1024.0, (2, SERVERS)))

        found = plans.plan(rate, lengths, present, goal)

        assert found.tolist() == planned(of, rate, lengths, present, goal).tolist()
        present, goal = found, np.where(random.random(SERVERS) < 0.5, found.argmax(axis=1), NONE)


def test_replicas_are_enough_up_to_the_rate_from_which_a_plan_has_more() -> None:
    of, _ = build_fleet(decode_system(fleet(SERVERS, ACCELERATORS, 3, demand=0.5)))
    plans = FleetPlans(of, Options(unlimited=True), 1)
    lengths = np.tile([[100.0], [200.0]], SERVERS)
    nothing, goal = np.zeros(of.shape, dtype=np.int64), np.full(SERVERS, NONE)
    enough = plans.plan(np.full(SERVERS, 5.0), lengths, nothing, goal)

    highest = plans.sum_rates(lengths, enough)

    stays = enough.argmax(axis=1)
    less, more = (plans.plan(highest * share, lengths, enough, stays) for share in (0.999, 1.001))
    assert (highest >= 5.0).all()
    assert (less.sum(axis=1) == enough.sum(axis=1)).all()
    assert (more.sum(axis=1) > enough.sum(axis=1)).all()


def test_what_no_accelerator_serves_keeps_what_it_has() -> None:
    system = decode_system(fleet(SERVERS, ACCELERATORS, 3, demand=0.5))
    strict = [
        replace(c, targets={m: replace(t, itl_ms=1e-3) for m, t in c.targets.items()})
        for c in system.classes
    ]
    of, _ = build_fleet(replace(system, classes=tuple(strict)))
    present = of.at_home(np.full(SERVERS, 2))

    found = FleetPlans(of, Options(), 1).plan(
        np.ones(SERVERS), np.full((2, SERVERS), 100.0), present, np.full(SERVERS, NONE)
    )

    assert found.tolist() == present.tolist()


def test_only_new_results_are_computed() -> None:
    remembered, asked = ResultCache(2), list[list[int]]()

    def compute(places: IntArray) -> FloatArray:
        asked.append(places.tolist())
        return places[:, None] * np.ones(3)

    for keys in ([(1,), (2,)], [(2,), (3,)], [(1,)]):
        remembered.of(keys, compute)

    assert asked == [[0, 1], [1], [0]]  # the third key is one too many, so all are forgotten
