"""Where relaxations begin: at the columns and the basis of the one that was solved last."""

from dataclasses import dataclass, replace

import numpy as np

from inferno_optimizer.sizing.demands import ROUNDING
from inferno_optimizer.sizing.queueing import BoolArray, FloatArray, IntArray
from inferno_optimizer.solvers.budget import UNLIMITED, Budget
from inferno_optimizer.solvers.groups import rank_in_group
from inferno_optimizer.solvers.partial.goals import Floor, Goal, GoalKind
from inferno_optimizer.solvers.partial.problem import ReplicaProblem
from inferno_optimizer.solvers.partial.relaxation import (
    Basis,
    Relaxation,
    Start,
    Vertex,
)


@dataclass(frozen=True, slots=True)
class SampledProblem:
    """The problem of a sample.

    Attributes
    ----------
    problem, whole
        The problem of the sample, whose small cases stand for several, and that of all.
    cases
        Which cases of the whole belong to it, shape (cases,).
    """

    problem: ReplicaProblem
    whole: ReplicaProblem
    cases: BoolArray

    @classmethod
    def of(cls, problem: ReplicaProblem, matter: BoolArray) -> "SampledProblem":
        """A sample of the cases that matter, and one case of each level.

        Parameters
        ----------
        problem, matter
            The whole, and the cases that a goal or a floor counts; shape (cases,).
        """
        stands_for = _stands_for(problem, matter)
        cases = stands_for > 0
        alone = problem.of_cases(cases, problem.capacity)
        times = stands_for[cases]
        of_column = times[alone.case]
        several = replace(
            alone,
            most=alone.most * of_column,
            full=alone.full * of_column,
            runs=alone.runs * of_column,
            stands=alone.stands * of_column,
            weight=alone.weight * times,
        )
        return cls(several, problem, cases)

    def relaxation(self, goal: Goal, floors: tuple[Floor, ...]) -> Relaxation:
        """That of the sample, whose floors are as large a part of all load as in the whole."""
        nothing = np.zeros(len(self.problem.case), dtype=np.bool_)
        part = tuple(replace(floor, load=self._part(floor)) for floor in floors)
        return Relaxation(self.problem, goal, part, Start(nothing, Basis.empty(self.problem)))

    def _part(self, floor: Floor) -> float:
        most = floor.goal.most(self.whole)
        return floor.load * floor.goal.most(self.problem) / most if most > 0 else floor.load

    def start(self, sampled: Relaxation, vertex: Vertex, whole: Relaxation) -> Start:
        """Where the relaxation of all begins: the columns that are the best at the same prices.

        Parameters
        ----------
        sampled, vertex
            The relaxation of the sample, and its best vertex.
        whole
            The relaxation of all.
        """
        problem, of_sample = self.whole, self.whole.columns_of(self.cases)
        basis = Basis.empty(problem).with_part(sampled.basis(), self.cases, of_sample)
        offers = Offers.of(whole, vertex)
        gain = offers.gain
        order = np.lexsort((-gain, problem.case))
        rank = rank_in_group(problem.case[order])
        known = np.zeros(len(order), dtype=np.bool_)
        known[order[rank < problem.params.sample_columns]] = True
        known[of_sample] |= sampled.basis().moved | (vertex.amounts > 0)
        best = order[rank == 0]
        case = problem.case[best]
        taken = np.isfinite(gain[best]) & ((gain[best] > 0) | whole.must[case])
        best = best[taken & whole.matter[case] & ~self.cases[case]]
        case, holds = problem.case[best], offers.holds_all[best]
        basis = basis.with_columns(case, best, offers.tight[best], case[holds])
        return Start(known & np.isfinite(gain), basis)


@dataclass(frozen=True, slots=True)
class Offers:
    """What each column gains at prices, as much as is best of it; arrays of shape (columns,).

    Attributes
    ----------
    gain
        Of the goal; minus infinity where the relaxation does not have the column.
    tight
        What ends there at its limit, as `Basis.with_columns` has it: a part of what there may be
        is best where more costs more than it serves.
    holds_all
        Whether it counts what is held, and all that runs is.
    """

    gain: FloatArray
    tight: IntArray
    holds_all: BoolArray

    @classmethod
    def of(cls, relaxation: Relaxation, vertex: Vertex) -> "Offers":
        """At the prices of a vertex, which may be that of another relaxation."""
        problem = relaxation.problem
        held, slope = _per_share(relaxation, vertex)
        runs = np.where(relaxation.holds, problem.held, 0.0)[problem.case]
        per_amount = np.minimum(runs * problem.full, 1.0)
        limit, least = problem.most / problem.full, relaxation.least
        to_hold = np.divide(runs, per_amount, out=np.zeros_like(runs), where=per_amount > 0)
        wanted = np.where(slope < 0, np.maximum(least, to_hold), limit)
        amount = np.minimum(wanted, limit)
        holding = np.minimum(per_amount * amount, runs)
        tight = np.where(amount >= limit, 0, np.where(least >= to_hold, 1, 2))
        gain = np.where(relaxation.open, slope * amount + held * holding, -np.inf)
        return cls(gain, tight, (runs > 0) & (holding >= runs * (1 - ROUNDING)))


def _per_share(relaxation: Relaxation, vertex: Vertex) -> tuple[FloatArray, FloatArray]:
    """What a share that is held of each column gains; and an amount of it, without that."""
    problem, goal = relaxation.problem, relaxation.goal
    prices = dict(vertex.floor_prices)
    held, served = np.zeros(problem.levels), np.zeros(problem.levels)
    if goal.kind is not GoalKind.VALUE:
        prices[goal] = prices.get(goal, 0.0) + 1.0
    for of, price in prices.items():
        (held if of.kind is GoalKind.HELD else served)[of.level] += price
    level, weight = problem.level[problem.case], problem.weight[problem.case]
    slope = np.where(problem.serves, weight * served[level], 0.0)
    if goal.kind is GoalKind.VALUE:
        slope -= problem.least_value * problem.full
    entries = problem.cards
    cards = entries.count * problem.full[entries.owner]
    slope -= np.bincount(entries.owner, vertex.prices[entries.type] * cards, len(slope))
    return weight * held[level], slope


def _stands_for(problem: ReplicaProblem, matter: BoolArray) -> IntArray:
    """For how many cases each one stands, 0 where it is not in the sample; shape (cases,)."""
    large, most = problem.params.sample_large, problem.params.sample
    size = np.where(matter, _smallest_part(problem), -1.0)
    order = np.argsort(-size, kind="stable")
    others = order[large : np.count_nonzero(matter)]
    others = others[np.argsort(problem.level[others], kind="stable")]
    each = max(-(-len(others) // (most - large)), 1)
    stands_for = np.zeros(len(problem.cases), dtype=np.int64)
    stands_for[np.unique(problem.level, return_index=True)[1]] = 1
    stands_for[others[each // 2 :: each]] = each
    stands_for[order[:large]] = 1
    return stands_for


def _smallest_part(problem: ReplicaProblem) -> FloatArray:
    """Part of the cards of a type that each case takes at least, shape (cases,); else minus 1."""
    entries, capacity = problem.cards, np.maximum(problem.capacity, 1)
    part = problem.most[entries.owner] * entries.count / capacity[entries.type]
    of_column = np.bincount(entries.owner, part, len(problem.case))
    least = np.full(len(problem.cases), np.inf)
    np.minimum.at(least, problem.case, of_column)
    return np.where(np.isfinite(least), least, -1.0)


class WarmStart:
    """Where the next relaxation begins.

    Parameters
    ----------
    problem
        The columns that relaxations may have.
    """

    def __init__(self, problem: ReplicaProblem) -> None:
        nothing = np.zeros(len(problem.case), dtype=np.bool_)
        self._start = Start(nothing, Basis.empty(problem))
        self._params = problem.params

    def relaxation(
        self, problem: ReplicaProblem, goal: Goal, floors: tuple[Floor, ...], counts: IntArray
    ) -> Relaxation:
        """The relaxation of a goal, which begins with the columns of a plan, too."""
        start = replace(self._start, known=self._start.known | (counts > 0))
        return Relaxation(problem, goal, floors, start)

    def solved(self, relaxation: Relaxation, budget: Budget) -> Vertex | None:
        """The best vertex; the next relaxation begins there."""
        many = int(np.count_nonzero(relaxation.matter)) >= self._params.sampled_from
        vertex = relaxation.solve(budget, steps=self._params.few_steps if many else UNLIMITED)
        if vertex is None and many:
            vertex = _near_sample(relaxation, budget)
        if vertex is not None:
            basis = relaxation.basis()
            self._start = Start((vertex.amounts > 0) | basis.moved, basis)
        return vertex


def _near_sample(relaxation: Relaxation, budget: Budget) -> Vertex | None:
    """The best vertex, from that of a sample; None where too little work remains."""
    params = relaxation.problem.params
    sample = SampledProblem.of(relaxation.problem, relaxation.matter)
    sampled = sample.relaxation(relaxation.goal, relaxation.floors)
    vertex = sampled.solve(budget)
    if vertex is None:
        return relaxation.solve(budget)
    relaxation.begin_at(sample.start(sampled, vertex, relaxation))
    # Where all of a load can be had, its costs are of no use: most steps change nothing.
    if vertex.bound < relaxation.goal.most(sample.problem) * (1 - params.solved):
        found = relaxation.solve(budget, steps=params.sample_steps)
        if found is not None:
            return found
    relaxation.perturb(1.0)
    found = relaxation.solve(budget)
    relaxation.perturb(0.0)
    return found
