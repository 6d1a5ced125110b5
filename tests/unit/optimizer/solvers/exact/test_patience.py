"""A level that gains nothing for long leaves its time to the levels after it."""

import itertools
from dataclasses import replace

import numpy as np
import pytest

from inferno_optimizer.solvers.assignment import Timer
from inferno_optimizer.solvers.exact.lexicographic import solve_by_levels
from inferno_optimizer.solvers.exact.patience import Patience
from inferno_optimizer.solvers.exact.settings import ExactSettings, PartSettings, ProgramSizes
from inferno_optimizer.solvers.incumbent import Incumbent, SearchProgress
from tests.unit.optimizer.programs import random_program


@pytest.mark.parametrize(
    ("gains", "end"),
    [
        ((), 20.0),  # nothing at all: the least time
        ((2.0,), 22.0),  # soon: the least time since then
        ((10.0,), 50.0),  # late: four times as long
        ((2.0, 10.0), 50.0),  # the last gain counts
    ],
)
def test_a_search_ends_when_it_gains_nothing_for_long(gains: tuple[float, ...], end: float) -> None:
    now = 0.0
    incumbent = Incumbent(np.zeros(0, dtype=np.bool_), lambda _: 0.0)
    settings = ExactSettings(in_vain=4.0, in_vain_time=0.2)
    patience = Patience(incumbent, lambda: 100.0 - now, settings)

    left = list[float]()
    for seconds in (*gains, end, end + 1):
        now = seconds
        incumbent.value -= seconds in gains
        left.append(patience.seconds_left())

    assert left == [*(100.0 - seconds for seconds in gains), 100.0 - end, 0.0]


@pytest.mark.parametrize(("in_vain_time", "least", "most"), [(0.2, 40, 130), (1.0, 190, 210)])
def test_a_level_that_gains_nothing_ends_before_its_time(
    in_vain_time: float, least: int, most: int
) -> None:
    program = random_program(3, cases=20, levels=2)
    scarce = replace(program, capacity=program.capacity // 4)
    endless = PartSettings(patience=10**6, patience_with_few=10**6)
    large = ProgramSizes(small=0, medium=0, large=0)
    settings = ExactSettings(sizes=large, in_vain=0.0, in_vain_time=in_vain_time, parts=endless)
    readings, ends = itertools.count(), dict[int | None, int]()

    def observe(progress: SearchProgress) -> None:
        ends.setdefault(progress.level, next(readings))

    solve_by_levels(scarce, Timer(lambda: 400.0 - next(readings)), settings, observe=observe)

    assert least <= ends[1] - ends[0] <= most
