"""Which of two plans is better: it holds or serves more by priority, or else costs less."""

from collections.abc import Iterator

from inferno_optimizer.sizing.candidates import Candidates
from inferno_optimizer.solvers.assignment import Assignment
from inferno_optimizer.solvers.levels import GIVEN_UP
from inferno_optimizer.solvers.loads import loads_held, loads_served, loads_served_entirely

ROUNDING = 1e-12
"""Relative distance that is rounding."""


def is_better(candidates: Candidates, one: Assignment, another: Assignment) -> bool:
    """Whether the first of two plans holds or serves more by priority, in part or entirely.

    Loads that differ by less than what later goals may take are equal.
    """
    given_up = share_given_up(candidates) * (1 + ROUNDING)
    pairs = zip(_reached(candidates, one), _reached(candidates, another), strict=True)
    for load, other in pairs:
        if abs(load - other) > given_up * max(load, other):
            return load > other
    return False


def _reached(candidates: Candidates, plan: Assignment) -> Iterator[float]:
    """Loads that a plan holds and serves, the most important first, as `goals_of` orders them."""
    delayed = candidates.system.options.delayed_best_effort
    first = loads_served_entirely if delayed else loads_served
    held, served = loads_held(candidates, plan), first(candidates, plan)
    for priority in served:
        yield from (held[priority], served[priority])
    if delayed:
        yield from loads_served(candidates, plan).values()


def is_better_or_cheaper(candidates: Candidates, one: Assignment, another: Assignment) -> bool:
    """Whether the first of two plans holds or serves more, or the same at a lower value."""
    if is_better(candidates, one, another):
        return True
    cheaper = one.objective(candidates) < another.objective(candidates)
    return cheaper and not is_better(candidates, another, one)


def share_given_up(candidates: Candidates) -> float:
    """Share of the load of a priority that later goals may take."""
    return max(GIVEN_UP, candidates.system.options.priority_tolerance or 0.0)
