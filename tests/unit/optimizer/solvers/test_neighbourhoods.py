"""Servers of which a plan and a vertex of the relaxation have different replicas."""

import numpy as np

from inferno_optimizer.solvers.budget import Budget
from inferno_optimizer.solvers.goals import Goal, GoalKind
from inferno_optimizer.solvers.neighbourhoods import (
    Opening,
    open_around,
    open_between,
    solve_opening,
)
from inferno_optimizer.solvers.problem import ReplicaProblem
from inferno_optimizer.solvers.relaxation import Basis, Relaxation, Start, Vertex
from inferno_optimizer.solvers.rounding import fill_columns
from inferno_optimizer.system import SaturationPolicy
from tests.unit.optimizer.solvers.partial_plans import problem_of, with_policy
from tests.unit.optimizer.systems import Demand, accelerators, system_of

HOLD = with_policy(SaturationPolicy.HOLD)
SERVED = Goal(GoalKind.SERVED, 0)


def vertex_of(problem: ReplicaProblem) -> Vertex:
    start = Start(np.zeros(len(problem.case), dtype=np.bool_), Basis.empty(problem))
    vertex = Relaxation(problem, SERVED, (), start).solve(Budget.of(10.0))
    assert vertex is not None
    return vertex


def pair_and_bystander() -> ReplicaProblem:
    """Two servers that take each other's type of card, and one on a type of its own."""
    demands = [
        Demand("a", {"X": 4, "Y": 8}, load=40),
        Demand("b", {"X": 8, "Y": 4}, load=40),
        Demand("c", {"Z": 4}, load=40),
    ]
    cards = {"X": 4, "Y": 4, "Z": 4}
    return problem_of(system_of(demands, accelerators(X=10, Y=10, Z=10), cards, HOLD))


def test_only_servers_that_differ_are_open_with_what_both_have() -> None:
    problem = pair_and_bystander()
    vertex, crossed = vertex_of(problem), np.where(problem.full == 8, 4, 0)
    crossed[problem.case == 2] = 4

    columns = open_between(problem, vertex, crossed, most=1)

    assert columns.tolist() == (problem.case < 2).tolist()


def test_to_solve_them_again_mends_a_plan_that_no_single_change_does() -> None:
    problem = pair_and_bystander()
    vertex, crossed = vertex_of(problem), np.where(problem.full == 8, 4, 0)
    crossed[problem.case == 2] = 4
    everything = np.ones(len(problem.cases), dtype=np.bool_)
    assert fill_columns(problem, crossed, everything, only_hold=False).tolist() == crossed.tolist()

    opening = Opening(open_between(problem, vertex, crossed, most=1), crossed)
    found = solve_opening(problem, SERVED, (), opening, crossed, Budget.of(10.0))

    assert found.counts is not None
    assert SERVED.worth(problem, crossed) == 80
    assert SERVED.worth(problem, found.counts) == 120


def test_around_a_vertex_only_the_server_that_it_splits_is_open() -> None:
    demands = [Demand(name, {"X": 4, "Y": 8}, load=40) for name in ("a", "b")]
    demands.append(Demand("c", {"Z": 4}, load=40))
    cards = {"X": 6, "Y": 20, "Z": 4}
    problem = problem_of(system_of(demands, accelerators(X=10, Y=10, Z=10), cards, HOLD))
    vertex, nothing = vertex_of(problem), np.zeros(len(problem.case), dtype=np.int64)
    least, matter = np.zeros(3), np.ones(3, dtype=np.bool_)

    columns, counts = open_around(problem, vertex, least, matter, cases=0, most=1)
    opening = Opening(columns, counts)
    found = solve_opening(problem, SERVED, (), opening, nothing, Budget.of(10.0))

    assert vertex.bound == 120
    assert np.unique(problem.case[columns]).shape == (1,)
    assert counts.sum() == 8  # four X of one server, four Z
    assert found.counts is not None
    assert SERVED.worth(problem, found.counts) == 120
    wider, _ = open_around(problem, vertex, least, matter, cases=3, most=2)
    assert np.unique(problem.case[wider]).tolist() == [0, 1, 2]
