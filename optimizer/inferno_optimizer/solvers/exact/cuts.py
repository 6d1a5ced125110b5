"""Cuts by mixed-integer rounding: all integral solutions keep them, a relaxed one breaks them.

A sum of inequalities, each with any weight, is an equation of columns and slacks. Divided by one
of its factors it consists of whole numbers and remainders, and the remainders of what is integral
can be rounded away [Gomory, RAND RM-2597 (1960); Marchand and Wolsey, Oper. Res. 49 (2001)
363-371].
"""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from inferno_optimizer.sizing.queueing import FloatArray, IntArray
from inferno_optimizer.solvers.exact.program import BoolArray
from inferno_optimizer.solvers.exact.settings import DEFAULTS, CutSettings
from inferno_optimizer.solvers.sparse import SparseMatrix

NOTHING = 1e-9
"""A factor or a slack up to this is 0."""


@dataclass(frozen=True)
class Inequalities:
    """Inequalities `matrix @ x <= room` of columns from 0 to `upper`.

    Attributes
    ----------
    matrix
        Shape (inequalities, columns).
    room
        Shape (inequalities,).
    upper
        Upper bounds, or inf; shape (columns,).
    integral
        Which columns are; shape (columns,).
    """

    matrix: SparseMatrix
    room: FloatArray
    upper: FloatArray
    integral: BoolArray

    def slacks(self, amounts: FloatArray) -> FloatArray:
        """What amounts of the columns leave of the room."""
        slacks = self.room - self.matrix.times(amounts)
        return np.where(slacks > NOTHING, slacks, 0.0)

    @cached_property
    def integral_slacks(self) -> BoolArray:
        """Which inequalities leave a whole number in every integral solution."""
        matrix = self.matrix
        uneven = (matrix.values != np.rint(matrix.values)) | ~self.integral[matrix.columns]
        even = np.bincount(matrix.rows, uneven, len(self.room)) == 0
        result: BoolArray = even & (self.room == np.rint(self.room))
        return result


@dataclass(frozen=True, slots=True)
class Cut:
    """An inequality `factors @ x[columns] <= room`; no factor is larger than 1.

    `depth` is how far it is from the relaxed solution that it cuts off.
    """

    columns: IntArray
    factors: FloatArray
    room: float
    depth: float


def find_cuts(
    inequalities: Inequalities,
    amounts: FloatArray,
    sums: Iterable[FloatArray],
    settings: CutSettings = DEFAULTS.relaxation.cuts,
) -> list[Cut]:
    """Cuts that a relaxed solution breaks, the deepest first; no two are nearly parallel.

    Parameters
    ----------
    inequalities
        What all solutions keep.
    amounts
        Of the columns in the relaxed solution; shape (columns,).
    sums
        Weights of the inequalities in each sum that is rounded; shape (inequalities,).
    settings
        Of the search.
    """
    values = np.append(amounts, inequalities.slacks(amounts))
    upper = np.append(inequalities.upper, np.full(len(inequalities.room), np.inf))
    integral = np.append(inequalities.integral, inequalities.integral_slacks)
    cuts = []
    for weights in sums:
        factors = np.append(inequalities.matrix.combined(weights), weights)
        taken = np.flatnonzero(np.abs(factors) > NOTHING)
        row = _Row(factors[taken], values[taken], upper[taken], integral[taken], settings)
        rounding = row.deepest(float(weights @ inequalities.room))
        if rounding is not None:
            cuts.append(_of_columns(inequalities, taken, rounding, settings.margin))
    deepest = sorted(cuts, key=lambda cut: -cut.depth)
    return _apart(deepest, len(amounts), settings)


@dataclass(frozen=True, slots=True)
class _Rounding:
    """A rounded row of columns and slacks, and how: which integral ones are complemented."""

    complemented: BoolArray
    divisor: float
    factors: FloatArray
    room: float
    depth: float


class _Row:
    """Factors of columns and slacks, with their values in a relaxed solution; all at least 0."""

    def __init__(
        self,
        factors: FloatArray,
        values: FloatArray,
        upper: FloatArray,
        integral: BoolArray,
        settings: CutSettings,
    ) -> None:
        self._integral, self._settings = integral, settings
        self._factors, self._values = factors[integral], values[integral]
        self._upper = upper[integral]
        # Of what is continuous only negative factors count: the others may be left out.
        self._continuous = np.minimum(factors[~integral], 0.0)
        self._gained = float(self._continuous @ values[~integral])
        bounded = np.isfinite(self._upper)
        self._large = bounded & (self._values > self._upper / 2)
        between = settings.between
        inside = (self._values > between) & (self._values < self._upper - between)
        self._fractional = np.flatnonzero(bounded & inside)

    def deepest(self, room: float) -> _Rounding | None:
        """The deepest way to round the row that is found, of all columns; None if none is deep."""
        tried = (self._round(room, divisor, self._large) for divisor in self._divisors())
        best = max(filter(None, tried), key=_depth, default=None)
        if best is None:
            return None
        for fraction in self._settings.fractions:
            best = _deeper(best, self._round(room, best.divisor / fraction, best.complemented))
        for column in self._most_fractional():
            complemented = best.complemented.copy()
            complemented[column] = ~complemented[column]
            best = _deeper(best, self._round(room, best.divisor, complemented))
        return best if best.depth > self._settings.deep else None

    def _divisors(self) -> list[float]:
        """Factors of fractional columns, or some of them, from small to large."""
        sizes = np.unique(np.abs(self._factors[self._fractional]))
        places = np.linspace(0, len(sizes) - 1, min(self._settings.divisors, len(sizes)))
        return sizes[places.astype(np.int64)].tolist()  # type: ignore[no-any-return]  # numpy types it so

    def _most_fractional(self) -> list[int]:
        share = self._values[self._fractional] / self._upper[self._fractional]
        order = np.argsort(np.abs(share - 0.5), kind="stable")
        return self._fractional[order][: self._settings.complements].tolist()  # type: ignore[no-any-return]  # numpy types it so

    def _round(self, room: float, divisor: float, complemented: BoolArray) -> _Rounding | None:
        """Round the row in a way; None if the relaxed solution keeps the result."""
        room = (room - float(self._factors[complemented] @ self._upper[complemented])) / divisor
        remainder = room - np.floor(room)
        extreme = self._settings.extreme
        if not extreme < remainder < 1 - extreme:
            return None
        factors = np.where(complemented, -self._factors, self._factors) / divisor
        values = np.where(complemented, self._upper - self._values, self._values)
        whole = np.floor(factors)
        factors = whole + np.maximum(factors - whole - remainder, 0.0) / (1 - remainder)
        scale = divisor * (1 - remainder)
        broken = float(factors @ values) + self._gained / scale - np.floor(room)
        if broken <= 0:
            return None
        every = np.zeros(len(self._integral))
        every[self._integral] = np.where(complemented, -factors, factors)
        every[~self._integral] = self._continuous / scale
        return _Rounding(
            complemented,
            divisor,
            every,
            float(np.floor(room) - factors[complemented] @ self._upper[complemented]),
            float(broken / (np.linalg.norm(factors[values > NOTHING]) + NOTHING)),
        )


def _depth(rounding: _Rounding) -> float:
    return rounding.depth


def _deeper(best: _Rounding, other: _Rounding | None) -> _Rounding:
    return best if other is None else max(best, other, key=_depth)


def _of_columns(
    inequalities: Inequalities, taken: IntArray, rounding: _Rounding, margin: float
) -> Cut:
    """The same without slacks: each is the room less what the columns take."""
    columns = len(inequalities.upper)
    every = np.zeros(columns + len(inequalities.room))
    every[taken] = rounding.factors
    slacks = every[columns:]
    factors = every[:columns] - inequalities.matrix.combined(slacks)
    largest = float(np.abs(factors).max())
    room = (rounding.room - float(slacks @ inequalities.room)) / largest
    used = np.flatnonzero(factors)
    return Cut(used, factors[used] / largest, room + margin * max(1.0, abs(room)), rounding.depth)


def _apart(cuts: list[Cut], columns: int, settings: CutSettings) -> list[Cut]:
    """The first cuts, without those that are nearly parallel to one before them."""
    kept: list[Cut] = []
    directions: list[FloatArray] = []
    for cut in cuts:
        if len(kept) == settings.most:
            break
        length = np.linalg.norm(cut.factors)
        products = (abs(other[cut.columns] @ cut.factors) for other in directions)
        if all(product < settings.parallel * length for product in products):
            direction = np.zeros(columns)
            direction[cut.columns] = cut.factors / length
            kept.append(cut)
            directions.append(direction)
    return kept
