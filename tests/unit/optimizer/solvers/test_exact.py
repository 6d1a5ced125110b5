"""The exact solver: what it is asked for, and what it does when time or cards are short."""

import itertools
import random
from collections.abc import Callable
from dataclasses import replace

import pytest

from inferno_optimizer.optimize import optimize
from inferno_optimizer.solution import Reason, SolverStatus
from inferno_optimizer.system import (
    Accelerator,
    Allocation,
    Load,
    Options,
    SaturationPolicy,
    System,
)
from tests.unit.optimizer.enumeration import served
from tests.unit.optimizer.systems import Demand, accelerators, outcome, system_of

NOTHING = ("", 0)
MILP = Options(milp=True)
UNITS = (
    Accelerator("W", "w", 11.5),
    Accelerator("X", "x", 23),
    Accelerator("2xX", "x", 44, 2),
    Accelerator("Z", "z", 60.25),
)


def test_one_important_server_outweighs_any_number_of_others() -> None:
    demands = [
        Demand("important", {"X": 6}, priority=1, load=1),
        *(Demand(f"other{i}", {"X": 1}, priority=2, load=900) for i in range(6)),
    ]

    plan = outcome(system_of(demands, accelerators(X=10), {"X": 6}, MILP))

    assert plan.pop("important") == ("X", 6)
    assert set(plan.values()) == {NOTHING}


def test_served_load_counts_and_not_the_number_of_servers() -> None:
    demands = [
        Demand("one", {"X": 3}, load=300),
        *(Demand(f"small{i}", {"X": 1}, load=99) for i in range(3)),
    ]

    plan = outcome(system_of(demands, accelerators(X=10), {"X": 3}, MILP))

    assert plan["one"] == ("X", 3)


@pytest.mark.parametrize(
    ("tolerance", "served_first", "served_second"),
    [(None, 1000.0, 0.0), (0.0, 1000.0, 0.0), (0.01, 995.0, 900.0)],
)
def test_a_priority_gives_up_no_more_than_its_tolerance(
    tolerance: float | None, served_first: float, served_second: float
) -> None:
    demands = [
        Demand("large", {"X": 8}, load=995),
        Demand("small", {"X": 2}, load=5),
        Demand("second", {"X": 2}, priority=2, load=900),
    ]
    options = replace(MILP, priority_tolerance=tolerance)

    system = system_of(demands, accelerators(X=10), {"X": 10}, options)

    assert served(system, optimize(system)) == (served_first, served_second)


def test_cards_of_a_dearer_type_are_used_where_that_serves_more() -> None:
    demands = [Demand("a", {"X": 2, "Y": 1}), Demand("b", {"X": 2})]

    plan = outcome(system_of(demands, accelerators(X=1, Y=900), {"X": 3, "Y": 1}, MILP))

    assert plan == {"a": ("Y", 1), "b": ("X", 2)}


@pytest.mark.parametrize(("large", "small"), [(1e4, 0.005), (1e5, 0.05), (1e6, 0.5)])
def test_a_small_server_beside_a_large_one_is_served_while_there_is_room(
    large: float, small: float
) -> None:
    demands = [Demand("large", {"X": 1}, load=large), Demand("small", {"X": 1}, load=small)]

    plan = outcome(system_of(demands, accelerators(X=10), {"X": 5}, MILP))

    assert plan == {"large": ("X", 1), "small": ("X", 1)}


@pytest.mark.parametrize("load", [1e-3, 1e-6, 1e-9])
def test_a_server_with_next_to_no_load_is_served_while_there_is_room(load: float) -> None:
    plan = outcome(system_of([Demand("a", {"X": 1}, load=load)], UNITS, {"x": 5}, MILP))

    assert plan == {"a": ("X", 1)}


def test_idle_servers_are_allocated_with_and_without_a_floor() -> None:
    demands = [Demand("floor", {"X": 1}, min_replicas=2), Demand("none", {"X": 1})]
    system = system_of(demands, accelerators(X=10), {"X": 2}, MILP)
    idle = tuple(replace(s, current=Allocation(load=Load(0, 1))) for s in system.servers)

    assert outcome(replace(system, servers=idle)) == {"floor": ("X", 2), "none": ("X", 0)}


@pytest.mark.parametrize(
    ("policy", "shares"),
    [
        (SaturationPolicy.NONE, (0, 0)),
        (SaturationPolicy.PRIORITY_EXHAUSTIVE, (5, 0)),  # the most load: 5 of 6, not of 7
        (SaturationPolicy.PRIORITY_ROUND_ROBIN, (2, 3)),
        (SaturationPolicy.ROUND_ROBIN, (2, 3)),
    ],
)
def test_what_is_left_is_shared_out_as_the_policy_says(
    policy: SaturationPolicy, shares: tuple[int, int]
) -> None:
    demands = [Demand("a", {"X": 6}), Demand("b", {"X": 7})]
    options = replace(MILP, saturation_policy=policy)

    plan = outcome(system_of(demands, accelerators(X=10), {"X": 5}, options))

    assert (plan["a"][1], plan["b"][1]) == shares


def test_shares_of_what_is_left_do_not_widen_the_gap() -> None:
    demands = [Demand("whole", {"X": 4}), Demand("share", {"X": 7})]
    options = replace(MILP, saturation_policy=SaturationPolicy.ROUND_ROBIN)
    demands[0] = replace(demands[0], load=900)

    certificate = optimize(system_of(demands, accelerators(X=10), {"X": 5}, options)).certificate

    assert certificate.status is SolverStatus.OPTIMAL
    assert certificate.gap == pytest.approx(0, abs=1e-6)


def test_a_bound_is_never_above_what_it_bounds_from_below() -> None:
    # The share moves away from a dear accelerator: its value is negative.
    demands = [
        Demand("whole", {"X": 4}, load=900),
        Demand("share", {"X": 7}, current=Allocation("Y", 1, cost=500)),
    ]
    options = replace(MILP, saturation_policy=SaturationPolicy.ROUND_ROBIN)

    certificate = optimize(
        system_of(demands, accelerators(X=10, Y=1), {"X": 5}, options)
    ).certificate

    assert certificate.bound is not None
    assert certificate.bound <= certificate.objective + 1e-6


def crowded(options: Options) -> System:
    """So many servers that the best plan is not obvious, and far too few cards."""
    random_numbers = random.Random(3)  # noqa: S311 - a repeatable choice, not a secret
    demands = [
        Demand(
            f"s{place}",
            {name: random_numbers.randint(1, 9) for name in "WXYZ"},
            priority=random_numbers.randint(1, 3),
            load=random_numbers.randint(10, 900),
        )
        for place in range(60)
    ]
    units = accelerators(W=11, X=23, Y=31, Z=40)
    return system_of(demands, units, {"W": 25, "X": 31, "Y": 17, "Z": 19}, options)


def test_without_any_time_there_is_a_plan_and_the_status_says_so() -> None:
    solution = optimize(crowded(replace(MILP, time_limit=0.0)))

    assert solution.certificate.status is SolverStatus.TIME_LIMIT
    assert len(solution.allocations) > 10
    assert all(use.used <= use.available for use in solution.capacity)


@pytest.mark.parametrize("readings", [1, 3, 4, 5], ids=["while servers are sized", "3", "4", "5"])
def test_a_plan_cut_short_serves_no_less_than_the_greedy_one(readings: int) -> None:
    system = crowded(MILP)
    greedy = optimize(replace(system, options=Options()))

    solution = optimize(system, clock=clock_that_stops_after(readings))

    assert solution.certificate.status is SolverStatus.TIME_LIMIT
    bound = solution.certificate.bound
    assert bound is None or bound <= solution.certificate.objective
    assert all(use.used <= use.available for use in solution.capacity)
    assert served(system, solution) >= served(system, greedy)


@pytest.mark.parametrize("heterogeneous", [False, True])
@pytest.mark.parametrize(
    ("policy", "looks"), [(SaturationPolicy.NONE, 9), (SaturationPolicy.HOLD, 10)]
)
@pytest.mark.parametrize("sizing", [9.0, 11.0])
def test_where_sizing_takes_nearly_all_of_the_time_the_plan_is_greedy_and_nothing_is_searched(
    sizing: float, policy: SaturationPolicy, looks: int, *, heterogeneous: bool
) -> None:
    asked = Options(saturation_policy=policy)
    options = replace(asked, milp=True, heterogeneous=heterogeneous, time_limit=10.0)
    greedy = optimize(crowded(asked))
    readings = itertools.chain([0.0], itertools.repeat(sizing))
    read = []

    def clock() -> float:
        read.append(next(readings))
        return read[-1]

    solution = optimize(crowded(options), clock=clock)

    assert solution.allocations == greedy.allocations
    assert solution.certificate.status is SolverStatus.TIME_LIMIT
    assert solution.certificate.bound is None
    assert len(read) <= looks


def test_without_any_time_servers_stay_that_may() -> None:
    settled = optimize(crowded(MILP))
    system = crowded(replace(MILP, time_limit=0.0))
    servers = tuple(
        replace(server, current=settled.allocations.get(server.name, server.current))
        for server in system.servers
    )
    gone = replace(system, servers=servers, capacity={**system.capacity, "Z": 15})

    plan = optimize(gone)

    kept = [name for name, now in settled.allocations.items() if now.accelerator != "Z"]
    assert plan.certificate.status is SolverStatus.TIME_LIMIT
    assert [plan.allocations[name].placement for name in kept] == [
        settled.allocations[name].placement for name in kept
    ]


def test_decisions_have_time_in_proportion_to_what_sizing_took() -> None:
    """As on a machine that is busy from the beginning to the end."""
    readings = itertools.chain([0.0], (3.0 + 0.01 * n for n in itertools.count()))
    end = []

    def clock() -> float:
        end.append(next(readings))
        return end[-1]

    optimize(crowded(replace(MILP, time_limit=10.0)), clock=clock)

    assert end[-1] <= 10.0 - 3.0


def test_no_search_begins_that_leaves_no_time_to_fill_its_plan_up() -> None:
    """As where the greedy solver, which fills plans up, takes 4 of 10 seconds."""
    times = itertools.chain([0.0, 1.0, 1.0], itertools.repeat(5.0))
    system = crowded(replace(MILP, time_limit=10.0))
    greedy = optimize(replace(system, options=Options()))

    solution = optimize(system, clock=lambda: next(times))

    assert solution.certificate.status is SolverStatus.TIME_LIMIT
    assert solution.allocations == greedy.allocations


def clock_that_stops_after(readings: int) -> Callable[[], float]:
    """No time passes between that many readings; afterwards the limit is over."""
    ticks = itertools.chain([0.0] * readings, itertools.repeat(1000.0))
    return lambda: next(ticks)


def test_heterogeneous_matters_to_the_exact_solver_only() -> None:
    options = Options(heterogeneous=True)

    assert outcome(system_of([Demand("a", {"X": 1})], UNITS, {"x": 1}, options)) == {"a": ("X", 1)}


def test_no_server_at_all_is_a_plan_too() -> None:
    solution = optimize(System(options=MILP))

    assert (solution.decisions, solution.certificate.status) == ((), SolverStatus.OPTIMAL)


def test_servers_that_nothing_is_known_about_leave_an_empty_plan() -> None:
    system = system_of([Demand("a", {"X": 1})], UNITS, {"x": 1}, MILP)
    stranger = replace(system.servers[0], model="unheard of")

    solution = optimize(replace(system, servers=(stranger,)))

    assert [decision.reason for decision in solution.decisions] == [Reason.UNKNOWN_MODEL]
