"""Load by priority [requests/min]: what there is, and what a plan serves or holds of it."""

from collections.abc import Iterable, Mapping

import numpy as np

from inferno_optimizer.sizing.candidates import Candidates
from inferno_optimizer.sizing.queueing import FloatArray, IntArray
from inferno_optimizer.solution import Level
from inferno_optimizer.solvers.assignment import NO_ROW, Assignment, share_kept
from inferno_optimizer.solvers.exact.program import weight_of


def priorities_of(candidates: Candidates, cases: IntArray) -> list[int]:
    """Those of some cases, the most important first."""
    return sorted({candidates.cases[case].priority for case in cases.tolist()})


def loads_of(candidates: Candidates, cases: Iterable[int]) -> dict[int, float]:
    """Load of some cases, of every priority in use; the most important first."""
    load = dict.fromkeys(sorted({case.priority for case in candidates.cases}), 0.0)
    for case in cases:
        load[candidates.cases[case].priority] += weight_of(candidates.cases[case])
    return load


def loads_wanted(candidates: Candidates) -> dict[int, float]:
    """Load of all cases."""
    return loads_of(candidates, range(len(candidates.cases)))


def loads_served_entirely(candidates: Candidates, assignment: Assignment) -> dict[int, float]:
    """Load of the cases that an assignment serves entirely."""
    return loads_of(candidates, assignment.served(candidates).tolist())


def loads_served(candidates: Candidates, assignment: Assignment) -> dict[int, float]:
    """Load that an assignment serves, partial service included."""
    served = loads_of(candidates, assignment.mixes)
    for case in np.flatnonzero(assignment.rows != NO_ROW).tolist():
        wanted = int(candidates.replicas[assignment.rows[case]])
        share = int(assignment.replicas[case]) / wanted if wanted else 1.0
        served[candidates.cases[case].priority] += share * weight_of(candidates.cases[case])
    return served


def loads_up_to(
    candidates: Candidates, assignment: Assignment, most: FloatArray
) -> dict[int, float]:
    """Load that an assignment serves, of each case up to a share of its load; shape (cases,)."""
    reached = loads_of(candidates, ())
    for place, case in enumerate(candidates.cases):
        row, share = int(assignment.rows[place]), 0.0
        if place in assignment.mixes:
            share = 1.0
        elif place in assignment.kept:
            share = share_kept(assignment.kept[place])
        elif row != NO_ROW:
            share = assignment.replicas[place] / max(candidates.replicas[row], 1)
        reached[case.priority] += float(min(share, most[place])) * weight_of(case)
    return reached


def added(loads: Mapping[int, float], more: Mapping[int, float]) -> dict[int, float]:
    """Two loads together, of all priorities of the second."""
    return {priority: loads.get(priority, 0.0) + load for priority, load in more.items()}


def levels_of(
    served: Mapping[int, float], most: Mapping[int, float], wanted: Mapping[int, float]
) -> tuple[Level, ...]:
    """What is served of each priority, with the most that is proven to be possible."""
    return tuple(
        Level(priority, load, max(load, most.get(priority, 0.0)), wanted[priority])
        for priority, load in served.items()
    )
