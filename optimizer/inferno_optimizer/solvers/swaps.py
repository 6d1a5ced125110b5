"""Undoes what equal servers only take from each other.

The greedy solver of the original gives what is short to whoever has less now. Of plans that follow
each other, each then takes the last card of one server and gives it to an equal one, which has it
until the next plan.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import groupby
from math import ceil

import numpy as np

from inferno_optimizer.sizing.candidates import Candidates
from inferno_optimizer.sizing.queueing import IntArray
from inferno_optimizer.solvers.assignment import NO_ROW, Assignment
from inferno_optimizer.solvers.running import rows_that_run


@dataclass(slots=True)
class _Change:
    """Replicas of a row that a case gets more than it runs, negative if fewer; with their cards.

    Peers have the same priority and type of card.
    """

    case: int
    row: int
    replicas: int
    cards: int
    peers: tuple[int, int]


def undo_swaps(candidates: Candidates, plan: Assignment) -> Assignment:
    """Give replicas back to cases that run and are short, from equal cases on the same cards.

    Only those give that run there too and get more, or that run nothing, and only what they get
    more. Moves to other accelerators stay as they are, and so does what other levels get.
    """
    rows, replicas = plan.rows.copy(), plan.replicas.copy()
    changes = sorted(_changes(candidates, plan), key=lambda change: (change.peers, change.case))
    for _, group in groupby(changes, key=lambda change: change.peers):
        peers = list(group)
        gains = [change for change in peers if change.replicas > 0]
        for loss in (change for change in peers if change.replicas < 0):
            free = sum(gain.replicas * gain.cards for gain in gains)
            back = min(-loss.replicas, free // loss.cards)
            _take(gains, back * loss.cards, replicas)
            replicas[loss.case] += back
            rows[loss.case] = loss.row if back else rows[loss.case]
    has_given_all = (plan.replicas > 0) & (replicas == 0)
    return replace(plan, rows=np.where(has_given_all, NO_ROW, rows), replicas=replicas)


def _take(gains: list[_Change], cards: int, replicas: IntArray) -> None:
    """Take so many cards from those that gain, one after the other."""
    for gain in gains:
        taken = min(gain.replicas, ceil(max(cards, 0) / gain.cards))
        gain.replicas -= taken
        replicas[gain.case] -= taken
        cards -= taken * gain.cards


def _changes(candidates: Candidates, plan: Assignment) -> Iterator[_Change]:
    """Yield what cases get less or more on cards of one type, where they stay or begin."""
    runs_on, nothing = rows_that_run(candidates), plan.without()
    running, needed = candidates.running(), candidates.replicas
    for case, (row, given) in enumerate(
        zip(plan.rows.tolist(), plan.replicas.tolist(), strict=True)
    ):
        now = int(runs_on[case])
        begins = candidates.cases[case].server.current.replicas == 0
        if not (begins or (now != NO_ROW and (row == now or nothing[case]))):
            continue
        stays = now if row == NO_ROW else row
        cards = candidates.cards_of(stays) if stays != NO_ROW else []
        had = 0 if begins else min(int(running[stays]), int(needed[stays]))
        if len(cards) == 1 and given != had:
            ((card_type, count),) = cards
            priority = candidates.cases[case].priority
            yield _Change(case, stays, given - had, count, (priority, card_type))
