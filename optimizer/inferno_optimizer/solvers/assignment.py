"""What a solver answers: a row of the candidate table for each case, a mix of rows, or none."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

import numpy as np
import numpy.typing as npt

from inferno_optimizer.sizing.candidates import Candidates
from inferno_optimizer.sizing.queueing import FloatArray, IntArray
from inferno_optimizer.system import Level, Status

NO_ROW = -1


@dataclass(frozen=True, slots=True)
class Mix:
    """Replicas of several rows that serve a case together, and their value."""

    rows: tuple[int, ...]
    replicas: tuple[int, ...]
    value: float


@dataclass(frozen=True, slots=True)
class Assignment:
    """Rows chosen and replicas given, arrays of shape (cases,).

    `rows` is -1 where a case gets nothing; `replicas` are fewer than the row's own where a
    case gets a share of what is left. A case that has one of the `mixes` has no other row.
    """

    rows: IntArray
    replicas: IntArray
    mixes: Mapping[int, Mix] = field(default_factory=lambda: MappingProxyType({}))

    @classmethod
    def of_rows(cls, candidates: Candidates, rows: IntArray) -> "Assignment":
        """Every chosen row with all the replicas that it needs."""
        chosen = rows != NO_ROW
        replicas = np.zeros(len(rows), dtype=np.int64)
        replicas[chosen] = candidates.replicas[rows[chosen]]
        return cls(rows, replicas)

    def objective(self, candidates: Candidates) -> float:
        """Total value of what is served entirely; shares are no part of it."""
        rows = self.rows[self._entire(candidates)]
        mixed = sum(mix.value for mix in self.mixes.values())
        return float(np.sum(candidates.value[rows])) + mixed

    def served(self, candidates: Candidates) -> IntArray:
        """Cases that have all that they need, ascending."""
        mixed = np.array([*self.mixes], dtype=np.int64)
        return np.union1d(np.flatnonzero(self._entire(candidates)), mixed)

    def _entire(self, candidates: Candidates) -> npt.NDArray[np.bool_]:
        """Cases with all the replicas of a row."""
        chosen: npt.NDArray[np.bool_] = self.rows != NO_ROW
        chosen[chosen] = self.replicas[chosen] == candidates.replicas[self.rows[chosen]]
        return chosen

    def used(self, candidates: Candidates) -> IntArray:
        """Cards in use of each type; shape (types,)."""
        chosen, mixes = self.rows != NO_ROW, self.mixes.values()
        rows = np.array([*self.rows[chosen], *(r for mix in mixes for r in mix.rows)], np.int64)
        given = np.array(
            [*self.replicas[chosen], *(n for m in mixes for n in m.replicas)], np.int64
        )
        used = np.zeros(len(candidates.types), dtype=np.int64)
        np.add.at(used, candidates.pairs.type[rows], candidates.pairs.cards[rows] * given)
        return used


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
