"""From the linear relaxation towards a choice: the large cases are decided first.

A few cases may be hundreds of times as large as most. Branch and bound may decide these together,
while all others are still split. After that they are decided one after the other.

A vertex of the relaxation splits no more cases than there are types and floors. The largest
of them is given the row with which the relaxation stays best, and what is as large and not
split stays as it is; then the relaxation is solved again, so that everything smaller makes up
for it. What remains split at the end is small.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from inferno_optimizer.sizing.queueing import FloatArray, IntArray
from inferno_optimizer.solvers.exact.branch_and_bound import SearchLimits
from inferno_optimizer.solvers.exact.program import BoolArray, Program, first_cases
from inferno_optimizer.solvers.exact.relaxation import NOTHING, RowRelaxation, RowVertex
from inferno_optimizer.solvers.exact.settings import DEFAULTS, DivingSettings

INTEGRAL = 1e-6
"""Distance from 0 and 1 up to which an amount is rounded."""

HALF = 0.5


@dataclass(frozen=True, slots=True)
class DiveExtent:
    """Which cases a dive decides.

    Attributes
    ----------
    sizes
        What the cards of each case are worth; shape (cases,).
    small
        Cases up to this size are left undecided.
    together
        Rows of the largest cases, which are decided together.
    """

    sizes: FloatArray
    small: float
    together: int


@dataclass(frozen=True, slots=True)
class Dive:
    """Where a dive ended.

    Attributes
    ----------
    chosen
        Rows chosen, but for those of split cases; shape (rows,).
    split
        Cases between several rows; shape (cases,).
    vertex
        The best solution of the relaxation with what is decided.
    """

    chosen: BoolArray
    split: BoolArray
    vertex: RowVertex


def dive(
    program: Program,
    relaxation: RowRelaxation,
    extent: DiveExtent,
    whole: int,
    seconds_left: Callable[[], float],
    settings: DivingSettings = DEFAULTS.diving,
) -> Dive | None:
    """Decide all large cases, or those for which there is time; None where there is none at all.

    It ends early where no row of a large case that must be served is possible.

    Parameters
    ----------
    program, relaxation
        The rows, and their relaxation, of which the decisions are made.
    extent
        Which cases are decided.
    whole
        The first so many levels are served entirely.
    seconds_left
        Time that remains.
    settings
        Of the decisions.
    """
    sizes = extent.sizes
    descent = _Descent(program, relaxation, sizes, whole, seconds_left, settings)
    descent.branch(extent.together)
    while descent.goes_on and seconds_left() > 0:
        largest = float(sizes[descent.split()].max(initial=0.0))
        if largest <= extent.small:
            break
        descent.settle(settings.step * largest)
        descent.round(settings.step * largest)
    return descent.end()


class _Descent:
    """The vertex so far, and which cases are decided."""

    def __init__(
        self,
        program: Program,
        relaxation: RowRelaxation,
        sizes: FloatArray,
        whole: int,
        seconds_left: Callable[[], float],
        settings: DivingSettings,
    ) -> None:
        self._program, self._relaxation, self._sizes = program, relaxation, sizes
        self._seconds_left, self._settings = seconds_left, settings
        self._optional = program.level[program.starts] >= whole
        self._decided = np.zeros(len(sizes), dtype=np.bool_)
        self._vertex = relaxation.solve(seconds_left())
        self.goes_on = self._vertex is not None

    def branch(self, most: int) -> None:
        """Decide the largest cases, up to so many rows, together if there is time for it."""
        order = np.argsort(-self._sizes, kind="stable")
        large = first_cases(order, self._program.lengths, most)
        rows = np.flatnonzero(large[self._program.place])
        if self._vertex is None or not len(rows):
            return
        settings = self._settings
        limits = SearchLimits(
            settings.together_time * self._seconds_left(),
            settings.together_gap * abs(self._vertex.objective),
        )
        amounts = self._relaxation.branch(rows, limits)
        if amounts is not None:
            self._relaxation.settle(rows, amounts[rows] > HALF)
            self._decided = large
            self._vertex = self._relaxation.solve(self._seconds_left())
            self.goes_on = self._vertex is not None

    def split(self) -> IntArray:
        """Cases whose rows have amounts between 0 and 1."""
        if self._vertex is None:
            return np.zeros(0, dtype=np.int64)
        amounts = self._vertex.amounts
        between = (amounts > INTEGRAL) & (amounts < 1 - INTEGRAL)
        return np.unique(self._program.place[between])

    def settle(self, size: float) -> None:
        """Decide the cases of at least this size that are not split, as they are."""
        if self._vertex is None:
            return
        large = (self._sizes >= size) & ~self._decided
        large[self.split()] = False
        rows = np.flatnonzero(large[self._program.place])
        self._relaxation.settle(rows, self._vertex.amounts[rows] > HALF)
        self._decided |= large

    def round(self, size: float) -> None:
        """Decide split cases of at least this size, the largest first, until none is left."""
        while self.goes_on:
            large = [case for case in self.split() if self._sizes[case] >= size]
            if not large:
                break
            case = max(large, key=lambda case: (self._sizes[case], case))
            self._decide(case)
            self._decided[case] = True

    def end(self) -> Dive | None:
        """What is decided now, and what is not."""
        if self._vertex is None:
            return None
        split = np.zeros(len(self._sizes), dtype=np.bool_)
        split[self.split()] = True
        chosen = (self._vertex.amounts > HALF) & ~split[self._program.place]
        return Dive(chosen, split, self._vertex)

    def _decide(self, case: int) -> None:
        """Take the better of the two largest parts of a case; any row where neither is possible."""
        assert self._vertex is not None  # noqa: S101 - a case of no vertex is not split
        before, best = self._vertex.objective, None
        for tried, row in enumerate(self._rows_by_amount(case, self._vertex)):
            if tried > 1 and best is not None:
                break
            self._relaxation.decide(case, row)
            vertex = self._relaxation.solve(self._seconds_left())
            if vertex is None or (best is not None and vertex.objective >= best[0].objective):
                continue
            best = vertex, row
            if vertex.objective - before <= self._settings.close * abs(before):
                break
        self.goes_on = best is not None
        if best is not None:
            self._vertex, row = best
            self._relaxation.decide(case, row)

    def _rows_by_amount(self, case: int, vertex: RowVertex) -> list[int]:
        """Rows of a case, and `NOTHING` where it may be left out, by their amounts."""
        first = int(self._program.starts[case])
        rows = list(range(first, first + int(self._program.lengths[case])))
        amounts = {row: float(vertex.amounts[row]) for row in rows}
        if self._optional[case]:
            amounts[NOTHING] = 1 - sum(amounts.values())
        return sorted(amounts, key=lambda row: (-amounts[row], row))
