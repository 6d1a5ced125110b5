"""Where relaxations begin: at the columns and the basis of the one that was solved last."""

from dataclasses import replace

import numpy as np

from inferno_optimizer.sizing.queueing import IntArray
from inferno_optimizer.solvers.budget import UNLIMITED, Budget
from inferno_optimizer.solvers.partial.goals import Floor, Goal
from inferno_optimizer.solvers.partial.problem import ReplicaProblem
from inferno_optimizer.solvers.partial.relaxation import (
    Basis,
    Relaxation,
    Start,
    Vertex,
)
from inferno_optimizer.solvers.partial.sample import SampledProblem

MANY = 3_000
"""Cases from which a relaxation begins near that of a sample, unless it is solved in few steps."""

STEPS = 1_000
"""Steps of HiGHS until columns are added that are few."""

ENOUGH = 4_000
"""Steps that suffice from the basis of a sample, unless many of them change nothing."""

ALL = 1e-6
"""Share of a load that may be missing where all of it can be had."""


class WarmStart:
    """Where the next relaxation begins.

    Parameters
    ----------
    problem
        The columns that relaxations may have.
    many, steps
        Cases from which a sample says where to begin, if so few steps of HiGHS do not suffice.
    """

    def __init__(self, problem: ReplicaProblem, many: int = MANY, steps: int = STEPS) -> None:
        nothing = np.zeros(len(problem.case), dtype=np.bool_)
        self._start = Start(nothing, Basis.empty(problem))
        self._many, self._steps = many, steps

    def relaxation(
        self, problem: ReplicaProblem, goal: Goal, floors: tuple[Floor, ...], counts: IntArray
    ) -> Relaxation:
        """The relaxation of a goal, which begins with the columns of a plan, too."""
        start = replace(self._start, known=self._start.known | (counts > 0))
        return Relaxation(problem, goal, floors, start)

    def solved(self, relaxation: Relaxation, budget: Budget) -> Vertex | None:
        """The best vertex; the next relaxation begins there."""
        many = int(np.count_nonzero(relaxation.matter)) >= self._many
        vertex = relaxation.solve(budget, steps=self._steps if many else UNLIMITED)
        if vertex is None and many:
            vertex = _near_sample(relaxation, budget)
        if vertex is not None:
            basis = relaxation.basis()
            self._start = Start((vertex.amounts > 0) | basis.moved, basis)
        return vertex


def _near_sample(relaxation: Relaxation, budget: Budget) -> Vertex | None:
    """The best vertex, from that of a sample; None where too little work remains."""
    sample = SampledProblem.of(relaxation.problem, relaxation.matter)
    sampled = sample.relaxation(relaxation.goal, relaxation.floors)
    vertex = sampled.solve(budget)
    if vertex is None:
        return relaxation.solve(budget)
    relaxation.begin_at(sample.start(sampled, vertex, relaxation))
    # Where all of a load can be had, its costs are of no use: most steps change nothing.
    if vertex.bound < relaxation.goal.most(sample.problem) * (1 - ALL):
        found = relaxation.solve(budget, steps=ENOUGH)
        if found is not None:
            return found
    relaxation.perturb(1.0)
    found = relaxation.solve(budget)
    relaxation.perturb(0.0)
    return found
