"""Ejection chains beside every plan of small fleets: never worse, and most often the best."""

from itertools import product
from random import Random

import numpy as np
import pytest

from inferno_optimizer.sizing.queueing import IntArray
from inferno_optimizer.solvers.partial.chains import EjectionChains
from inferno_optimizer.solvers.partial.filling import filled
from inferno_optimizer.solvers.partial.goals import Floor, Goal, GoalKind
from inferno_optimizer.solvers.partial.open_columns import OpenColumns
from inferno_optimizer.solvers.partial.position import Position, Terms
from inferno_optimizer.solvers.partial.problem import ReplicaProblem
from inferno_optimizer.solvers.partial.relaxation import Basis, Relaxation, Start, Vertex
from inferno_optimizer.solvers.partial.repair import is_kept
from inferno_optimizer.system import SaturationPolicy
from tests.unit.optimizer.solvers.partial_plans import problem_of, random_fleet, with_policy
from tests.unit.optimizer.systems import Demand, accelerators, system_of

HOLD = with_policy(SaturationPolicy.HOLD)
FIRST, SECOND = Goal(GoalKind.SERVED, 0), Goal(GoalKind.SERVED, 1)


def vertex_of(problem: ReplicaProblem, goal: Goal, floors: tuple[Floor, ...]) -> Vertex:
    start = Start(np.zeros(len(problem.case), dtype=np.bool_), Basis.empty(problem))
    vertex = Relaxation(problem, goal, floors, start).solve(lambda: 10.0)
    assert vertex is not None
    return vertex


def improved(
    problem: ReplicaProblem, goal: Goal, floors: tuple[Floor, ...], plan: IntArray
) -> IntArray:
    vertex, numbers = vertex_of(problem, goal, floors), np.random.default_rng(1)
    return EjectionChains(problem, goal, floors, vertex, numbers).improved([plan], lambda: 10.0)


def is_possible(problem: ReplicaProblem, floors: tuple[Floor, ...], plan: IntArray) -> bool:
    one_column = np.bincount(problem.case[plan > 0], minlength=1).max() <= 1
    fits = bool(np.all(problem.used(plan) <= problem.capacity) and np.all(plan <= problem.most))
    return fits and one_column and all(is_kept(problem, floor, plan) for floor in floors)


def best_of_all(problem: ReplicaProblem, goal: Goal, floors: tuple[Floor, ...]) -> float:
    """The most of a goal that any plan has: every column and number of replicas of each case."""
    choices = []
    for case in range(len(problem.cases)):
        columns = np.flatnonzero(problem.case == case).tolist()
        choices.append([(-1, 0)] + [(c, n) for c in columns for n in range(1, problem.most[c] + 1)])
    best = -np.inf
    for chosen in product(*choices):
        plan = np.zeros(len(problem.case), dtype=np.int64)
        for column, replicas in chosen:
            plan[column] += replicas if column >= 0 else 0
        if is_possible(problem, floors, plan):
            best = max(best, goal.worth(problem, plan))
    return best


def small_problem(random: Random, *, running: bool) -> ReplicaProblem | None:
    """Four servers of two or three levels."""
    problem = problem_of(random_fleet(random, 4, running=running).system(HOLD))
    return problem if problem.levels >= 2 and len(problem.case) else None


def with_floor(problem: ReplicaProblem, random: Random) -> tuple[tuple[Floor, ...], IntArray]:
    """Floors of the first level at what a simple plan has of it, and this plan."""
    nothing = np.zeros(len(problem.case), dtype=np.int64)
    plan = nothing
    for level in range(problem.levels):
        plan = filled(problem, plan, problem.level == level, only_hold=random.random() < 0.3)
    kinds = (GoalKind.HELD, GoalKind.SERVED)
    loads = {kind: Goal(kind, 0).worth(problem, plan) for kind in kinds}
    floors = tuple(Floor(Goal(k, 0), load, whole=False) for k, load in loads.items() if load > 0)
    return floors, plan


@pytest.mark.slow
@pytest.mark.parametrize("running", [False, True], ids=["from nothing", "running"])
def test_no_plan_gets_worse_and_most_of_them_become_the_best(running: bool) -> None:
    random = Random(f"chains {running}")  # noqa: S311 - a repeatable choice, not a secret
    best = tried = better = 0
    while tried < 40:
        problem = small_problem(random, running=running)
        if problem is None:
            continue
        floors, plan = with_floor(problem, random)

        after = improved(problem, SECOND, floors, plan)

        had, has = (SECOND.worth(problem, p) for p in (plan, after))
        most = best_of_all(problem, SECOND, floors)
        assert is_possible(problem, floors, after)
        assert had - 1e-9 <= has <= most + 1e-9
        tried, best, better = tried + 1, best + (has >= most - 1e-9), better + (has > had + 1e-9)
    assert best >= 34, "chains end at the best plan of most small fleets"
    assert better >= 3, "fleets in which a simple plan is the best show nothing"


@pytest.mark.parametrize("kind", [GoalKind.HELD, GoalKind.SERVED, GoalKind.ENTIRE])
def test_what_a_change_does_is_what_the_position_after_it_says(kind: GoalKind) -> None:
    random = Random(f"changes {kind}")  # noqa: S311 - a repeatable choice, not a secret
    compared = 0
    while compared < 300:
        problem = small_problem(random, running=True)
        if problem is None:
            continue
        goal, plan = Goal(kind, 1), np.zeros(len(problem.case), dtype=np.int64)
        for case in np.unique(
            problem.case
        ).tolist():  # any plan, also one that takes too many cards
            column = random.choice(np.flatnonzero(problem.case == case).tolist())
            plan[column] = random.randint(0, problem.most[column])
        load = 0.9 * Goal(kind, 0).most(problem)
        floors = (Floor(Goal(kind, 0), load, whole=False),)
        vertex = vertex_of(problem, goal, floors)
        options, terms = (
            OpenColumns.of(problem, floors, vertex),
            Terms.of(problem, goal, floors, vertex),
        )
        position = Position.of(problem, options, terms, plan)

        changes = position.changes()

        for row, option in np.argwhere(np.isfinite(changes.gain)).tolist():
            after = position.after(option, int(changes.replicas[row, option]))
            anew = Position.of(problem, options, terms, after.counts())
            difference = after.worth[1] - position.worth[1]
            assert changes.potential[row, option] == pytest.approx(difference, rel=1e-6, abs=1e-6)
            assert anew.worth[0] == after.worth[0] == is_possible(problem, floors, after.counts())
            assert anew.worth[1] == pytest.approx(after.worth[1], rel=1e-6)
            gain = goal.worth(problem, after.counts()) - goal.worth(problem, plan)
            assert changes.gain[row, option] == pytest.approx(gain, abs=1e-9)
            compared += 1


def test_a_server_gets_cards_of_one_that_gets_those_of_a_third() -> None:
    """The large one needs X, who has it needs Y, who has that needs Z: the small one goes."""
    demands = [
        Demand("large", {"X": 4}, load=90, priority=1),
        Demand("second", {"X": 4, "Y": 4}, load=50, priority=1),
        Demand("third", {"Y": 4, "Z": 4}, load=40, priority=1),
        Demand("small", {"X": 4, "Y": 4, "Z": 4}, load=20, priority=1),
    ]
    units = accelerators(X=10, Y=10, Z=10)
    problem = problem_of(system_of(demands, units, {"X": 4, "Y": 4, "Z": 4}, HOLD))
    assert problem.weight.tolist() == [90, 50, 20, 40]
    plan = np.array([0, 4, 0, 0, 0, 4, 4, 0])  # the second on X, the third on Y, the small on Z

    after = improved(problem, FIRST, (), plan)

    assert FIRST.worth(problem, plan) == pytest.approx(110)
    assert FIRST.worth(problem, after) == pytest.approx(180)


def test_a_plan_that_misses_a_floor_is_repaired_at_the_cost_of_less_important_ones() -> None:
    demands = [Demand("a", {"X": 8}, load=80), Demand("b", {"X": 10}, load=100, priority=2)]
    problem = problem_of(system_of(demands, accelerators(X=10), {"X": 10}, HOLD))
    floors = (Floor(FIRST, 70.0, whole=False),)

    after = improved(problem, SECOND, floors, np.array([5, 5]))

    assert is_possible(problem, floors, after)
    assert SECOND.worth(problem, after) == pytest.approx(30)
