"""Cuts hold for every integral solution, by brute force, and close much of the gap."""

import itertools
from dataclasses import replace

import numpy as np
import pytest

from inferno_optimizer.solvers.exact.cuts import Inequalities, find_cuts
from inferno_optimizer.solvers.exact.prices import price
from inferno_optimizer.solvers.exact.relaxation import RowRelaxation
from inferno_optimizer.solvers.sparse import SparseMatrix
from tests.tiers import sampled
from tests.unit.optimizer.programs import fleet_program, loads, random_program, relaxed

NO_FLOORS = np.zeros(0)


def inequalities(factors: list[list[float]], room: list[float], continuous: int) -> Inequalities:
    """Inequalities of columns that are 0 or 1, but for some at the end that are continuous."""
    matrix = np.array(factors, dtype=np.float64)
    rows, columns = np.nonzero(matrix)
    integral = np.arange(matrix.shape[1]) < matrix.shape[1] - continuous
    return Inequalities(
        SparseMatrix.of(matrix.shape, [(rows, columns, matrix[rows, columns])]),
        np.array(room, dtype=np.float64),
        np.where(integral, 1.0, np.inf),
        integral,
    )


def test_a_knapsack_of_equal_items_holds_a_whole_number_of_them() -> None:
    knapsack = inequalities([[3, 3, 3]], [7], continuous=0)

    (cut,) = find_cuts(knapsack, np.array([1.0, 1.0, 1 / 3]), [np.ones(1)])

    np.testing.assert_allclose(cut.factors, [1, 1, 1])
    assert cut.room == pytest.approx(2, rel=1e-6)


def test_what_is_relaxed_and_integral_is_not_cut_off() -> None:
    knapsack = inequalities([[3, 3, 3]], [7], continuous=0)

    assert not find_cuts(knapsack, np.array([1.0, 1.0, 0.0]), [np.ones(1)])


@pytest.mark.parametrize("seed", sampled(range(60)))
def test_every_integral_solution_keeps_every_cut(seed: int) -> None:
    random = np.random.default_rng(seed)
    factors = random.integers(-3, 9, (3, 7)).astype(np.float64)
    factors[:, -1] = [-1, 0, 0]  # what is missed of the first one, continuous
    room = np.floor(0.4 * factors[:, :-1].clip(0).sum(axis=1)) + random.choice([0.0, 0.5])
    known = inequalities(factors.tolist(), room.tolist(), continuous=1)
    amounts = np.append(random.choice([0.0, 1.0, 0.3, 0.5, 0.9], 6), 0.0)
    sums = [
        *np.eye(3),
        *random.normal(size=(20, 3)),
        *random.integers(-2, 3, (20, 3)).astype(float),
    ]

    cuts = find_cuts(known, amounts, sums)

    for choice in itertools.product([0.0, 1.0], repeat=6):
        least = max(0.0, factors[0, :-1] @ choice - room[0])
        for missed in (least, least + 0.25, least + 100.0):
            columns = np.append(choice, missed)
            if np.all(factors @ columns <= room + 1e-12):
                assert all(cut.factors @ columns[cut.columns] <= cut.room for cut in cuts)
    if np.all(known.matrix.times(amounts) <= known.room):
        assert all(cut.factors @ amounts[cut.columns] > cut.room for cut in cuts)


@pytest.mark.parametrize("seed", sampled(range(40)))
def test_cuts_prove_more_than_the_relaxation_and_no_more_than_there_is(seed: int) -> None:
    program = random_program(seed, cases=40)
    objective = program.value - 2 * program.weight
    floors = 0.6 * loads(program)[:1]

    proven = RowRelaxation(program, objective, floors, np.array([np.inf]), whole=0).tighten(
        40, minute
    )

    rows = range(len(program.case))
    assert proven >= relaxed(program, objective.tolist(), floors.tolist()) - 1e-6
    assert proven <= relaxed(program, objective.tolist(), floors.tolist(), whole=rows) + 1e-6


@pytest.mark.parametrize("seed", sampled(range(20)))
def test_a_bound_with_floors_at_a_price_holds_for_lower_floors(seed: int) -> None:
    program = random_program(seed, cases=40)
    floors = 0.9 * loads(program)[:1]
    lower = 0.8 * floors
    prices = price(program, program.value, floors, 0)

    relaxation = RowRelaxation(program, program.value, floors, prices.loads, whole=0)
    raised = prices.raised(relaxation.tighten(40, minute)).lowered(floors - lower)

    rows = range(len(program.case))
    assert (
        raised.proven <= relaxed(program, program.value.tolist(), lower.tolist(), whole=rows) + 1e-6
    )
    assert raised.proven >= raised.bound


def test_cuts_close_much_of_the_gap_of_a_fleet() -> None:
    program = fleet_program(300, demand=2.0)
    program = program.take(program.undominated())
    floors = loads(program) * np.array([1.0, 1.0, 0.98])
    prices = price(program, program.value, floors, 2)

    relaxation = RowRelaxation(program, program.value, floors, prices.loads, whole=2)
    proven = relaxation.tighten(40, minute)

    assert proven > prices.bound + 4e-3 * abs(prices.bound)


def test_the_same_cuts_are_found_again() -> None:
    program = random_program(3, cases=200)

    def proven() -> float:
        return RowRelaxation(program, program.value, NO_FLOORS, NO_FLOORS, whole=0).tighten(
            40, minute
        )

    assert proven() == proven()


def test_without_time_nothing_is_proven() -> None:
    program = fleet_program(300, demand=2.0)
    relaxation = RowRelaxation(program, program.value, NO_FLOORS, NO_FLOORS, whole=0)

    assert relaxation.tighten(40, lambda: 0.0) == -np.inf


def test_a_level_that_must_be_served_keeps_its_servers() -> None:
    program = replace(random_program(5, cases=60, levels=1), capacity=np.full(3, 200.0))
    relaxation = RowRelaxation(program, program.value, NO_FLOORS, NO_FLOORS, whole=1)

    relaxation.tighten(40, minute)
    vertex = relaxation.solve()

    assert vertex is not None
    np.testing.assert_allclose(np.add.reduceat(vertex.amounts, program.starts), 1.0)


def minute() -> float:
    """Time that does not end."""
    return 60.0
