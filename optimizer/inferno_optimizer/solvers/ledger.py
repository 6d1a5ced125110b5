"""Who got what, and how many cards are left, while capacity is handed out."""

from collections import Counter, defaultdict
from collections.abc import Collection, Sequence
from dataclasses import replace
from itertools import chain

import numpy as np
import numpy.typing as npt

from inferno_optimizer.sizing.candidates import Candidates
from inferno_optimizer.sizing.queueing import IntArray
from inferno_optimizer.solvers.assignment import NO_ROW, Assignment, KeptReplicas, Mix


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
        self._needed: list[int] = (candidates.pairs.cards * candidates.replicas).tolist()
        self._rows = [NO_ROW] * len(candidates.cases)
        self._given = [0] * len(candidates.cases)
        self._mixes: dict[int, Mix] = {}
        self._kept: dict[int, tuple[KeptReplicas, ...]] = {}
        self._holding: defaultdict[int, list[tuple[int, int]]] = defaultdict(list)
        """Rows and replicas that run, by type, of cases that got fewer."""
        self._keeping: defaultdict[int, list[tuple[int, Sequence[KeptReplicas]]]]
        self._keeping = defaultdict(list)
        """Cases that got less than what runs, by each of its types."""

    def room(self, row: int) -> int:
        """Replicas of a row that fit besides those that its case has, at most those it wants.

        What its case has otherwise counts as given back.
        """
        left = self._left[self._type[row]] + self._given_back(row)
        return min(max(left, 0) // self._cards[row], self._wanted[row] - self.given(row))

    def fits(self, row: int) -> bool:
        """Whether all the replicas that a row wants fit; none always do."""
        case = self._case[row]
        if self._rows[case] == NO_ROW and case not in self._kept:  # most often, so a short way
            return max(self._left[self._type[row]], 0) >= self._needed[row]
        return self.room(row) + self.given(row) == self._wanted[row]

    def given(self, row: int) -> int:
        """Replicas of a row that its case has."""
        case = self._case[row]
        return self._given[case] if self._rows[case] == row else 0

    def share(self, row: int) -> float:
        """Part of the replicas that a row wants that its case can have of it."""
        wanted = self._wanted[row]
        return (self.given(row) + self.room(row)) / wanted if wanted else 1.0

    def keeps(self, case: int) -> bool:
        """Whether a case keeps what runs as it is."""
        return case in self._kept

    def whole_rounds(self, rows: Sequence[int]) -> int:
        """How many replicas every one of these rows, of different cases, can still have."""
        needed: Counter[int] = Counter()
        for row in rows:
            needed[self._type[row]] += self._cards[row]
        wanted = min(self._wanted[row] - self._given[self._case[row]] for row in rows)
        return min(wanted, *(max(self._left[t], 0) // cards for t, cards in needed.items()))

    def take(self, row: int, replicas: int) -> None:
        """Give replicas of a row to its case, besides those that it has of this row.

        What it has otherwise is given back.
        """
        case = self._case[row]
        gives_back = self._rows[case] not in (NO_ROW, row) or case in self._kept
        freed = self._give_back(case) if gives_back else set()
        self._left[self._type[row]] -= replicas * self._cards[row]
        self._rows[case] = row
        self._given[case] += replicas
        if freed:
            self._return_to_holders(freed)

    def take_all(self, row: int) -> None:
        """Give a case all the replicas of a row that it wants."""
        self.take(row, self._wanted[row] - self.given(row))

    def hold(self, row: int, replicas: int) -> None:
        """Give a case the replicas of a row that run, as many as fit; others as they are freed."""
        self._hold(row, replicas)
        if self.given(row) < replicas:
            self._holding[self._type[row]].append((row, replicas))

    def keep(self, case: int, parts: Sequence[KeptReplicas]) -> None:
        """Leave a case what runs as it is, as much of it as fits; the rest as it is freed."""
        self._keep(case, parts)
        if self._kept.get(case) != tuple(parts):
            for card_type in {part.type for part in parts}:
                self._keeping[card_type].append((case, parts))

    def _hold(self, row: int, replicas: int) -> None:
        if (fitting := min(replicas - self.given(row), self.room(row))) > 0:
            self.take(row, fitting)

    def _keep(self, case: int, parts: Sequence[KeptReplicas]) -> None:
        kept = []
        for part in parts:
            room = max(self._left[part.type], 0) // part.cards if part.cards else part.replicas
            kept.append(replace(part, replicas=min(part.replicas, room)))
            self._left[part.type] -= part.cards * kept[-1].replicas
        if any(part.replicas for part in kept):
            self._kept[case] = tuple(kept)

    def take_mix(self, mix: Mix) -> None:
        """Give its case a mix."""
        for row, replicas in zip(mix.rows, mix.replicas, strict=True):
            self._left[self._type[row]] -= replicas * self._cards[row]
        self._mixes[self._case[mix.rows[0]]] = mix

    def unserved(self) -> npt.NDArray[np.bool_]:
        """Cases that got nothing; shape (cases,)."""
        nothing: npt.NDArray[np.bool_] = np.array(self._rows) == NO_ROW
        nothing[[*self._mixes, *self._kept]] = False
        return nothing

    def assignment(self) -> Assignment:
        """Who got what."""
        rows, given = np.array(self._rows, dtype=np.int64), np.array(self._given, np.int64)
        return Assignment(rows, given, self._mixes, self._kept)

    def _return_to_holders(self, freed: Collection[int]) -> None:
        """Give cards of freed types to those that hold less than what runs, before anybody else."""
        for row, replicas in chain.from_iterable(map(self._holding.__getitem__, freed)):
            case = self._case[row]
            if self._rows[case] in (NO_ROW, row):
                self._hold(row, replicas)
        for case, parts in chain.from_iterable(map(self._keeping.__getitem__, freed)):
            if self._rows[case] == NO_ROW:
                self._give_back(case)
                self._keep(case, parts)

    def _given_back(self, row: int) -> int:
        """Cards of the type of a row that its case has otherwise."""
        case, card_type = self._case[row], self._type[row]
        mine = self._rows[case]
        if case in self._kept:
            parts = self._kept[case]
            return sum(part.cards * part.replicas for part in parts if part.type == card_type)
        if mine in (NO_ROW, row) or self._type[mine] != card_type:
            return 0
        return self._given[case] * self._cards[mine]

    def _give_back(self, case: int) -> set[int]:
        """Take from a case all that it has; returns the types of the cards."""
        mine, freed = self._rows[case], set[int]()
        if mine != NO_ROW:
            self._left[self._type[mine]] += self._given[case] * self._cards[mine]
            self._rows[case], self._given[case] = NO_ROW, 0
            freed.add(self._type[mine])
        for part in self._kept.pop(case, ()):
            self._left[part.type] += part.cards * part.replicas
            freed.add(part.type)
        return freed
