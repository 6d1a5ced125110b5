"""Good solutions of a large program: a dive decides the large cases, exchanges the small ones."""

from collections.abc import Callable

import numpy as np

from inferno_optimizer.sizing.queueing import FloatArray
from inferno_optimizer.solvers.exact.branch_and_bound import Limits
from inferno_optimizer.solvers.exact.columns import Columns
from inferno_optimizer.solvers.exact.diving import dive
from inferno_optimizer.solvers.exact.neighbourhood import Centre, leave_exchanges_open
from inferno_optimizer.solvers.exact.packing import fill
from inferno_optimizer.solvers.exact.prices import Prices
from inferno_optimizer.solvers.exact.program import BoolArray, Floors, Program
from inferno_optimizer.solvers.exact.relaxation import Relaxation

NEAR = 0.1
"""A row enters the relaxation if it costs more than the best of its case by at most this share
of the case's cards, or of a typical case's objective."""

PENALTY = 3.0
"""What load below a floor costs, as a multiple of what it is worth."""

NODES = 50
"""Of branch and bound among exchanges; a limit that does not depend on how busy the machine is."""

ENOUGH = 2e-5
"""Distance, relative to the bound, up to which exchanges are searched."""


def search(
    program: Program,
    prices: Prices,
    floors: Floors,
    known: BoolArray,
    seconds_left: Callable[[], float],
) -> BoolArray:
    """Look for rows that make the objective of `prices` small, at least for what a dive leaves.

    A floor may be missed by a little: what that is worth is part of the comparison. Where there
    is no time for a dive, or it finds nothing, exchanges are sought around a known choice.
    """
    centre, loads = _dive(program, prices, floors, seconds_left)
    if centre is None:
        nothing = np.zeros(len(program.starts), dtype=np.bool_)
        centre = Centre(known, nothing, prices.excess)
    start = fill(program, centre.chosen, centre.split)
    opening = leave_exchanges_open(program, centre, floors.whole)
    columns = Columns(program, opening, floors.loads, floors.whole, PENALTY * loads)
    limits = Limits(seconds_left(), ENOUGH * abs(prices.bound), NODES)
    choice = columns.minimize(prices.objective, limits, start)
    found = start if choice is None else choice.chosen
    filled = fill(program, found)
    return filled if prices.objective @ filled < prices.objective @ found else found


def _dive(
    program: Program, prices: Prices, floors: Floors, seconds_left: Callable[[], float]
) -> tuple[Centre | None, FloatArray]:
    """Decide the large cases among rows that may be worth it; with the price of loads."""
    sizes = prices.sizes(program)
    typical = abs(prices.bound) / len(program.starts)
    rows = np.flatnonzero(prices.excess <= NEAR * np.maximum(sizes[program.place], typical))
    near = program.take(rows)
    cases = program.place[rows[near.starts]]
    relaxation = Relaxation(
        near, prices.objective[rows], floors.loads, PENALTY * prices.loads, floors.whole
    )
    dived = dive(near, relaxation, sizes[cases], floors.whole, seconds_left)
    if dived is None:
        return None, prices.loads
    chosen = np.zeros(len(program.case), dtype=np.bool_)
    chosen[rows] = dived.chosen
    split = np.zeros(len(program.starts), dtype=np.bool_)
    split[cases] = dived.split
    vertex = dived.vertex
    excess = (
        prices.objective
        + vertex.cards[program.type] * program.cards
        - vertex.loads[program.level] * program.weight
    )
    return Centre(chosen, split, excess), vertex.loads[: len(floors.loads)]
