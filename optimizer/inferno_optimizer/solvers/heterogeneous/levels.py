"""Several accelerators for one server: level by level the most load, then the least value.

For each of these goals the linear relaxation is sharpened by inequalities until it violates
few of them. A small program then goes to the MILP solver as it is, a larger one to `stage`: what
is proven is proven of all mixes. See `assignment.md`, section "Several accelerators for one
server".
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from inferno_optimizer.sizing.queueing import FloatArray, IntArray
from inferno_optimizer.solvers.assignment import (
    NO_LEVEL,
    SMALLEST_GAIN,
    OneMoreCard,
    Timer,
)
from inferno_optimizer.solvers.exact.branch_and_bound import SearchLimits
from inferno_optimizer.solvers.failures import Failures
from inferno_optimizer.solvers.heterogeneous.covering import CoverInequalities
from inferno_optimizer.solvers.heterogeneous.mixes import MixTable
from inferno_optimizer.solvers.heterogeneous.problem import MixGoal, MixProblem
from inferno_optimizer.solvers.heterogeneous.program import MixProgram, Relaxed
from inferno_optimizer.solvers.heterogeneous.stage import MixSearch
from inferno_optimizer.solvers.incumbent import UNKNOWN, Incumbent, ProgressObserver, SearchProgress

GAP = 5e-4
"""Relative distance from the bound at which a larger program is searched no further."""

SLACK = 1e-9
"""Least share of a level's load that later levels may trade away: room for rounding."""

SMALL = 200
"""Up to so many items a program is solved to the last digit."""

SOLVED = 1e-6
"""Relative distance from the bound up to which the plan counts as the best one."""

PER_ITEM = 1e-4
"""Seconds for each item that it takes at least to solve a program again."""

ROUNDS = 5
"""Most rounds in which violated inequalities are added."""


@dataclass(frozen=True, slots=True)
class MixPlan:
    """Replicas of each item, with proven bounds of the load of each level and of the value.

    A bound of a level holds among the plans that serve as much of the levels before it; that
    of the value among those that serve as much of all, and it is -inf where nothing is proven.
    `one_more` tells what one more card of each type is worth, in the time that remains.
    `failures` are steps that ended with an error.
    """

    counts: IntArray
    most_served: FloatArray
    least_value: float
    one_more: Callable[[], OneMoreCard]
    out_of_time: bool
    failures: tuple[str, ...] = ()


def solve_mixes(
    table: MixTable,
    capacity: IntArray,
    timer: Timer,
    tolerance: float = 0.0,
    observe: ProgressObserver | None = None,
) -> MixPlan:
    """Solve the problem of a table.

    Parameters
    ----------
    table
        The cases and what they may be given.
    capacity
        Cards of each type; shape (types,).
    timer
        Time that remains; when it ends, the best plan so far is the answer.
    tolerance
        Share of the most load of a level that later goals may take.
    observe
        Is told of every improvement; None where nobody wants to know.
    """
    if not len(table.case):
        nothing = np.zeros(table.rows.shape, dtype=np.int64)
        unknown = OneMoreCard.unknown(len(capacity))
        return MixPlan(nothing, np.zeros(0), 0.0, lambda: unknown, out_of_time=False)
    search = _Search(table, capacity, timer, tolerance, observe)
    for level in range(search.levels):
        search.serve(level)
    return search.finish()


class _Search:
    """The levels done so far: a plan, floors that later goals keep, inequalities in use."""

    def __init__(
        self,
        table: MixTable,
        capacity: IntArray,
        timer: Timer,
        tolerance: float,
        observe: ProgressObserver | None,
    ) -> None:
        self._table, self._capacity, self._timer = table, capacity, timer
        self._observe = observe
        self._tolerance = max(tolerance, SLACK)
        self._seconds_left = timer.to_search
        self._failures = Failures()
        self._exact = np.count_nonzero(table.most) <= SMALL
        self._inequalities = CoverInequalities.of(table)
        self._used = np.zeros(len(self._inequalities.place), dtype=np.bool_)
        self.levels = int(table.level.max()) + 1
        self._counts = np.zeros(table.rows.shape, dtype=np.int64)
        self._floors = np.zeros(0)
        self._bounds = np.zeros(0)
        self._whole = 0

    def serve(self, level: int) -> None:
        """Serve the most load of one level, the earlier ones keeping theirs."""
        table = self._table
        weight = np.where(table.level == level, table.weight, 0.0)
        bound = self._minimize(level)
        served, total = float(weight @ table.covered(self._counts)), float(weight.sum())
        most = max(min(-bound, total), served)
        if self._tolerance == SLACK and self._whole == level and served >= total * (1 - SLACK):
            self._whole += 1
        self._bounds = np.append(self._bounds, most)
        self._floors = np.append(
            self._floors, min(served * (1 - SLACK), most * (1 - self._tolerance))
        )

    def finish(self) -> MixPlan:
        """The least value among plans that keep the floors."""
        bound = self._minimize(None)
        out_of_time = self._seconds_left() <= 0
        failures = self._failures.texts
        return MixPlan(
            self._counts,
            self._bounds,
            bound,
            lambda: self._one_more(bound),
            out_of_time,
            failures,
        )

    def _one_more(self, least_value: float) -> OneMoreCard:
        """What one more card of each type is worth at the loads that are served now.

        A plan that is the best there is is solved again with each.
        """
        table, found = self._table, OneMoreCard.unknown(len(self._capacity))
        loads = np.bincount(table.level, table.weight, self.levels)
        goals: list[int | None] = [*np.flatnonzero(self._bounds < loads).tolist(), None]
        for level in goals:
            part = np.flatnonzero(table.level <= (self.levels if level is None else level))
            saved = self._program(level, part).savings(self._timer.seconds_left)
            if saved is None:
                break
            if level is None:
                found.add_price(saved)
            else:
                found.add_gain(level, saved)
        if self._is_best(least_value):
            self._solve_with_one_more(goals, found)
        return found

    def _is_best(self, least_value: float) -> bool:
        """Whether it is proven that no plan is better."""
        loads = self._table.loads(self._counts, self.levels)
        value = _objective(self._table, None, self._counts)
        served_most = bool(np.all(loads >= self._bounds * (1 - SLACK)))
        return served_most and value - least_value <= SOLVED * max(1.0, abs(value))

    def _solve_with_one_more(self, goals: list[int | None], found: OneMoreCard) -> None:
        """Tell what solving again with a card more of each type shows, if there is time for it."""
        types = len(self._capacity)
        for card_type in range(types):
            capacity = self._capacity + (np.arange(types) == card_type)
            seconds = self._timer.seconds_left() / (types - card_type)
            for level in goals:
                saved = self._saved(level, capacity, seconds)
                if saved is None:
                    break
                if level is None or saved > SMALLEST_GAIN:
                    found.tell(card_type, NO_LEVEL if level is None else level, saved)
                    break

    def _saved(self, level: int | None, capacity: IntArray, seconds: float) -> float | None:
        """How much better another capacity makes a goal; None where that cannot be proven."""
        part = np.flatnonzero(self._table.level <= (self.levels if level is None else level))
        program = self._program(level, part)
        program = replace(program, problem=replace(program.problem, capacity=capacity))
        if seconds < PER_ITEM * len(program.objective):
            return None
        known = self._counts[part]
        plan, bound = program.solve(known, SearchLimits(seconds, 0.0))
        before = _objective(program.table, level, known)
        rounding = SOLVED * max(1.0, abs(before))
        after = before if plan is None else _objective(program.table, level, plan)
        if after - bound > rounding:
            return None
        return before - after if before - after > rounding else 0.0

    def _minimize(self, level: int | None) -> float:
        """Improve the plan for a level's load, or for the value (None); return the proven bound."""
        if self._seconds_left() <= 0:
            return UNKNOWN
        ahead = 1 if level is None else self.levels + 1 - level
        reserved = self._seconds_left() * (1 - 1 / ahead)
        part = np.flatnonzero(self._table.level <= (self.levels if level is None else level))
        table = self._table.take(part)
        known = table.filled(self._counts[part], self._capacity)
        incumbent = self._incumbent(level, table, known)
        self._failures.attempt(
            "value" if level is None else f"load of priority class {level + 1}",
            lambda: self._improve(level, part, incumbent, lambda: self._seconds_left() - reserved),
        )
        self._counts[part] = incumbent.plan
        return incumbent.bound

    def _improve(
        self,
        level: int | None,
        part: IntArray,
        incumbent: Incumbent[IntArray],
        seconds_left: Callable[[], float],
    ) -> None:
        """Improve the plan of a goal, and prove a bound, in some time."""
        relaxed = self._sharpen(level, part, seconds_left)
        if relaxed is None:
            return
        incumbent.prove(relaxed.objective)
        gap = 0.0 if self._exact else GAP * max(1.0, abs(relaxed.objective))
        stage = MixSearch(self._program(level, part), incumbent, gap, seconds_left)
        if self._exact:
            stage.solve()
        else:
            stage.improve(relaxed)

    def _incumbent(
        self, level: int | None, table: MixTable, known: IntArray
    ) -> Incumbent[IntArray]:
        """The known plan as the incumbent of a goal."""
        observe, levels = self._observe, self.levels

        def worth(counts: IntArray) -> float:
            return _objective(table, level, counts)

        if observe is None:
            return Incumbent(known, worth)

        def tell(counts: IntArray, bound: float) -> None:
            served, value = table.loads(counts, levels), _objective(table, None, counts)
            observe(SearchProgress(level, served, value, bound))

        return Incumbent(known, worth, tell)

    def _problem(self, level: int | None, part: IntArray) -> MixProblem:
        floors = self._floors[:level]
        goal = MixGoal(level, floors, min(self._whole, len(floors)))
        return MixProblem(self._table.take(part), self._capacity, goal)

    def _program(self, level: int | None, part: IntArray) -> MixProgram:
        inequalities = self._inequalities.take(self._used).among(part)
        return MixProgram(self._problem(level, part), inequalities)

    def _sharpen(
        self, level: int | None, part: IntArray, seconds_left: Callable[[], float]
    ) -> Relaxed | None:
        """The relaxation, with the inequalities added that it violates; None if there is no time.

        Where the time ends meanwhile, it is that with fewer of them.
        """
        relaxed = self._relax(level, part, seconds_left)
        for _ in range(ROUNDS):
            if relaxed is None:
                break
            counts = np.zeros(self._table.rows.shape)
            served = np.zeros(len(self._table.case))
            counts[part], served[part] = relaxed.counts, relaxed.served
            violated = self._inequalities.violated(counts, served)
            if not len(violated):
                break
            self._used[violated] = True
            sharper = self._relax(level, part, seconds_left)
            if sharper is None:
                break
            relaxed = sharper
        return relaxed

    def _relax(
        self, level: int | None, part: IntArray, seconds_left: Callable[[], float]
    ) -> Relaxed | None:
        """The relaxation, if there is time for it."""
        if seconds_left() <= 0:
            return None
        return self._program(level, part).relax(seconds_left())


def _objective(table: MixTable, level: int | None, counts: IntArray) -> float:
    """What a plan has of what is minimized."""
    served = table.covered(counts)
    if level is None:
        return float(table.value(counts)[served].sum())
    return -float(table.weight[served & (table.level == level)].sum())
