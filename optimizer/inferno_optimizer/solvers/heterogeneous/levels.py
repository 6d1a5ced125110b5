"""Several accelerators for one server: level by level the most load, then the least value.

For each of these goals the linear relaxation is sharpened by inequalities until it violates
few of them, and then the MILP solver gets both: what is proven is proven of all mixes.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from inferno_optimizer.sizing.queueing import FloatArray, IntArray
from inferno_optimizer.solvers.assignment import OneMoreCard, Timer
from inferno_optimizer.solvers.exact.branch_and_bound import Limits, Watch
from inferno_optimizer.solvers.heterogeneous.covering import Inequalities
from inferno_optimizer.solvers.heterogeneous.mixes import MixTable
from inferno_optimizer.solvers.heterogeneous.program import Goal, MixProgram, Relaxed
from inferno_optimizer.solvers.incumbent import Incumbent, Observer, Progress

GAP = 5e-4
"""Relative distance from the bound at which a larger program is searched no further."""

SLACK = 1e-9
"""What later objectives may take from the load of a level, relative: room for rounding."""

SMALL = 200
"""Up to so many items a program is solved to the last digit."""

SHARE = 0.5
"""Share of the time of a goal in which the MILP solver has the whole program."""

TYPES = 2
"""Types of card of a part that is solved again, or one more."""

NODES = 200
"""Of branch and bound in a part; a limit that does not depend on how busy the machine is."""

SECONDS = 3.0
"""The longest that a part may take."""

TIRED = 40
"""Parts without any improvement after which the search ends."""

ROUNDS = 5
"""How often inequalities are looked for."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """Replicas of each item, with proven bounds of the load of each level and of the value.

    A bound of a level holds among the plans that serve as much of the levels before it; that
    of the value among those that serve as much of all. `one_more` tells what one more card of
    each type is worth, in the time that remains.
    """

    counts: IntArray
    most_served: FloatArray
    least_value: float
    one_more: Callable[[], OneMoreCard]
    out_of_time: bool


def solve_mixes(
    table: MixTable,
    capacity: IntArray,
    timer: Timer,
    tolerance: float = 0.0,
    observe: Observer | None = None,
) -> Outcome:
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
        return Outcome(nothing, np.zeros(0), 0.0, lambda: unknown, out_of_time=False)
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
        observe: Observer | None,
    ) -> None:
        self._table, self._capacity, self._timer = table, capacity, timer
        self._observe = observe
        self._tolerance = max(tolerance, SLACK)
        self._seconds_left = timer.to_search
        self._exact = np.count_nonzero(table.most) <= SMALL
        self._share = 1.0 if self._exact else SHARE
        self._inequalities = Inequalities.of(table)
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

    def finish(self) -> Outcome:
        """The least value among plans that keep the floors."""
        bound = self._minimize(None)
        out_of_time = self._seconds_left() <= 0
        return Outcome(self._counts, self._bounds, bound, self._one_more, out_of_time)

    def _one_more(self) -> OneMoreCard:
        """What one more card of each type is worth at the loads that are served now."""
        table, found = self._table, OneMoreCard.unknown(len(self._capacity))
        loads = np.bincount(table.level, table.weight, self.levels)
        goals: list[int | None] = [*np.flatnonzero(self._bounds < loads).tolist(), None]
        for level in goals:
            levels = self.levels if level is None else level
            part = np.flatnonzero(table.level <= levels)
            saved = self._program(level, part, self._floors[:levels]).savings(
                self._timer.seconds_left
            )
            if saved is None:
                break
            if level is None:
                found.add_price(saved)
            else:
                found.add_gain(level, saved)
        return found

    def _minimize(self, level: int | None) -> float:
        """Improve the plan as to a goal; the bound that is proven."""
        ahead = 1 if level is None else self.levels + 1 - level
        reserved = self._seconds_left() * (1 - 1 / ahead)
        levels = self.levels if level is None else level
        part = np.flatnonzero(self._table.level <= levels)
        table, relaxed = self._table.take(part), self._sharpen(level, part)
        incumbent = self._incumbent(level, table, table.filled(self._counts[part], self._capacity))
        incumbent.prove(relaxed.objective)
        gap = 0.0 if self._exact else GAP * max(1.0, abs(relaxed.objective))
        limits = Limits((self._seconds_left() - reserved) * self._share, gap, eager=True)
        if incumbent.value - relaxed.objective > gap and limits.seconds > 0:
            program = self._program(level, part, self._floors)
            watch = self._watch(program, incumbent) if incumbent.observed else None
            found, proven = program.solve(incumbent.plan, limits, watch)
            self._offer(table, incumbent, found)
            incumbent.prove(proven)
        if not self._exact:
            self._improve(level, part, incumbent, gap, reserved)
        self._counts[part] = incumbent.plan
        return incumbent.bound

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
            served, value = _loads(table, counts, levels), _objective(table, None, counts)
            observe(Progress(level, served, value, bound))

        return Incumbent(known, worth, tell)

    def _watch(self, program: MixProgram, incumbent: Incumbent[IntArray]) -> Watch:
        """Offers plans to the incumbent while the MILP solver runs."""

        def offer(values: FloatArray) -> None:
            self._offer(program.table, incumbent, program.counts(values))

        return Watch(offer, incumbent.prove)

    def _improve(
        self,
        level: int | None,
        part: IntArray,
        incumbent: Incumbent[IntArray],
        gap: float,
        reserved: float,
    ) -> None:
        """Solve parts of the plan again, cases on a few types of card, while time remains."""
        table, failures = self._table.take(part), 0
        random = np.random.default_rng(0)  # always the same parts: plans are to be repeatable
        while failures < TIRED and incumbent.value > incumbent.bound + gap:
            limits = Limits(min(self._seconds_left() - reserved, SECONDS), 0.0, NODES)
            if limits.seconds <= 0:
                break
            known = incumbent.plan
            cases = _on_few_types(table, known, random)
            found = self._program_beside(level, part, known, cases).solve(known[cases], limits)[0]
            failures += 1
            if found is not None:
                changed = known.copy()
                changed[cases] = found
                failures = 0 if self._offer(table, incumbent, changed) else failures

    def _program_beside(
        self, level: int | None, part: IntArray, known: IntArray, cases: IntArray
    ) -> MixProgram:
        """The program of some cases with what all others leave them: cards, and loads to serve."""
        others = self._table.take(np.delete(part, cases))
        counts = np.delete(known, cases, axis=0)
        loads, levels = _loads(others, counts, self.levels), len(self._floors)
        goal = Goal(level, np.maximum(self._floors - loads[:levels], 0.0), min(self._whole, levels))
        left = self._capacity - others.used(counts, len(self._capacity))
        inequalities = self._inequalities.take(self._used).among(part[cases])
        return MixProgram(self._table.take(part[cases]), left, goal, inequalities)

    def _offer(
        self, table: MixTable, incumbent: Incumbent[IntArray], found: IntArray | None
    ) -> bool:
        """Offer a plan that was found, if it keeps the floors; return whether it is accepted."""
        if found is None:
            return False
        found, levels = table.trimmed(found), len(self._floors)
        keeps = np.all(_loads(table, found, self.levels)[:levels] >= self._floors)
        return bool(keeps) and incumbent.offer(found)

    def _program(self, level: int | None, part: IntArray, floors: FloatArray) -> MixProgram:
        inequalities = self._inequalities.take(self._used).among(part)
        goal = Goal(level, floors, min(self._whole, len(floors)))
        return MixProgram(self._table.take(part), self._capacity, goal, inequalities)

    def _sharpen(self, level: int | None, part: IntArray) -> Relaxed:
        """The relaxation, with the inequalities added that it violates."""
        relaxed = self._program(level, part, self._floors).relax()
        for _ in range(ROUNDS):
            counts = np.zeros(self._table.rows.shape)
            served = np.zeros(len(self._table.case))
            counts[part], served[part] = relaxed.counts, relaxed.served
            violated = self._inequalities.violated(counts, served)
            if not len(violated):
                break
            self._used[violated] = True
            relaxed = self._program(level, part, self._floors).relax()
        return relaxed


def _on_few_types(table: MixTable, counts: IntArray, random: np.random.Generator) -> IntArray:
    """Cases with replicas on some types of card, chosen at random, and cases with none."""
    types = int(table.type.max()) + 1
    few = np.zeros(types, dtype=np.bool_)
    few[random.permutation(types)[: TYPES + int(random.integers(2))]] = True
    there = counts > 0
    mine = np.any(there & few[table.type], axis=1) | ~there.any(axis=1)
    return np.flatnonzero(mine)


def _loads(table: MixTable, counts: IntArray, levels: int) -> FloatArray:
    """Load that a plan serves of each level."""
    served = table.covered(counts)
    loads = np.zeros(levels)
    np.add.at(loads, table.level[served], table.weight[served])
    return loads


def _objective(table: MixTable, level: int | None, counts: IntArray) -> float:
    """What a plan has of what is minimized."""
    served = table.covered(counts)
    if level is None:
        return float(table.value(counts)[served].sum())
    return -float(table.weight[served & (table.level == level)].sum())
