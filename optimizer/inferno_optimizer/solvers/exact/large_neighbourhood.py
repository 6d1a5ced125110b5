"""Improve a choice of rows by solving parts of it again: cases on a few types of card at a time.

All other cases keep their rows, so that every part is a small program with a known solution;
its cards are those that the cases of the part hold, and those that nobody uses [Shaw, CP 1998;
Pisinger and Ropke, Handbook of Metaheuristics (2010) 399-419].
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from inferno_optimizer.sizing.queueing import FloatArray, IntArray
from inferno_optimizer.solvers.exact.branch_and_bound import SearchLimits
from inferno_optimizer.solvers.exact.columns import BinaryColumns
from inferno_optimizer.solvers.exact.neighbourhood import Neighbourhood
from inferno_optimizer.solvers.exact.program import BoolArray, Program, first_cases
from inferno_optimizer.solvers.exact.settings import DEFAULTS, PartSettings
from inferno_optimizer.solvers.incumbent import Incumbent
from inferno_optimizer.solvers.levels import Floors


@dataclass(frozen=True, slots=True)
class Task:
    """An objective to be minimized, shape (rows,), and floors; the relative gap ends the search."""

    program: Program
    objective: FloatArray
    floors: Floors
    gap: float


def improve(
    task: Task,
    incumbent: Incumbent[BoolArray],
    patience: int,
    seconds_left: Callable[[], float],
    settings: PartSettings = DEFAULTS.parts,
) -> None:
    """Improve the incumbent by choices that fit, and keep the floors as it does.

    Parameters
    ----------
    task
        What to minimize.
    incumbent
        The choice to begin with, which the better ones replace.
    patience
        Parts of a size without any improvement after which parts get larger, or the search ends.
    seconds_left
        Time that remains.
    settings
        Of the parts.
    """
    random = np.random.default_rng(0)  # always the same parts: plans are to be repeatable
    failures = 0
    while failures < patience * (settings.growth + 1) and seconds_left() > 0:
        if incumbent.is_within(task.gap):
            break
        part = _part(task.program, incumbent.plan, failures // patience, random, settings)
        found = _solve(task, incumbent.plan, part, seconds_left(), settings)
        better = found is not None and incumbent.offer(found)
        failures = 0 if better else failures + 1


def _solve(
    task: Task, known: BoolArray, part: BoolArray, seconds: float, settings: PartSettings
) -> BoolArray | None:
    """A better choice that differs in rows of a part only; None where none is found."""
    opening = Neighbourhood(known & ~part, part)
    columns = BinaryColumns(task.program, opening, task.floors.loads, task.floors.whole)
    before = float(task.objective @ known)
    limits = SearchLimits(min(seconds, settings.seconds), 0.0, settings.nodes)
    choice = columns.minimize(task.objective, limits, known)
    least = before - settings.smallest * abs(before)
    return choice.chosen if choice is not None and choice.objective < least else None


def _part(
    program: Program,
    known: BoolArray,
    growth: int,
    random: np.random.Generator,
    settings: PartSettings,
) -> BoolArray:
    """Rows on a few types of card, of cases that have such a row now or none."""
    types = len(program.capacity)
    few = np.zeros(types + 1, dtype=np.bool_)
    few[random.permutation(types)[: settings.types + growth + int(random.integers(3))]] = True
    few[types] = True  # that of no row
    current = np.full(len(program.starts), types)
    current[program.place[known]] = program.type[known]
    rows = np.flatnonzero(few[current][program.place] & few[program.type])
    return _cut(program, rows, settings.rows * 2**growth, random)


def _cut(program: Program, rows: IntArray, most: int, random: np.random.Generator) -> BoolArray:
    """The rows of some of the cases, chosen at random, so that they are no more than so many."""
    count = np.bincount(program.place[rows], minlength=len(program.starts))
    order = random.permutation(np.flatnonzero(count))
    taken = first_cases(order, count, most)
    part = np.zeros(len(program.case), dtype=np.bool_)
    part[rows[taken[program.place[rows]]]] = True
    return part
