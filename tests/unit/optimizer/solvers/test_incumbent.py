"""The incumbent of a stage accepts what is better, and tells of it."""

import numpy as np
import pytest

from inferno_optimizer.solvers.incumbent import UNKNOWN, Incumbent


def cost(plan: float) -> float:
    return plan


@pytest.mark.parametrize(
    ("offered", "accepted", "kept"), [(4.0, True, 4.0), (5.0, False, 5.0), (6.0, False, 5.0)]
)
def test_only_a_better_plan_is_accepted(offered: float, accepted: bool, kept: float) -> None:
    incumbent = Incumbent(5.0, cost)

    assert incumbent.offer(offered) == accepted
    assert (incumbent.plan, incumbent.value) == (kept, kept)


def test_a_bound_only_rises_and_never_above_the_incumbent() -> None:
    incumbent = Incumbent(5.0, cost)

    bounds = []
    for bound in (1.0, 0.5, 3.0, 9.0):
        incumbent.prove(bound)
        bounds.append(incumbent.bound)

    assert bounds == [1.0, 1.0, 3.0, 5.0]


def test_a_plan_that_keeps_lower_floors_has_a_bound_of_its_own() -> None:
    incumbent = Incumbent(5.0, cost, floors=np.array([2.0]))
    incumbent.prove(4.0)

    lower = np.array([1.0])
    incumbent.offer_at(3.0, lower, bound=2.0)

    assert (incumbent.value, incumbent.bound, incumbent.floors) == (3.0, 2.0, lower)


def test_every_improvement_is_told_once() -> None:
    told: list[tuple[float, float]] = []
    incumbent = Incumbent(5.0, cost, lambda plan, bound: told.append((plan, bound)))

    incumbent.prove(1.0)
    incumbent.prove(1.0)
    incumbent.offer(4.0)
    incumbent.offer(4.0)
    incumbent.prove(4.0)

    assert told == [(5.0, UNKNOWN), (5.0, 1.0), (4.0, 1.0), (4.0, 4.0)]


def test_plans_that_were_the_best_are_kept_while_they_are_near() -> None:
    incumbent = Incumbent(-50.0, cost, near=0.1)

    before = []
    for plan in (-95.0, -99.0, -98.0, -100.0, -106.0):
        incumbent.offer(plan)
        before.append(incumbent.before)

    assert before == [[], [-95.0], [-95.0], [-95.0, -99.0], [-99.0, -100.0]]


def test_without_a_distance_no_plan_before_the_best_is_kept() -> None:
    incumbent = Incumbent(-99.0, cost)

    incumbent.offer(-100.0)

    assert incumbent.before == []
