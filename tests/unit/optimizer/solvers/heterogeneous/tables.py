"""Small tables of mixes at random, and every mix and every plan that they allow."""

from collections.abc import Iterator
from itertools import product

import numpy as np

from inferno_optimizer.sizing.queueing import FloatArray, IntArray
from inferno_optimizer.solvers.heterogeneous.column_generation import MixPrices
from inferno_optimizer.solvers.heterogeneous.mixes import MixTable
from inferno_optimizer.solvers.heterogeneous.problem import MixGoal, MixProblem
from inferno_optimizer.solvers.heterogeneous.program import MixProgram, Relaxed

TYPES = 3


def random_table(random: np.random.Generator, cases: int, levels: int = 1) -> MixTable:
    """Cases with up to four items; some run something now, some have floors."""
    shape = (cases, 4)
    alone = random.integers(1, 5, shape)
    running = random.random(shape) < 0.3
    unit = random.integers(1, 30, shape) * 2.5
    single = running & (running.sum(axis=1, keepdims=True) == 1)
    stay = np.where(single & (random.random(shape) < 0.5), random.integers(-20, 20, shape), 0)
    stop = np.where(running, random.integers(0, 40, shape), 0).astype(np.float64)
    return MixTable(
        case=np.arange(cases),
        rows=np.arange(cases * 4).reshape(shape),
        share=1 / (alone - random.random(shape) * 0.9),
        most=np.where(random.random(shape) < 0.8, alone, random.integers(0, 3, shape)),
        type=random.integers(0, TYPES, shape),
        cards=random.integers(1, 3, shape),
        running=running,
        unit=unit.astype(np.float64),
        stop=stop,
        stay=stay.astype(np.float64),
        alone=alone,
        base=stop.sum(axis=1) - random.integers(0, 100, cases),
        need=np.full(cases, 1.0 - 1e-9),
        floor=random.choice([0, 0, 3], cases),
        level=np.sort(random.integers(0, levels, cases)),
        weight=random.integers(1, 100, cases).astype(np.float64),
    )


def relaxation(program: MixProgram) -> Relaxed:
    """The best plan with replicas in parts, however long it takes."""
    relaxed = program.relax()
    assert relaxed is not None
    return relaxed


def mixes_of(table: MixTable, case: int, capacity: IntArray) -> Iterator[tuple[IntArray, float]]:
    """Every mix that serves a case within the capacity, and its value."""
    only = table.take(np.array([case]))
    for numbers in product(*(range(most + 1) for most in table.most[case].tolist())):
        counts = np.array([numbers])
        if only.covered(counts)[0] and np.all(only.used(counts, TYPES) <= capacity):
            yield counts[0], float(only.value(counts)[0])


def best_objective(problem: MixProblem) -> float:
    """The objective of the best of all plans that keep the floors; infinite where none does."""
    table, goal = problem.table, problem.goal
    best = {((0,) * TYPES, (0.0,) * len(goal.floors)): 0.0}
    for case in range(len(table.case)):
        found: dict[tuple[tuple[int, ...], tuple[float, ...]], float] = {}
        for ((used, loads), total), (cards, load, cost) in product(
            best.items(), _choices(problem, case)
        ):
            in_use = tuple(np.add(used, cards).tolist())
            if np.all(np.less_equal(in_use, problem.capacity)):
                state = in_use, tuple(np.add(loads, load).tolist())
                found[state] = min(found.get(state, np.inf), total + cost)
        best = found
    keeps = [cost for (_, loads), cost in best.items() if np.all(loads >= goal.floors)]
    return min(keeps, default=np.inf)


def _choices(problem: MixProblem, case: int) -> list[tuple[IntArray, FloatArray, float]]:
    """Cards, loads of the levels with a floor, and objective of all that a case may be given."""
    table, goal = problem.table.take(np.array([case])), problem.goal
    load = np.zeros(len(goal.floors))
    load[table.level[table.level < len(load)]] = table.weight[0]
    nothing = [] if table.level[0] < goal.whole else [(np.zeros(TYPES, int), load * 0, 0.0)]
    gained = -table.weight[0] * (table.level[0] == goal.level)
    return nothing + [
        (table.used(counts[None], TYPES), load, value if goal.level is None else gained)
        for counts, value in mixes_of(problem.table, case, problem.capacity)
    ]


def random_problem(random: np.random.Generator) -> tuple[MixProblem, IntArray]:
    """A problem, and a plan that keeps its floors: at random loads, or the value."""
    table, capacity = random_table(random, cases=3, levels=2), random.integers(2, 9, TYPES)
    plan = table.filled(np.zeros(table.rows.shape, dtype=np.int64), capacity)
    level = None if random.random() < 0.6 else int(table.level.max())
    floors = table.loads(plan, int(table.level.max()) + 1)[:level]
    first = table.level == 0
    whole = int(len(floors) > 0 and bool(np.all(table.covered(plan)[first])))
    return MixProblem(table, capacity, MixGoal(level, floors, whole)), plan


def no_prices(problem: MixProblem) -> MixPrices:
    """Prices of nothing, of which nothing is proven."""
    types, floors = len(problem.capacity), len(problem.goal.floors)
    return MixPrices(np.zeros(types), np.zeros(floors), np.zeros(0), -np.inf)
