"""First solutions: every case takes the row that prices say, or any that fits."""

import numpy as np

from inferno_optimizer.sizing.queueing import FloatArray, IntArray
from inferno_optimizer.solvers.exact.prices import Prices
from inferno_optimizer.solvers.exact.program import BoolArray, Program

TIE = 1e-4
"""Excess, as a share of the price of a row, up to which rows count as equally good."""


def pack(program: Program, prices: Prices) -> BoolArray:
    """Choose rows within capacity; those that must be served first, then by what they gain.

    Among equally good rows the one that takes the least share of the cards left is taken,
    so that cases spread over types as the prices expect.
    """
    left = program.capacity.tolist()
    types, cards = program.type.tolist(), program.cards.tolist()
    order = np.lexsort((prices.excess, program.place)).tolist()
    excess = prices.excess.tolist()
    tie = (TIE * (prices.cards[program.type] * program.cards + 1e-9)).tolist()
    chosen = np.zeros(len(types), dtype=np.bool_)
    starts, lengths = program.starts.tolist(), program.lengths.tolist()
    for case in _order(program, prices).tolist():
        rows = order[starts[case] : starts[case] + lengths[case]]
        fitting = [row for row in rows if cards[row] <= left[types[row]]]
        if not fitting:
            continue
        best = excess[fitting[0]]
        equal = [row for row in fitting if excess[row] <= best + tie[row]]
        row = min(equal, key=lambda row: cards[row] / max(left[types[row]], 1e-9))
        left[types[row]] -= cards[row]
        chosen[row] = True
    return chosen


def fill(program: Program, chosen: BoolArray, cases: BoolArray | None = None) -> BoolArray:
    """The chosen rows, and of the other cases the first that fit, the largest load first.

    Servers that may stay as they are come before the others of their level.

    Where `cases` are told, shape (cases,), no others get a row.
    """
    left = program.capacity - program.used(chosen)
    chosen = chosen.copy()
    done = np.zeros(len(program.starts), dtype=np.bool_) if cases is None else ~cases
    done[program.place[chosen]] = True
    for row in np.lexsort((program.cards, -program.weight, ~program.stays, program.level)).tolist():
        case, card_type = program.place[row], program.type[row]
        if not done[case] and program.cards[row] <= left[card_type]:
            chosen[row] = done[case] = True
            left[card_type] -= program.cards[row]
    return chosen


def _order(program: Program, prices: Prices) -> IntArray:
    """Cases by what leaving them out loses; of those that must be served, large ones first."""
    size = prices.sizes(program)
    must = np.isinf(prices.left_out)
    gain: FloatArray = np.where(must, size, prices.left_out / np.maximum(size, 1e-9))
    return np.lexsort((program.starts, -gain, ~must))
