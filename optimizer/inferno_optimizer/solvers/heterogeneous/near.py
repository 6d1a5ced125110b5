"""Mixes that cost little more than the cheapest of their case, and programs over these.

At prices that prove nearly what there is to prove, a good plan has few mixes that are not the
cheapest of their case or nearly so. Most cases have a handful of such mixes: a column for each
is much less to search than numbers of replicas. Cases with many keep their items.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from inferno_optimizer.sizing.queueing import BoolArray, FloatArray, IntArray
from inferno_optimizer.solvers.heterogeneous.cheapest import Cheapest, Mixes, cheapest_mixes
from inferno_optimizer.solvers.heterogeneous.column_generation import MixPrices
from inferno_optimizer.solvers.heterogeneous.covering import CoverInequalities
from inferno_optimizer.solvers.heterogeneous.mixes import MixTable
from inferno_optimizer.solvers.heterogeneous.problem import MixProblem
from inferno_optimizer.solvers.heterogeneous.program import MixProgram
from inferno_optimizer.solvers.heterogeneous.settings import DEFAULTS, MixSettings


@dataclass(frozen=True, slots=True)
class NearMixes:
    """The mixes of a problem that are near the cheapest ones of their case at some prices.

    Attributes
    ----------
    prices
        Those of the problem.
    mixes
        Those of the cases that are listed; the values have the prices of cards in them.
    listed
        Which cases are; shape (cases,).
    settings
        Of the search.
    """

    problem: MixProblem
    prices: MixPrices
    mixes: Mixes
    listed: BoolArray
    settings: MixSettings

    @classmethod
    def of(
        cls,
        problem: MixProblem,
        prices: MixPrices,
        excess: float,
        seconds_left: Callable[[], float],
        settings: MixSettings = DEFAULTS,
    ) -> "NearMixes":
        """Those that cost less than some excess more, or fewer where there are too many.

        Cases for which there is no time are not listed.
        """
        cost, table = least_costs(problem, prices), problem.priced(prices.cards)

        def limit(excess: float) -> FloatArray:
            return np.where(np.isfinite(cost), cost + excess, 0.0)

        half, limits = seconds_left() / 2, settings.near
        search = _MixList(problem, table, limits.together)
        few = search.up_to(limit(excess), limits.few, lambda: seconds_left() - half).mixes
        is_few = len(cost) <= limits.few_cases
        average = limits.average if is_few else limits.average_of_many
        allowed = np.sort(few.value - cost[few.place])[: average * len(cost)]
        near_limit = limit(float(np.max(allowed, initial=limits.smallest)))
        near = search.up_to(near_limit, limits.width, seconds_left)
        number = np.bincount(near.mixes.place, minlength=len(cost))
        listed: BoolArray = (near.missed >= near_limit) & (number <= limits.many)
        return cls(problem, prices, near.mixes.take(listed[near.mixes.place]), listed, settings)

    def beyond(self, counts: IntArray) -> FloatArray:
        """What a plan's mixes cost more than the cheapest of their case; shape (cases,)."""
        problem, prices = self.problem, self.prices
        value = problem.priced(prices.cards).value(counts) - problem.rewards(prices.loads)
        best = least_costs(problem, prices) - problem.rewards(prices.loads)
        result: FloatArray = np.where(problem.table.covered(counts), value, 0.0) - best
        return result

    def program(self, cases: IntArray, problem: MixProblem, known: IntArray) -> MixProgram:
        """The program of some of the cases, in which the mixes that they have now are near, too.

        `problem` is that of these cases alone, `known` what they have; shape (cases, items).
        """
        listed, table = self.listed[cases], problem.table
        mixes = self._of(cases)
        now = Mixes.of_plan(table, np.where(listed[:, None], known, 0))
        mixes = mixes.extended(now.take(~now.among(mixes)))
        table = replace(table, most=np.where(listed[:, None], 0, table.most))
        covers = CoverInequalities.of(table, self.settings.covers)
        return MixProgram(replace(problem, table=table), covers, listed=mixes)

    def _of(self, cases: IntArray) -> Mixes:
        """Those of some of the cases, in the places that these have among themselves."""
        position = np.full(len(self.listed), -1)
        position[cases] = np.arange(len(cases))
        kept = self.mixes.take(position[self.mixes.place] >= 0)
        return replace(kept, place=position[kept.place])


@dataclass(frozen=True, slots=True)
class _MixList:
    """Lists mixes of a priced table, of so many cases at once."""

    problem: MixProblem
    table: MixTable
    together: int

    def up_to(self, limit: FloatArray, width: int, seconds_left: Callable[[], float]) -> Cheapest:
        """All mixes up to a limit, case after case; of those without time nothing is known."""
        table, capacity = self.table, self.problem.capacity
        mixes, missed = Mixes.none(table.rows.shape[1]), np.full(len(limit), -np.inf)
        for first in range(0, len(limit), self.together):
            if seconds_left() <= 0:
                break
            some = np.arange(first, min(first + self.together, len(limit)))
            found = cheapest_mixes(table.take(some), capacity, limit[some], width, alike=True)
            mixes = mixes.extended(replace(found.mixes, place=some[found.mixes.place]))
            missed[some] = found.missed
        return Cheapest(mixes, missed)


def least_costs(problem: MixProblem, prices: MixPrices) -> FloatArray:
    """What the best of each case costs at prices, which may be to leave it out."""
    rewards = problem.rewards(prices.loads)
    return np.where(problem.optional, np.minimum(prices.least, rewards), prices.least)
