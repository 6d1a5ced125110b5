"""Load by priority [requests/min]: what there is, and what a plan serves or holds of it.

Of two plans the better one holds or serves more by priority, or else costs less.
"""

from collections.abc import Iterable, Iterator, Mapping

import numpy as np

from inferno_optimizer.sizing.candidates import Candidates
from inferno_optimizer.sizing.cases import Case
from inferno_optimizer.sizing.queueing import FloatArray, IntArray
from inferno_optimizer.solution import Level
from inferno_optimizer.solvers.assignment import NO_ROW, Assignment, share_kept
from inferno_optimizer.solvers.params import DEFAULTS, SolveParams
from inferno_optimizer.solvers.running import Running


def weight_of(case: Case) -> float:
    """Load that counts as served [requests/min]; 1 for a floor without arrivals."""
    return case.server.load.arrival_rate or 1.0


def priorities_of(candidates: Candidates, cases: IntArray) -> list[int]:
    """Those of some cases, the most important first."""
    return sorted({candidates.cases[case].priority for case in cases.tolist()})


def find_loads(candidates: Candidates, cases: Iterable[int]) -> dict[int, float]:
    """Load of some cases, of every priority in use; the most important first."""
    load = dict.fromkeys(sorted({case.priority for case in candidates.cases}), 0.0)
    for case in cases:
        load[candidates.cases[case].priority] += weight_of(candidates.cases[case])
    return load


def loads_wanted(candidates: Candidates) -> dict[int, float]:
    """Load of all cases."""
    return find_loads(candidates, range(len(candidates.cases)))


def loads_served_entirely(candidates: Candidates, assignment: Assignment) -> dict[int, float]:
    """Load of the cases that an assignment serves entirely."""
    return find_loads(candidates, assignment.served(candidates).tolist())


def loads_served(candidates: Candidates, assignment: Assignment) -> dict[int, float]:
    """Load that an assignment serves, partial service included."""
    served = find_loads(candidates, assignment.mixes)
    for case in np.flatnonzero(assignment.rows != NO_ROW).tolist():
        wanted = int(candidates.replicas[assignment.rows[case]])
        share = int(assignment.replicas[case]) / wanted if wanted else 1.0
        served[candidates.cases[case].priority] += share * weight_of(candidates.cases[case])
    return served


def loads_up_to(
    candidates: Candidates, assignment: Assignment, most: FloatArray
) -> dict[int, float]:
    """Load that an assignment serves, of each case up to a share of its load; shape (cases,)."""
    reached = find_loads(candidates, ())
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


def add_loads(loads: Mapping[int, float], more: Mapping[int, float]) -> dict[int, float]:
    """Two loads together, of all priorities of the second."""
    return {priority: loads.get(priority, 0.0) + load for priority, load in more.items()}


def bounded_levels(
    served: Mapping[int, float], most: Mapping[int, float], wanted: Mapping[int, float]
) -> tuple[Level, ...]:
    """What is served of each priority, with the most that is proven to be possible."""
    return tuple(
        Level(priority, load, max(load, most.get(priority, 0.0)), wanted[priority])
        for priority, load in served.items()
    )


def is_better(
    candidates: Candidates,
    one: Assignment,
    another: Assignment,
    params: SolveParams = DEFAULTS,
    *,
    one_each: bool = False,
    exactly: bool = False,
) -> bool:
    """Whether the first of two plans holds or serves more by priority, in part or entirely.

    Loads that differ by less than what later goals may take are equal; with `exactly`, those that
    differ by rounding. With `one_each`, what one replica of each case holds counts before all that
    is held of a level, so that none is stopped for an equal one that has several.
    """
    given_up = params.rounding if exactly else share_given_up(candidates, params)
    given_up *= 1 + params.same
    running = Running.of(candidates)
    reached, others = (_reached(candidates, running, p, one_each) for p in (one, another))
    for load, other in zip(reached, others, strict=True):
        if abs(load - other) > given_up * max(load, other):
            return load > other
    return False


def _reached(
    candidates: Candidates, running: Running, plan: Assignment, one_each: bool
) -> Iterator[float]:
    """Loads that a plan holds and serves, the most important first, as `goals_of` orders them."""
    options = candidates.system.options
    policy, delayed = options.saturation_policy, options.delayed_best_effort
    first = loads_up_to(candidates, plan, running.held_first(policy)) if one_each else {}
    held = loads_up_to(candidates, plan, running.held(policy))
    served = (loads_served_entirely if delayed else loads_served)(candidates, plan)
    for priority in served:
        if one_each:
            yield first[priority]
        yield from (held[priority], served[priority])
    if delayed:
        yield from loads_served(candidates, plan).values()


def share_given_up(candidates: Candidates, params: SolveParams) -> float:
    """Share of the load of a priority that later goals may take."""
    return max(params.tolerance, candidates.system.options.priority_tolerance or 0.0)
