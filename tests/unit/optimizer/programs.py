"""Random assignment problems in arrays, those of fleets, and relaxations by another program."""

import itertools
from collections.abc import Collection, Iterator, Sequence
from functools import cache

import numpy as np
import pulp

from inferno_optimizer.sizing.cases import Case, Catalogue
from inferno_optimizer.sizing.queueing import FloatArray
from inferno_optimizer.sizing.table import build_candidates
from inferno_optimizer.solvers.exact.program import BoolArray, Program
from inferno_optimizer.wire.codec import decode_system
from tests.generate import fleet


def random_program(seed: int, cases: int, types: int = 3, levels: int = 3) -> Program:
    """Cases with a row or more on different types; capacity for about half of them."""
    random = np.random.default_rng(seed)
    rows = [
        (case, card_type)
        for case in range(cases)
        for card_type in np.flatnonzero(random.random(types) < 0.8).tolist() or [0]
    ]
    case = np.array([row[0] for row in rows])
    cards = random.integers(1, 6, len(rows)).astype(float)
    return Program(
        case=case,
        type=np.array([row[1] for row in rows]),
        cards=cards,
        value=cards * random.integers(1, 9, len(rows)) - random.integers(0, 20, cases)[case],
        level=np.unique(random.integers(0, levels, cases), return_inverse=True)[1][case],
        weight=random.integers(1, 50, cases).astype(float)[case],
        capacity=np.full(types, np.ceil(1.6 * cases / types)),
        stays=np.zeros(len(rows), dtype=np.bool_),
    )


@cache
def fleet_program(servers: int, demand: float) -> Program:
    """Rows of a generated fleet, some of whose servers take hundreds of cards; read only."""
    catalogue = Catalogue(decode_system(fleet(servers, 20, seed=1, demand=demand)).by_name())
    outcomes = [catalogue.case(server) for server in catalogue.system.servers]
    candidates = build_candidates(catalogue, [o for o in outcomes if isinstance(o, Case)])
    cards = catalogue.system.capacity
    capacity = np.array([cards.get(card_type, 0) for card_type in candidates.types])
    rows = np.flatnonzero(candidates.usable & (candidates.cards <= capacity[candidates.pairs.type]))
    return Program.of(candidates, rows, capacity)


def loads(program: Program) -> FloatArray:
    """Load of each level, all cases together."""
    first = program.starts
    return np.bincount(program.level[first], program.weight[first]).astype(np.float64)


def relaxed(
    program: Program,
    objective: list[float],
    floors: Sequence[float] = (),
    whole: Collection[int] = (),
) -> float:
    """The optimum of the linear relaxation, by PuLP and HiGHS.

    `floors` are loads to keep, `whole` rows with 0 or 1.
    """
    problem = pulp.LpProblem("relaxation", pulp.LpMinimize)
    kinds = ["Integer" if i in whole else "Continuous" for i in range(len(objective))]
    columns = [problem.add_variable(f"x{i}", 0, 1, kind) for i, kind in enumerate(kinds)]
    for key, limits in ((program.case, None), (program.type, program.capacity)):
        for group in np.unique(key).tolist():
            mine = np.flatnonzero(key == group).tolist()
            sizes = [1.0 if limits is None else float(program.cards[i]) for i in mine]
            terms = pulp.LpAffineExpression(
                [(columns[i], s) for i, s in zip(mine, sizes, strict=True)]
            )
            problem += terms <= (1.0 if limits is None else float(limits[group]))
    for level, floor in enumerate(floors):
        mine = np.flatnonzero(program.level == level).tolist()
        terms = pulp.LpAffineExpression([(columns[i], float(program.weight[i])) for i in mine])
        problem += terms >= floor
    problem.setObjective(pulp.LpAffineExpression(list(zip(columns, objective, strict=True))))
    problem.solve(pulp.HiGHS(msg=False, gapRel=0.0))
    return float(pulp.value(problem.objective))


def every_choice(program: Program) -> Iterator[BoolArray]:
    """All choices of at most one row for each case that fit."""
    rows = [np.flatnonzero(program.case == case).tolist() for case in np.unique(program.case)]
    for picks in itertools.product(*([-1, *mine] for mine in rows)):
        chosen = np.zeros(len(program.case), dtype=np.bool_)
        chosen[[row for row in picks if row >= 0]] = True
        if np.all(program.used(chosen) <= program.capacity):
            yield chosen


def best_of_all(program: Program, levels: int) -> tuple[tuple[float, ...], float]:
    """The most load by level, then the least value."""

    def rank(chosen: BoolArray) -> tuple[tuple[float, ...], float]:
        return tuple(-program.served(chosen, levels)), float(program.value[chosen].sum())

    loads, value = min(map(rank, every_choice(program)))
    return tuple(-load for load in loads), value
