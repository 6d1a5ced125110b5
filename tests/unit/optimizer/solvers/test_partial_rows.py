"""Levels of rows by column generation, against the best plan that a MILP solver finds."""

from collections.abc import Callable
from functools import cache

import numpy as np
import pytest

from inferno_optimizer.solvers.assignment import Timer
from inferno_optimizer.solvers.exact.lexicographic import solve_by_levels
from inferno_optimizer.solvers.exact.program import BoolArray, Program
from inferno_optimizer.solvers.exact.settings import ExactSettings, ProgramSizes
from inferno_optimizer.solvers.exact.stage import RowGoal
from inferno_optimizer.solvers.levels import Floors
from inferno_optimizer.solvers.partial.rows import most_load
from tests.unit.optimizer.programs import random_program

LARGE = ProgramSizes(small=0, medium=0, large=0)
"""Every program counts as large."""


@cache
def best_plan(seed: int, cases: int) -> tuple[Program, BoolArray]:
    """A program of three levels, and its best plan by the MILP solver."""
    program = random_program(seed, cases)
    return program, solve_by_levels(program, Timer(lambda: 60.0), tolerance=0.0).plan


@pytest.mark.parametrize("level", range(3))
@pytest.mark.parametrize("seed", range(2))
def test_a_level_is_served_nearly_as_much_as_the_best_plan_serves(seed: int, level: int) -> None:
    program, best = best_plan(seed, cases=40)
    mine = program.level <= level
    part, known = program.take(mine), (best & (program.level < level))[mine]
    most = program.served(best, level + 1)
    floors = Floors(most[:level] * (1 - 1e-9), whole=0)
    goal = RowGoal(part, -part.weight * (part.level == level), floors, is_last=False)

    found = most_load(goal, known, lambda: 60.0)

    served = part.served(found, level + 1)
    assert np.all(part.used(found) <= part.capacity)
    assert np.bincount(part.place[found]).max() == 1
    assert part.keeps(found, floors)
    assert most[level] * (1 - 1e-3) <= served[level] <= most[level] * (1 + 1e-9)


def other_search(
    answer: BoolArray, asked: list[int]
) -> Callable[[RowGoal, BoolArray, Callable[[], float]], BoolArray]:
    """A search that knows an answer; the levels for which it is asked are noted."""

    def search(goal: RowGoal, chosen: BoolArray, _: Callable[[], float]) -> BoolArray:
        asked.append(int(goal.program.level.max()))
        return answer if len(answer) == len(chosen) else chosen

    return search


def test_only_a_level_far_from_its_bound_is_searched_anew() -> None:
    program, best = best_plan(0, cases=20)
    far, near = list[int](), list[int]()

    settings = ExactSettings(sizes=LARGE, far=-1.0)
    found = solve_by_levels(
        program, Timer(lambda: 60.0), settings, 0.0, level_search=other_search(best, far)
    )
    settings = ExactSettings(sizes=LARGE, far=1.0)
    solve_by_levels(
        program, Timer(lambda: 60.0), settings, 0.0, level_search=other_search(best, near)
    )

    assert not near
    assert far
    assert np.all(program.served(found.plan, 3) >= program.served(best, 3) * (1 - 1e-9))
