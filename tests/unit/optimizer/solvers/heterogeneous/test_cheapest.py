"""The cheapest mixes of a case, against all of its mixes."""

from dataclasses import replace

import numpy as np
import pytest

from inferno_optimizer.solvers.heterogeneous.cheapest import Mixes, cheapest_mixes
from tests.tiers import sampled
from tests.unit.optimizer.solvers.heterogeneous.tables import mixes_of, random_table

CASES = 3
UNLIMITED = np.full(CASES, np.inf)


@pytest.mark.parametrize("seed", sampled(range(30)))
def test_the_least_value_is_that_of_the_best_of_all_mixes(seed: int) -> None:
    random = np.random.default_rng(seed)
    table, capacity = random_table(random, CASES), random.integers(1, 8, 3)
    best = [
        min((value for _, value in mixes_of(table, case, capacity)), default=np.inf)
        for case in range(CASES)
    ]

    found = cheapest_mixes(table, capacity, UNLIMITED, width=1000)

    assert found.least == pytest.approx(best)


@pytest.mark.parametrize("seed", sampled(range(30)))
def test_what_is_told_of_a_short_search_is_no_more_than_the_least_value(seed: int) -> None:
    random = np.random.default_rng(seed)
    table, capacity = random_table(random, CASES), random.integers(1, 8, 3)
    best = cheapest_mixes(table, capacity, UNLIMITED, width=1000).least

    short = cheapest_mixes(table, capacity, UNLIMITED, width=1)

    assert np.all(short.least <= best + 1e-9)
    values = table.take(short.mixes.place).value(short.mixes.counts)
    assert np.all(values >= best[short.mixes.place] - 1e-9)


@pytest.mark.parametrize("seed", sampled(range(30)))
def test_every_mix_below_the_limit_without_needless_replicas_is_found(seed: int) -> None:
    random = np.random.default_rng(seed)
    table, capacity = random_table(random, CASES), random.integers(1, 8, 3)
    limit = cheapest_mixes(table, capacity, UNLIMITED, width=1000).least + 25.1
    limit = np.where(np.isfinite(limit), limit, 0.0)

    found = cheapest_mixes(table, capacity, limit, width=1000, alike=True)

    mixes = found.mixes
    told = set(zip(mixes.place.tolist(), map(tuple, mixes.counts.tolist()), strict=True))
    assert np.all(table.take(mixes.place).value(mixes.counts) == pytest.approx(mixes.value))
    assert np.all(table.take(mixes.place).covered(mixes.counts))
    for case in range(CASES):
        only = table.take(np.array([case]))
        for counts, value in mixes_of(table, case, capacity):
            needed = np.array_equal(only.trimmed(counts[None])[0], counts)
            if value < limit[case] - 1e-9 and needed:
                assert (case, tuple(counts.tolist())) in told


def test_mixes_are_found_among_others_by_case_and_counts() -> None:
    random = np.random.default_rng(0)
    table, capacity = random_table(random, CASES), np.full(3, 9)
    mixes = cheapest_mixes(table, capacity, UNLIMITED, width=1000).mixes
    others = replace(mixes, counts=mixes.counts + 1)
    nothing = Mixes.none(mixes.counts.shape[1])

    assert mixes.among(mixes).all()
    assert not mixes.among(others).any()
    assert not mixes.among(nothing).any()
    assert len(nothing.among(mixes)) == 0
