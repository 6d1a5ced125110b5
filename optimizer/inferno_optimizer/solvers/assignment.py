"""What a solver answers: one row of the candidate table for each case, or none."""

from dataclasses import dataclass

import numpy as np

from inferno_optimizer.candidates import Candidates
from inferno_optimizer.queueing import FloatArray, IntArray
from inferno_optimizer.system import Level, Status

NO_ROW = -1


@dataclass(frozen=True, slots=True)
class Assignment:
    """Rows chosen and replicas given, arrays of shape (cases,).

    `rows` is -1 where a case gets nothing; `replicas` are fewer than the row's own where a
    case gets a share of what is left.
    """

    rows: IntArray
    replicas: IntArray

    @classmethod
    def of_rows(cls, candidates: Candidates, rows: IntArray) -> "Assignment":
        """Every chosen row with all the replicas that it needs."""
        chosen = rows != NO_ROW
        replicas = np.zeros(len(rows), dtype=np.int64)
        replicas[chosen] = candidates.replicas[rows[chosen]]
        return cls(rows, replicas)

    def objective(self, candidates: Candidates) -> float:
        """Total value of the rows that have all their replicas; shares are no part of it."""
        rows = self.rows[self.rows != NO_ROW]
        entire = self.replicas[self.rows != NO_ROW] == candidates.replicas[rows]
        return float(np.sum(candidates.value[rows[entire]]))


@dataclass(frozen=True, slots=True)
class Answer:
    """An assignment with what its solver knows of it; see `system.Certificate`.

    `levels` tell of the load of each priority in use. `prices` are what one more card of each
    type saves, shape (types,); None where the solver does not tell.
    """

    solver: str
    status: Status
    assignment: Assignment
    bound: float | None = None
    levels: tuple[Level, ...] = ()
    prices: FloatArray | None = None
