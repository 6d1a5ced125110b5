"""Prices of cards: the Lagrangian dual of the assignment problem, by Newton's method.

Capacity, and the load that earlier levels must keep, couple the cases through a dozen
constraints only. With a multiplier for each of these every case chooses for itself, which
takes one pass over the rows; the sum is a proven bound of the problem, and the largest such
sum is the bound of its linear relaxation [Geoffrion, Math. Prog. Study 2 (1974) 82-114].

The function is piecewise linear. It is climbed on smooth ones below it: each case's least
cost becomes a soft minimum at a temperature, and a barrier keeps the multipliers positive.
That has a closed-form gradient and Hessian; the temperature falls until what smoothing hides
is nearly nothing [Nesterov, Math. Prog. 103 (2005) 127-152]. See `assignment.md`, section
"Prices".
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from inferno_optimizer.sizing.queueing import FloatArray, IntArray
from inferno_optimizer.solvers.exact.program import BoolArray, Program
from inferno_optimizer.solvers.exact.settings import DEFAULTS, PriceSettings

ROUNDING = 4 * float(np.finfo(np.float64).eps)
"""Error of a term of the bound, relative to the largest of its parts."""


@dataclass(frozen=True, slots=True)
class RowPrices:
    """Multipliers, what they prove, and what each row costs beyond the best of its case.

    Attributes
    ----------
    cards
        Price of a card of each type; shape (types,).
    loads
        Price of the load of each level with a floor; shape (levels,).
    objective
        Of the rows; shape (rows,).
    bound
        No choice of rows that keeps the floors has a lower objective.
    excess
        A choice with this row has an objective of at least bound + excess; shape (rows,).
    left_out
        The same for choosing no row of a case; shape (cases,).
    proven
        A bound that is at least as high, of which cuts are a part.
    """

    cards: FloatArray
    loads: FloatArray
    objective: FloatArray
    bound: float
    excess: FloatArray
    left_out: FloatArray
    proven: float

    def sizes(self, program: Program) -> FloatArray:
        """What the cards of each case are worth on its cheapest row; shape (cases,)."""
        return np.minimum.reduceat(self.cards[program.type] * program.cards, program.starts)

    def losses(self, program: Program) -> FloatArray:
        """What it loses to leave the case of a chosen row out; shape (rows,)."""
        return self.left_out[program.place] - self.excess

    def lowered(self, loads: FloatArray) -> "RowPrices":
        """The same multipliers where floors are lower by so much load; shape (levels,)."""
        worth = float(self.loads @ loads) * (1 + ROUNDING * len(loads))
        return replace(self, bound=self.bound - worth, proven=self.proven - worth)

    def raised(self, proven: float) -> "RowPrices":
        """The same where more is proven, at floors that may be missed for the price of the load."""
        return replace(self, proven=max(self.proven, proven))


def price(
    program: Program,
    objective: FloatArray,
    floors: FloatArray,
    whole: int,
    seconds_left: Callable[[], float] = lambda: np.inf,
    settings: PriceSettings = DEFAULTS.prices,
) -> RowPrices:
    """Find the best multipliers of a program, or good ones in the time that remains.

    Parameters
    ----------
    program
        The rows, at least one.
    objective
        To be minimized, shape (rows,).
    floors
        Load that each of the first levels must keep; shape (levels,).
    whole
        The first so many levels are served entirely: none of their cases is left out.
    seconds_left
        Time that remains; what is proven then is less, but proven.
    settings
        Of the search.
    """
    dual = Dual(program, objective, floors, whole, settings)
    multipliers = _climb(dual, seconds_left)
    costs = dual.costs(multipliers)
    least = np.minimum.reduceat(costs, program.starts)
    best = dual.or_nothing(least)
    types = len(program.capacity)
    bound = _proven(dual, multipliers, costs <= least[program.place], best)
    return RowPrices(
        cards=multipliers[:types],
        loads=multipliers[types:],
        objective=objective,
        bound=bound,
        excess=costs - np.repeat(best, program.lengths),
        left_out=np.where(dual.optional, -best, np.inf),
        proven=bound,
    )


def _proven(dual: "Dual", multipliers: FloatArray, cheapest: BoolArray, best: FloatArray) -> float:
    """The sum of the cases' least costs less what capacity is worth, and less any rounding."""
    terms = np.append(best, -multipliers * dual.limits)
    parts = np.append(dual.magnitudes(multipliers)[cheapest], np.abs(multipliers * dual.limits))
    return math.fsum(terms) - ROUNDING * math.fsum(parts)


@dataclass(frozen=True, slots=True)
class Smooth:
    """The smoothed function at a point: value, gradient, negative Hessian, what it hides."""

    value: float
    gradient: FloatArray
    curvature: FloatArray
    hidden: float


class Dual:
    """The dual function: concave in the multipliers of capacity and floors, all at least 0."""

    def __init__(
        self,
        program: Program,
        objective: FloatArray,
        floors: FloatArray,
        whole: int,
        settings: PriceSettings,
    ) -> None:
        self._program, self._objective, self.settings = program, objective, settings
        self._floors, self._whole = len(floors), whole
        self.limits = np.concatenate((program.capacity, -floors))
        cards, loads = program.capacity + settings.eased_cards, floors * (1 - settings.eased_load)
        eased = np.concatenate((cards, -loads))
        self._eased: FloatArray = eased
        self.optional = program.level[program.starts] >= whole
        # Levels without a floor share a place that is dropped.
        self._level = np.minimum(program.level, self._floors)

    def costs(self, multipliers: FloatArray) -> FloatArray:
        """Objective of each row, its cards paid for, its load rewarded."""
        types = len(self._program.capacity)
        rewards = np.append(multipliers[types:], 0.0)
        paid = multipliers[:types][self._program.type] * self._program.cards
        return self._objective + paid - rewards[self._level] * self._program.weight

    def magnitudes(self, multipliers: FloatArray) -> FloatArray:
        """The parts of the costs without their signs, added up."""
        types = len(self._program.capacity)
        rewards = np.append(multipliers[types:], 0.0)[self._level] * self._program.weight
        paid = multipliers[:types][self._program.type] * self._program.cards
        return np.abs(self._objective) + paid + rewards

    def or_nothing(self, least: FloatArray) -> FloatArray:
        """The least costs of cases, or 0 where a case may be left out; shape (cases,)."""
        return np.where(self.optional, np.minimum(least, 0.0), least)

    def near(self, multipliers: FloatArray, excess: float) -> IntArray:
        """Rows that cost at most so much more than the best of their case."""
        costs, program = self.costs(multipliers), self._program
        best = self.or_nothing(np.minimum.reduceat(costs, program.starts))
        return np.flatnonzero(costs <= best[program.place] + excess)

    def restricted(self, rows: IntArray) -> "Dual":
        """The same with these rows only; with all where that saves nothing."""
        if not len(rows) or len(rows) > self.settings.many * len(self._objective):
            return self
        program = self._program.take(rows)
        floors = -self.limits[len(program.capacity) :]
        return Dual(program, self._objective[rows], floors, self._whole, self.settings)

    def value(self, multipliers: FloatArray, temperature: float) -> float:
        """The smoothed function alone."""
        return self._soft(multipliers, temperature)[0]

    def smooth(self, multipliers: FloatArray, temperature: float) -> Smooth:
        """The smoothed function with its derivatives."""
        value, share, exponent = self._soft(multipliers, temperature)
        use, variance = self._moments(share)
        entropy = -float(np.sum(share * exponent))
        return Smooth(
            value=value,
            gradient=use - self._eased + temperature / multipliers,
            curvature=variance / temperature + np.diag(temperature / multipliers**2),
            hidden=temperature * (entropy + len(multipliers)),
        )

    def _soft(
        self, multipliers: FloatArray, temperature: float
    ) -> tuple[float, FloatArray, FloatArray]:
        """Value, each row's share in its case, and the logarithm of the share."""
        program = self._program
        exponent = self.costs(multipliers) / -temperature
        largest = np.maximum.reduceat(exponent, program.starts)
        largest = np.where(self.optional, np.maximum(largest, 0.0), largest)
        exponent -= largest[program.place]
        weight = np.exp(exponent)
        total = np.add.reduceat(weight, program.starts)
        total += np.where(self.optional, np.exp(-np.maximum(largest, 0.0)), 0.0)
        logarithm = np.log(total)
        value = -temperature * float(np.sum(largest + logarithm))
        value += temperature * float(np.sum(np.log(multipliers)))
        value -= float(multipliers @ self._eased)
        share = weight / total[program.place]
        return value, share, exponent - logarithm[program.place]

    def _moments(self, share: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Expected use of each constraint, and the covariance of the uses, summed over cases."""
        program, types = self._program, len(self._program.capacity)
        size, cases = types + self._floors, len(program.starts)
        cards, load = share * program.cards, share * program.weight
        mean = np.zeros((cases, size + 1))
        mean[:, :types] = np.bincount(
            self._program.place * types + program.type, cards, cases * types
        ).reshape(cases, types)
        first = program.starts
        mean[np.arange(cases), types + self._level[first]] = -np.add.reduceat(load, first)
        square = np.zeros((size + 1, size + 1))
        place = np.arange(types)
        square[place, place] = np.bincount(program.type, cards * program.cards, types)
        place = types + np.arange(self._floors + 1)
        square[place, place] = np.bincount(self._level, load * program.weight, self._floors + 1)
        both = self._level * types + program.type
        cross = np.bincount(both, cards * program.weight, (self._floors + 1) * types)
        square[types:, :types] = -cross.reshape(-1, types)
        square[:types, types:] = square[types:, :types].T
        covariance = square - mean.T @ mean
        np.fill_diagonal(covariance, np.maximum(np.diag(covariance), 0.0))  # rounding
        return mean.sum(axis=0)[:size], covariance[:size, :size]

    def start(self) -> tuple[FloatArray, float]:
        """Multipliers and temperature to begin with: those of a typical row."""
        program = self._program
        worth = float(np.mean(np.abs(self._objective))) + 1e-9
        cards = np.bincount(program.type, program.cards, len(program.capacity))
        rows = np.bincount(program.type, minlength=len(program.capacity))
        per_card = worth * np.maximum(rows, 1) / np.maximum(cards, 1.0)
        per_load = np.full(self._floors, worth / float(np.mean(program.weight)))
        return np.concatenate((per_card, per_load)), worth


def _climb(dual: Dual, seconds_left: Callable[[], float]) -> FloatArray:
    """Multipliers at which the function is nearly the highest."""
    settings = dual.settings
    multipliers, temperature = dual.start()
    for _ in range(settings.coolings):
        multipliers, here = _climb_near(dual, multipliers, temperature)
        is_close = here.hidden <= settings.enough * max(1.0, abs(here.value))
        if is_close or seconds_left() <= 0:
            break
        temperature *= settings.cooling
    return multipliers


def _climb_near(
    dual: Dual, multipliers: FloatArray, temperature: float
) -> tuple[FloatArray, Smooth]:
    """Newton's method with the rows that matter here; with more of them if others matter there."""
    settings, reach = dual.settings, dual.settings.reach * temperature
    rows = dual.near(multipliers, reach)
    for _ in range(settings.tries):
        near = dual.restricted(rows)
        found, here = _climb_smooth(near, multipliers, temperature)
        least = here.value - settings.close * temperature
        if near is dual or dual.value(found, temperature) >= least:
            return found, here
        rows = np.union1d(rows, dual.near(found, reach))
    return _climb_smooth(dual, multipliers, temperature)


def _climb_smooth(
    dual: Dual, multipliers: FloatArray, temperature: float
) -> tuple[FloatArray, Smooth]:
    """Newton's method at one temperature."""
    settings = dual.settings
    here = dual.smooth(multipliers, temperature)
    for _ in range(settings.newton_steps):
        step = _newton_step(here, settings.ridge)
        decrement = float(here.gradient @ step)
        if decrement <= settings.close * temperature:
            break
        length = _length(dual, multipliers, step, here.value, decrement, temperature)
        if length == 0.0:
            break
        multipliers = np.minimum(multipliers + length * step, settings.largest)
        here = dual.smooth(multipliers, temperature)
    return multipliers, here


def _newton_step(here: Smooth, ridge: float) -> FloatArray:
    """Where the quadratic model is highest, relative to here; scaled against bad units."""
    scale = 1.0 / np.sqrt(np.diag(here.curvature))
    scaled = here.curvature * np.outer(scale, scale) + ridge * np.eye(len(scale))
    return scale * np.linalg.solve(scaled, scale * here.gradient)


def _length(
    dual: Dual,
    multipliers: FloatArray,
    step: FloatArray,
    value: float,
    decrement: float,
    temperature: float,
) -> float:
    """A share of the step that stays positive and climbs enough; 0 when rounding forbids any."""
    falling = step < 0
    with np.errstate(over="ignore"):  # a step of nearly nothing may be as long as it likes
        most = np.min(-multipliers[falling] / step[falling], initial=np.inf)
    length = min(1.0, dual.settings.boundary * float(most))
    for _ in range(dual.settings.halvings):
        if dual.value(multipliers + length * step, temperature) > value + 0.1 * length * decrement:
            return length
        length /= 2.0
    return 0.0
