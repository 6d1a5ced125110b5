"""The comparison of solvers counts fairly."""

import numpy as np
import pytest

from tests.solvers.__main__ import behind, is_as_good
from tests.solvers.levels import TOLERANCE, Found, Rows, Stage, in_whole_numbers, solve_with
from tests.unit.optimizer.programs import best_of_all, every_choice, random_rows


class BruteForce:
    """Tries every choice."""

    name = "brute force"

    def __init__(self, rows: Rows) -> None:
        self._choices = list(every_choice(rows))

    def minimize(self, stage: Stage) -> Found:
        kept = [
            choice
            for choice in self._choices
            if np.all(stage.rows.served(choice)[: len(stage.floors)] >= stage.floors)
        ]
        best = min(kept, key=lambda choice: float(stage.objective @ choice))
        return Found(best, float(stage.objective @ best))


@pytest.mark.parametrize("seed", range(5))
def test_any_solver_serves_level_by_level_and_then_at_the_least_value(seed: int) -> None:
    rows = random_rows(seed, cases=5)

    found = solve_with(BruteForce(rows), rows, 60.0)

    served, value = best_of_all(rows)
    assert found.served == pytest.approx(served / rows.loads(), rel=TOLERANCE)
    assert found.value <= value + 1e-9


@pytest.mark.parametrize("seed", range(5))
def test_a_floor_that_all_of_the_load_keeps_is_kept_in_whole_numbers(seed: int) -> None:
    weights = np.random.default_rng(seed).uniform(0, 100, size=300)

    whole, least = in_whole_numbers(weights, float(weights.sum()))

    assert least <= sum(whole)
    assert least > sum(whole) - min(whole)


def result(*served: float, value: float = 100.0) -> dict[str, object]:
    return {"served": served, "value": value}


def test_the_first_level_that_differs_decides_and_then_the_value() -> None:
    ours = result(1.0, 0.9, 0.5)

    assert is_as_good(ours, result(1.0, 0.8, 0.9))
    assert not is_as_good(ours, result(1.0, 0.91, 0.0))
    assert is_as_good(ours, result(1.0, 0.9 + TOLERANCE / 2, 0.4))
    assert not is_as_good(ours, result(1.0, 0.9, 0.5, value=90.0))


def test_only_the_first_level_that_differs_counts_as_behind() -> None:
    ours = result(1.0, 0.9, 0.5)

    assert behind(ours, result(1.0, 0.93, 0.9)) == pytest.approx(0.03)
    assert behind(ours, result(1.0, 0.8, 0.9)) == 0.0
    assert behind(ours, ours) == 0.0
