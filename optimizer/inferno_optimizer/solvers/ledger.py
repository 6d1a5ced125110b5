"""Who got what, and how many cards are left, while capacity is handed out."""

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from types import MappingProxyType

import numpy as np
import numpy.typing as npt

from inferno_optimizer.sizing.candidates import Candidates
from inferno_optimizer.sizing.queueing import IntArray
from inferno_optimizer.solvers.assignment import NO_ROW, Assignment, KeptReplicas, Mix, share_kept

NOTHING: Mapping[int, int] = MappingProxyType({})
"""No cards."""


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
        self._capacity: list[int] = capacity.tolist()
        self._case: list[int] = candidates.pairs.case.tolist()
        needs = candidates.needs
        self._first: list[int] = np.searchsorted(
            needs.owner, np.arange(len(self._case) + 1)
        ).tolist()
        self._cards = list(zip(needs.type.tolist(), needs.count.tolist(), strict=True))
        self._wanted: list[int] = candidates.replicas.tolist()
        self._cases = len(candidates.cases)
        self.clear()

    def clear(self) -> None:
        """Take everything back."""
        self._left = list(self._capacity)
        self._rows = [NO_ROW] * self._cases
        self._given = [0] * self._cases
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
        back, room = self._given_back(row), self._wanted[row] - self.given(row)
        for card_type, cards in self._needs(row):
            left = self._left[card_type] + back.get(card_type, 0)
            room = min(room, max(left, 0) // cards)
        return room

    def fits(self, row: int) -> bool:
        """Whether all the replicas that a row wants fit; none always do."""
        case = self._case[row]
        if self._rows[case] == NO_ROW and case not in self._kept:  # most often, so a short way
            wanted = self._wanted[row]
            for card_type, cards in self._needs(row):
                if max(self._left[card_type], 0) < cards * wanted:
                    return False
            return True
        return self.room(row) + self.given(row) == self._wanted[row]

    def given(self, row: int) -> int:
        """Replicas of a row that its case has."""
        case = self._case[row]
        return self._given[case] if self._rows[case] == row else 0

    def share(self, row: int) -> float:
        """Part of the replicas that a row wants that its case can have of it."""
        wanted = self._wanted[row]
        return (self.given(row) + self.room(row)) / wanted if wanted else 1.0

    def kept_share(self, case: int) -> float:
        """Part of what a case needs that it keeps as it is; 0 if it keeps nothing so."""
        return share_kept(self._kept[case]) if case in self._kept else 0.0

    def whole_rounds(self, rows: Sequence[int]) -> int:
        """How many replicas every one of these rows, of different cases, can still have."""
        needed: Counter[int] = Counter()
        for row in rows:
            needed.update(dict(self._needs(row)))
        wanted = min(self._wanted[row] - self._given[self._case[row]] for row in rows)
        return min(wanted, *(max(self._left[t], 0) // cards for t, cards in needed.items()))

    def take(self, row: int, replicas: int) -> None:
        """Give replicas of a row to its case, besides those that it has of this row.

        What it has otherwise is given back.
        """
        case = self._case[row]
        gives_back = self._rows[case] not in (NO_ROW, row) or case in self._kept
        freed = self._give_back(case) if gives_back else set()
        self._spend(row, replicas)
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
            for card_type, _ in self._needs(row):
                self._holding[card_type].append((row, replicas))

    def keep(self, case: int, parts: Sequence[KeptReplicas]) -> None:
        """Leave a case what runs as it is, as much of it as fits; the rest as it is freed."""
        self._give_back(case)
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

    def fits_mixes(self, mixes: Iterable[Mix]) -> bool:
        """Whether there are cards for mixes together; what their cases have is given back."""
        needed = Counter[int]()
        for mix in mixes:
            case = self._case[mix.rows[0]]
            has = (self._rows[case], -self._given[case])
            for row, replicas in (*zip(mix.rows, mix.replicas, strict=True), has):
                for card_type, cards in self._needs(row) if row != NO_ROW else ():
                    needed[card_type] += cards * replicas
            for part in self._kept.get(case, ()):
                needed[part.type] -= part.cards * part.replicas
        return all(self._left[card_type] >= cards for card_type, cards in needed.items())

    def takes_mix(self, mix: Mix) -> bool:
        """Give its case a mix instead of what it has, if it fits; whether it does."""
        fits = self.fits_mixes([mix])
        if fits:
            self.take_mix(mix)
        return fits

    def take_mix(self, mix: Mix) -> None:
        """Give its case a mix instead of what it has."""
        case = self._case[mix.rows[0]]
        freed = self._give_back(case)
        for row, replicas in zip(mix.rows, mix.replicas, strict=True):
            self._spend(row, replicas)
        self._mixes[case] = mix
        self._return_to_holders(freed)

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
            if self._rows[case] in (NO_ROW, row) and case not in self._mixes:
                self._hold(row, replicas)
        for case, parts in chain.from_iterable(map(self._keeping.__getitem__, freed)):
            if self._rows[case] == NO_ROW and case not in self._mixes:
                self._give_back(case)
                self._keep(case, parts)

    def _needs(self, row: int) -> Sequence[tuple[int, int]]:
        """Type and number of the cards that a replica of a row takes."""
        return self._cards[self._first[row] : self._first[row + 1]]

    def _spend(self, row: int, replicas: int) -> None:
        """Take the cards of replicas of a row; of a negative number, give them back."""
        for card_type, cards in self._needs(row):
            self._left[card_type] -= replicas * cards

    def _given_back(self, row: int) -> Mapping[int, int]:
        """Cards by type that the case of a row has otherwise."""
        case = self._case[row]
        held = self._rows[case]
        if case in self._kept:
            back = Counter[int]()
            for part in self._kept[case]:
                back[part.type] += part.cards * part.replicas
            return back
        if held in (NO_ROW, row):
            return NOTHING
        return {card_type: self._given[case] * cards for card_type, cards in self._needs(held)}

    def _give_back(self, case: int) -> set[int]:
        """Take from a case all that it has; returns the types of the cards."""
        row, freed = self._rows[case], set[int]()
        if row != NO_ROW:
            self._spend(row, -self._given[case])
            self._rows[case], self._given[case] = NO_ROW, 0
            freed |= {card_type for card_type, _ in self._needs(row)}
        for part in self._kept.pop(case, ()):
            self._left[part.type] += part.cards * part.replicas
            freed.add(part.type)
        return freed
