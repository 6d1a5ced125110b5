"""The search for one goal: the most load of a level, or the least value.

The MILP solver gets a small program as it is. For a larger one prices and cuts prove a bound,
and a first choice of rows is improved by local search unless it is close to that. See
`assignment.md`, section "Exact, one row for each server".
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import numpy as np

from inferno_optimizer.sizing.queueing import FloatArray, IntArray
from inferno_optimizer.solvers.exact.branch_and_bound import SearchLimits
from inferno_optimizer.solvers.exact.columns import BinaryColumns
from inferno_optimizer.solvers.exact.large_neighbourhood import Task, improve
from inferno_optimizer.solvers.exact.local_search import Guide, descend, exchange, round_off
from inferno_optimizer.solvers.exact.neighbourhood import (
    Centre,
    Neighbourhood,
    leave_everything_open,
)
from inferno_optimizer.solvers.exact.packing import change_little, completed, insert, pack
from inferno_optimizer.solvers.exact.prices import price
from inferno_optimizer.solvers.exact.program import BoolArray, Program
from inferno_optimizer.solvers.exact.relaxation import RowRelaxation
from inferno_optimizer.solvers.exact.settings import ExactSettings
from inferno_optimizer.solvers.incumbent import Incumbent
from inferno_optimizer.solvers.levels import SLACK, Floors, GoalTime


@dataclass(frozen=True, slots=True)
class RowGoal:
    """What is minimized over the rows of a program.

    Attributes
    ----------
    program, objective
        The rows, and what is minimized; shape (rows,).
    floors
        Loads that every choice keeps, and levels that are served entirely.
    is_last
        Whether it is the value, after which there is no other goal.
    """

    program: Program
    objective: FloatArray
    floors: Floors
    is_last: bool


LevelSearch = Callable[[RowGoal, BoolArray, Callable[[], float]], BoolArray]
"""Another search for the most load of a level: of its goal, a choice that keeps the floors, and the
time that remains it makes a choice that keeps them, too, and serves as much or more."""


def solve_all_rows(
    goal: RowGoal, incumbent: Incumbent[BoolArray], seconds_left: Callable[[], float]
) -> None:
    """Let the MILP solver look for the best choice of all rows."""
    task = Task(goal.program, goal.objective, Floors(incumbent.floors, goal.floors.whole), 0.0)
    _solve_rows(task, incumbent, leave_everything_open(goal.program), seconds_left)


def _solve_rows(
    task: Task,
    incumbent: Incumbent[BoolArray],
    opening: Neighbourhood,
    seconds_left: Callable[[], float],
) -> None:
    """Let the MILP solver look for a better choice than the incumbent among all open rows."""
    columns = BinaryColumns(task.program, opening, task.floors.loads, task.floors.whole)
    watching = incumbent if incumbent.observed else None
    limits = SearchLimits(
        seconds_left(), incumbent.distance(task.gap)
    )  # it takes a while to build so many columns
    found = columns.minimize(task.objective, limits, incumbent.plan, watching)
    if found is not None:
        incumbent.offer(found.chosen)
        incumbent.prove(found.bound)


class PricedSearch:
    """The search in a larger program: it ends where a choice is close to what prices prove.

    Parameters
    ----------
    goal
        What is minimized.
    incumbent
        The choice to begin with, and the floors that it keeps.
    tolerance
        Share of the load of a level that later goals may take.
    stands
        Whether there is a plan already: most of the cases may stay as they are.
    time
        What remains.
    settings
        Of the search.
    level_search
        The search for a level that a first choice serves far below its bound, if there is one.
    """

    def __init__(
        self,
        goal: RowGoal,
        incumbent: Incumbent[BoolArray],
        tolerance: float,
        time: GoalTime,
        settings: ExactSettings,
        *,
        stands: bool,
        level_search: LevelSearch | None,
    ) -> None:
        self._goal, self._program, self._incumbent = goal, goal.program, incumbent
        self._tolerance, self._settings, self._stands = tolerance, settings, stands
        self._level_search = None if goal.is_last else level_search
        self._may_end = stands and not goal.is_last  # and then it takes no time from the others
        self._first_seconds_left = time.left_in_all if self._may_end else time.left
        self._seconds_left, self._gap = time.left, settings.gap
        self._prices = price(
            goal.program,
            goal.objective,
            incumbent.floors,
            goal.floors.whole,
            self._first_seconds_left,
            settings.prices,
        )
        incumbent.prove(self._prices.bound)

    def run(self) -> None:
        """Stop where a first choice is close to what prices prove; or search."""
        if self._stands:
            self._offer(self._standing())
            if self._may_end and self._is_steady():
                return
        if self._seconds_left() <= 0 and self._goal.is_last:
            return
        packed = pack(self._program, self._prices, self._settings.packing)
        self._offer(packed, self._incumbent.floors)
        if not self._goal.is_last:
            self._gap = self._gap_of_level()
        self._search(packed)
        self._refine()

    def _standing(self) -> BoolArray:
        """The plan that stands, with few changes."""
        packing = self._settings.packing
        return change_little(self._program, self._prices, self._first_seconds_left, packing)

    def _is_steady(self) -> bool:
        """Whether the plan that stands is so good that little would be won by another one."""
        steady = self._settings.steady * self._tolerance * abs(self._prices.bound)
        return self._incumbent.value <= self._prices.bound + steady

    def _is_open(self) -> bool:
        """Whether the incumbent is not yet good enough."""
        return not self._incumbent.is_within(self._gap)

    def _floors(self) -> Floors:
        """Loads that every choice keeps."""
        return Floors(self._incumbent.floors, self._goal.floors.whole)

    def _gap_of_level(self) -> float:
        """Relative distance from the bound at which a level is searched no further.

        Later objectives may take what the tolerance allows, and a part of that is left to them; but
        where all might be served, that is what is looked for.
        """
        everything = self._prices.objective[self._program.starts].sum()
        serves_less = self._prices.proven > everything * (1 - SLACK)
        gap, ahead = self._settings.gap, (1 - self._settings.kept_back) * self._tolerance
        return max(gap, ahead) if serves_less else gap

    def _search(self, packed: BoolArray) -> None:
        """Search around first choices, until one is good enough."""
        if self._goal.is_last and self._is_open():
            self._tighten()
        if self._level_search is not None and not self._incumbent.is_within(self._settings.far):
            self._search_far_level(self._level_search)
        else:
            for known in (packed, self._incumbent.plan):
                if self._is_open():
                    self._search_nearby(known)
        if self._is_open():
            self._search_everywhere()

    def _search_far_level(self, level_search: LevelSearch) -> None:
        """Leave a part of the time to the other search."""
        reserved = (1 - self._settings.far_time) * self._seconds_left()
        left = self._seconds_left
        self._offer(level_search(self._goal, self._incumbent.plan, lambda: left() - reserved))

    def _tighten(self) -> None:
        """Prove more by cuts, once in a stage, among the rows of which something better consists.

        Floors may be missed for the price of the load, so that the bound follows lower floors.
        """
        prices, incumbent, program = self._prices, self._incumbent, self._program
        if prices.proven > prices.bound or len(program.case) > self._settings.sizes.large:
            return
        rows = np.flatnonzero(prices.excess <= incumbent.value - prices.bound)
        relaxation = RowRelaxation(
            program.take(rows),
            prices.objective[rows],
            incumbent.floors,
            prices.loads,
            self._goal.floors.whole,
            self._settings.relaxation,
        )
        reserved = (1 - self._settings.cut_time) * self._seconds_left()
        rounds = self._settings.cut_rounds
        proven = relaxation.tighten(rounds, lambda: self._seconds_left() - reserved)
        incumbent.prove(proven)
        self._prices = prices.raised(min(proven, incumbent.value))

    def _search_nearby(self, known: BoolArray) -> None:
        """Dive and exchange where the levels with a floor serve the same cases as what is known.

        Of these levels all the same cases are served, on any rows, and as many more as the floors
        take; nobody else is. So every choice keeps the floors, which rounding misses where single
        cases are a large part of the load.
        """
        floors = self._floors()
        if len(floors.loads) == floors.whole or self._seconds_left() <= 0:
            return
        served = completed(self._program, known, floors, self._prices)
        rows, kept = _with_all_of(self._program, served, len(floors.loads))
        objective = self._prices.objective[rows]
        nearby = _NearbySearch(kept, objective, self._seconds_left, self._settings)
        for found in nearby.choices(known[rows]):
            chosen = np.zeros_like(self._incumbent.plan)
            chosen[rows] = found
            self._incumbent.offer(chosen)

    def _search_everywhere(self) -> None:
        """Dive, then exchange around where that ends, or around what is known."""
        program, left, settings = self._program, self._seconds_left, self._settings
        is_large = len(program.case) > self._settings.sizes.large
        for guide in (Guide.LINEAR,) if is_large else (Guide.CUTS, Guide.BRANCHES):
            floors = self._floors()
            known = self._incumbent.plan
            centre = descend(program, self._prices, floors, known, guide, left, settings)
            found = exchange(program, self._prices, floors, centre, left, settings)
            if found is not None:
                self._offer(found)
            rounded = round_off(program, self._prices, centre, left, settings)
            self._offer(rounded)
            if self._is_open():
                self._search_nearby(rounded)
            if self._is_open():
                self._tighten()
            if not self._is_open() or left() <= 0:
                break

    def _offer(self, found: BoolArray, lowest: FloatArray | None = None) -> None:
        """Offer what was found; floors that it misses are lowered, down to those of the goal."""
        program, prices, incumbent = self._program, self._prices, self._incumbent
        floors = np.minimum(incumbent.floors, program.served(found, len(incumbent.floors)))
        if np.any(floors < (self._goal.floors.loads if lowest is None else lowest)):
            return
        if not program.serves_all_of(found, self._goal.floors.whole):
            return
        lowered = prices.lowered(incumbent.floors - floors)
        if prices.objective @ found - lowered.bound >= incumbent.value - prices.bound:
            return
        if incumbent.offer_at(found, floors, lowered.proven):
            self._prices = lowered

    def _refine(self) -> None:
        """Solve all rows of which a better choice may consist, and parts of them, in turn."""
        left, settings = self._seconds_left, self._settings
        task = Task(self._program, self._prices.objective, self._floors(), self._gap)
        rows = np.count_nonzero(self._better_rows())
        is_few = rows <= settings.sizes.medium
        if is_few:
            later = (1 - settings.proof_time) * left()
            self._solve_together(task, lambda: left() - later)
        parts = settings.parts
        together = left() * (1 - (settings.parts_time_of_few if is_few else settings.parts_time))
        reserved = together if rows <= settings.sizes.large else 0.0
        patience = parts.patience_with_few if is_few else parts.patience
        improve(task, self._incumbent, patience, lambda: left() - reserved, parts)
        self._solve_together(task, left)

    def _solve_together(self, task: Task, seconds_left: Callable[[], float]) -> None:
        """Let the MILP solver have all rows that matter, if there is time for so many."""
        better = self._better_rows()
        rows = np.count_nonzero(better)
        if not 0 < rows <= self._settings.sizes.large:
            return
        if seconds_left() > self._settings.seconds_per_column * rows:
            opening = Neighbourhood(np.zeros_like(better), better)
            _solve_rows(task, self._incumbent, opening, seconds_left)

    def _better_rows(self) -> BoolArray:
        """Rows of which a better choice may consist; none if the incumbent is good enough."""
        if not self._is_open():
            return np.zeros(len(self._program.case), dtype=np.bool_)
        better: BoolArray = self._prices.excess <= self._incumbent.value - self._prices.bound
        return better


class _NearbySearch:
    """A dive and exchanges in a program whose first level is served entirely.

    Parameters
    ----------
    program, objective
        The rows, and what is minimized.
    seconds_left
        Time that remains.
    settings
        Of the search.
    """

    def __init__(
        self,
        program: Program,
        objective: FloatArray,
        seconds_left: Callable[[], float],
        settings: ExactSettings,
    ) -> None:
        first = program.starts[program.level[program.starts] == 0]
        self._program, self._seconds_left = program, seconds_left
        self._settings = settings
        self._floors = Floors(program.weight[first].sum(keepdims=True), 1)
        self._prices = price(
            program, objective, self._floors.loads, 1, seconds_left, settings.prices
        )

    def choices(self, known: BoolArray) -> Iterator[BoolArray]:
        """Choices that serve all of the first level, around a known one."""
        for found in self._around(known):
            if found is not None and self._serves_all(found):
                yield found

    def _around(self, known: BoolArray) -> Iterator[BoolArray | None]:
        program, prices, left = self._program, self._prices, self._seconds_left
        packing = self._settings.packing
        yield insert(program, pack(program, prices, packing), prices, left, packing)
        centre = self._centre(known)
        yield exchange(program, prices, self._floors, centre, left, self._settings)
        yield round_off(program, prices, centre, left, self._settings)

    def _centre(self, known: BoolArray) -> Centre:
        """What is known, if it serves all of the first level; or where a dive ends."""
        program, prices, left = self._program, self._prices, self._seconds_left
        if not self._serves_all(known):
            floors, settings = self._floors, self._settings
            return descend(program, prices, floors, known, Guide.LINEAR, left, settings)
        split = np.zeros(len(program.starts), dtype=np.bool_)
        return Centre(known, split, prices.excess, prices.loads)

    def _serves_all(self, chosen: BoolArray) -> bool:
        return self._program.serves_all_of(chosen, self._floors.whole)


def _with_all_of(program: Program, served: BoolArray, levels: int) -> tuple[IntArray, Program]:
    """Rows of a program in which the cases that are served of the first levels are all the first.

    Others of these are not in it; the cases of all later levels are its second one.
    """
    later = program.level >= levels
    rows = np.flatnonzero(later | served[program.place])
    return rows, replace(program.take(rows), level=later[rows].astype(np.int64))
