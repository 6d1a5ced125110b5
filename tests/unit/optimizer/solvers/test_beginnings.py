"""The two beginnings of the greedy solver with `Hold`: all in line, or all where they run."""

from dataclasses import replace
from functools import partial
from random import Random

import numpy as np

from inferno_optimizer.decisions import size_servers
from inferno_optimizer.optimize import optimize
from inferno_optimizer.sizing.candidates import Candidates
from inferno_optimizer.sizing.cases import Catalogue
from inferno_optimizer.sizing.queueing import IntArray
from inferno_optimizer.solvers.assignment import NO_ROW
from inferno_optimizer.solvers.exchanges import exchange_rows, serve_more
from inferno_optimizer.solvers.greedy import begin, fill, fill_up, serve, solve_greedy
from inferno_optimizer.solvers.loads import is_better
from inferno_optimizer.solvers.params import SolveParams
from inferno_optimizer.solvers.running import rows_that_run
from inferno_optimizer.system import Allocation, Options, SaturationPolicy, System
from inferno_optimizer.wire.codec import decode_system
from tests.calls import calls
from tests.generate import fleet
from tests.unit.optimizer.solvers.partial_plans import random_fleet
from tests.unit.optimizer.systems import Demand, accelerators, outcome, system_of

HOLD = Options(saturation_policy=SaturationPolicy.HOLD)
FLEETS = 300
SERVERS = 300
"""Servers of the fleets in which operations are counted."""


def test_servers_stay_where_they_run_if_more_are_served_so() -> None:
    # In line, a saves 7 on Y and c 32 on X; then no one move gives b cards of Y.
    demands = [
        Demand("a", {"X": 2, "Y": 2}, current=Allocation("X", 2, cost=20)),
        Demand("b", {"Y": 2}, priority=2),
        Demand("c", {"X": 2, "Z": 2}, current=Allocation("Z", 2, cost=60)),
    ]
    units = accelerators(X=10, Y=5, Z=30)

    found = outcome(system_of(demands, units, {"X": 2, "Y": 2, "Z": 2}, HOLD))

    assert found == {"a": ("X", 2), "b": ("Y", 2), "c": ("Z", 2)}


def test_a_fleet_that_is_too_large_is_planned_from_the_line() -> None:
    params = SolveParams(second_plan=5)
    random = Random(3)  # noqa: S311 - a repeatable choice, not a secret
    for _ in range(FLEETS // 10):
        candidates, capacity = table(random_fleet(random, 6, running=True).system(HOLD))
        line = serve_more(candidates, capacity, fill(candidates, capacity, serve))

        nobody = candidates.stays & False
        plan = begin(candidates, capacity, nobody, rows_that_run(candidates), params)

        assert plan.rows.tolist() == line.rows.tolist()


def test_the_better_beginning_never_holds_or_serves_less_than_the_line() -> None:
    random = Random(3)  # noqa: S311 - a repeatable choice, not a secret
    more = 0
    for _ in range(FLEETS):
        candidates, capacity = table(random_fleet(random, 6, running=True).system(HOLD))
        line = serve_more(candidates, capacity, fill(candidates, capacity, serve))
        plan = begin(candidates, capacity, candidates.stays & False, rows_that_run(candidates))

        assert not is_better(candidates, line, plan, one_each=True)
        more += is_better(candidates, plan, line, one_each=True)
    assert more > 0


def test_a_second_beginning_and_returns_take_half_as_many_operations_more_at_most() -> None:
    before = after = 0
    for system in (*generated(0.5), *generated(2.0)):
        candidates, capacity = table(system)
        before += calls(partial(from_the_line, candidates, capacity))
        after += calls(partial(solve_greedy, candidates, capacity))

    assert after <= 1.5 * before


def from_the_line(candidates: Candidates, capacity: IntArray) -> None:
    """The plan of one beginning, of which nothing is taken back."""
    nowhere = np.full(len(candidates.cases), NO_ROW)
    plan = exchange_rows(candidates, capacity, fill(candidates, capacity, serve), nowhere)
    fill_up(candidates, capacity, plan)


def generated(demand: float) -> list[System]:
    """A fleet that runs anywhere; and as it is planned, with loads that are larger by a tenth."""
    first = decode_system(fleet(SERVERS, 12, 1, demand))
    first = replace(first, options=HOLD)
    decided = {d.server: d.allocation or Allocation() for d in optimize(first).decisions}
    servers = tuple(
        replace(
            server,
            current=replace(
                decided[server.name],
                load=replace(server.load, arrival_rate=1.1 * server.load.arrival_rate),
            ),
        )
        for server in first.servers
    )
    return [first, replace(first, servers=servers)]


def table(system: System) -> tuple[Candidates, IntArray]:
    """The candidates of a system, and its cards by type."""
    catalogue = Catalogue(system.by_name())
    candidates, _ = size_servers(catalogue, catalogue.system.servers, rates=False)
    return candidates, np.array([system.capacity[t] for t in candidates.types], dtype=np.int64)
