"""Where ejection chains may move a case: columns on one type of card, the ones that lose least."""

from dataclasses import dataclass

import numpy as np

from inferno_optimizer.sizing.queueing import FloatArray, IntArray
from inferno_optimizer.solvers.exact.program import BoolArray
from inferno_optimizer.solvers.partial.goals import Floor, GoalKind, least_of
from inferno_optimizer.solvers.partial.problem import ReplicaProblem
from inferno_optimizer.solvers.partial.relaxation import Vertex

COLUMNS = 6_000
"""Columns that take part: the ones that lose the least."""

ROUNDING = 1e-9
"""Share that is none."""

EACH = slice(None)


@dataclass(frozen=True, slots=True)
class OpenColumns:
    """Columns that a change may lead to; arrays of shape (options,).

    Attributes
    ----------
    column, case, level
        The column, its case, and the level of that.
    type, cards
        The one type of card that a replica takes, and how many.
    most, fewest
        Replicas at most; and at least, as a floor that is whole demands it.
    weight, full, held, serves
        Load of the case, replicas for all of it, share that runs, and whether replicas serve it.
    lost
        What the whole share of a column loses of the goal, at the multipliers.
    """

    column: IntArray
    case: IntArray
    level: IntArray
    type: IntArray
    cards: IntArray
    most: IntArray
    fewest: IntArray
    weight: FloatArray
    full: FloatArray
    held: FloatArray
    serves: BoolArray
    lost: FloatArray

    @classmethod
    def of(
        cls, problem: ReplicaProblem, floors: tuple[Floor, ...], vertex: Vertex
    ) -> "OpenColumns":
        """The columns on one type of card that lose the least."""
        types, cards = one_type(problem)
        possible = (cards > 0) & (problem.most > 0) & np.isfinite(vertex.lost)
        columns = np.flatnonzero(possible)
        order = np.argsort(vertex.lost[columns], kind="stable")
        column = np.sort(columns[order[:COLUMNS]])
        case = problem.case[column]
        least = least_of(problem, floors)[case] * problem.full[column]
        return cls(
            column=column,
            case=case,
            level=problem.level[case],
            type=types[column],
            cards=cards[column],
            most=problem.most[column],
            fewest=np.ceil(least * (1 - ROUNDING)).astype(np.int64),
            weight=problem.weight[case],
            full=problem.full[column],
            held=problem.held[case],
            serves=problem.serves[column],
            lost=vertex.lost[column],
        )

    def load(
        self, kind: GoalKind, replicas: IntArray | int, option: int | slice = EACH
    ) -> FloatArray:
        """Load that replicas of the options, shape (..., options), or of one count for a kind."""
        share, weight = replicas / self.full[option], self.weight[option]
        if kind is GoalKind.HELD:
            held: FloatArray = weight * np.minimum(share, self.held[option])
            return held
        served = np.where(self.serves[option], share, 0.0)
        return weight * (np.floor(served + ROUNDING) if kind is GoalKind.ENTIRE else served)


def one_type(problem: ReplicaProblem) -> tuple[IntArray, IntArray]:
    """Type and count of the cards of each column; no cards where they are of several types."""
    entries, columns = problem.cards, len(problem.case)
    types, cards = np.zeros(columns, dtype=np.int64), np.zeros(columns, dtype=np.int64)
    types[entries.owner], cards[entries.owner] = entries.type, entries.count
    return types, np.where(np.bincount(entries.owner, minlength=columns) == 1, cards, 0)
