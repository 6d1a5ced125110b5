"""The linear relaxation with partial service, and what a dive keeps of it."""

import numpy as np
import pytest

from inferno_optimizer.solvers.budget import Budget
from inferno_optimizer.solvers.diving import others_of_alike, others_of_larger
from inferno_optimizer.solvers.goals import Floor, Goal, GoalKind
from inferno_optimizer.solvers.problem import ReplicaProblem
from inferno_optimizer.solvers.relaxation import Vertex, WarmStart
from inferno_optimizer.system import Allocation, SaturationPolicy
from tests.unit.optimizer.solvers.partial_plans import problem_of, with_policy
from tests.unit.optimizer.systems import Demand, accelerators, system_of

EXHAUSTIVE = with_policy(SaturationPolicy.PRIORITY_EXHAUSTIVE)


def problem_with(demands: list[Demand], capacity: dict[str, int]) -> ReplicaProblem:
    return problem_of(system_of(demands, accelerators(X=10, Z=10), capacity, EXHAUSTIVE))


def solved(problem: ReplicaProblem, goal: Goal, floors: tuple[Floor, ...] = ()) -> Vertex:
    """The best vertex of a goal."""
    nothing = np.zeros(len(problem.case), dtype=np.int64)
    vertex = WarmStart(problem).relaxation(problem, goal, floors, nothing).solve(Budget.of(60.0))
    assert vertex is not None
    return vertex


def test_a_part_of_the_one_replica_that_suffices_holds_no_more_than_that_part_of_what_runs() -> (
    None
):
    third = Allocation("X", 1, cost=10)
    servers = [Demand(name, {"X": 3, "Z": 1}, load=90, current=third) for name in "abc"]

    vertex = solved(problem_with(servers, {"X": 0, "Z": 1}), Goal(GoalKind.HELD, 0))

    assert vertex.bound == pytest.approx(30.0)  # of one server; parts of all three would hold 90


def test_a_server_that_is_served_entirely_has_one_whole_share() -> None:
    problem = problem_with(
        [Demand("a", {"X": 8, "Z": 8}, load=80), Demand("b", {"X": 5}, load=50, priority=2)],
        {"X": 9, "Z": 6},
    )
    served = Floor(Goal(GoalKind.SERVED, 0), 80.0, whole=True)

    vertex = solved(problem, Goal(GoalKind.SERVED, 1), (served,))

    assert vertex.missing == pytest.approx(0.0)
    assert vertex.amounts[problem.case == 0].tolist() == pytest.approx([1.0, 0.0])  # Z has too few
    assert vertex.bound == pytest.approx(10.0)


def test_it_is_said_how_much_of_servers_cannot_be_served_entirely() -> None:
    problem = problem_with(
        [Demand("a", {"X": 8}, load=80), Demand("b", {"X": 8}, load=80)], {"X": 12, "Z": 0}
    )
    served = Floor(Goal(GoalKind.SERVED, 0), 160.0, whole=True)

    assert solved(problem, Goal(GoalKind.SERVED, 0), (served,)).missing == pytest.approx(0.5)


def test_servers_that_are_as_large_as_a_split_one_keep_their_columns() -> None:
    needs = {"a": 9, "b": 4, "c": 2}
    servers = [Demand(name, {"X": count, "Z": count}) for name, count in needs.items()]
    problem = problem_with(servers, {"X": 20, "Z": 20})
    amounts = np.array([1.0, 0.0, 0.5, 0.5, 1.0, 0.0])
    nothing, cards = np.zeros(len(amounts)), np.ones(2)
    vertex = Vertex(amounts, 0.0, nothing, np.zeros(3), cards, {}, 0.0, nothing)

    closed = others_of_larger(problem, vertex, case=1)

    assert closed.tolist() == [False, True, False, False, False, False]


def test_servers_that_can_have_as_much_of_the_same_cards_as_a_split_one_are_alike() -> None:
    needs = {"a": 4, "b": 4, "c": 4, "d": 2}
    servers = [Demand(name, {"X": count, "Z": count}) for name, count in needs.items()]
    problem = problem_with(servers, {"X": 20, "Z": 30})
    amounts = np.array([1.0, 0.0, 0.5, 0.5, 0.0, 1.0, 1.0, 0.0])
    nothing, cards = np.zeros(len(amounts)), np.ones(2)
    vertex = Vertex(amounts, 0.0, nothing, np.zeros(4), cards, {}, 0.0, nothing)

    closed = others_of_alike(problem, vertex, case=1)

    assert closed.tolist() == [False, True, False, False, True, False, False, False]
