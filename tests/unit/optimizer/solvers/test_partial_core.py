"""The core of a problem, and dives in it that compare the columns of a server."""

from itertools import count
from random import Random

import numpy as np
import pytest

from inferno_optimizer.solvers.partial.core import Core
from inferno_optimizer.solvers.partial.core_dive import SMALLEST, CoreDive
from inferno_optimizer.solvers.partial.dive import Diver
from inferno_optimizer.solvers.partial.goals import Floor, Goal, GoalKind
from inferno_optimizer.solvers.partial.problem import ReplicaProblem
from inferno_optimizer.solvers.partial.relaxation import Relaxation, Vertex
from inferno_optimizer.solvers.partial.splits import split_cases, worth_of_cards
from inferno_optimizer.solvers.partial.warm_start import WarmStart
from inferno_optimizer.system import SaturationPolicy
from tests.unit.optimizer.solvers.partial_plans import problem_of, with_policy
from tests.unit.optimizer.systems import Demand, accelerators, system_of

EXHAUSTIVE = with_policy(SaturationPolicy.PRIORITY_EXHAUSTIVE)
SECOND = Goal(GoalKind.SERVED, 1)
SECONDS = 60.0


def market(seed: int, servers: int = 60, power: int = 3) -> ReplicaProblem:
    """Servers of very different sizes, the more important half of which just fits."""
    random = Random(seed)  # noqa: S311 - a repeatable choice, not a secret
    demands, cards = list[Demand](), dict.fromkeys("XYZ", 0)
    for place in range(servers):
        size = random.uniform(1, 5) ** power
        needs = {name: max(round(size * random.uniform(0.7, 1.4)), 1) for name in "XYZ"}
        priority = 1 + place % 2
        demands.append(Demand(f"s{place:02}", needs, priority=priority, load=10 * size))
        if priority == 1:
            cards[random.choice("XYZ")] += min(needs.values())
    return problem_of(system_of(demands, accelerators(X=10, Y=12, Z=15), cards, EXHAUSTIVE))


def first_level_kept(problem: ReplicaProblem, part: float) -> tuple[Floor, ...]:
    """The floor of a part of what the relaxation serves of the first level."""
    first = Goal(GoalKind.SERVED, 0)
    return (Floor(first, part * solved(problem, first, ()).bound, whole=False),)


def relaxation_of(problem: ReplicaProblem, goal: Goal, floors: tuple[Floor, ...]) -> Relaxation:
    nothing = np.zeros(len(problem.case), dtype=np.int64)
    return WarmStart(problem).relaxation(problem, goal, floors, nothing)


def solved(problem: ReplicaProblem, goal: Goal, floors: tuple[Floor, ...]) -> Vertex:
    vertex = relaxation_of(problem, goal, floors).solve(lambda: SECONDS)
    assert vertex is not None
    return vertex


def large_ones_split(problem: ReplicaProblem, vertex: Vertex) -> int:
    """How many servers are split whose cards are worth 3 % of the second level or more."""
    worth = worth_of_cards(problem, vertex)[split_cases(problem, vertex)]
    return int(np.count_nonzero(worth > SMALLEST * SECOND.most(problem)))


@pytest.mark.parametrize("seed", range(3))
def test_a_core_around_a_vertex_has_what_the_vertex_has(seed: int) -> None:
    problem = market(seed, servers=400)
    floors = first_level_kept(problem, 0.99)
    vertex = solved(problem, SECOND, floors)

    core = Core.of(problem, SECOND, vertex)

    outside = ~core.columns & (problem.level[problem.case] == 1)
    others = (vertex.amounts * problem.weight[problem.case])[outside].sum()
    of_core = solved(core.problem, SECOND, core.floors(floors))
    assert 250 <= len(core.problem.cases) < 270
    assert np.all(core.problem.capacity <= problem.capacity)
    assert of_core.missing == pytest.approx(0.0, abs=1e-9)
    assert of_core.bound + others == pytest.approx(vertex.bound, rel=1e-6)


def test_columns_of_a_core_are_told_as_columns_of_the_whole() -> None:
    problem = market(1)
    cases = np.zeros(len(problem.cases), dtype=np.bool_)
    cases[[3, 5]] = True
    core = Core.of_cases(problem, cases, np.zeros(len(problem.case), dtype=np.int64))

    whole = core.in_whole(core.problem.case == 1)

    assert np.array_equal(whole, problem.case == 5)


def test_after_a_dive_in_the_core_few_large_servers_are_split_and_the_floors_are_kept() -> None:
    split_before, split_after = 0, 0
    for seed in range(6):
        problem = market(seed)
        floors = first_level_kept(problem, 0.99)
        root = solved(problem, SECOND, floors)

        forbidden = CoreDive(problem, SECOND, floors, root, 0.0, lambda: SECONDS).decided(0.0)

        assert forbidden is not None
        vertex = relaxation_of(problem, SECOND, floors).solve(lambda: SECONDS, forbidden)
        assert vertex is not None
        assert vertex.missing == pytest.approx(0.0, abs=1e-6)
        assert vertex.bound <= root.bound * (1 + 1e-9)
        split_before += large_ones_split(problem, root)
        split_after += large_ones_split(problem, vertex)
    assert split_after < split_before / 2


def test_dives_that_compare_columns_serve_more_than_those_that_take_the_largest_part() -> None:
    compared, largest_part = 0.0, 0.0
    for seed in range(10):
        problem = market(seed)
        floors = first_level_kept(problem, 0.99)
        relaxation = relaxation_of(problem, SECOND, floors)
        root = relaxation.solve(lambda: SECONDS)
        assert root is not None
        nobody = np.zeros(len(problem.cases), dtype=np.bool_)
        diver = Diver(problem, relaxation, nobody, lambda: 0.0, lambda: SECONDS)

        plain = next(diver.dive(np.zeros(len(problem.case), dtype=np.bool_), 5), None)
        forbidden = CoreDive(problem, SECOND, floors, root, 0.0, lambda: SECONDS).decided(0.0)

        found = None if forbidden is None else relaxation.solve(lambda: SECONDS, forbidden)
        compared += found.bound / root.bound if found is not None else 0.0
        largest_part += plain.bound / root.bound if plain is not None else 0.0
    assert compared > largest_part + 0.5


def test_a_dive_does_not_split_one_server_after_the_other_of_those_with_the_same_choice() -> None:
    demands = [Demand(f"s{place:03}", {"X": 3, "Z": 3}, load=30) for place in range(150)]
    cards = {"X": 100, "Z": 350}  # for one card each more or less, so that one server is split
    problem = problem_of(system_of(demands, accelerators(X=10, Z=12), cards, EXHAUSTIVE))
    relaxation, solutions = relaxation_of(problem, Goal(GoalKind.SERVED, 0), ()), count()
    nobody = np.zeros(len(problem.cases), dtype=np.bool_)
    diver = Diver(problem, relaxation, nobody, lambda: 0.0, lambda: SECONDS + 0 * next(solutions))

    vertex = next(diver.dive(np.zeros(len(problem.case), dtype=np.bool_), 5), None)

    assert vertex is not None
    assert vertex.bound > 0.99 * 150 * 30
    assert next(solutions) < 60


def test_a_dive_counts_what_servers_outside_of_the_core_have() -> None:
    problem = market(1, servers=400, power=6)
    floors = first_level_kept(problem, 0.99)
    root = solved(problem, SECOND, floors)

    of_others = SECOND.worth(problem, Core.of(problem, SECOND, root).fixed)
    forbidden = CoreDive(problem, SECOND, floors, root, 0.0, lambda: SECONDS).decided(
        root.bound - of_others / 2
    )

    assert of_others > 0.005 * root.bound
    assert forbidden is not None


def test_a_dive_that_has_no_more_than_the_plan_ends() -> None:
    problem = market(0)
    floors = first_level_kept(problem, 0.99)
    root = solved(problem, SECOND, floors)
    dive = CoreDive(problem, SECOND, floors, root, 0.0, lambda: SECONDS)

    assert dive.decided(root.bound * (1 + 1e-6)) is None


@pytest.mark.parametrize("seed", [4, 28])
def test_a_solution_with_enough_is_found_though_its_columns_are_not_in_the_program(
    seed: int,
) -> None:
    """The best one has too little before they are added, which says nothing of the others."""
    problem = market(seed)
    floors = first_level_kept(problem, 0.97)
    relaxation = relaxation_of(problem, SECOND, floors)
    root = relaxation.solve(lambda: SECONDS)
    assert root is not None
    forbidden = np.zeros(len(problem.case), dtype=np.bool_)
    outside = np.flatnonzero(~relaxation.active)
    cases, first = np.unique(problem.case[outside], return_index=True)
    largest = np.argsort(-problem.weight[cases], kind="stable")[:4]
    forbidden[np.isin(problem.case, cases[largest])] = True
    forbidden[outside[first[largest]]] = False
    free = relaxation_of(problem, SECOND, floors).solve(lambda: SECONDS, forbidden)
    assert free is not None

    found = relaxation.solve(lambda: SECONDS, forbidden, least=0.9 * free.bound)

    assert free.missing == pytest.approx(0.0, abs=1e-9)
    assert found is not None
    assert found.bound == pytest.approx(free.bound, rel=1e-6)
