"""Which rows of an assignment problem are left open around a solution.

Cards are scarce and cases come in lumps, so that a solution close to the best one differs
from another by many small exchanges. Of every kind of exchange (from type to type, so many
cards for so many) the cheapest few are left open, so that together they fill gaps of any shape.
"""

from dataclasses import dataclass

import numpy as np

from inferno_optimizer.sizing.queueing import FloatArray, IntArray
from inferno_optimizer.solvers.exact.program import BoolArray, Program
from inferno_optimizer.solvers.exact.settings import DEFAULTS, ExchangeSettings
from inferno_optimizer.solvers.groups import rank_in_group


@dataclass(frozen=True, slots=True)
class Neighbourhood:
    """What is left to decide: `fixed` rows are chosen, `free` ones may be, others are not."""

    fixed: BoolArray
    free: BoolArray


@dataclass(frozen=True, slots=True)
class Centre:
    """A solution to look around.

    Attributes
    ----------
    chosen
        Rows; shape (rows,).
    split
        Cases that are not decided at all; shape (cases,).
    excess
        Objective of each row with its cards and its load at their prices; shape (rows,).
    loads
        Price of the load of each level with a floor; shape (levels,).
    """

    chosen: BoolArray
    split: BoolArray
    excess: FloatArray
    loads: FloatArray


def leave_everything_open(program: Program) -> Neighbourhood:
    """Nothing is known beforehand."""
    free = np.ones(len(program.case), dtype=np.bool_)
    return Neighbourhood(~free, free)


def leave_exchanges_open(
    program: Program, centre: Centre, whole: int, settings: ExchangeSettings = DEFAULTS.exchanges
) -> Neighbourhood:
    """Open the cases that are split, and the cheapest small exchanges of every kind.

    The first `whole` levels are served entirely: none of their cases is dropped.
    """
    current = _Current.of(program, centre)
    opened = centre.split | _dropped(program, current, whole, settings)
    exchanges = _cheapest(program, centre, current, settings)
    opened[program.place[exchanges]] = True
    open_rows = opened[program.place]
    free = centre.split[program.place] | (centre.chosen & open_rows)
    free[exchanges] = True
    return Neighbourhood(centre.chosen & ~open_rows, free)


@dataclass(frozen=True, slots=True)
class _Current:
    """Type, cards and excess of what each case has now; shape (cases,).

    A case without a row has one more type of its own, and no cards.
    """

    type: IntArray
    cards: FloatArray
    excess: FloatArray

    @classmethod
    def of(cls, program: Program, centre: Centre) -> "_Current":
        rows = np.flatnonzero(centre.chosen)
        case, cases = program.place[rows], len(program.starts)
        types = np.full(cases, len(program.capacity))
        types[case] = program.type[rows]
        cards, excess = np.zeros(cases), np.zeros(cases)
        cards[case], excess[case] = program.cards[rows], centre.excess[rows]
        return cls(types, cards, excess)


def _dropped(
    program: Program, current: _Current, whole: int, settings: ExchangeSettings
) -> BoolArray:
    """Small cases that lose the least when they are dropped."""
    droppable = (
        (program.level[program.starts] >= whole)
        & (current.type < len(program.capacity))
        & (current.cards <= settings.largest)
    )
    loss = np.where(droppable, -current.excess, np.inf)
    first = np.argsort(loss, kind="stable")[: min(settings.left_out, int(droppable.sum()))]
    dropped = np.zeros(len(program.starts), dtype=np.bool_)
    dropped[first] = True
    return dropped


def _cheapest(
    program: Program, centre: Centre, current: _Current, settings: ExchangeSettings
) -> IntArray:
    """Rows to which a small case may change: the cheapest few of each kind."""
    place = program.place
    largest, alike = settings.largest, settings.alike
    small = (program.cards <= largest) & (current.cards[place] <= largest)
    rows = np.flatnonzero(small & ~centre.chosen & ~centre.split[place])
    now_on = place[rows]
    cost = centre.excess[rows] - current.excess[now_on]
    kinds = (
        np.minimum(program.cards[rows], alike),
        np.minimum(current.cards[now_on], alike),
        program.type[rows],
        current.type[now_on],
    )
    order = np.lexsort((rows, cost, *kinds))
    new = np.any([np.diff(kind[order], prepend=-1) != 0 for kind in kinds], axis=0)
    kept = order[rank_in_group(np.cumsum(new)) < settings.each]
    return rows[kept[np.argsort(cost[kept], kind="stable")][: settings.rows]]
