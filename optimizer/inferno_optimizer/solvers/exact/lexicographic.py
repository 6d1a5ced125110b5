"""Level by level the most load, then the least value; with what is proven of each.

A small program goes to the MILP solver as it is. For a larger one prices and cuts prove a bound,
and a first solution is improved by local search unless it is close to that. See `assignment.md`,
section "Exact, one row for each server".
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from inferno_optimizer.sizing.queueing import FloatArray, IntArray
from inferno_optimizer.solvers.assignment import OneMoreCard, Timer
from inferno_optimizer.solvers.exact.branch_and_bound import SearchLimits
from inferno_optimizer.solvers.exact.columns import BinaryColumns
from inferno_optimizer.solvers.exact.large_neighbourhood import Task, improve
from inferno_optimizer.solvers.exact.local_search import Guide, descend, exchange, round_off
from inferno_optimizer.solvers.exact.neighbourhood import (
    Centre,
    Neighbourhood,
    leave_everything_open,
)
from inferno_optimizer.solvers.exact.one_more_card import solve_with_one_more, value_of_one_more
from inferno_optimizer.solvers.exact.packing import (
    add,
    change_little,
    completed,
    fill,
    insert,
    pack,
    stand,
)
from inferno_optimizer.solvers.exact.prices import RowPrices, price
from inferno_optimizer.solvers.exact.program import BoolArray, Floors, Program
from inferno_optimizer.solvers.exact.relaxation import RowRelaxation
from inferno_optimizer.solvers.failures import Failures
from inferno_optimizer.solvers.incumbent import Incumbent, ProgressObserver, SearchProgress

GAP = 5e-5
"""Relative distance from the bound at which a larger program is searched no further.

A level may end farther away, as far as later levels may trade its load away.
"""

SLACK = 1e-9
"""Share of a level's load that later levels may trade away, in a small program: rounding."""

GIVEN_UP = 5e-4
"""Share of a level's load that later levels may trade away, in a larger program. To keep the last
request of a level would leave the later levels hardly any other plan."""

SOLVED = 1e-6
"""Relative distance of a value from its bound up to which the plan counts as the best one."""

STEADY = 4.0
"""Accept the running plan if its shortfall is at most this multiple of the tolerance."""

ROUNDS, CUTS = 40, 0.3
"""Most rounds of cuts in a stage, and the share of the remaining time that they may take."""

FIRST = 0.1
"""Share of the time after the search in which the MILP solver may prove that a plan is best."""

PARTS, PARTS_OF_FEW = 0.3, 0.8
"""Share of the time after that in which parts are solved again, if many rows are open, and if few.
Few rows were given to the MILP solver at once; what it has not finished then takes it long."""

SHARE = 0.5
"""Share of the remaining time that a level may take; what comes later is worth less."""

PER_COLUMN = 1e-4
"""Seconds for each column without which the MILP solver finds nothing, and may end late."""

PATIENCE, PATIENCE_WITH_FEW = 10, 30
"""Parts of a size without any improvement after which parts get larger, or the search ends."""

HALF = 0.5


@dataclass(frozen=True, slots=True)
class ProgramSizes:
    """Up to `small` rows a program is solved as it is, to the last digit.

    Of a larger one the MILP solver gets the rows that can be part of a better solution than the
    known one, if they are no more than `large`, after parts of the program were solved again; and
    at once, for a short time, if they are no more than `medium`. In a program of more than
    `large` rows each case is a small part of the whole: neither cuts nor branch and bound are worth
    their time.

    `small` was measured in 8 s on 36 fleets of 100 to 400 servers at demand 0.8 to 4: up to 2,600
    rows both ways find the same, and this one in half of the time; from 5,000 on a search finds
    more.
    """

    small: int = 3_000
    medium: int = 6_000
    large: int = 25_000


@dataclass(frozen=True, slots=True)
class RowPlan:
    """Rows chosen, with proven bounds of the load of each level and of the value.

    A bound of a level holds among the solutions that serve as much of the levels before it;
    that of the value among those that serve as much of all, and it is -inf where nothing is
    proven. `one_more` tells what one more card of each type is worth, in the time that remains.
    `failures` are steps that ended with an error.
    """

    chosen: BoolArray
    most_served: FloatArray
    least_value: float
    one_more: Callable[[], OneMoreCard]
    out_of_time: bool
    failures: tuple[str, ...] = ()


def solve_by_levels(
    program: Program,
    timer: Timer,
    sizes: ProgramSizes = ProgramSizes(),
    tolerance: float | None = None,
    observe: ProgressObserver | None = None,
) -> RowPlan:
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
    observe
        Is told of every improvement; None where nobody wants to know.
    """
    search = _Search(program, timer, sizes, tolerance, observe)
    for level in range(search.levels):
        search.serve(level)
    return search.finish()


class _Search:
    """The levels done so far: rows chosen, floors that later objectives keep."""

    def __init__(
        self,
        program: Program,
        timer: Timer,
        sizes: ProgramSizes,
        tolerance: float | None,
        observe: ProgressObserver | None,
    ) -> None:
        self._program, self._timer, self._sizes = program, timer, sizes
        self._observe = observe
        self._seconds_left = timer.to_search
        self._failures = Failures()
        self._exact = len(program.case) <= sizes.small
        by_default = SLACK if self._exact else GIVEN_UP
        self._tolerance = by_default if tolerance is None else max(tolerance, SLACK)
        self._keeps_whole = not tolerance  # by default nobody is left out where all can be served
        self.levels = int(program.level.max()) + 1
        self._stands, nothing = _stands(program), np.zeros_like(program.stays)
        self._chosen = stand(program) if self._stands else nothing
        first = program.starts
        self._loads = np.bincount(program.level[first], program.weight[first], self.levels)
        self._floors = np.zeros(0)
        self._bounds = np.zeros(0)
        self._whole = 0

    def serve(self, level: int) -> None:
        """Serve the most load of one level, the earlier ones keeping theirs."""
        rows = np.flatnonzero(self._program.level <= level)
        part = self._program.take(rows)
        objective = np.where(part.level == level, -part.weight, 0.0)
        total = float(self._loads[level])
        incumbent = self._incumbent(part, objective, fill(part, self._chosen[rows]), level)
        if -incumbent.value >= total * (1 - SLACK):
            incumbent.prove(-total)  # nothing is left to search
        else:
            self._failures.attempt(
                f"load of priority class {level + 1}",
                lambda: self._minimize(part, objective, incumbent, is_last=False),
            )
        chosen = np.zeros_like(self._chosen)
        chosen[rows[incumbent.plan]] = True
        self._chosen = add(self._program, chosen, self._chosen)
        served, most = -incumbent.value, min(-incumbent.bound, total)
        if self._keeps_whole and self._whole == level and served >= total * (1 - SLACK):
            self._whole += 1
        self._bounds = np.append(self._bounds, most)
        self._floors = np.append(self._floors, self._floor(served, most))

    def _floor(self, served: float, most: float) -> float:
        """Load of a level that later objectives keep.

        It is the largest possible load less the tolerance, if the plan serves as much. Otherwise it
        is what the plan serves less the tolerance: hardly any other plan serves all of it.
        """
        close = most * (1 - self._tolerance)
        if served >= close:
            return min(served * (1 - SLACK), close)
        return served * (1 - self._tolerance)

    def finish(self) -> RowPlan:
        """The least value among solutions that keep the floors."""
        program = self._program
        incumbent = self._incumbent(program, program.value, fill(program, self._chosen), None)
        self._failures.attempt("value", lambda: self._minimize_value(incumbent))
        chosen = incumbent.plan
        return RowPlan(
            chosen,
            self._bounds,
            incumbent.bound,
            lambda: self._one_more(chosen, incumbent.bound),
            out_of_time=self._seconds_left() <= 0,
            failures=self._failures.texts,
        )

    def _minimize_value(self, incumbent: Incumbent[BoolArray]) -> None:
        program = self._program
        self._minimize(program, program.value, incumbent, is_last=True)
        if self._exact:
            left = self._seconds_left
            prices = price(program, program.value, self._floors, self._whole, left)
            incumbent.prove(prices.bound)

    def _incumbent(
        self, program: Program, objective: FloatArray, known: BoolArray, level: int | None
    ) -> Incumbent[BoolArray]:
        """The known solution as the incumbent of a stage."""
        observe, levels = self._observe, self.levels

        def worth(chosen: BoolArray) -> float:
            return float(objective @ chosen)

        if observe is None:
            return Incumbent(known, worth)

        def tell(chosen: BoolArray, bound: float) -> None:
            value = float(program.value @ chosen)
            observe(SearchProgress(level, program.served(chosen, levels), value, bound))

        return Incumbent(known, worth, tell)

    def _one_more(self, chosen: BoolArray, least_value: float) -> OneMoreCard:
        """What one more card of each type is worth at the loads that are served now.

        A small program that is solved to the end is solved again with each.
        """
        program, left = self._program, self._timer.seconds_left
        served = program.served(chosen, self.levels)
        floors = Floors(served * (1 - SLACK), self._whole)
        levels = np.flatnonzero(self._bounds < self._loads).tolist()
        found = value_of_one_more(program, floors, levels, chosen, left)
        value = float(program.value @ chosen)
        short = np.flatnonzero(served < self._loads * (1 - SLACK)).tolist()
        is_best = bool(np.all(served >= self._bounds * (1 - SLACK)))
        is_best &= value - least_value <= SOLVED * max(1.0, abs(value))
        if self._exact and is_best:
            solve_with_one_more(program, floors, short, chosen, found, left)
        return found

    def _minimize(
        self,
        program: Program,
        objective: FloatArray,
        incumbent: Incumbent[BoolArray],
        *,
        is_last: bool,
    ) -> None:
        """Minimize an objective in its share of the time; the last one has all that remains."""
        reserved = self._seconds_left() * (0.0 if is_last else 1 - SHARE)

        def left() -> float:
            return self._seconds_left() - reserved

        if left() <= 0:
            return
        if self._exact:
            task = Task(program, objective, Floors(self._floors, self._whole), -np.inf)
            self._exactly(task, incumbent, leave_everything_open(program), left, 0.0)
            return
        self._nearly(program, objective, incumbent, left, is_last=is_last)

    def _exactly(
        self,
        task: Task,
        incumbent: Incumbent[BoolArray],
        opening: Neighbourhood,
        seconds_left: Callable[[], float],
        gap: float,
    ) -> None:
        """Let the MILP solver look for a better choice than the incumbent among all open rows."""
        columns = BinaryColumns(task.program, opening, task.floors.loads, task.floors.whole)
        watching = incumbent if incumbent.observed else None
        limits = SearchLimits(seconds_left(), gap)  # it takes a while to build so many columns
        found = columns.minimize(task.objective, limits, incumbent.plan, watching)
        if found is not None:
            incumbent.offer(found.chosen)
            incumbent.prove(found.bound)

    def _nearly(
        self,
        program: Program,
        objective: FloatArray,
        incumbent: Incumbent[BoolArray],
        seconds_left: Callable[[], float],
        *,
        is_last: bool,
    ) -> None:
        """Stop where a first solution is close to what prices prove; or search."""
        may_end = self._stands and not is_last  # and then it takes no time from the others
        left = self._seconds_left if may_end else seconds_left
        prices = price(program, objective, self._floors, self._whole, left)
        incumbent.prove(prices.bound)
        least = self._floors * (1 - self._tolerance)
        if self._stands:
            standing = change_little(program, prices, left)
            prices = self._offer(program, incumbent, prices, standing, least)
            steady = STEADY * self._tolerance * abs(prices.bound)
            if may_end and incumbent.value <= prices.bound + steady:
                return
        if seconds_left() <= 0 and is_last:
            return
        packed = pack(program, prices)
        self._offer(program, incumbent, prices, packed, self._floors)
        gap = GAP if is_last else self._gap(program, prices)
        if is_last and incumbent.value > _good_enough(prices, gap):
            prices = self._tighten(program, prices, incumbent, seconds_left)
        for known in (packed, incumbent.plan):
            if incumbent.value > _good_enough(prices, gap):
                self._search_nearby(program, prices, incumbent, known, seconds_left)
        if incumbent.value > _good_enough(prices, gap):
            prices = self._search(program, prices, incumbent, least, gap, seconds_left)
        self._refine(program, prices, incumbent, gap, seconds_left)

    def _tighten(
        self,
        program: Program,
        prices: RowPrices,
        incumbent: Incumbent[BoolArray],
        seconds_left: Callable[[], float],
    ) -> RowPrices:
        """Prove more by cuts, once in a stage, among the rows of which something better consists.

        Floors may be missed for the price of the load, so that the bound follows lower floors.
        """
        if prices.proven > prices.bound or len(program.case) > self._sizes.large:
            return prices
        rows = np.flatnonzero(prices.excess <= incumbent.value - prices.bound)
        relaxation = RowRelaxation(
            program.take(rows), prices.objective[rows], self._floors, prices.loads, self._whole
        )
        reserved = (1 - CUTS) * seconds_left()
        proven = relaxation.tighten(ROUNDS, lambda: seconds_left() - reserved)
        incumbent.prove(proven)
        return prices.raised(min(proven, incumbent.value))

    def _gap(self, program: Program, prices: RowPrices) -> float:
        """Relative distance from the bound at which a level is searched no further.

        Later objectives may take what the tolerance allows; but where all might be served, that
        is what is looked for.
        """
        everything = prices.objective[program.starts].sum()
        return GAP if prices.proven <= everything * (1 - SLACK) else max(GAP, self._tolerance)

    def _refine(
        self,
        program: Program,
        prices: RowPrices,
        incumbent: Incumbent[BoolArray],
        gap: float,
        seconds_left: Callable[[], float],
    ) -> None:
        """Solve all rows of which a better solution may consist, and parts of them, in turn."""
        floors = Floors(self._floors, self._whole)
        task = Task(program, prices.objective, floors, _good_enough(prices, gap))
        rows = np.count_nonzero(_better_rows(task, prices, incumbent.value))
        is_few = rows <= self._sizes.medium
        if is_few:
            later = (1 - FIRST) * seconds_left()
            self._together(task, prices, incumbent, lambda: seconds_left() - later)
        together = seconds_left() * (1 - (PARTS_OF_FEW if is_few else PARTS))
        reserved = together if rows <= self._sizes.large else 0.0
        patience = PATIENCE_WITH_FEW if is_few else PATIENCE
        improve(task, incumbent, patience, lambda: seconds_left() - reserved)
        self._together(task, prices, incumbent, seconds_left)

    def _together(
        self,
        task: Task,
        prices: RowPrices,
        incumbent: Incumbent[BoolArray],
        seconds_left: Callable[[], float],
    ) -> None:
        """Let the MILP solver have all rows that matter, if there is time for so many."""
        better = _better_rows(task, prices, incumbent.value)
        rows = np.count_nonzero(better)
        if 0 < rows <= self._sizes.large and seconds_left() > PER_COLUMN * rows:
            opening = Neighbourhood(np.zeros_like(better), better)
            gap = task.good_enough - prices.proven
            self._exactly(task, incumbent, opening, seconds_left, gap)

    def _search_nearby(
        self,
        program: Program,
        prices: RowPrices,
        incumbent: Incumbent[BoolArray],
        known: BoolArray,
        seconds_left: Callable[[], float],
    ) -> None:
        """Dive and exchange where the levels with a floor serve the same cases as what is known.

        Of these levels all the same cases are served, on any rows, and as many more as the floors
        take; nobody else is. So every choice keeps the floors, which rounding misses where single
        cases are a large part of the load.
        """
        if len(self._floors) == self._whole or seconds_left() <= 0:
            return
        served = completed(program, known, self._floors, prices)
        rows, kept = _with_all_of(program, served, len(self._floors))
        loads = kept.weight[kept.starts[kept.level[kept.starts] == 0]].sum(keepdims=True)
        floors = Floors(loads, 1)
        prices = price(kept, prices.objective[rows], floors.loads, floors.whole, seconds_left)
        known = known[rows]

        def offer(found: BoolArray | None) -> None:
            if found is not None and kept.serves_all_of(found, floors.whole):
                chosen = np.zeros_like(incumbent.plan)
                chosen[rows] = found
                incumbent.offer(chosen)

        offer(insert(kept, pack(kept, prices), prices, seconds_left))
        if kept.serves_all_of(known, floors.whole):
            split = np.zeros(len(kept.starts), dtype=np.bool_)
            centre = Centre(known, split, prices.excess, prices.loads)
        else:
            centre = descend(kept, prices, floors, known, Guide.LINEAR, seconds_left)
        offer(exchange(kept, prices, floors, centre, seconds_left))
        offer(round_off(kept, prices, centre, seconds_left))

    def _search(
        self,
        program: Program,
        prices: RowPrices,
        incumbent: Incumbent[BoolArray],
        least: FloatArray,
        gap: float,
        seconds_left: Callable[[], float],
    ) -> RowPrices:
        """Dive, then exchange around where that ends, or around what is known.

        Returns the prices at the floors that hold then.
        """
        is_large = len(program.case) > self._sizes.large
        for guide in (Guide.LINEAR,) if is_large else (Guide.CUTS, Guide.BRANCHES):
            floors = Floors(self._floors, self._whole)
            centre = descend(program, prices, floors, incumbent.plan, guide, seconds_left)
            found = exchange(program, prices, floors, centre, seconds_left)
            if found is not None:
                prices = self._offer(program, incumbent, prices, found, least)
            rounded = round_off(program, prices, centre, seconds_left)
            prices = self._offer(program, incumbent, prices, rounded, least)
            if incumbent.value > _good_enough(prices, gap):
                self._search_nearby(program, prices, incumbent, rounded, seconds_left)
            if incumbent.value > _good_enough(prices, gap):
                prices = self._tighten(program, prices, incumbent, seconds_left)
            if incumbent.value <= _good_enough(prices, gap) or seconds_left() <= 0:
                break
        return prices

    def _offer(
        self,
        program: Program,
        incumbent: Incumbent[BoolArray],
        prices: RowPrices,
        found: BoolArray,
        least: FloatArray,
    ) -> RowPrices:
        """Offer what was found; floors that it misses are lowered, at least to `least`.

        Returns the prices at the floors that hold then.
        """
        floors = np.minimum(self._floors, program.served(found, len(self._floors)))
        if np.any(floors < least) or not program.serves_all_of(found, self._whole):
            return prices
        lowered = prices.lowered(self._floors - floors)
        if prices.objective @ found - lowered.bound >= incumbent.value - prices.bound:
            return prices
        if not incumbent.offer(found, lowered.proven):
            return prices
        self._floors = floors
        return lowered


def _with_all_of(program: Program, served: BoolArray, levels: int) -> tuple[IntArray, Program]:
    """Rows of a program in which the cases that are served of the first levels are all the first.

    Others of these are not in it; the cases of all later levels are its second one.
    """
    later = program.level >= levels
    rows = np.flatnonzero(later | served[program.place])
    return rows, replace(program.take(rows), level=later[rows].astype(np.int64))


def _stands(program: Program) -> bool:
    """Whether there is a plan already: most of the cases may stay as they are."""
    return len(np.unique(program.place[program.stays])) > HALF * len(program.starts)


def _good_enough(prices: RowPrices, gap: float) -> float:
    """An objective that is so close, relative, to what is proven."""
    return prices.proven + gap * max(1.0, abs(prices.proven))


def _better_rows(task: Task, prices: RowPrices, value: float) -> BoolArray:
    """Rows of which one with a lower value may consist; none if the value is good enough."""
    if value <= task.good_enough:
        return np.zeros(len(task.objective), dtype=np.bool_)
    better: BoolArray = prices.excess <= value - prices.bound
    return better
