"""First solutions: every case takes the row that prices say, or any that fits."""

from collections.abc import Callable, Sequence

import numpy as np

from inferno_optimizer.sizing.queueing import FloatArray, IntArray
from inferno_optimizer.solvers.exact.prices import RowPrices
from inferno_optimizer.solvers.exact.program import BoolArray, Program
from inferno_optimizer.solvers.exact.settings import DEFAULTS, PackingSettings
from inferno_optimizer.solvers.levels import Floors


def pack(
    program: Program, prices: RowPrices, settings: PackingSettings = DEFAULTS.packing
) -> BoolArray:
    """Choose rows within capacity; those that must be served first, then by what they gain.

    Among equally good rows the one that takes the least share of the cards left is taken,
    so that cases spread over types as the prices expect.
    """
    left = program.capacity.tolist()
    types, cards = program.type.tolist(), program.cards.tolist()
    order = np.lexsort((prices.excess, program.place)).tolist()
    excess = prices.excess.tolist()
    tie = (settings.tie * (prices.cards[program.type] * program.cards + 1e-9)).tolist()
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


def stand(program: Program) -> BoolArray:
    """Rows that leave servers as they are, within capacity, the most important first."""
    return add(program, np.zeros_like(program.stays), program.stays)


def change_little(
    program: Program,
    prices: RowPrices,
    seconds_left: Callable[[], float] = lambda: np.inf,
    settings: PackingSettings = DEFAULTS.packing,
) -> BoolArray:
    """Leave servers as they are, insert the others; the cards left go to the dearest cases.

    Dear are the cases that lose most, for each card, by having no row.
    """
    chosen = insert(program, stand(program), prices, seconds_left, settings)
    order = np.lexsort((prices.excess, -prices.losses(program) / np.maximum(program.cards, 1.0)))
    return _take(program, chosen, order)


def fill(program: Program, chosen: BoolArray, cases: BoolArray | None = None) -> BoolArray:
    """The chosen rows, and of the other cases the first that fit, the largest load first.

    Where `cases` are told, shape (cases,), no others get a row.
    """
    order = np.lexsort((program.cards, -program.weight, program.level))
    if cases is not None:
        order = order[cases[program.place[order]]]
    return _take(program, chosen, order)


def add(program: Program, chosen: BoolArray, more: BoolArray) -> BoolArray:
    """The chosen rows, and of the others those of `more` that fit, the most important first."""
    order = np.lexsort((-program.weight, program.level))
    return _take(program, chosen, order[more[order]])


def best_start(
    program: Program, plans: Sequence[BoolArray], floors: Floors, level: int
) -> BoolArray:
    """Of plans that keep the floors, the one with which the most of a level is served.

    What else fits counts, too. The first plan is the answer if no other one serves more.
    """

    def served(plan: BoolArray) -> float:
        filled = fill(program, plan, program.level[program.starts] <= level)
        return float(program.weight[filled & (program.level == level)].sum())

    others = (plan for plan in plans[1:] if program.keeps(plan, floors))
    return max((plans[0], *others), key=served)


def insert(
    program: Program,
    chosen: BoolArray,
    prices: RowPrices,
    seconds_left: Callable[[], float] = lambda: np.inf,
    settings: PackingSettings = DEFAULTS.packing,
) -> BoolArray:
    """Insert cases without a row where they cost the least, and eject what loses less by it.

    Cases that must be served come first, and large ones before small ones; those for which there
    is no time are left out.
    """
    chosen = chosen.copy()
    left = program.capacity - program.used(chosen)
    loss = prices.losses(program)
    others = np.flatnonzero(chosen & np.isfinite(loss))
    others = others[np.argsort(loss[others] / np.maximum(program.cards[others], 1.0))]
    for place, case in enumerate(_missing(program, chosen, prices)):
        if place % settings.cases_per_look == 0 and seconds_left() <= 0:
            break
        way = _cheapest_way(program, prices, case, loss, others, left)
        if way is not None:
            row, ejected = way
            chosen[ejected], chosen[row] = False, True
            others = others[chosen[others]]
            left[program.type[row]] += program.cards[ejected].sum() - program.cards[row]
    return chosen


def completed(program: Program, chosen: BoolArray, floors: Floors, prices: RowPrices) -> BoolArray:
    """Cases that a choice serves, and as many more as the floors of the first levels take.

    Those come first that cost the least for their load. Shape (cases,).
    """
    first = program.starts
    level, weight = program.level[first], program.weight[first]
    served = program.has_row(chosen) | (level < floors.whole)
    cost = np.minimum.reduceat(prices.excess, first) / weight
    for place, floor in enumerate(floors.loads.tolist()):
        missing = floor - float(weight[served & (level == place)].sum())
        others = np.flatnonzero(~served & (level == place))
        others = others[np.argsort(cost[others], kind="stable")]
        for case in others.tolist():
            if missing <= 0:
                break
            served[case] = True
            missing -= weight[case]
    return served


def _cheapest_way(
    program: Program,
    prices: RowPrices,
    case: int,
    loss: FloatArray,
    others: IntArray,
    left: FloatArray,
) -> tuple[int, IntArray] | None:
    """The row of a case, and the other rows that go for it, that cost less than leaving it out."""
    least, cheapest = float(prices.left_out[case]), None
    first = int(program.starts[case])
    for row in range(first, first + int(program.lengths[case])):
        ejected = _in_the_way(program, row, others, left)
        if ejected is None:
            continue
        cost = float(prices.excess[row] + loss[ejected].sum())
        if cost < least:
            least, cheapest = cost, (row, ejected)
    return cheapest


def _missing(program: Program, chosen: BoolArray, prices: RowPrices) -> list[int]:
    """Cases without a row, in the order in which they are inserted."""
    cases = np.flatnonzero(~program.has_row(chosen))
    optional = np.isfinite(prices.left_out)
    order = np.lexsort((cases, -prices.sizes(program)[cases], optional[cases]))
    return cases[order].tolist()  # type: ignore[no-any-return]  # numpy types it so


def _in_the_way(program: Program, row: int, others: IntArray, left: FloatArray) -> IntArray | None:
    """Rows to eject so that a row fits: the first of the others that free enough cards.

    Those of them that turn out not to be needed stay. None if all together free too few cards.
    """
    need = float(program.cards[row] - left[program.type[row]])
    if need <= 0:
        return others[:0]
    same_type = others[program.type[others] == program.type[row]]
    freed = np.cumsum(program.cards[same_type])
    if need > freed.max(initial=0.0):
        return None
    gone = same_type[: int(np.searchsorted(freed, need)) + 1]
    surplus, spared = float(program.cards[gone].sum()) - need, []
    for other in gone[::-1].tolist():
        if program.cards[other] <= surplus:
            surplus -= program.cards[other]
            spared.append(other)
    return np.setdiff1d(gone, spared)


def _take(program: Program, chosen: BoolArray, rows: IntArray) -> BoolArray:
    """The chosen rows, and in turn those that fit, for cases that have none yet."""
    left = (program.capacity - program.used(chosen)).tolist()
    chosen, rows = chosen.copy(), rows[~program.has_row(chosen)[program.place[rows]]]
    served = set()
    columns = rows, program.place[rows], program.type[rows], program.cards[rows]
    for row, case, card_type, cards in zip(*(c.tolist() for c in columns), strict=True):
        if case not in served and cards <= left[card_type]:
            chosen[row] = True
            served.add(case)
            left[card_type] -= cards
    return chosen


def _order(program: Program, prices: RowPrices) -> IntArray:
    """Cases by what leaving them out loses; of those that must be served, large ones first."""
    size = prices.sizes(program)
    must = np.isinf(prices.left_out)
    gain: FloatArray = np.where(must, size, prices.left_out / np.maximum(size, 1e-9))
    return np.lexsort((program.starts, -gain, ~must))
