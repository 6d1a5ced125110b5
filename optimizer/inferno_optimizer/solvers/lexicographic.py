"""Level by level the most load, then the least value; with what is proven of each.

A small program goes to the MILP solver as it is. For a larger one prices prove a bound and
give a first solution; of a very large one only what the linear relaxation leaves undecided,
and what could make room for that, is left to the MILP solver.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from inferno_optimizer.queueing import FloatArray
from inferno_optimizer.solvers.columns import (
    Choice,
    Columns,
    Opening,
    leave_everything_open,
    leave_open,
)
from inferno_optimizer.solvers.packing import pack
from inferno_optimizer.solvers.prices import price
from inferno_optimizer.solvers.program import BoolArray, Program

GAP = 5e-5
"""Relative distance from the bound at which an objective of a larger program is reached."""

SLACK = 1e-9
"""What later objectives may take from the load of a level, relative: room for rounding."""

GIVEN_UP = 1e-4
"""The same where the load is not proven to be the most: at most this, and at most its gap."""


@dataclass(frozen=True, slots=True)
class Sizes:
    """Up to `small` rows a program is solved as it is, to the last digit.

    Up to `medium` rows the MILP solver still gets all of them, of more only some.
    """

    small: int = 3_000
    medium: int = 25_000


@dataclass(frozen=True, slots=True)
class Outcome:
    """Rows chosen, with proven bounds of the load of each level and of the value.

    `prices` are per card of each type [cents/hour]; `reached` tells whether every objective
    is within its gap.
    """

    chosen: BoolArray
    most_served: FloatArray
    least_value: float
    prices: FloatArray
    reached: bool


def solve_by_levels(
    program: Program, seconds_left: Callable[[], float], sizes: Sizes = Sizes()
) -> Outcome:
    """Solve a program with at least one row.

    Parameters
    ----------
    program
        The rows.
    seconds_left
        Time that remains; when it ends, the best solution found so far is the answer.
    sizes
        What counts as small and as medium.
    """
    search = _Search(program, sizes)
    for level in range(search.levels):
        search.serve(level, seconds_left() / (search.levels + 1 - level))
    return search.finish(seconds_left())


class _Search:
    """The levels done so far: rows chosen, floors that later objectives keep."""

    def __init__(self, program: Program, sizes: Sizes) -> None:
        self._program, self._sizes = program, sizes
        self.levels = int(program.level.max()) + 1
        self._chosen = np.zeros(len(program.case), dtype=np.bool_)
        self._floors = np.zeros(0)
        self._bounds = np.zeros(0)
        self._whole = 0
        self._reached = True

    def serve(self, level: int, seconds: float) -> None:
        """Serve the most load of one level, the earlier ones keeping theirs."""
        rows = np.flatnonzero(self._program.level <= level)
        part = self._program.take(rows)
        objective = np.where(part.level == level, -part.weight, 0.0)
        found = self._minimize(part, objective, self._chosen[rows], seconds)
        self._chosen = np.zeros_like(self._chosen)
        self._chosen[rows[found.chosen]] = True
        served, most = -found.objective, -found.bound
        total = float(part.weight[part.starts][part.level[part.starts] == level].sum())
        most = min(most, total)
        self._bounds = np.append(self._bounds, most)
        if self._whole == level and served >= total * (1 - SLACK):
            self._whole += 1
        slack = max(SLACK * served, min(most - served, GIVEN_UP * served))
        self._floors = np.append(self._floors, max(served - slack, 0.0))

    def finish(self, seconds: float) -> Outcome:
        """The least value among solutions that keep the floors."""
        program = self._program
        found = self._minimize(program, program.value, self._chosen, seconds)
        prices = price(program, program.value, self._floors, self._whole)
        bound = max(found.bound, min(prices.bound, found.objective))
        return Outcome(found.chosen, self._bounds, bound, prices.cards, self._reached)

    def _minimize(
        self, program: Program, objective: FloatArray, incumbent: BoolArray, seconds: float
    ) -> Choice:
        small = len(program.case) <= self._sizes.small
        found = self._exactly if small else self._nearly
        choice = found(program, objective, fill(program, incumbent), seconds)
        gap = SLACK if small else GAP
        distance = choice.objective - choice.bound
        self._reached &= distance <= gap * max(1.0, abs(choice.objective))
        return choice

    def _exactly(
        self, program: Program, objective: FloatArray, known: BoolArray, seconds: float
    ) -> Choice:
        """Let the MILP solver have everything, to the last digit."""
        columns = self._columns(program, leave_everything_open(program))
        return _better(objective, known, columns.minimize(objective, seconds, 0.0, known))

    def _nearly(
        self, program: Program, objective: FloatArray, known: BoolArray, seconds: float
    ) -> Choice:
        """Stop where a first solution is close to what prices prove; or search on."""
        prices = price(program, objective, self._floors, self._whole)
        packed = pack(program, prices)
        if self._keeps_floors(program, packed) and objective @ packed < objective @ known:
            known = packed
        value = float(objective @ known)
        gap = GAP * max(1.0, abs(value))
        if value - prices.bound <= gap:
            return Choice(known, value, min(prices.bound, value))
        whole = len(program.case) <= self._sizes.medium
        opening = (
            leave_everything_open(program)
            if whole
            else leave_open(program, prices, self._floors, self._whole)
        )
        found = self._columns(program, opening).minimize(objective, seconds, gap, known)
        best = _better(objective, known, found)
        proven = max(prices.bound, best.bound) if whole else prices.bound
        return Choice(best.chosen, best.objective, min(proven, best.objective))

    def _keeps_floors(self, program: Program, chosen: BoolArray) -> bool:
        served = program.served(chosen, len(self._floors))
        return bool(np.all(served >= self._floors))

    def _columns(self, program: Program, opening: Opening) -> Columns:
        return Columns(program, opening, self._floors, self._whole)


def _better(objective: FloatArray, known: BoolArray, found: Choice | None) -> Choice:
    """The better of a known solution and one that was found, if one was."""
    value = float(objective @ known)
    if found is None:
        return Choice(known, value, -np.inf)
    if found.objective < value:
        return found
    return Choice(known, value, min(found.bound, value))


def fill(program: Program, chosen: BoolArray) -> BoolArray:
    """The chosen rows, and of the others the first that fit, the largest load first."""
    left = program.capacity - program.used(chosen)
    chosen = chosen.copy()
    done = np.zeros(len(program.starts), dtype=np.bool_)
    done[program.place[chosen]] = True
    for row in np.lexsort((program.cards, -program.weight, program.level)).tolist():
        case, card_type = program.place[row], program.type[row]
        if not done[case] and program.cards[row] <= left[card_type]:
            chosen[row] = done[case] = True
            left[card_type] -= program.cards[row]
    return chosen
