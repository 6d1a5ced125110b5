"""Cuts of the capacity, beside all whole numbers of replicas that fit."""

from dataclasses import replace
from itertools import product
from random import Random

import numpy as np
import pytest

from inferno_optimizer.sizing.cards import Cards
from inferno_optimizer.solvers.budget import Budget
from inferno_optimizer.solvers.goals import Floor, Goal, GoalKind
from inferno_optimizer.solvers.params import DEFAULTS
from inferno_optimizer.solvers.problem import CardCuts
from inferno_optimizer.solvers.relaxation import Basis, Relaxation, Start
from inferno_optimizer.system import Accelerator, SaturationPolicy
from tests.unit.optimizer.solvers.partial_plans import problem_of, with_policy
from tests.unit.optimizer.systems import Demand, system_of

EXHAUSTIVE = with_policy(SaturationPolicy.PRIORITY_EXHAUSTIVE)


def test_every_number_of_replicas_that_fits_keeps_the_cuts() -> None:
    random, cut_off = Random(1), 0  # noqa: S311 - a repeatable choice, not a secret
    for _ in range(30):
        counts = np.array([random.choice((1, 2, 3, 4, 6, 8)) for _ in range(4)])
        room = random.randint(1, 20)
        cards = Cards(np.arange(4), np.zeros(4, dtype=np.int64), counts)
        cuts = CardCuts.of(cards, np.array([room]), DEFAULTS.cut_sizes)
        factors = np.zeros((len(cuts.room), 4))
        factors[cuts.cut, cuts.column] = cuts.factor

        for plan in product(*(range(room // count + 1) for count in counts.tolist())):
            if counts @ plan <= room:
                assert np.all(factors @ plan <= cuts.room + 1e-9), (counts, room, plan)
        cut_off += sum(
            bool(np.any(factors @ (room / counts * one) > cuts.room)) for one in np.eye(4)
        )

    assert cut_off > 30  # many fractional plans that fit do not keep them


def test_a_relaxation_may_begin_where_one_with_other_cuts_ended() -> None:
    sizes = (2, 3, 4, 6)
    needs = {f"{size}xX": 100 for size in sizes}
    demands = [Demand(name, needs, load=100) for name in ("a", "b")]
    units = [Accelerator(f"{size}xX", "x", 10 * size, size) for size in sizes]
    problem = problem_of(system_of(demands, units, {"x": 252}, EXHAUSTIVE))
    more = replace(problem, capacity=problem.capacity + 1)
    served = Goal(GoalKind.SERVED, 0)
    floors = (Floor(served, 10.0, whole=False),)
    start = Start(np.zeros(len(problem.case), dtype=np.bool_), Basis.empty(problem))
    first = Relaxation(problem, served, floors, start)
    first.solve(Budget.of(10.0))

    again = Start(start.known, first.basis())
    vertex = Relaxation(more, served, floors, again).solve(Budget.of(10.0))

    assert len(more.card_cuts.room) == len(sizes) > len(problem.card_cuts.room)
    assert vertex is not None
    assert vertex.bound == pytest.approx(126)


@pytest.mark.parametrize(("cards", "replicas"), [(255, 63), (256, 64)])
def test_the_relaxation_knows_how_many_replicas_of_four_cards_there_are(
    cards: int, replicas: int
) -> None:
    demands = [Demand(name, {"4xX": 100}, load=100) for name in ("a", "b")]
    units = [Accelerator("4xX", "x", 40, 4)]
    problem = problem_of(system_of(demands, units, {"x": cards}, EXHAUSTIVE))
    start = Start(np.zeros(len(problem.case), dtype=np.bool_), Basis.empty(problem))

    vertex = Relaxation(problem, Goal(GoalKind.SERVED, 0), (), start).solve(Budget.of(10.0))

    assert vertex is not None
    assert vertex.bound == pytest.approx(replicas)
    assert vertex.prices == pytest.approx([1 / 4])
