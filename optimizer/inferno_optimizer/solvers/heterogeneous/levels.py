"""Several accelerators for one server: level by level the most load, then the least value.

For each of these goals the linear relaxation is sharpened by inequalities until it violates
few of them. A small program then goes to the MILP solver as it is, a larger one to `stage`: what
is proven is proven of all mixes. See `assignment.md`, section "Several accelerators for one
server".
"""

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from inferno_optimizer.sizing.queueing import FloatArray, IntArray
from inferno_optimizer.solvers.assignment import (
    NO_LEVEL,
    SMALLEST_GAIN,
    OneMoreCard,
    Timer,
)
from inferno_optimizer.solvers.branch_and_bound import SearchLimits
from inferno_optimizer.solvers.heterogeneous.covering import CoverInequalities
from inferno_optimizer.solvers.heterogeneous.mixes import MixTable
from inferno_optimizer.solvers.heterogeneous.problem import MixGoal, MixProblem
from inferno_optimizer.solvers.heterogeneous.program import MixProgram, Relaxed
from inferno_optimizer.solvers.heterogeneous.settings import DEFAULTS, MixSettings
from inferno_optimizer.solvers.heterogeneous.stage import MixSearch
from inferno_optimizer.solvers.incumbent import Incumbent, ProgressObserver, progress_of
from inferno_optimizer.solvers.levels import (
    SLACK,
    SOLVED,
    Floors,
    GoalTime,
    LevelGoal,
    LevelPlan,
    ProvenPlan,
    Tolerance,
    solve_levels,
)


def solve_mixes(
    table: MixTable,
    capacity: IntArray,
    timer: Timer,
    tolerance: float | None = None,
    observe: ProgressObserver | None = None,
    settings: MixSettings = DEFAULTS,
) -> LevelPlan[IntArray]:
    """Solve the problem of a table: replicas of each item.

    Parameters
    ----------
    table
        The cases and what they may be given.
    capacity
        Cards of each type; shape (types,).
    timer
        Time that remains; when it ends, the best plan so far is the answer.
    tolerance
        Share of the most load of a level that later goals may take; None for nothing.
    observe
        Is told of every improvement; None where nobody wants to know.
    settings
        Of the search.
    """
    nothing = np.zeros(table.rows.shape, dtype=np.int64)
    if not len(table.case):
        reached = ProvenPlan(nothing, np.zeros(0), 0.0, Floors(np.zeros(0), 0))
        unknown = OneMoreCard.unknown(len(capacity))
        return LevelPlan(reached, lambda: unknown, out_of_time=False)
    levels = _MixLevels(table, capacity, timer, observe, settings)
    return solve_levels(levels, nothing, timer, Tolerance.of(tolerance, SLACK))


class _MixLevels:
    """The mixes of a table, as the driver needs them; with the inequalities in use."""

    def __init__(
        self,
        table: MixTable,
        capacity: IntArray,
        timer: Timer,
        observe: ProgressObserver | None,
        settings: MixSettings,
    ) -> None:
        self.settings = settings
        self.table, self.capacity, self.observe = table, capacity, observe
        self._timer = timer
        self.is_small = np.count_nonzero(table.most) <= settings.small
        self._inequalities = CoverInequalities.of(table, settings.covers)
        self._used = np.zeros(len(self._inequalities.place), dtype=np.bool_)
        levels = int(table.level.max()) + 1
        self._loads: FloatArray = np.bincount(table.level, table.weight, levels).astype(np.float64)

    @property
    def loads(self) -> FloatArray:
        """The whole load of each level."""
        return self._loads

    def share_of_time(self, ahead: int) -> float:
        """All goals that are ahead have equal shares of the time."""
        return 1 / ahead

    def search(self, goal: LevelGoal, plan: IntArray) -> "_MixLevelSearch":
        """The search for a goal."""
        return _MixLevelSearch(self, goal, plan)

    def program(self, goal: LevelGoal) -> MixProgram:
        """The program of a goal, with the inequalities in use."""
        part, floors = self.part(goal.level), goal.floors
        mix_goal = MixGoal(goal.level, floors.loads, floors.whole)
        problem = MixProblem(self.table.take(part), self.capacity, mix_goal)
        return MixProgram(problem, self._inequalities.take(self._used).among(part))

    def part(self, level: int | None) -> IntArray:
        """Cases that matter to a goal: those up to its level; all for the value."""
        if level is None:
            return np.arange(len(self.table.case))
        return np.flatnonzero(self.table.level <= level)

    def sharpen(self, goal: LevelGoal, relaxed: Relaxed) -> bool:
        """Use the inequalities that a relaxed plan violates; return whether there are any."""
        part = self.part(goal.level)
        counts, served = np.zeros(self.table.rows.shape), np.zeros(len(self.table.case))
        counts[part], served[part] = relaxed.counts, relaxed.served
        violated = self._inequalities.violated(counts, served, self.settings.covers)
        self._used[violated] = True
        return len(violated) > 0

    def one_more(self, reached: ProvenPlan[IntArray]) -> OneMoreCard:
        """What one more card of each type is worth at the loads that are served now.

        A plan that is the best there is is solved again with each.
        """
        found = OneMoreCard.unknown(len(self.capacity))
        goals = self._goals_that_gain(reached)
        for goal in goals:
            saved = self.program(goal).savings(self._timer.seconds_left)
            if saved is None:
                break
            if goal.level is None:
                found.add_price(saved)
            else:
                found.add_gain(goal.level, saved)
        served = self.table.loads(reached.plan, len(self._loads))
        if reached.is_best(served, objective_of(self.table, None, reached.plan)):
            self._solve_with_one_more(goals, reached.plan, found)
        return found

    def _goals_that_gain(self, reached: ProvenPlan[IntArray]) -> list[LevelGoal]:
        """Levels that cannot be served entirely, and the value."""
        short, floors = np.flatnonzero(reached.most_served < self._loads), reached.floors
        whole = floors.whole
        goals = [
            LevelGoal(level, Floors(floors.loads[:level], min(whole, level)))
            for level in short.tolist()
        ]
        return [*goals, LevelGoal(None, floors)]

    def _solve_with_one_more(
        self, goals: list[LevelGoal], plan: IntArray, found: OneMoreCard
    ) -> None:
        """Tell what solving again with a card more of each type shows, if there is time for it."""
        types = len(self.capacity)
        for card_type in range(types):
            capacity = self.capacity + (np.arange(types) == card_type)
            seconds = self._timer.seconds_left() / (types - card_type)
            for goal in goals:
                saved = self._saved(goal, plan, capacity, seconds)
                if saved is None:
                    break
                if goal.level is None or saved > SMALLEST_GAIN:
                    found.tell(card_type, NO_LEVEL if goal.level is None else goal.level, saved)
                    break

    def _saved(
        self, goal: LevelGoal, plan: IntArray, capacity: IntArray, seconds: float
    ) -> float | None:
        """How much better another capacity makes a goal; None where that cannot be proven."""
        program = self.program(goal)
        program = replace(program, problem=replace(program.problem, capacity=capacity))
        if seconds < self.settings.seconds_per_column * len(program.objective):
            return None
        known = plan[self.part(goal.level)]
        better, bound = program.solve(known, SearchLimits(seconds, 0.0))
        before = objective_of(program.table, goal.level, known)
        rounding = SOLVED * max(1.0, abs(before))
        after = before if better is None else objective_of(program.table, goal.level, better)
        if after - bound > rounding:
            return None
        return before - after if before - after > rounding else 0.0


class _MixLevelSearch:
    """The search for one goal, among the cases of the levels that matter to it."""

    def __init__(self, levels: _MixLevels, goal: LevelGoal, plan: IntArray) -> None:
        self._levels, self._goal, self._known = levels, goal, plan
        self._part = levels.part(goal.level)
        table = levels.table.take(self._part)
        self.incumbent = Incumbent(
            table.filled(plan[self._part], levels.capacity),
            lambda counts: objective_of(table, goal.level, counts),
            progress_of(
                levels.observe,
                goal.level,
                lambda counts: table.loads(counts, len(levels.loads)),
                lambda counts: objective_of(table, None, counts),
            ),
            goal.floors.loads,
        )

    def improve(self, time: GoalTime) -> None:
        """Improve the plan, and prove a bound."""
        relaxed = self._relax_sharply(time.left)
        if relaxed is None:
            return
        self.incumbent.prove(relaxed.objective)
        is_small, settings = self._levels.is_small, self._levels.settings
        gap = 0.0 if is_small else settings.gap * max(1.0, abs(relaxed.objective))
        program = self._levels.program(self._goal)
        stage = MixSearch(program, self.incumbent, gap, time.left, settings)
        if is_small:
            stage.solve()
        else:
            stage.improve(relaxed)

    def plan(self, _floors: Floors) -> IntArray:
        """The incumbent, and what cases of later levels have."""
        counts = self._known.copy()
        counts[self._part] = self.incumbent.plan
        return counts

    def _relax_sharply(self, seconds_left: Callable[[], float]) -> Relaxed | None:
        """The relaxation, with the inequalities added that it violates; None if there is no time.

        Where the time ends meanwhile, it is that with fewer of them.
        """
        relaxed = self._relax(seconds_left)
        for _ in range(self._levels.settings.covers.rounds):
            if relaxed is None or not self._levels.sharpen(self._goal, relaxed):
                break
            sharper = self._relax(seconds_left)
            if sharper is None:
                break
            relaxed = sharper
        return relaxed

    def _relax(self, seconds_left: Callable[[], float]) -> Relaxed | None:
        """The relaxation, if there is time for it."""
        if seconds_left() <= 0:
            return None
        return self._levels.program(self._goal).relax(seconds_left())


def objective_of(table: MixTable, level: int | None, counts: IntArray) -> float:
    """What a plan has of what is minimized."""
    served = table.covered(counts)
    if level is None:
        return float(table.value(counts)[served].sum())
    return -float(table.weight[served & (table.level == level)].sum())
