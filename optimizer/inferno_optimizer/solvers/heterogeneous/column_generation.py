"""Prices of cards that prove most of mixes, by column generation.

With a price for each type of card, and for the load that a level must keep, every case chooses
its cheapest mix by itself; the sum, less what capacity is worth, is a proven bound
[Geoffrion, Math. Prog. Study 2 (1974) 82-114]. It knows the whole number of replicas in every
case, which a linear relaxation does not. Prices come from a linear program over the mixes that
are known so far; those that are cheapest at a point between the best prices and these are added
[Wentges, Int. Trans. Opl Res. 4 (1997) 151-162].
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

import highspy
import numpy as np

from inferno_optimizer.errors import SolverError
from inferno_optimizer.sizing.queueing import FloatArray, IntArray
from inferno_optimizer.solvers.heterogeneous.cheapest import Mixes, cheapest_mixes
from inferno_optimizer.solvers.heterogeneous.problem import MixProblem
from inferno_optimizer.solvers.heterogeneous.settings import DEFAULTS, MixPriceSettings
from inferno_optimizer.solvers.sparse import SparseMatrix

ROUNDING = 4 * float(np.finfo(np.float64).eps)
"""Error of a term of the bound, relative to the largest of its parts."""

SCARCE = 1e-9
"""Price of a card, relative to the objective, that is rounding."""

SAME = 1e-9
"""Relative difference of costs that is rounding."""


@dataclass(frozen=True, slots=True)
class MixPrices:
    """Prices, and what they prove.

    Attributes
    ----------
    cards
        Of a card of each type; shape (types,).
    loads
        Of the load of each level with a floor; shape (levels,).
    least
        What a mix of each case costs at least, its cards paid for; shape (cases,).
    bound
        No plan has a lower objective.
    """

    cards: FloatArray
    loads: FloatArray
    least: FloatArray
    bound: float

    @property
    def scarce(self) -> bool:
        """Whether cards cost anything."""
        return bool(self.cards.max() > SCARCE * max(1.0, abs(self.bound)))


def best_prices(
    problem: MixProblem,
    known: IntArray,
    start: MixPrices,
    seconds_left: Callable[[], float],
    settings: MixPriceSettings = DEFAULTS.prices,
) -> MixPrices:
    """Climb from prices to those with the highest bound, or to good ones in the time that remains.

    Parameters
    ----------
    problem
        Its table has at least one case.
    known
        A plan that keeps capacity and floors; shape (cases, items).
    start
        Prices to begin with, of which nothing needs to be proven.
    seconds_left
        Time that remains.
    settings
        Of the search.

    Raises
    ------
    SolverError
        When HiGHS fails.
    """
    master = _Master(problem)
    master.add(Mixes.of_plan(problem.table, known))
    best, cards, loads, between = start, start.cards, start.loads, True
    for _ in range(settings.rounds):
        limit = master.least_known(cards, loads)
        found = cheapest_mixes(problem.priced(cards), problem.capacity, limit, settings.width)
        here = proven(problem, cards, loads, found.least)
        best = here if here.bound > best.bound else best
        progress = master.add(found.mixes)
        objective, cards, loads = master.solve()
        close = objective - best.bound <= settings.enough * max(1.0, abs(objective))
        if close or not (progress or between) or seconds_left() <= 0:
            break
        between = progress
        if between:
            smooth = settings.smooth
            cards = smooth * best.cards + (1 - smooth) * cards
            loads = smooth * best.loads + (1 - smooth) * loads
    return best


def proven(
    problem: MixProblem, cards: FloatArray, loads: FloatArray, least: FloatArray
) -> MixPrices:
    """The sum of the cases' least costs less what capacity is worth, and less any rounding.

    `least` is what a mix of each case costs at least at these prices.
    """
    rewards, optional = problem.rewards(loads), problem.optional
    reduced = np.where(optional, np.minimum(least - rewards, 0.0), least - rewards)
    terms = np.concatenate((reduced, -cards * problem.capacity, loads * problem.goal.floors))
    taken = (reduced < 0) | ~optional
    parts = np.concatenate((least[taken], rewards[taken], terms[len(least) :]))
    rounding = ROUNDING * problem.table.rows.shape[1]
    return MixPrices(cards, loads, least, math.fsum(terms) - rounding * math.fsum(np.abs(parts)))


class _Master:
    """The linear program over the mixes that are known so far, which HiGHS keeps.

    Its rows are the capacity of each type of card, the load that each level keeps, and one mix
    at most for each case.
    """

    def __init__(self, problem: MixProblem) -> None:
        self._problem = problem
        table, goal = problem.table, problem.goal
        self._types, self._floors = len(problem.capacity), len(goal.floors)
        self._mixes = Mixes.none(table.rows.shape[1])
        cases = len(table.case)
        floors = np.where(np.arange(self._floors) < goal.whole, 0.0, goal.floors)
        lower = np.concatenate(
            (np.full(self._types, -np.inf), floors, np.where(problem.optional, -np.inf, 1.0))
        )
        upper = np.concatenate((problem.capacity, np.full(self._floors, np.inf), np.ones(cases)))
        nothing = np.zeros(0, dtype=np.int32)
        self._solver = highspy.Highs()
        self._solver.setOptionValue("output_flag", False)
        self._solver.setOptionValue("threads", 1)
        starts = np.zeros(len(lower), dtype=np.int32)
        self._solver.addRows(len(lower), lower, upper, 0, starts, nothing, np.zeros(0))

    def add(self, mixes: Mixes) -> bool:
        """Add mixes; return whether there are any."""
        problem, table = self._problem, self._problem.table
        rows, number = table.take(mixes.place), len(mixes.place)
        used = rows.used_by_each(mixes.counts, self._types)
        mix, card_type = np.nonzero(used)
        floored = np.flatnonzero((rows.level >= problem.goal.whole) & (rows.level < self._floors))
        matrix = SparseMatrix.of(
            (number, self._types + self._floors + len(table.case)),
            [
                (mix, card_type, used[mix, card_type].astype(np.float64)),
                (floored, self._types + rows.level[floored], rows.weight[floored]),
                (np.arange(number), self._types + self._floors + mixes.place, np.ones(number)),
            ],
        )
        goal = problem.goal.level
        cost = rows.value(mixes.counts) if goal is None else -rows.weight * (rows.level == goal)
        matrix.add_as_columns(self._solver, cost)
        self._mixes = self._mixes.extended(mixes)
        return number > 0

    def solve(self) -> tuple[float, FloatArray, FloatArray]:
        """The objective, and prices of cards and of loads.

        Raises
        ------
        SolverError
            When HiGHS fails.
        """
        self._solver.run()
        if self._solver.getModelStatus() != highspy.HighsModelStatus.kOptimal:
            status = self._solver.getModelStatus().name
            raise SolverError(f"HiGHS finds a linear program over mixes {status}")
        dual = np.asarray(self._solver.getSolution().row_dual)
        cards = np.maximum(-dual[: self._types], 0.0)
        loads = np.maximum(dual[self._types : self._types + self._floors], 0.0)
        return float(self._solver.getInfo().objective_function_value), cards, loads

    def least_known(self, cards: FloatArray, loads: FloatArray) -> FloatArray:
        """What the cheapest known mix of each case costs, or what a case without any is worth."""
        problem, place = self._problem, self._mixes.place
        rewards = problem.rewards(loads)
        least = np.where(problem.optional, rewards, np.inf)
        value = problem.priced(cards).take(place).value(self._mixes.counts)
        np.minimum.at(least, place, value)
        return least - SAME * np.where(np.isfinite(least), 1.0 + np.abs(least), 0.0)
