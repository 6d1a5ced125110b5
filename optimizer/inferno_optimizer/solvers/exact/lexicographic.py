"""Level by level the most load, then the least value, with one row for each case.

See `assignment.md`, section "Exact, one row for each server".
"""

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from inferno_optimizer.sizing.queueing import FloatArray, IntArray
from inferno_optimizer.solvers.assignment import OneMoreCard, Timer
from inferno_optimizer.solvers.exact.one_more_card import solve_with_one_more, value_of_one_more
from inferno_optimizer.solvers.exact.packing import add, best_start, fill, stand
from inferno_optimizer.solvers.exact.patience import Patience
from inferno_optimizer.solvers.exact.prices import price
from inferno_optimizer.solvers.exact.program import BoolArray, Program
from inferno_optimizer.solvers.exact.settings import DEFAULTS, ExactSettings
from inferno_optimizer.solvers.exact.stage import (
    LevelSearch,
    PricedSearch,
    RowGoal,
    solve_all_rows,
)
from inferno_optimizer.solvers.incumbent import Incumbent, ProgressObserver, progress_of
from inferno_optimizer.solvers.levels import (
    SLACK,
    Floors,
    GoalTime,
    LevelGoal,
    LevelPlan,
    ProvenPlan,
    Tolerance,
    solve_levels,
)

HALF = 0.5

LAST_LEVEL = 2
"""Goals that are ahead with the last level: that and the value."""


def solve_by_levels(
    program: Program,
    timer: Timer,
    settings: ExactSettings = DEFAULTS,
    tolerance: float | None = None,
    observe: ProgressObserver | None = None,
    level_search: LevelSearch | None = None,
) -> LevelPlan[BoolArray]:
    """Solve a program with at least one row.

    Parameters
    ----------
    program
        The rows.
    timer
        Time that remains; when it ends, the best solution found so far is the answer.
    settings
        Of the search.
    tolerance
        Share of the most load of a level that later objectives may take; None means that of the
        settings, or nothing of a small program.
    observe
        Is told of every improvement; None where nobody wants to know.
    level_search
        The search for a level that a first choice serves far below its bound, if there is one.
    """
    is_small = len(program.case) <= settings.sizes.small
    share = Tolerance.of(tolerance, SLACK if is_small else settings.given_up)
    levels = _RowLevels(program, timer, settings, share, observe, level_search)
    return solve_levels(levels, levels.first(), timer, share)


def least_value(
    program: Program,
    plan: BoolArray,
    seconds_left: Callable[[], float],
    settings: ExactSettings = DEFAULTS,
) -> tuple[BoolArray, float]:
    """The plan of least value that is found of those that serve every case, and a bound of it.

    It begins with a plan that serves every case; shape (rows,).
    """
    tolerance = Tolerance(SLACK, keeps_whole=True)
    levels = _RowLevels(program, Timer(seconds_left), settings, tolerance, None, None)
    floors = Floors(levels.loads * (1 - SLACK), len(levels.loads))
    search = levels.search(LevelGoal(None, floors), plan)
    search.improve(GoalTime(seconds_left, seconds_left))
    return search.incumbent.plan, search.incumbent.bound


class _RowLevels:
    """The rows of a program, as the driver needs them."""

    def __init__(
        self,
        program: Program,
        timer: Timer,
        settings: ExactSettings,
        tolerance: Tolerance,
        observe: ProgressObserver | None,
        level_search: LevelSearch | None,
    ) -> None:
        self.program, self.settings, self.tolerance = program, settings, tolerance
        self.observe, self.level_search, self._timer = observe, level_search, timer
        self.is_small = len(program.case) <= settings.sizes.small
        self.stands = _stands(program)
        first, levels = program.starts, int(program.level.max()) + 1
        loads = np.bincount(program.level[first], program.weight[first], levels)
        self._loads: FloatArray = loads.astype(np.float64)

    @property
    def loads(self) -> FloatArray:
        """The whole load of each level."""
        return self._loads

    def first(self) -> BoolArray:
        """What runs, if most of the cases may stay as they are."""
        return stand(self.program) if self.stands else np.zeros_like(self.program.stays)

    def share_of_time(self, ahead: int) -> float:
        """Share of the remaining time for a goal; the last one has all of it."""
        if ahead == 1:
            return 1.0
        return self.settings.last_level_time if ahead == LAST_LEVEL else self.settings.level_time

    def search(self, goal: LevelGoal, plan: BoolArray) -> "_RowSearch":
        """The search for a goal."""
        return _RowSearch(self, goal, plan)

    def one_more(self, reached: ProvenPlan[BoolArray]) -> OneMoreCard:
        """What one more card of each type is worth at the loads that are served now.

        A small program that is solved to the end is solved again with each.
        """
        program, chosen, left = self.program, reached.plan, self._timer.seconds_left
        served = program.served(chosen, len(self._loads))
        floors = Floors(served * (1 - SLACK), reached.floors.whole)
        levels = np.flatnonzero(reached.most_served < self._loads).tolist()
        found = value_of_one_more(program, floors, levels, chosen, left, self.settings)
        if self.is_small and reached.is_best(served, float(program.value @ chosen)):
            short = np.flatnonzero(served < self._loads * (1 - SLACK)).tolist()
            solve_with_one_more(program, floors, short, chosen, found, left, self.settings)
        return found


class _RowSearch:
    """The search for one goal, among the rows of the levels that matter to it."""

    def __init__(self, levels: _RowLevels, goal: LevelGoal, plan: BoolArray) -> None:
        self._levels, self._level, self._known = levels, goal.level, plan
        self._rows = _rows_up_to(levels.program, goal.level)
        program = levels.program if goal.level is None else levels.program.take(self._rows)
        objective = _objective(program, goal.level)
        self._goal = RowGoal(program, objective, goal.floors, goal.level is None)
        known = fill(program, plan[self._rows])
        self.incumbent = Incumbent(
            known,
            lambda chosen: float(objective @ chosen),
            progress_of(
                levels.observe,
                goal.level,
                lambda chosen: program.served(chosen, len(levels.loads)),
                lambda chosen: float(program.value @ chosen),
            ),
            self._aims(known, goal.floors.loads),
            near=levels.tolerance.share,
        )

    def improve(self, time: GoalTime) -> None:
        """Search, unless everything is served already; prove what the MILP solver does not."""
        if self._serves_all():
            self.incumbent.prove(-self._total)  # nothing is left to search
            return
        if time.left() > 0:
            self._search(time)
        if self._levels.is_small and self._goal.is_last:
            program, floors = self._goal.program, self.incumbent.floors
            prices = price(
                program,
                self._goal.objective,
                floors,
                self._goal.floors.whole,
                time.left_in_all,
                self._levels.settings.prices,
            )
            self.incumbent.prove(prices.bound)

    def plan(self, floors: Floors) -> BoolArray:
        """The incumbent, or one before it, and of what was known before all that still fits.

        Of those that keep the floors it is the one that leaves the most to the next level: the last
        gains of a level are small, and may take the cards of large cases of the next one.
        """
        if self._level is None:
            return self.incumbent.plan
        plans = map(self._completed, [self.incumbent.plan, *self.incumbent.before])
        return best_start(self._levels.program, list(plans), floors, self._level + 1)

    def _completed(self, found: BoolArray) -> BoolArray:
        """A choice of the rows that matter, and of what was known before all that still fits."""
        chosen = np.zeros_like(self._known)
        chosen[self._rows[found]] = True
        return add(self._levels.program, chosen, self._known)

    def _aims(self, known: BoolArray, floors: FloatArray) -> FloatArray:
        """Loads that the search aims at: above the floors, as what is rounded misses some of it."""
        served = self._goal.program.served(known, len(floors))
        return floors + self._levels.settings.kept_back * np.maximum(served - floors, 0.0)

    def _search(self, time: GoalTime) -> None:
        levels = self._levels
        if levels.is_small:
            solve_all_rows(self._goal, self.incumbent, time.left)
            return
        PricedSearch(
            self._goal,
            self.incumbent,
            levels.tolerance.share,
            self._patient(time),
            levels.settings,
            stands=levels.stands,
            level_search=levels.level_search,
        ).run()

    def _patient(self, time: GoalTime) -> GoalTime:
        """Less time for a level that gains nothing, if there is another level after it."""
        if self._level is None or self._level == len(self._levels.loads) - 1:
            return time
        patience = Patience(self.incumbent, time.left, self._levels.settings)
        return replace(time, left=patience.seconds_left)

    @property
    def _total(self) -> float:
        """The whole load of the level."""
        return 0.0 if self._level is None else float(self._levels.loads[self._level])

    def _serves_all(self) -> bool:
        is_level = self._level is not None
        return is_level and -self.incumbent.value >= self._total * (1 - SLACK)


def _rows_up_to(program: Program, level: int | None) -> IntArray:
    """Rows of the levels that matter to a goal; all for the value."""
    if level is None:
        return np.arange(len(program.case))
    return np.flatnonzero(program.level <= level)


def _objective(program: Program, level: int | None) -> FloatArray:
    """What is minimized: the load of a level with its sign changed, or the value."""
    if level is None:
        return program.value
    return np.where(program.level == level, -program.weight, 0.0)


def _stands(program: Program) -> bool:
    """Whether there is a plan already: most of the cases may stay as they are."""
    return len(np.unique(program.place[program.stays])) > HALF * len(program.starts)
