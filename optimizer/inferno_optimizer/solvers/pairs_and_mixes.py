"""Plans with mixes of accelerators, and with rows that have prefill and decode apart.

A mix has no rows with roles apart, so that each kind of plan is searched for beside the other.
"""

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from inferno_optimizer.sizing.candidates import NO_PAIR, Candidates
from inferno_optimizer.sizing.cases import Catalogue
from inferno_optimizer.sizing.queueing import IntArray
from inferno_optimizer.solution import MarginalValue, SolverStatus
from inferno_optimizer.solvers.assignment import NO_ROW, Assignment, SolverResult
from inferno_optimizer.solvers.loads import (
    is_better_or_cheaper,
    levels_of,
    loads_served,
    loads_wanted,
)

FIRST_OF_PAIRS, FEW_PAIRS = 0.3, 6
"""Share of the time of the search without mixes; and up to how many servers with roles apart each
is tried without."""

Solve = Callable[[Candidates, IntArray], SolverResult]
"""Solves for candidates and cards, within the time limit of the options."""


def has_mixes_and_pairs(candidates: Candidates) -> bool:
    """Whether plans may have mixes, and rows with roles apart."""
    return candidates.system.options.heterogeneous and candidates.apart is not None


def solve_pairs_and_mixes(candidates: Candidates, capacity: IntArray, solve: Solve) -> SolverResult:
    """The best of some plans; nothing is proven of it, as mixes have no rows with roles apart.

    They are one of single rows, some of them apart; one of mixes without these; and mixes beside
    what the first has apart, or beside all of that but one.
    """

    def solved(some: Candidates, cards: IntArray, share: float, *, mixes: bool) -> SolverResult:
        options = some.system.options
        options = replace(options, heterogeneous=mixes, time_limit=share * options.time_limit)
        system = replace(some.system, options=options)
        return solve(replace(some, catalogue=Catalogue(system)), cards)

    best = single = solved(candidates, capacity, FIRST_OF_PAIRS, mixes=False)
    kept = _kept_apart(candidates, single.assignment)
    for number, rows in enumerate(kept, 1):
        apart = Assignment.of_rows(candidates, rows)
        others = candidates.usable & (rows == NO_ROW)[candidates.pairs.case]
        left = capacity - apart.used(candidates)
        share = FIRST_OF_PAIRS + (1.0 - FIRST_OF_PAIRS) * number / len(kept)
        found = solved(replace(candidates, usable=others), left, share, mixes=True)
        answer = _joined(candidates, found, apart)
        if is_better_or_cheaper(candidates, answer.assignment, best.assignment):
            best = answer
    return without_bounds(candidates, best)


def _kept_apart(candidates: Candidates, plan: Assignment) -> list[IntArray]:
    """Rows of each case, of several plans that keep some of what a plan has apart, -1 elsewhere.

    One of them keeps nothing and one keeps all; with few, there is one without each of them.
    """
    rows = plan.rows.copy()
    chosen = np.flatnonzero(rows != NO_ROW)
    whole = plan.replicas[chosen] == candidates.replicas[rows[chosen]]
    rows[chosen[(candidates.pair[rows[chosen]] == NO_PAIR) | ~whole]] = NO_ROW
    apart = np.flatnonzero(rows != NO_ROW).tolist()
    left_out = [apart, []] if apart else [[]]
    if 1 < len(apart) <= FEW_PAIRS:
        left_out.extend([case] for case in apart)
    kept = []
    for cases in left_out:
        kept.append(rows.copy())
        kept[-1][cases] = NO_ROW
    return kept


def _joined(candidates: Candidates, answer: SolverResult, kept: Assignment) -> SolverResult:
    """An answer for some cases, and the others as they are kept."""
    own, plan = kept.rows != NO_ROW, answer.assignment
    assignment = replace(
        plan,
        rows=np.where(own, kept.rows, plan.rows),
        replicas=np.where(own, kept.replicas, plan.replicas),
        mixes={**plan.mixes, **kept.mixes},
    )
    wanted = loads_wanted(candidates)
    return replace(
        answer,
        assignment=assignment,
        levels=levels_of(loads_served(candidates, assignment), wanted, wanted),
        marginal=tuple(replace(m, estimated=m != MarginalValue()) for m in answer.marginal),
        curve=(),
        objective=None,
    )


def without_bounds(candidates: Candidates, answer: SolverResult) -> SolverResult:
    """The answer without its bounds, which do not hold for mixes that serve a case in part."""
    wanted = loads_wanted(candidates)
    levels = tuple(replace(level, bound=wanted[level.priority]) for level in answer.levels)
    return replace(answer, status=SolverStatus.FEASIBLE, bound=None, levels=levels)
