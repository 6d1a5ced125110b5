"""Good solutions of a large program: a dive decides the large cases, exchanges the small ones."""

from collections.abc import Callable
from dataclasses import replace
from enum import Enum, auto

import numpy as np

from inferno_optimizer.sizing.queueing import IntArray
from inferno_optimizer.solvers.exact.branch_and_bound import SearchLimits
from inferno_optimizer.solvers.exact.columns import BinaryColumns
from inferno_optimizer.solvers.exact.diving import DiveExtent, dive
from inferno_optimizer.solvers.exact.neighbourhood import Centre, leave_exchanges_open
from inferno_optimizer.solvers.exact.packing import fill, insert
from inferno_optimizer.solvers.exact.prices import RowPrices
from inferno_optimizer.solvers.exact.program import BoolArray, Program
from inferno_optimizer.solvers.exact.relaxation import RowRelaxation
from inferno_optimizer.solvers.exact.settings import DEFAULTS, ExactSettings
from inferno_optimizer.solvers.levels import Floors


class Guide(Enum):
    """What shows the way to a dive: cuts, branch and bound, or only the linear relaxation."""

    CUTS = auto()
    BRANCHES = auto()
    LINEAR = auto()


def descend(
    program: Program,
    prices: RowPrices,
    floors: Floors,
    known: BoolArray,
    guide: Guide,
    seconds_left: Callable[[], float],
    settings: ExactSettings = DEFAULTS,
) -> Centre:
    """Decide the large cases among rows that may be worth it; what is known if there is no time.

    Cuts tighten the relaxation of all cases before the first is decided. Branch and bound decides
    the largest cases together.
    """
    exchanges, diving = settings.exchanges, settings.diving
    fixed, rows = _certain_and_open(program, prices, exchanges.near)
    near = replace(program.take(rows), capacity=program.capacity - program.used(fixed))
    sizes, cases = prices.sizes(program), program.place[rows[near.starts]]
    loads = floors.loads - program.served(fixed, len(floors.loads))
    relaxation = RowRelaxation(
        near,
        prices.objective[rows],
        loads,
        exchanges.penalty * prices.loads,
        floors.whole,
        settings.relaxation,
    )
    if guide is Guide.CUTS:
        relaxation.tighten(exchanges.cut_rounds, seconds_left)
    together = diving.together_rows if guide is Guide.BRANCHES else 0
    extent = DiveExtent(sizes[cases], diving.small * float(np.median(sizes)), together)
    dived = dive(near, relaxation, extent, floors.whole, seconds_left, diving)
    split = np.zeros(len(program.starts), dtype=np.bool_)
    if dived is None:
        return Centre(known, split, prices.excess, prices.loads)
    chosen = fixed.copy()
    chosen[rows] = dived.chosen
    split[cases] = dived.split
    vertex = dived.vertex
    excess = vertex.reduced_costs(program, prices.objective)
    return Centre(chosen, split, excess, vertex.loads)


def round_off(
    program: Program,
    prices: RowPrices,
    centre: Centre,
    seconds_left: Callable[[], float],
    settings: ExactSettings = DEFAULTS,
) -> BoolArray:
    """Give the split cases of a centre what fits, or what others lose less by, if there is time.

    Floors may be missed by a little.
    """
    chosen = fill(program, centre.chosen, centre.split)
    return fill(program, insert(program, chosen, prices, seconds_left, settings.packing))


def exchange(
    program: Program,
    prices: RowPrices,
    floors: Floors,
    centre: Centre,
    seconds_left: Callable[[], float],
    settings: ExactSettings = DEFAULTS,
) -> BoolArray | None:
    """Look around a centre for rows that make the objective of `prices` small, if there is time.

    A floor may be missed by a little: what that is worth is part of the comparison.
    """
    if seconds_left() <= 0:
        return None
    start = fill(program, centre.chosen, centre.split)
    exchanges = settings.exchanges
    opening = leave_exchanges_open(program, centre, floors.whole, exchanges)
    shortfall = exchanges.penalty * centre.loads
    columns = BinaryColumns(program, opening, floors.loads, floors.whole, shortfall)
    limits = SearchLimits(seconds_left(), exchanges.enough * abs(prices.bound), exchanges.nodes)
    choice = columns.minimize(prices.objective, limits, start)
    if choice is None:
        return None
    filled = fill(program, choice.chosen)
    return filled if prices.objective @ filled < choice.objective else choice.chosen


def _certain_and_open(
    program: Program, prices: RowPrices, share: float
) -> tuple[BoolArray, IntArray]:
    """Rows without an alternative that may be worth it, and those of which some are chosen."""
    typical = abs(prices.bound) / len(program.starts)
    margin = share * np.maximum(prices.sizes(program), typical)
    near = prices.excess <= margin[program.place]
    single = np.add.reduceat(near.astype(np.int64), program.starts) == 1
    certain = near & (single & (prices.left_out > margin))[program.place]
    return certain, np.flatnonzero(near & ~certain)
