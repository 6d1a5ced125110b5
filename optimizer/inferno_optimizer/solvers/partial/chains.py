"""Ejection chains: a server takes cards that others have, these take those of others again.

A dive leaves large servers where the relaxation has them. A chain begins with a change that is
good for the goal and takes more cards than are left, or load that a floor needs. The changes that
follow, each the best for its potential, give back what is missing; the potential is the goal less
penalties for it. The first part of the chain with the best potential is kept, if that is better
than before, so that a plan never gets worse, and one that misses little may be repaired.

See `assignment.md`, section "Partial service", and its source [8].
"""

from collections.abc import Callable, Sequence

import numpy as np

from inferno_optimizer.sizing.queueing import IntArray
from inferno_optimizer.solvers.exact.program import BoolArray
from inferno_optimizer.solvers.partial.goals import Floor, Goal
from inferno_optimizer.solvers.partial.open_columns import OpenColumns
from inferno_optimizer.solvers.partial.position import Position, Terms
from inferno_optimizer.solvers.partial.problem import ReplicaProblem
from inferno_optimizer.solvers.partial.relaxation import Vertex

CHANGES = 10
"""Changes of a chain at most."""

REPAIRS = 60
"""The same where a plan is repaired."""

BEGINNINGS = 60
"""A chain begins with one of so many changes, the ones that lose the least."""

IN_VAIN = 60
"""Chains without a better plan, after which there are no more."""

HELPS = 1e-4
"""Relative gain of a chain that helps; with less it is in vain."""

ROUNDING = 1e-9
"""Relative difference of potentials that is none."""


class EjectionChains:
    """Improves plans as to a goal with floors.

    Parameters
    ----------
    problem, goal, floors
        What is maximized, not the value; and what is kept.
    vertex
        The best one of the relaxation with these floors: its multipliers are the prices.
    numbers
        Choose the beginnings.
    """

    def __init__(
        self,
        problem: ReplicaProblem,
        goal: Goal,
        floors: tuple[Floor, ...],
        vertex: Vertex,
        numbers: np.random.Generator,
    ) -> None:
        self._problem, self._numbers = problem, numbers
        self._options = OpenColumns.of(problem, floors, vertex)
        self._terms = Terms.of(problem, goal, floors, vertex)

    def improved(self, plans: Sequence[IntArray], seconds_left: Callable[[], float]) -> IntArray:
        """The best of some plans, after repair, with chains until none helps any more.

        It has at least as much of the goal as each of the plans that fits and keeps the floors. If
        none does, it may still miss something.
        """
        starts = [Position.of(self._problem, self._options, self._terms, plan) for plan in plans]
        best = max((self._chain(start, start, REPAIRS) for start in starts), key=_worth)
        tried, in_vain = np.zeros(len(self._options.column), dtype=np.bool_), 0
        while best.worth[0] and in_vain < IN_VAIN and seconds_left() > 0:
            begun = self._begun(best, tried)
            if begun is None:
                break
            better = self._chain(best, begun, CHANGES)
            helps = better.worth[1] > best.worth[1] + HELPS * abs(best.worth[1])
            in_vain = 0 if helps else in_vain + 1
            tried &= better is best
            best = better
        return best.counts()

    def _begun(self, position: Position, tried: BoolArray) -> Position | None:
        """The position after a first change that was not tried; None if there is no other."""
        changes = position.changes()
        useful = np.flatnonzero((changes.gain[0] > _rounding(position)) & ~tried)
        if not len(useful):
            return None
        few = min(BEGINNINGS, len(useful))
        near = useful[np.argpartition(self._options.lost[useful], few - 1)[:few]]
        option = int(self._numbers.choice(near))
        tried[option] = True
        return position.after(option, int(changes.replicas[0, option]))

    def _chain(self, before: Position, begun: Position, most: int) -> Position:
        """The best position of a chain from its first change on, if it is better than before."""
        best, now, rounding = before, begun, _rounding(before)
        changed = (before.column != begun.column) | (before.replicas != begun.replicas)
        for _ in range(most):
            best = _better(best, now, rounding)
            changes = now.changes()
            potential = np.where(changed[self._options.case], -np.inf, changes.potential)
            if potential.max(initial=-np.inf) <= rounding:
                return best
            kind, option = divmod(int(np.argmax(potential)), potential.shape[1])
            now = now.after(option, int(changes.replicas[kind, option]))
            changed[self._options.case[option]] = True
        return _better(best, now, rounding)


def _worth(position: Position) -> tuple[bool, float]:
    return position.worth


def _rounding(position: Position) -> float:
    """What is no difference of a potential."""
    return ROUNDING * max(abs(position.worth[1]), 1.0)


def _better(one: Position, other: Position, rounding: float) -> Position:
    """The first position, or the other one if that is better: possible, or of more potential."""
    (possible, potential), (as_well, others) = one.worth, other.worth
    if as_well != possible:
        return other if as_well else one
    return other if others > potential + rounding else one
