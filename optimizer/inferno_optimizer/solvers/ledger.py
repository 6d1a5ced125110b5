"""Who got what, and how many cards are left, while capacity is handed out."""

from collections import Counter
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from inferno_optimizer.sizing.candidates import Candidates
from inferno_optimizer.sizing.queueing import IntArray
from inferno_optimizer.solvers.assignment import NO_ROW, Assignment, Mix


class Ledger:
    """Capacity being handed out: replicas of candidate rows against cards of their types.

    Parameters
    ----------
    candidates
        The table whose rows are taken.
    capacity
        Cards of each type; shape (types,).
    """

    def __init__(self, candidates: Candidates, capacity: IntArray) -> None:
        self._left: list[int] = capacity.tolist()
        self._case: list[int] = candidates.pairs.case.tolist()
        self._type: list[int] = candidates.pairs.type.tolist()
        self._cards: list[int] = candidates.pairs.cards.tolist()
        self._wanted: list[int] = candidates.replicas.tolist()
        self._rows = [NO_ROW] * len(candidates.cases)
        self._given = [0] * len(candidates.cases)
        self._mixes: dict[int, Mix] = {}

    def room(self, row: int) -> int:
        """Replicas of a row that still fit, at most those that it still wants."""
        wanted = self._wanted[row] - self._given[self._case[row]]
        return min(max(self._left[self._type[row]], 0) // self._cards[row], wanted)

    def fits(self, row: int) -> bool:
        """Whether all the replicas that a row wants fit; none always do."""
        return self.room(row) == self._wanted[row]

    def whole_rounds(self, rows: Sequence[int]) -> int:
        """How many replicas every one of these rows, of different cases, can still have."""
        needed: Counter[int] = Counter()
        for row in rows:
            needed[self._type[row]] += self._cards[row]
        wanted = min(self._wanted[row] - self._given[self._case[row]] for row in rows)
        return min(wanted, *(max(self._left[t], 0) // cards for t, cards in needed.items()))

    def take(self, row: int, replicas: int) -> None:
        """Give replicas of a row to its case, besides those that it has of this row."""
        case = self._case[row]
        self._left[self._type[row]] -= replicas * self._cards[row]
        self._rows[case] = row
        self._given[case] += replicas

    def take_all(self, row: int) -> None:
        """Give a case all the replicas of a row that it wants."""
        self.take(row, self._wanted[row])

    def take_mix(self, mix: Mix) -> None:
        """Give its case a mix."""
        for row, replicas in zip(mix.rows, mix.replicas, strict=True):
            self._left[self._type[row]] -= replicas * self._cards[row]
        self._mixes[self._case[mix.rows[0]]] = mix

    def unserved(self) -> npt.NDArray[np.bool_]:
        """Cases that got nothing; shape (cases,)."""
        nothing: npt.NDArray[np.bool_] = np.array(self._rows) == NO_ROW
        nothing[[*self._mixes]] = False
        return nothing

    def assignment(self) -> Assignment:
        """Who got what."""
        rows, given = np.array(self._rows, dtype=np.int64), np.array(self._given, np.int64)
        return Assignment(rows, given, self._mixes)
