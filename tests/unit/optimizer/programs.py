"""Random assignment problems in arrays, and what trying every choice finds."""

import itertools
from collections.abc import Iterator

import numpy as np

from tests.solvers.levels import BoolArray, Rows


def random_rows(seed: int, cases: int, types: int = 3, levels: int = 3) -> Rows:
    """Cases with a row or more on different types; capacity for about half of them."""
    random = np.random.default_rng(seed)
    rows = [
        (case, card_type)
        for case in range(cases)
        for card_type in np.flatnonzero(random.random(types) < 0.8).tolist() or [0]
    ]
    case = np.array([row[0] for row in rows])
    cards = random.integers(1, 6, len(rows)).astype(float)
    return Rows(
        case=case,
        type=np.array([row[1] for row in rows]),
        cards=cards,
        value=cards * random.integers(1, 9, len(rows)) - random.integers(0, 20, cases)[case],
        level=np.unique(random.integers(0, levels, cases), return_inverse=True)[1][case],
        weight=random.integers(1, 50, cases).astype(float)[case],
        capacity=np.full(types, np.ceil(1.6 * cases / types)),
    )


def every_choice(rows: Rows) -> Iterator[BoolArray]:
    """All choices of at most one row for each case that fit."""
    for picks in itertools.product(*([-1, *mine.tolist()] for mine in rows.by_case())):
        chosen = np.zeros(len(rows.case), dtype=np.bool_)
        chosen[[row for row in picks if row >= 0]] = True
        if rows.fits(chosen):
            yield chosen


def best_of_all(rows: Rows) -> tuple[tuple[float, ...], float]:
    """The most load by level, then the least value."""

    def rank(chosen: BoolArray) -> tuple[tuple[float, ...], float]:
        return tuple(-rows.served(chosen)), float(rows.value[chosen].sum())

    loads, value = min(map(rank, every_choice(rows)))
    return tuple(-load for load in loads), value
