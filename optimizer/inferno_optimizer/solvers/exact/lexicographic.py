"""Level by level the most load, then the least value; with what is proven of each.

A small program goes to the MILP solver as it is. For a larger one prices prove a bound, and a
first solution is improved by local search unless it is close to that.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from inferno_optimizer.sizing.queueing import FloatArray
from inferno_optimizer.solvers.assignment import OneMoreCard, Timer
from inferno_optimizer.solvers.exact.branch_and_bound import Limits
from inferno_optimizer.solvers.exact.columns import Choice, Columns
from inferno_optimizer.solvers.exact.large_neighbourhood import Task, improve
from inferno_optimizer.solvers.exact.local_search import search
from inferno_optimizer.solvers.exact.neighbourhood import Opening, leave_everything_open
from inferno_optimizer.solvers.exact.one_more_card import value_of_one_more
from inferno_optimizer.solvers.exact.packing import fill, pack
from inferno_optimizer.solvers.exact.prices import Prices, price
from inferno_optimizer.solvers.exact.program import BoolArray, Floors, Program

GAP = 5e-5
"""Relative distance from the bound at which a larger program is searched no further."""

SLACK = 1e-9
"""What later objectives may take from the load of a level, relative: room for rounding."""

GIVEN_UP = 5e-4
"""The same of a larger program: the last bit of load would make the rest no concern at all."""


@dataclass(frozen=True, slots=True)
class Sizes:
    """Up to `small` rows a program is solved as it is, to the last digit.

    Of a larger one the MILP solver gets the rows that can be part of a better solution than the
    known one: at once if they are no more than `medium`; or, if they are no more than `large`,
    after parts of the program were solved again for as long as that helps.
    """

    small: int = 3_000
    medium: int = 6_000
    large: int = 25_000


@dataclass(frozen=True, slots=True)
class Outcome:
    """Rows chosen, with proven bounds of the load of each level and of the value.

    A bound of a level holds among the solutions that serve as much of the levels before it;
    that of the value among those that serve as much of all.
    """

    chosen: BoolArray
    most_served: FloatArray
    least_value: float
    one_more: OneMoreCard
    out_of_time: bool


def solve_by_levels(
    program: Program, timer: Timer, sizes: Sizes = Sizes(), tolerance: float | None = None
) -> Outcome:
    """Solve a program with at least one row.

    Parameters
    ----------
    program
        The rows.
    timer
        Time that remains; when it ends, the best solution found so far is the answer.
    sizes
        What counts as small and as medium.
    tolerance
        Share of the most load of a level that later objectives may take; None means `GIVEN_UP`,
        or nothing of a small program.
    """
    progress = _Progress(program, timer, sizes, tolerance)
    for level in range(progress.levels):
        progress.serve(level)
    return progress.finish()


class _Progress:
    """The levels done so far: rows chosen, floors that later objectives keep."""

    def __init__(
        self, program: Program, timer: Timer, sizes: Sizes, tolerance: float | None
    ) -> None:
        self._program, self._timer, self._sizes = program, timer, sizes
        self._seconds_left = timer.to_search
        self._exact = len(program.case) <= sizes.small
        by_default = SLACK if self._exact else GIVEN_UP
        self._tolerance = by_default if tolerance is None else max(tolerance, SLACK)
        self._keeps_whole = not tolerance  # by default nobody is left out where all can be served
        self.levels = int(program.level.max()) + 1
        first = program.starts
        self._loads = np.bincount(program.level[first], program.weight[first], self.levels)
        self._chosen = np.zeros(len(program.case), dtype=np.bool_)
        self._floors = np.zeros(0)
        self._bounds = np.zeros(0)
        self._whole = 0
        self._prices: Prices | None = None  # of the last objective, where it took any

    def serve(self, level: int) -> None:
        """Serve the most load of one level, the earlier ones keeping theirs."""
        rows = np.flatnonzero(self._program.level <= level)
        part = self._program.take(rows)
        objective = np.where(part.level == level, -part.weight, 0.0)
        total = float(self._loads[level])
        found = self._most(part, objective, fill(part, self._chosen[rows]), total, level)
        self._chosen = np.zeros_like(self._chosen)
        self._chosen[rows[found.chosen]] = True
        served, most = -found.objective, min(-found.bound, total)
        if self._keeps_whole and self._whole == level and served >= total * (1 - SLACK):
            self._whole += 1
        floor = min(served * (1 - SLACK), most * (1 - self._tolerance))
        self._bounds = np.append(self._bounds, most)
        self._floors = np.append(self._floors, floor)

    def _most(
        self,
        program: Program,
        objective: FloatArray,
        known: BoolArray,
        total: float,
        level: int,
    ) -> Choice:
        """Nothing is left to search where a first solution serves everything already."""
        served = -float(objective @ known)
        if served >= total * (1 - SLACK):
            return Choice(known, -served, -total)
        return self._minimize(program, objective, known, self.levels + 1 - level)

    def finish(self) -> Outcome:
        """The least value among solutions that keep the floors."""
        program = self._program
        found = self._minimize(program, program.value, fill(program, self._chosen), 1)
        prices = self._prices
        if prices is None:
            prices = price(program, program.value, self._floors, self._whole, self._seconds_left)
        least = min(max(found.bound, prices.bound), found.objective)
        out_of_time = self._seconds_left() <= 0
        one_more = self._one_more(found.chosen)
        return Outcome(found.chosen, self._bounds, least, one_more, out_of_time)

    def _one_more(self, chosen: BoolArray) -> OneMoreCard:
        """What one more card of each type is worth at the loads that are served now."""
        served = self._program.served(chosen, self.levels) * (1 - SLACK)
        floors, short = Floors(served, self._whole), np.flatnonzero(self._bounds < self._loads)
        left = self._timer.seconds_left
        return value_of_one_more(self._program, floors, short.tolist(), chosen, left)

    def _minimize(
        self, program: Program, objective: FloatArray, known: BoolArray, ahead: int
    ) -> Choice:
        """Minimize the first of the objectives ahead, each of which gets its share of time."""
        seconds = self._seconds_left() / ahead
        if self._exact:
            first = Choice(known, float(objective @ known), -np.inf)
            opening, limits = leave_everything_open(program), Limits(seconds, 0.0)
            return self._exactly(program, objective, first, opening, limits)
        reserved = self._seconds_left() - seconds
        return self._nearly(program, objective, known, lambda: self._seconds_left() - reserved)

    def _exactly(
        self,
        program: Program,
        objective: FloatArray,
        known: Choice,
        opening: Opening,
        limits: Limits,
    ) -> Choice:
        """Let the MILP solver look for a better choice than a known one among all open rows."""
        columns = Columns(program, opening, self._floors, self._whole)
        found = columns.minimize(objective, limits, known.chosen)
        if found is None:
            return known
        best = found if found.objective < known.objective else known
        bound = max(known.bound, found.bound)
        return replace(best, bound=min(bound, best.objective))

    def _nearly(
        self,
        program: Program,
        objective: FloatArray,
        known: BoolArray,
        seconds_left: Callable[[], float],
    ) -> Choice:
        """Stop where a first solution is close to what prices prove; or search."""
        prices = price(program, objective, self._floors, self._whole, seconds_left)
        packed = pack(program, prices)
        if self._keeps_floors(program, packed) and objective @ packed < objective @ known:
            known = packed
        if objective @ known - prices.bound > GAP * max(1.0, abs(prices.bound)):
            floors = Floors(self._floors, self._whole)
            found = search(program, prices, floors, known, seconds_left)
            known, prices = self._better(program, known, prices, found)
        self._prices = prices
        task = Task(program, objective, Floors(self._floors, self._whole), _good_enough(prices))
        if np.count_nonzero(_better_rows(task, prices, known)) > self._sizes.medium:
            known = improve(task, known, seconds_left)
        value, better = float(objective @ known), _better_rows(task, prices, known)
        is_too_large = np.count_nonzero(better) > self._sizes.large
        if value <= task.good_enough or is_too_large or seconds_left() <= 0:
            return Choice(known, value, min(prices.bound, value))
        opening = Opening(np.zeros_like(better), better)
        limits = Limits(seconds_left(), task.good_enough - prices.bound)
        return self._exactly(
            program, objective, Choice(known, value, prices.bound), opening, limits
        )

    def _better(
        self, program: Program, known: BoolArray, prices: Prices, found: BoolArray
    ) -> tuple[BoolArray, Prices]:
        """The one that is closer to what is proven; floors that it misses a little are lowered."""
        served = program.served(found, len(self._floors))
        floors = np.minimum(self._floors, served)
        if np.any(floors < self._floors * (1 - self._tolerance)):
            return known, prices
        objective, lowered = prices.objective, prices
        if np.any(floors < self._floors):
            lowered = price(program, objective, floors, self._whole)
        if objective @ found - lowered.bound >= objective @ known - prices.bound:
            return known, prices
        self._floors = floors
        return found, lowered

    def _keeps_floors(self, program: Program, chosen: BoolArray) -> bool:
        served = program.served(chosen, len(self._floors))
        return bool(np.all(served >= self._floors))


def _good_enough(prices: Prices) -> float:
    """An objective that is close enough to what prices prove."""
    return prices.bound + GAP * max(1.0, abs(prices.bound))


def _better_rows(task: Task, prices: Prices, known: BoolArray) -> BoolArray:
    """Rows that may be part of a better solution; none if the known one is good enough."""
    value = float(task.objective @ known)
    if value <= task.good_enough:
        return np.zeros_like(known)
    better: BoolArray = prices.excess <= value - prices.bound
    return better
