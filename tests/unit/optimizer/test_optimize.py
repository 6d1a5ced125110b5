"""A System in, a Solution out: what holds besides the choice of candidates."""

import json
import os
import random
import subprocess
import sys
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

import pytest

from inferno_optimizer.optimize import optimize
from inferno_optimizer.solution import CapacityUse, Reason
from inferno_optimizer.system import (
    Accelerator,
    Allocation,
    DecodeParameters,
    Load,
    Options,
    PerformanceProfile,
    SaturationPolicy,
    Server,
    ServiceClass,
    System,
    Target,
)
from inferno_optimizer.wire.codec import decode_system, encode_solution, encode_system
from tests.generate import fleet
from tests.tiers import sampled
from tests.unit.optimizer.systems import Demand, accelerators, outcome, system_of

ROOT = Path(__file__).parents[3]
HOLD = Options(hold_undecided=True)
SOLVERS = [
    pytest.param(Options(unlimited=True), id="unlimited"),
    pytest.param(
        Options(saturation_policy=SaturationPolicy.ROUND_ROBIN, delayed_best_effort=True),
        id="greedy",
    ),
    pytest.param(Options(milp=True), id="milp"),
]

T = TypeVar("T")


RUNNING = Allocation("X", 2, cost=20)
FIRST = Server("a", "a", "a", replace(RUNNING, load=Load(60, 1)))
STRANGER = replace(FIRST, model="?")


def two_on_three_cards(first: Server) -> System:
    """Two servers that want two of three X each; the first one as it is given."""
    demands = [Demand("a", {"X": 2}), Demand("b", {"X": 2}, priority=2)]
    system = system_of(demands, accelerators(X=10), {"X": 3}, HOLD)
    return replace(system, servers=(first, *system.servers[1:]))


@pytest.mark.parametrize(
    "undecided",
    [STRANGER, replace(FIRST, service_class="?"), replace(FIRST, min_replicas=-1)],
)
def test_what_an_undecided_server_runs_on_is_not_handed_out(undecided: Server) -> None:
    solution = optimize(two_on_three_cards(undecided))

    assert [d.reason.decided for d in solution.decisions] == [False, True]
    assert solution.allocations == {}
    assert solution.capacity == (CapacityUse("X", used=0, available=3, held=2),)
    not_held = replace(two_on_three_cards(undecided), options=Options())
    assert outcome(not_held) == {"a": ("", 0), "b": ("X", 2)}
    many = replace(STRANGER, current=Allocation("X", 900))
    (use,) = optimize(two_on_three_cards(many)).capacity
    assert (use.used, use.held, use.usable) == (0, 900, 0)  # and no debt


def test_what_a_server_with_an_unattainable_target_runs_on_is_not_handed_out() -> None:
    system = two_on_three_cards(FIRST)
    strict = replace(system.classes[0], targets={"a": Target(itl_ms=1e-9)})

    solution = optimize(replace(system, classes=(strict, *system.classes[1:])))

    assert [d.reason for d in solution.decisions] == [Reason.UNATTAINABLE_SLO, Reason.NO_CAPACITY]
    assert solution.capacity == (CapacityUse("X", used=0, available=3, held=2),)


def test_held_cards_are_replicas_times_accelerators_times_multiplicity() -> None:
    held = Demand("a", {"4xX": 1}, accelerators_per_replica=2, current=Allocation("4xX", 3))
    system = system_of([held], [Accelerator("4xX", "X", 10, 4)], {"X": 30}, HOLD)
    unknown = replace(system.servers[0], service_class="?")

    solution = optimize(replace(system, servers=(unknown,)))

    assert solution.capacity == (CapacityUse("X", used=0, available=30, held=3 * 2 * 4),)


@pytest.mark.parametrize(
    "running",
    [Allocation(), Allocation("gone", 4), Allocation("X", 0), Allocation("X", -4)],
)
def test_nothing_is_held_where_nothing_known_runs(running: Allocation) -> None:
    solution = optimize(two_on_three_cards(replace(STRANGER, current=running)))

    assert solution.capacity == (CapacityUse("X", used=2, available=3),)


def test_a_server_without_room_gives_its_cards_to_more_important_ones() -> None:
    demands = [
        Demand("high", {"X": 3}, priority=1),
        Demand("low", {"X": 2}, priority=2, current=Allocation("X", 2, cost=20)),
    ]

    system = system_of(demands, accelerators(X=10), {"X": 3}, HOLD)

    assert outcome(system) == {"high": ("X", 3), "low": ("", 0)}


def faults(system: System) -> dict[str, System]:
    """The system with one object more, which is of no use."""
    lonely = Demand("bad", {"X": 1})
    server, service_class, profile = lonely.server, lonely.service_class, lonely.profiles[0]
    negative = replace(profile, parameters=DecodeParameters(-1, 0))
    nan = replace(profile, parameters=DecodeParameters(float("nan"), 0))
    return {
        "server of nothing known": _with(system, servers=[server]),
        "server without a rate": _with(
            system, servers=[replace(server, current=Allocation(load=Load(float("nan"), 1)))]
        ),
        "class with a negative target": _with(
            system,
            servers=[server],
            classes=[replace(service_class, targets={"bad": Target(itl_ms=-1)})],
            profiles=[profile],
        ),
        "negative performance": _with(
            system, servers=[server], classes=[service_class], profiles=[negative]
        ),
        "performance that is no number": _with(
            system, servers=[server], classes=[service_class], profiles=[nan]
        ),
        "accelerator with a negative cost": _with(
            system,
            servers=[server],
            classes=[service_class],
            profiles=[replace(profile, accelerator="Bad")],
            accelerators=[Accelerator("Bad", "Bad", -5)],
        ),
        "performance on an unknown accelerator": _with(
            system,
            servers=[server],
            classes=[service_class],
            profiles=[replace(profile, accelerator="Bad")],
        ),
        "absurd load": _with(
            system,
            servers=[replace(server, current=Allocation(load=Load(1e300, 1)))],
            classes=[service_class],
            profiles=[profile],
        ),
    }


def _with(
    system: System,
    servers: Iterable[Server] = (),
    classes: Iterable[ServiceClass] = (),
    profiles: Iterable[PerformanceProfile] = (),
    accelerators: Iterable[Accelerator] = (),
) -> System:
    return replace(
        system,
        servers=(*servers, *system.servers),
        classes=(*classes, *system.classes),
        profiles=(*profiles, *system.profiles),
        accelerators=(*accelerators, *system.accelerators),
    )


@pytest.mark.parametrize("solver", SOLVERS)
def test_one_bad_object_never_changes_what_others_get(solver: Options) -> None:
    demands = [Demand("a", {"X": 2}), Demand("b", {"X": 3, "Y": 1}), Demand("c", {"Y": 4})]
    healthy = system_of(demands, accelerators(X=10, Y=25), {"X": 4, "Y": 3}, solver)
    plan = outcome(healthy)

    for name, ill in faults(healthy).items():
        assert outcome(ill) == {"bad": ("", 0)} | plan, name


def test_the_system_is_left_as_it_was() -> None:
    system = large(0, Options())
    before = repr(system)

    optimize(system)

    assert repr(system) == before


def test_the_clock_that_is_given_measures_the_seconds() -> None:
    readings = iter(range(100))

    solution = optimize(System(), clock=lambda: 7.0 * next(readings))

    certificate = solution.certificate
    assert certificate.phases == (("sizing", 7.0), ("assignment", 7.0), ("decisions", 7.0))
    assert certificate.seconds == 21


def large(seed: int, options: Options, servers: int = 40) -> System:
    """A fleet that wants twice the cards that there are."""
    return replace(decode_system(fleet(servers, 8, seed=seed, demand=2)), options=options)


def answer(system: System) -> dict[str, Any]:
    """What goes over the wire, but for the time it took."""
    encoded = encode_solution(optimize(system))
    del encoded["certificate"]["seconds"], encoded["certificate"]["phases"]
    return encoded


def shuffled(system: System, seed: int) -> System:
    """The same objects in another order."""
    random_numbers = random.Random(seed)  # noqa: S311 - a repeatable choice, not a secret

    def another_order(values: Iterable[T]) -> tuple[T, ...]:
        values = list(values)
        return tuple(random_numbers.sample(values, len(values)))

    return replace(
        system,
        accelerators=another_order(system.accelerators),
        profiles=another_order(system.profiles),
        classes=another_order(system.classes),
        servers=another_order(system.servers),
        capacity=dict(another_order(system.capacity.items())),
    )


@pytest.mark.parametrize("solver", SOLVERS)
@pytest.mark.parametrize("seed", sampled(range(4)))
def test_the_order_of_the_objects_never_matters(seed: int, solver: Options) -> None:
    system = large(seed, solver)

    assert answer(shuffled(system, seed)) == answer(system)


@pytest.mark.parametrize("solver", SOLVERS)
def test_the_order_of_servers_that_tie_never_matters(solver: Options) -> None:
    demands = [Demand(f"s{place}", {"X": 2, "Y": 2}) for place in range(9)]
    system = system_of(demands, accelerators(X=10, Y=10), {"X": 5, "Y": 7}, solver)

    for seed in range(5):
        assert answer(shuffled(system, seed)) == answer(system)


PRINT_ANSWER = """
import json
from tests.unit.optimizer.test_optimize import SOLVERS, answer, large
print(json.dumps([answer(large(5, solver.values[0], 15)) for solver in SOLVERS]))
"""


def test_every_process_gives_the_same_answer() -> None:
    printed = [
        subprocess.run(
            [sys.executable, "-c", PRINT_ANSWER],
            env=os.environ | {"PYTHONHASHSEED": seed, "PYTHONPATH": str(ROOT)},
            cwd=ROOT,
            check=True,
            capture_output=True,
            text=True,
        ).stdout
        for seed in ("1", "2")
    ]

    assert printed[0] == printed[1]
    assert json.loads(printed[0])[0]["allocations"]


@pytest.mark.parametrize("milp", [False, True])
def test_a_server_that_has_just_moved_moves_on_only_where_it_is_not_served(milp: bool) -> None:
    """Another accelerator that saves much is no reason; cards that are missing are one."""
    options = Options(milp=milp, saturation_policy=SaturationPolicy.HOLD)
    current = Allocation(accelerator="A", replicas=2, cost=60.0)
    demand = Demand("chat", {"A": 4, "B": 1}, current=current)
    asked = system_of((demand,), accelerators(A=30.0, B=40.0), {"A": 4, "B": 4}, options)
    settled = replace(asked, servers=tuple(replace(s, destination="A") for s in asked.servers))

    assert outcome(asked) == {"chat": ("B", 1)}
    assert outcome(settled) == {"chat": ("A", 4)}
    assert outcome(replace(settled, capacity={"A": 3, "B": 4})) == {"chat": ("B", 1)}


@pytest.mark.parametrize(("least", "replicas"), [(0.0, 2), (90.0, 2), (299.0, 5), (301.0, 6)])
@pytest.mark.parametrize("options", SOLVERS)
def test_replicas_carry_the_least_rate_whatever_the_load_is(
    options: Options, least: float, replicas: int
) -> None:
    """A replica carries 60 requests/min; the latencies are those of the load."""
    asked = system_of([Demand("a", {"X": 2}, load=120.0)], accelerators(X=10), {"X": 9}, options)
    held = replace(asked, servers=tuple(replace(s, least_rate=least) for s in asked.servers))

    allocation = optimize(held).allocations["a"]

    assert (allocation.replicas, allocation.load.arrival_rate) == (replicas, 120.0)


def test_an_idle_server_has_no_least_rate() -> None:
    asked = system_of([Demand("a", {"X": 1}, min_replicas=2)], accelerators(X=10), {"X": 9})
    idle = Allocation(load=Load(0.0, 1))
    held = tuple(replace(s, current=idle, least_rate=300.0) for s in asked.servers)

    assert optimize(replace(asked, servers=held)).allocations["a"].replicas == 2


@pytest.mark.parametrize("solver", SOLVERS)
@pytest.mark.parametrize(("of_class", "own", "least"), [(0, 0, 1), (2, 0, 2), (2, 3, 3), (3, 2, 3)])
def test_the_least_replicas_of_a_class_are_those_of_each_of_its_servers(
    solver: Options, of_class: int, own: int, least: int
) -> None:
    demands = [Demand(name, {"A": 1}, min_replicas=own) for name in ("busy", "idle")]
    system = system_of(demands, accelerators(A=10), {"A": 9}, solver)
    idle = replace(system.servers[1], current=Allocation())
    system = replace(
        system,
        classes=tuple(replace(c, min_replicas=of_class) for c in system.classes),
        servers=(system.servers[0], idle),
    )

    found = outcome(system)

    assert found["busy"] == ("A", least)
    assert found["idle"][1] == max(of_class, own)
    assert outcome(system.with_least_replicas()) == found
    assert decode_system(encode_system(system)).classes == system.classes
