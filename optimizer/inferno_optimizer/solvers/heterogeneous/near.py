"""Mixes that cost little more than the cheapest of their case, and programs over these.

At prices that prove nearly what there is to prove, a good plan has few mixes that are not the
cheapest of their case or nearly so. Most cases have a handful of such mixes: a column for each
is much less to search than numbers of replicas. Cases with many keep their items.
"""

from dataclasses import dataclass, replace

import numpy as np

from inferno_optimizer.sizing.queueing import FloatArray, IntArray
from inferno_optimizer.solvers.exact.program import BoolArray
from inferno_optimizer.solvers.heterogeneous.cheapest import Mixes, cheapest_mixes
from inferno_optimizer.solvers.heterogeneous.column_generation import Prices
from inferno_optimizer.solvers.heterogeneous.covering import Inequalities
from inferno_optimizer.solvers.heterogeneous.problem import Problem
from inferno_optimizer.solvers.heterogeneous.program import MixProgram

MANY = 200
"""Cases with more mixes than this keep their items."""

AVERAGE = 10
"""So many mixes of a case are near, on average."""

FEW = 100
"""Parts of mixes of a case that go on in the search that tells how near that is."""

WIDTH = 500
"""Parts of mixes of a case that go on in the search for all that are near."""

SMALLEST = 1e-6
"""What costs more by less than this is as near as it can be."""


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
    """

    problem: Problem
    prices: Prices
    mixes: Mixes
    listed: BoolArray

    @classmethod
    def of(cls, problem: Problem, prices: Prices, excess: float) -> "NearMixes":
        """Those that cost less than some excess more, or fewer where there are too many."""
        cost, table = least_costs(problem, prices), problem.priced(prices.cards)

        def limit(excess: float) -> FloatArray:
            return np.where(np.isfinite(cost), cost + excess, 0.0)

        few = cheapest_mixes(table, problem.capacity, limit(excess), FEW, alike=True).mixes
        allowed = np.sort(few.value - cost[few.place])[: AVERAGE * len(cost)]
        near_limit = limit(float(np.max(allowed, initial=SMALLEST)))
        near = cheapest_mixes(table, problem.capacity, near_limit, WIDTH, alike=True)
        number = np.bincount(near.mixes.place, minlength=len(cost))
        listed: BoolArray = (near.missed >= near_limit) & (number <= MANY)
        return cls(problem, prices, near.mixes.take(listed[near.mixes.place]), listed)

    def beyond(self, counts: IntArray) -> FloatArray:
        """What a plan's mixes cost more than the cheapest of their case; shape (cases,)."""
        problem, prices = self.problem, self.prices
        value = problem.priced(prices.cards).value(counts) - problem.rewards(prices.loads)
        best = least_costs(problem, prices) - problem.rewards(prices.loads)
        result: FloatArray = np.where(problem.table.covered(counts), value, 0.0) - best
        return result

    def program(self, cases: IntArray, problem: Problem, known: IntArray) -> MixProgram:
        """The program of some of the cases, in which the mixes that they have now are near, too.

        `problem` is that of these cases alone, `known` what they have; shape (cases, items).
        """
        listed, table = self.listed[cases], problem.table
        mixes = self._of(cases)
        now = Mixes.of_plan(table, np.where(listed[:, None], known, 0))
        mixes = mixes.extended(now.take(~now.among(mixes)))
        table = replace(table, most=np.where(listed[:, None], 0, table.most))
        return MixProgram(replace(problem, table=table), Inequalities.of(table), listed=mixes)

    def _of(self, cases: IntArray) -> Mixes:
        """Those of some of the cases, in the places that these have among themselves."""
        position = np.full(len(self.listed), -1)
        position[cases] = np.arange(len(cases))
        mine = self.mixes.take(position[self.mixes.place] >= 0)
        return replace(mine, place=position[mine.place])


def least_costs(problem: Problem, prices: Prices) -> FloatArray:
    """What the best of each case costs at prices, which may be to leave it out."""
    rewards = problem.rewards(prices.loads)
    return np.where(problem.optional, np.minimum(prices.least, rewards), prices.least)
