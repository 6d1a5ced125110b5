"""Which of two plans is better: it holds or serves more by priority, or else costs less."""

from collections.abc import Iterator

from inferno_optimizer.sizing.candidates import Candidates
from inferno_optimizer.solvers.assignment import Assignment
from inferno_optimizer.solvers.levels import GIVEN_UP
from inferno_optimizer.solvers.loads import loads_served, loads_served_entirely, loads_up_to
from inferno_optimizer.solvers.running import Running

ROUNDING = 1e-12
"""Relative distance that is rounding."""


def is_better(
    candidates: Candidates, one: Assignment, another: Assignment, *, one_each: bool = False
) -> bool:
    """Whether the first of two plans holds or serves more by priority, in part or entirely.

    Loads that differ by less than what later goals may take are equal. With `one_each`, what one
    replica of each case holds counts before all that is held of a level, so that none is stopped
    for an equal one that has several: searches for mixes do not see to that.
    """
    given_up, running = share_given_up(candidates) * (1 + ROUNDING), Running.of(candidates)
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


def is_better_or_cheaper(candidates: Candidates, one: Assignment, another: Assignment) -> bool:
    """Whether the first of two plans holds or serves more, or the same at a lower value."""
    if is_better(candidates, one, another, one_each=True):
        return True
    cheaper = one.objective(candidates) < another.objective(candidates)
    return cheaper and not is_better(candidates, another, one, one_each=True)


def share_given_up(candidates: Candidates) -> float:
    """Share of the load of a priority that later goals may take."""
    return max(GIVEN_UP, candidates.system.options.priority_tolerance or 0.0)
