"""Other rows for several servers of a plan at a time: more are served, or the value falls.

The greedy solver takes nothing back: a server that comes late gets nothing, or stays on dear cards,
where one that came before it would give up cards for little. A server that takes a row lets others
move, which let others move [F. Glover, *Ejection chains, reference structures and alternating path
methods for traveling salesman problems*, Discrete Applied Mathematics 65 (1996) 223-253]. See
`assignment.md`, section "Exchanges".
"""

from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace

import numpy as np

from inferno_optimizer.sizing.candidates import Candidates
from inferno_optimizer.sizing.queueing import ArrayTable, BoolArray, FloatArray, IntArray
from inferno_optimizer.solvers.assignment import NO_ROW, Assignment
from inferno_optimizer.solvers.params import DEFAULTS, SolveParams


def serve_more(
    candidates: Candidates, capacity: IntArray, plan: Assignment, params: SolveParams = DEFAULTS
) -> Assignment:
    """The plan after the first exchanges that serve more; who is served entirely stays so."""
    exchanges = _Exchanges(candidates, capacity, plan, params, params.first_tries)
    exchanges.serve()
    return exchanges.plan()


def exchange_rows(
    candidates: Candidates,
    capacity: IntArray,
    plan: Assignment,
    running: IntArray,
    params: SolveParams = DEFAULTS,
) -> Assignment:
    """The plan after exchanges that serve more, and then those that save something.

    Whoever is served entirely stays so. In the end no other row of one server, and no other rows
    of two, have a lower value, unless there are too many to try; nor has the plan in which all that
    run stay on their rows, `running` of shape (cases,), where that fits and serves them. Servers
    with several rows keep them, as do those whose row takes several types of cards.
    """
    exchanges = _Exchanges(candidates, capacity, plan, params, params.tries)
    homes = exchanges.places_of(running)
    exchanges.serve()
    while exchanges.save() or exchanges.take_back(homes):
        pass
    return exchanges.plan()


@dataclass(frozen=True, slots=True)
class _Moves(ArrayTable):
    """Moves of cases to other rows that all free cards of one type.

    Each takes `cards` of a `type`, none if that is the one type, where it frees the difference;
    its `loss` is what it adds to the value, and may be negative.
    """

    row: IntArray
    case: IntArray
    type: IntArray
    cards: IntArray
    freed: IntArray
    loss: FloatArray

    def fitting(self, left: IntArray) -> BoolArray:
        """Whether the cards of each are left."""
        fit: BoolArray = (self.cards == 0) | (self.cards <= left[self.type])
        return fit

    def cheapest(
        self, possible: BoolArray, moved: Iterable[int], lack: int, most: float
    ) -> int | None:
        """The position of the move to begin with where some cards lack.

        It is one of the possible ones, and its case has not moved. One that frees all of them goes
        before others, if its loss is below the most that there may be; of the others it is the one
        with the least loss for each card. None if there is none, or if all the cards would cost
        more.
        """
        others = possible.copy()
        for case in moved:
            others &= self.case != case
        places = np.flatnonzero(others)
        if not places.size:
            return None
        loss, freed = self.loss[places], self.freed[places]
        alone = np.where(freed >= lack, loss, np.inf)
        if alone.min() < most:
            return int(places[alone.argmin()])
        each = loss / np.minimum(freed, lack)
        return int(places[each.argmin()]) if each.min() * lack < most else None


class _Exchanges:
    """Rows that may be taken, and which of them the cases have now."""

    def __init__(
        self,
        candidates: Candidates,
        capacity: IntArray,
        plan: Assignment,
        params: SolveParams,
        most_tries: int,
    ) -> None:
        self._candidates, self._plan, self._params = candidates, plan, params
        self._stopped, self._served = _stopped(candidates, plan), plan.served(candidates)
        """Cases that run and have nothing, and those that have all that they need."""
        self._rows = _rows_to_take(candidates, capacity, plan, self._stopped)
        pairs = candidates.pairs
        self._case, self._type = pairs.case[self._rows], pairs.type[self._rows]
        self._cards, self._value = candidates.cards[self._rows], candidates.value[self._rows]
        self._least = params.rounding * float(np.abs(self._value).max(initial=0.0))
        self._left = capacity - plan.used(candidates)
        self._now = np.full(len(candidates.cases), NO_ROW)
        chosen = np.isin(self._rows, plan.rows[self._served])
        self._now[self._case[chosen]] = np.flatnonzero(chosen)
        self._tries, self._most_tries = 0, most_tries
        self._moves = dict[int, _Moves]()
        """Moves off a type, as long as nobody has come to it or left it."""

    def plan(self) -> Assignment:
        """The plan with the rows of now; nobody who has one keeps anything else."""
        rows, replicas = self._plan.rows.copy(), self._plan.replicas.copy()
        cases = np.flatnonzero(self._now != NO_ROW)
        rows[cases] = self._rows[self._now[cases]]
        replicas[cases] = self._candidates.replicas[rows[cases]]
        kept = {case: parts for case, parts in self._plan.kept.items() if rows[case] == NO_ROW}
        return replace(self._plan, rows=rows, replicas=replicas, kept=kept)

    def serve(self) -> None:
        """Give cases that have less than they need all of it; the important ones come first.

        Of equals those come first that run and have nothing. While there is one, nobody as
        important or less gets more than it has: what others free is for the one that is stopped.
        """
        waiting = np.setdiff1d(self._case, self._served).tolist()
        cases, stopped = self._candidates.cases, self._stopped
        ranks = {case: (cases[case].priority, case not in stopped) for case in waiting}
        last = max(ranks.values(), default=(0, False))
        for case in sorted(waiting, key=lambda case: (ranks[case], case)):
            if ranks[case] > last:
                break
            if not self._serve(case) and case in stopped:
                last = ranks[case]

    def _serve(self, case: int) -> bool:
        """Give a case one of its rows, those of low value first; whether that was possible."""
        places = np.flatnonzero(self._case == case)
        back = _held(self._candidates, self._plan, case)
        rows = places[np.argsort(self._value[places], kind="stable")].tolist()
        return any(self._exchange(row, self._left + back, np.inf) for row in rows)

    def save(self) -> bool:
        """Make the exchanges that save something, the largest first; whether there were any."""
        now = self._now[self._case]
        saved = np.where(now != NO_ROW, self._value[now] - self._value, 0.0)
        rows, made = np.flatnonzero(saved > self._least), False
        for row in rows[np.argsort(-saved[rows], kind="stable")].tolist():
            now_on, left = self._now[self._case[row]], self._left.copy()
            saving = float(self._value[now_on] - self._value[row])
            if saving > self._least:
                left[self._type[now_on]] += self._cards[now_on]
                made |= self._exchange(row, left, saving)
        return made

    def _exchange(self, row: int, left: IntArray, saved: float) -> bool:
        """Take a row with the cards that are left without what its case has.

        If these are too few, others move off their type, at a loss below what the row saves.
        Returns whether that was possible.
        """
        if self._tries == self._most_tries:
            return False
        self._tries += 1
        card, rows = int(self._type[row]), [row]
        left[card] -= self._cards[row]
        while left[card] < 0:
            moves, moved = self._moves_off(card), self._case[rows].tolist()
            possible, most = moves.fitting(left), saved - self._least
            best = moves.cheapest(possible, moved, -int(left[card]), most)
            if best is None:
                return False
            left[card] += moves.freed[best]
            left[moves.type[best]] -= moves.cards[best]
            saved -= float(moves.loss[best])
            rows.append(int(moves.row[best]))
        self._left = left
        self._take(rows)
        return True

    def places_of(self, rows: IntArray) -> IntArray:
        """The positions of a row of each case, -1 where it may not be taken; shape (cases,)."""
        places = np.full_like(self._now, NO_ROW)
        found = np.flatnonzero(rows[self._case] == self._rows)
        places[self._case[found]] = found
        return places

    def take_back(self, homes: IntArray) -> bool:
        """Return cases to their homes if that saves something together; whether any did.

        Homes are the positions of the rows on which cases run, or -1; shape (cases,). Moves that
        pay one after the other may cost more together than if none were made.
        """
        moved, saved = self._moved(homes)
        dear = np.argsort(-saved, kind="stable")[: (saved > self._least).sum()]
        first = moved[dear[: self._params.returns]].tolist()
        returned = [self._return(case, homes) for case in first if self._now[case] != homes[case]]
        return self._return_all(homes) or any(returned)

    def _moved(self, homes: IntArray) -> tuple[IntArray, FloatArray]:
        """The cases that move from where they run, and what each would save if it did not."""
        moved = np.flatnonzero((homes != NO_ROW) & (self._now != NO_ROW))
        moved = moved[self._now[moved] != homes[moved]]
        return moved, self._value[self._now[moved]] - self._value[homes[moved]]

    def _return_all(self, homes: IntArray) -> bool:
        """Return all cases, if their cards suffice and it saves something; whether it does."""
        moved, saved = self._moved(homes)
        rows = homes[moved]
        left = self._left_with(rows)
        if float(saved.sum()) <= self._least or (left < 0).any():
            return False
        self._left = left
        self._take(rows.tolist())
        return True

    def _return(self, case: int, homes: IntArray) -> bool:
        """Return a case and, where cards lack, others too, if all save something; whether they do.

        Others return as well, whatever cards lack then, or move where their cards are left.
        """
        rows = [int(homes[case])]
        left = self._left_with(np.array(rows))
        while (lacking := np.flatnonzero(left < 0)).size:
            moves, lack = self._moves_off(int(lacking[0])), -int(left[lacking[0]])
            possible = moves.fitting(left) | (homes[moves.case] == moves.row)
            best = moves.cheapest(possible, self._case[rows].tolist(), lack, np.inf)
            if best is None or len(rows) > self._params.longest_return:
                return False
            rows.append(int(moves.row[best]))
            left = self._left_with(np.array(rows))
        lost = float((self._value[rows] - self._value[self._now[self._case[rows]]]).sum())
        if lost >= -self._least:
            return False
        self._left = left
        self._take(rows)
        return True

    def _left_with(self, rows: IntArray) -> IntArray:
        """The cards of each type that are left with other rows, each of another case."""
        now, left = self._now[self._case[rows]], self._left.copy()
        np.add.at(left, self._type[now], self._cards[now])
        np.subtract.at(left, self._type[rows], self._cards[rows])
        return left

    def _moves_off(self, card: int) -> "_Moves":
        """The moves of all cases that free cards of a type."""
        if card not in self._moves:
            on = self._now[self._case]
            rows = np.flatnonzero((on != NO_ROW) & (self._type[on] == card))
            now, cards, stays = on[rows], self._cards[rows], self._type[rows] == card
            moves = _Moves(
                row=rows,
                case=self._case[rows],
                type=self._type[rows],
                cards=np.where(stays, 0, cards),
                freed=self._cards[now] - np.where(stays, cards, 0),
                loss=self._value[rows] - self._value[now],
            )
            self._moves[card] = moves.take(np.flatnonzero(moves.freed > 0))
        return self._moves[card]

    def _take(self, rows: list[int]) -> None:
        """Give each row to its case."""
        for row in rows:
            now = self._now[self._case[row]]
            for changed in (row, now) if now != NO_ROW else (row,):
                self._moves.pop(int(self._type[changed]), None)
            self._now[self._case[row]] = row


def _rows_to_take(
    candidates: Candidates, capacity: IntArray, plan: Assignment, stopped: Collection[int]
) -> IntArray:
    """Usable rows that fit alone and take cards of one type.

    None takes cards of a type that an equal or more important case could run on which is stopped:
    what becomes free there is for that one.
    """
    fit = candidates.fitting(capacity) >= candidates.replicas
    types = np.bincount(candidates.needs.owner, minlength=len(candidates.usable))
    rows = np.flatnonzero(candidates.usable & fit & (types == 1))
    pairs = candidates.pairs
    priority = np.array([case.priority for case in candidates.cases])[pairs.case]
    waits = np.isin(pairs.case, [*stopped])
    most = np.full(len(candidates.types), np.inf)  # the most important case that waits for a type
    np.minimum.at(most, pairs.type[waits], priority[waits])
    may_come = waits | np.isin(np.arange(len(waits)), plan.rows) | (priority < most[pairs.type])
    return rows[may_come[rows]]


def _stopped(candidates: Candidates, plan: Assignment) -> set[int]:
    """Cases that run and have nothing with a plan."""
    nothing = np.flatnonzero(plan.without()).tolist()
    return {case for case in nothing if candidates.cases[case].server.current.replicas}


def _held(candidates: Candidates, plan: Assignment, case: int) -> IntArray:
    """Cards of each type that a case has with a plan."""
    held = np.zeros(len(candidates.types), dtype=np.int64)
    if (row := int(plan.rows[case])) != NO_ROW:
        for card, count in candidates.cards_of(row):
            held[card] += count * plan.replicas[case]
    for part in plan.kept.get(case, ()):
        if part.cards:
            held[part.type] += part.cards * part.replicas
    return held
