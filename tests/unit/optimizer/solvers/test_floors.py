"""Plans that miss the floor of a more important level by a little."""

from typing import ClassVar

import numpy as np
import pytest

from inferno_optimizer.sizing.queueing import IntArray
from inferno_optimizer.solvers.goals import Floor, Goal, GoalKind
from inferno_optimizer.solvers.problem import ReplicaProblem
from inferno_optimizer.solvers.rounding import is_floor_kept, lift_to_floors
from inferno_optimizer.system import Allocation, SaturationPolicy
from tests.tiers import sampled
from tests.unit.optimizer.solvers.partial_plans import problem_of, with_policy
from tests.unit.optimizer.systems import Demand, accelerators, system_of

EXHAUSTIVE = with_policy(SaturationPolicy.PRIORITY_EXHAUSTIVE)
FIRST = Goal(GoalKind.SERVED, 0)
SECOND = Goal(GoalKind.SERVED, 1)


def problem_with(demands: list[Demand], capacity: dict[str, int]) -> ReplicaProblem:
    return problem_of(system_of(demands, accelerators(X=10, Z=10), capacity, EXHAUSTIVE))


def floor_of(load: float) -> Floor:
    return Floor(FIRST, load, whole=False)


def replicas(problem: ReplicaProblem, *counts: int) -> IntArray:
    """Replicas of each case, on its only column."""
    assert len(problem.case) == len(counts)
    return np.array(counts, dtype=np.int64)


@pytest.fixture
def pair() -> ReplicaProblem:
    """Two servers on ten cards: the important one needs 8 for its load of 80, the other 10."""
    important = Demand("a", {"X": 8}, load=80, priority=1)
    other = Demand("b", {"X": 10}, load=100, priority=2)
    return problem_with([important, other], {"X": 10, "Z": 0})


def test_a_less_important_server_makes_room_for_a_floor_and_gives_no_more(
    pair: ReplicaProblem,
) -> None:
    plan = replicas(pair, 5, 5)

    repaired = lift_to_floors(pair, plan, (floor_of(70.0),), level=1)

    assert repaired is not None
    assert repaired.tolist() == [7, 3]
    assert plan.tolist() == [5, 5]  # it is not changed


def test_a_floor_that_takes_more_cards_than_there_are_is_not_kept(pair: ReplicaProblem) -> None:
    assert lift_to_floors(pair, replicas(pair, 5, 5), (floor_of(81.0),), level=1) is None


class CountedGoal(Goal):
    """A goal that knows how often it was asked what a plan has of it."""

    asked: ClassVar[list[float]] = []

    def worth(self, problem: ReplicaProblem, counts: IntArray) -> float:
        self.asked.append(Goal.worth(self, problem, counts))
        return self.asked[-1]


@pytest.mark.parametrize(("servers", "is_kept_after"), [(40, True), (200, False)])
def test_a_floor_that_is_out_of_reach_at_the_pace_of_the_first_steps_is_given_up_soon(
    servers: int, is_kept_after: bool
) -> None:
    important = [Demand(f"a{place}", {"X": 1}, load=10, priority=1) for place in range(servers)]
    problem = problem_with([*important, Demand("b", {"X": 300}, priority=2)], {"X": 300, "Z": 0})
    counts = replicas(problem, *[0] * servers, 300)
    CountedGoal.asked.clear()
    floor = Floor(CountedGoal(GoalKind.SERVED, 0), 10.0 * servers, whole=False)

    repaired = lift_to_floors(problem, counts, (floor,), level=1)

    assert (repaired is not None) == is_kept_after
    assert max(CountedGoal.asked) == pytest.approx(10.0 * (servers if is_kept_after else 5))


@pytest.mark.parametrize("loads", [(50.0, 100.0), (100.0, 50.0)])
def test_what_runs_is_given_up_only_where_nobody_else_has_any(loads: tuple[float, float]) -> None:
    runs = Allocation("X", 5, cost=50)
    problem = problem_with(
        [
            Demand("a", {"X": 8}, load=80, priority=1),
            Demand("b", {"X": 5}, load=loads[0], priority=2, current=runs),
            Demand("c", {"X": 5}, load=loads[1], priority=2),
        ],
        {"X": 10, "Z": 0},
    )
    held = Floor(Goal(GoalKind.HELD, 1), loads[0], whole=False)

    repaired = lift_to_floors(problem, replicas(problem, 0, 5, 5), (floor_of(30.0), held), level=1)

    assert repaired is not None
    assert repaired.tolist() == [3, 5, 2]


def test_a_server_moves_to_a_type_on_which_it_is_served_better() -> None:
    problem = problem_with(
        [
            Demand("a", {"X": 8, "Z": 8}, load=80, priority=1),
            Demand("b", {"Z": 9}, load=90, priority=2),
        ],
        {"X": 6, "Z": 9},
    )
    on_x = int(np.flatnonzero((problem.case == 0) & (problem.most == 6))[0])
    counts = np.zeros(len(problem.case), dtype=np.int64)
    counts[on_x], counts[problem.case == 1] = 6, 9

    repaired = lift_to_floors(problem, counts, (floor_of(80.0),), level=1)

    assert repaired is not None
    assert repaired[on_x] == 0
    assert FIRST.worth(problem, repaired) == pytest.approx(80.0)
    assert SECOND.worth(problem, repaired) == pytest.approx(10.0)


@pytest.mark.parametrize("seed", sampled(range(30)))
def test_what_is_repaired_fits_and_keeps_all_floors(seed: int) -> None:
    numbers = np.random.default_rng(seed)
    demands = [
        Demand(
            f"s{place}",
            {"X": int(numbers.integers(1, 9)), "Z": int(numbers.integers(1, 9))},
            load=int(numbers.integers(10, 100)),
            priority=1 + place % 3,
        )
        for place in range(6)
    ]
    problem = problem_with(demands, {"X": 9, "Z": 9})
    counts = np.zeros(len(problem.case), dtype=np.int64)
    for case in numbers.permutation(len(problem.cases)):
        column = numbers.choice(np.flatnonzero(problem.case == case))
        counts[column] = problem.most[column]
        while np.any(problem.used(counts) > problem.capacity):
            counts[column] -= 1
    most = [goal.most(problem) for goal in (FIRST, SECOND)]
    floors = tuple(
        Floor(goal, 0.5 * load, whole=False)
        for goal, load in zip((FIRST, SECOND), most, strict=True)
    )

    repaired = lift_to_floors(problem, counts, floors, level=2)

    if repaired is not None:
        assert np.all(problem.used(repaired) <= problem.capacity)
        assert np.all(repaired <= problem.most)
        assert all(is_floor_kept(problem, floor, repaired) for floor in floors)
        assert np.bincount(problem.case[repaired > 0]).max() == 1
