"""What one more card of each type is worth: the problem, or its relaxation, is solved with it.

A multiplier of the capacity tells the same of a small part of a card, and nothing where it is
not unique: where a load that must be kept takes every card of a type, any larger multiplier is
as good. A whole card more has one answer.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial

import numpy as np

from inferno_optimizer.sizing.queueing import FloatArray
from inferno_optimizer.solvers.assignment import NO_LEVEL, SMALLEST_GAIN, OneMoreCard
from inferno_optimizer.solvers.exact.branch_and_bound import SearchLimits
from inferno_optimizer.solvers.exact.columns import BinaryColumns
from inferno_optimizer.solvers.exact.neighbourhood import Neighbourhood
from inferno_optimizer.solvers.exact.prices import price
from inferno_optimizer.solvers.exact.program import BoolArray, Program
from inferno_optimizer.solvers.exact.relaxation import RowRelaxation, RowVertex
from inferno_optimizer.solvers.exact.settings import DEFAULTS, ExactSettings, PriceSettings
from inferno_optimizer.solvers.levels import Floors

EXACT = 1e-7
"""Distance of an objective from its bound, relative, up to which it is the best there is."""

ROUNDING = 1e-6
"""Reduced cost, relative to a typical case's objective or 1, below which a row enters later."""


def value_of_one_more(
    program: Program,
    floors: Floors,
    levels: Iterable[int],
    known: BoolArray,
    seconds_left: Callable[[], float],
    settings: ExactSettings = DEFAULTS,
) -> OneMoreCard:
    """Which level of a choice of rows gains how much load, or else what the choice saves.

    Parameters
    ----------
    program
        The rows, at least one.
    floors
        Load of all levels that is to be kept.
    levels
        Those that cannot be served entirely, ascending.
    known
        The choice, which keeps them; shape (rows,).
    seconds_left
        Time that remains; what is not found by its end is not known.
    settings
        Of the search.
    """
    found = OneMoreCard.unknown(len(program.capacity))
    for level in levels:
        gain = savings(*_of_level(program, level, floors, known), seconds_left, settings)
        if gain is None:
            return found
        found.add_gain(level, gain)
    if np.any(found.level == NO_LEVEL):
        saved = savings(program, program.value, floors, known, seconds_left, settings)
        if saved is not None:
            found.add_price(saved)
    return found


def solve_with_one_more(
    program: Program,
    floors: Floors,
    levels: Sequence[int],
    known: BoolArray,
    found: OneMoreCard,
    seconds_left: Callable[[], float],
    settings: ExactSettings = DEFAULTS,
) -> None:
    """Tell what solving again with a card more of each type shows, where there is time for it.

    Parameters
    ----------
    program, floors, levels, known, seconds_left, settings
        As above; the choice is the best there is.
    found
        Is told.
    """
    types = len(program.capacity)
    for card_type in range(types):
        later = seconds_left() * (1 - 1 / (types - card_type))
        more = program.capacity + (np.arange(types) == card_type)
        grown = replace(program, capacity=more)
        time = partial(_until, seconds_left, later)
        gain = _gain(grown, floors, levels, known, time, settings.prices)
        if gain is not None:
            found.tell(card_type, *gain)


def _until(seconds_left: Callable[[], float], later: float) -> float:
    """Seconds that remain until so many remain for something else."""
    return seconds_left() - later


def _gain(
    program: Program,
    floors: Floors,
    levels: Iterable[int],
    known: BoolArray,
    seconds_left: Callable[[], float],
    settings: PriceSettings,
) -> tuple[int, float] | None:
    """The first level that serves more than what is known, or none, and how much better it is.

    None where there is no time to prove it.
    """
    for level in levels:
        saved = _saved(*_of_level(program, level, floors, known), seconds_left, settings)
        if saved is None:
            return None
        if saved > SMALLEST_GAIN:
            return level, saved
    saved = _saved(program, program.value, floors, known, seconds_left, settings)
    return None if saved is None else (NO_LEVEL, saved)


def _of_level(
    program: Program, level: int, floors: Floors, known: BoolArray
) -> tuple[Program, FloatArray, Floors, BoolArray]:
    """What serves most of a level: the rows up to it, objective, floors before it, and choice."""
    rows = np.flatnonzero(program.level <= level)
    part = program.take(rows)
    objective = np.where(part.level == level, -part.weight, 0.0)
    return part, objective, Floors(floors.loads[:level], floors.whole), known[rows]


def _saved(
    program: Program,
    objective: FloatArray,
    floors: Floors,
    known: BoolArray,
    seconds_left: Callable[[], float],
    settings: PriceSettings,
) -> float | None:
    """How much lower the objective of the best choice is; None where that cannot be proven."""
    if seconds_left() <= 0:
        return None
    value = float(objective @ known)
    prices = price(program, objective, floors.loads, floors.whole, seconds_left, settings)
    rounding = EXACT * max(1.0, abs(value))
    if value - prices.bound <= rounding:
        return 0.0
    better = known | (prices.excess <= value - prices.bound)
    opening = Neighbourhood(np.zeros_like(better), better)
    columns = BinaryColumns(program, opening, floors.loads, floors.whole)
    choice = columns.minimize(objective, SearchLimits(seconds_left(), 0.0), known)
    if choice is None or choice.objective - choice.bound > rounding:
        return None
    saved = value - choice.objective
    return saved if saved > rounding else 0.0


def savings(
    program: Program,
    objective: FloatArray,
    floors: Floors,
    known: BoolArray,
    seconds_left: Callable[[], float],
    settings: ExactSettings = DEFAULTS,
) -> FloatArray | None:
    """How much lower the relaxed objective gets with one more card of each type.

    Parameters
    ----------
    program
        The rows, at least one.
    objective
        To be minimized, shape (rows,).
    floors
        Load of the first levels that must be kept.
    known
        A choice of rows that keeps them; shape (rows,).
    seconds_left
        Time that remains.
    settings
        Of the search.

    Returns
    -------
    FloatArray | None
        Never more than what solving the whole relaxation again shows; shape (types,). None
        where the time ends before.
    """
    if seconds_left() <= 0:
        return None
    found = _relax(program, objective, floors, known, seconds_left, settings)
    if found is None:
        return None
    relaxation, vertex = found
    saved = np.zeros(len(program.capacity))
    for card_type in range(len(saved)):
        improved = relaxation.solve_with_one_more(card_type, seconds_left())
        if improved is None:
            return None
        saved[card_type] = max(0.0, vertex.objective - improved.objective)
    return saved


def _relax(
    program: Program,
    objective: FloatArray,
    floors: Floors,
    known: BoolArray,
    seconds_left: Callable[[], float],
    settings: ExactSettings,
) -> tuple[RowRelaxation, RowVertex] | None:
    """The relaxation of the rows that matter, and its best vertex: that of all rows."""
    typical = float(np.mean(np.abs(objective)))
    taken = np.ones(len(known), dtype=np.bool_)
    if len(known) > settings.one_more.rows:
        prices = price(
            program, objective, floors.loads, floors.whole, seconds_left, settings.prices
        )
        sizes = np.maximum(prices.sizes(program)[program.place], typical)
        taken = known | (prices.excess <= settings.one_more.near * sizes)
    never_missed = np.full(len(floors.loads), np.inf)
    while True:
        rows = np.flatnonzero(taken)
        relaxation = RowRelaxation(
            program.take(rows),
            objective[rows],
            floors.loads,
            never_missed,
            floors.whole,
            settings.relaxation,
        )
        vertex = relaxation.solve(seconds_left())
        if vertex is None:
            return None
        cost = vertex.reduced_costs(program, objective)
        least = _least(program, np.where(taken, cost, np.inf), floors.whole)
        better = cost < least - ROUNDING * max(1.0, typical)
        if not np.any(better & ~taken):
            return relaxation, vertex
        taken |= better


def _least(program: Program, cost: FloatArray, whole: int) -> FloatArray:
    """Least cost of each row's case; of one that may be left out at most 0."""
    least = np.minimum.reduceat(cost, program.starts)
    optional = program.level[program.starts] >= whole
    return np.where(optional, np.minimum(least, 0.0), least)[program.place]
