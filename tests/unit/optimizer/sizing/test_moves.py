"""A server moves for what it saves on average over the loads to come, not for one moment."""

from collections.abc import Callable
from dataclasses import replace
from random import Random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from inferno_optimizer.optimize import optimize
from inferno_optimizer.sizing.cases import Case, Catalogue
from inferno_optimizer.sizing.moves import demands_to_come, outgrows
from inferno_optimizer.sizing.queueing import Averages, FloatArray
from inferno_optimizer.sizing.replicas import Replicas
from inferno_optimizer.sizing.table import build_candidates
from inferno_optimizer.system import Allocation, Options, SaturationPolicy, System
from inferno_optimizer.wire.codec import decode_system
from tests.generate import fleet, of_generation, with_different_lengths
from tests.unit.optimizer.random_systems import Kind, random_system
from tests.unit.optimizer.sizing.test_demands import busy_system
from tests.unit.optimizer.systems import Demand, accelerators, outcome, system_of

SOLVERS = [
    Options(),
    Options(milp=True),
    Options(milp=True, saturation_policy=SaturationPolicy.HOLD),
    Options(unlimited=True),
]
SPREAD = 0.2


def wandering(system: System, spread: float = SPREAD) -> System:
    """The system, with loads that wander."""
    return replace(system, servers=tuple(replace(s, load_spread=spread) for s in system.servers))


def just_two(options: Options = SOLVERS[0], running: int = 1, least: int = 0) -> System:
    """The load takes all of two replicas of A, or all of one of B."""
    current = Allocation("A", running, cost=10.0 * running)
    demand = Demand("chat", {"A": 2, "B": 1}, current=current, min_replicas=least)
    return system_of((demand,), accelerators(A=10.0, B=14.0), {"A": 9, "B": 9}, options)


def usual_system(random: Random) -> System:
    """Some servers, of which some run."""
    return random_system(random, Kind(servers=6, batches=(8, 32)), Options())


def running(system: System) -> System:
    """The system where servers run on the first accelerator if they do not run yet."""
    first = system.accelerators[0]
    servers = (
        replace(s, current=replace(s.current, accelerator=s.current.accelerator or first.name))
        for s in system.servers
    )
    return replace(system, servers=tuple(servers))


def cases_of(system: System) -> tuple[Catalogue, list[Case]]:
    """The catalogue of a system, and its servers that can be sized."""
    catalogue = Catalogue(system.by_name())
    found = map(catalogue.case, catalogue.system.servers)
    return catalogue, [case for case in found if isinstance(case, Case)]


@given(st.floats(1e-3, 1e6), st.floats(1e-3, 2.0))
def test_a_load_outgrows_a_move_above_the_largest_load_that_it_was_judged_by(
    moved_for: float, spread: float
) -> None:
    (case, *_) = cases_of(wandering(running(just_two()), spread))[1]
    judged = demands_to_come([case], np.array([0]), np.array([moved_for]))
    largest = float(judged.max())

    assert outgrows(largest * 1.0001, moved_for, spread)
    assert not outgrows(largest * 0.9999, moved_for, spread)
    assert not outgrows(largest * 2, 0.0, spread)  # it is not known
    assert not outgrows(largest * 2, moved_for, 0.0)  # the load is typed


@pytest.mark.parametrize("options", SOLVERS)
def test_a_saving_that_few_loads_have_moves_no_server(options: Options) -> None:
    """Two of A for 20, or one of B for 16; half of the loads take three of A, or two of B.

    On average A costs 25 and B 24: less is saved than a twentieth of 10 and 16.
    """
    dearer = replace(just_two(options), accelerators=accelerators(A=10.0, B=16.0))

    assert outcome(dearer) == {"chat": ("B", 1)}
    assert outcome(wandering(dearer)) == {"chat": ("A", 2)}


@pytest.mark.parametrize("options", SOLVERS)
def test_a_saving_that_most_loads_have_moves_a_server(options: Options) -> None:
    cheap = replace(just_two(options), accelerators=accelerators(A=10.0, B=8.0))

    assert outcome(wandering(cheap)) == {"chat": ("B", 1)}


@pytest.mark.parametrize("options", SOLVERS)
def test_a_server_whose_accelerator_has_no_cards_left_moves(options: Options) -> None:
    full = replace(wandering(just_two(options)), capacity={"A": 1, "B": 9})

    if not options.unlimited:
        assert outcome(full) == {"chat": ("B", 1)}


def test_what_passes_is_the_mean_over_random_loads() -> None:
    """Ten loads stand for all: the mean number of replicas is within a twentieth of one."""
    system = wandering(just_two(running=2))
    catalogue = Catalogue(system)
    case = catalogue.case(system.servers[0])
    assert isinstance(case, Case)
    still = replace(case, server=replace(case.server, load_spread=0.0))
    loads = np.exp(SPREAD * np.random.default_rng(1).standard_normal(100_000))
    on_a, on_b = (np.ceil(loads * needed * 0.999).mean() for needed in (2, 1))

    moves, constant = (build_candidates(catalogue, [c]).value[1] for c in (case, still))

    change_now, change_on_average = 14.0 - 20.0, 14.0 * on_b - 10.0 * on_a
    half_of_the_penalty = 0.05 * (20.0 + 14.0)
    expected = constant + change_on_average - change_now - half_of_the_penalty
    assert moves == pytest.approx(expected, abs=0.05 * 14.0)


def test_a_minimum_of_replicas_counts_at_each_load() -> None:
    """With four replicas of each at least, B saves what it saves at any load."""
    system = wandering(just_two(running=4, least=4))
    cheap = replace(system, accelerators=accelerators(A=10.0, B=8.0))

    (decision,) = optimize(cheap).decisions

    assert decision.allocation is not None
    assert decision.allocation.placement == "4 x B"


@pytest.mark.parametrize("options", SOLVERS)
def test_a_server_that_does_not_run_gets_the_cheapest(options: Options) -> None:
    nothing = replace(just_two(options).servers[0], current=just_two().servers[0].current)
    idle = replace(nothing, current=Allocation(load=nothing.load), load_spread=SPREAD)

    assert outcome(replace(just_two(options), servers=(idle,))) == {"chat": ("B", 1)}


@pytest.mark.parametrize("system_of_kind", [usual_system, busy_system])
def test_what_passes_is_known_whatever_rates_are_asked_for(
    system_of_kind: Callable[[Random], System],
) -> None:
    """How many replicas other loads take follows from the highest rates, not from lower ones."""
    random = Random(1)  # noqa: S311 - the same systems each run
    lower = 0
    for _ in range(20):
        catalogue, cases = cases_of(wandering(system_of_kind(random)))

        highest, some = (build_candidates(catalogue, cases, rates=r) for r in (True, False))

        np.testing.assert_array_equal(highest.value, some.value)
        lower += int(np.sum(some.sizing.max_rate < highest.sizing.max_rate))
    assert lower > 0


@pytest.mark.parametrize(("generation", "more"), [(1, 1.25), (2, 1.25), (3, 1.2), (4, 1.55)])
def test_loads_to_come_take_few_more_evaluations(
    generation: int, more: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Searched to the end, rates took 1.6 to 3.4 times as many as numbers of replicas alone."""
    evaluated: list[int] = []
    averages = Replicas.averages

    def counted(replicas: Replicas, rate: FloatArray) -> Averages:
        evaluated.append(len(rate))
        return averages(replicas, rate)

    monkeypatch.setattr(Replicas, "averages", counted)
    document = with_different_lengths(fleet(60, 20, 1, 1.0))
    still = running(decode_system(of_generation(document, generation)))

    def evaluations(system: System) -> int:
        evaluated.clear()
        build_candidates(*cases_of(system), rates=False)
        return sum(evaluated)

    assert evaluations(wandering(still)) <= more * evaluations(still)
