"""Which of two plans is better: it holds or serves more by priority, or else costs less."""

from inferno_optimizer.sizing.candidates import Candidates
from inferno_optimizer.solvers.assignment import Assignment
from inferno_optimizer.solvers.exact.settings import DEFAULTS as EXACT
from inferno_optimizer.solvers.loads import loads_held, loads_served
from inferno_optimizer.solvers.partial.tolerance import GIVEN_UP
from inferno_optimizer.system import SaturationPolicy

ROUNDING = 1e-12
"""Relative distance that is rounding."""


def is_better(candidates: Candidates, one: Assignment, another: Assignment) -> bool:
    """Whether the first of two plans holds or serves more by priority, in part or entirely.

    Loads that differ by less than what later goals may take are equal.
    """
    held, served = (
        [loads(candidates, plan) for plan in (one, another)] for loads in (loads_held, loads_served)
    )
    given_up = share_given_up(candidates) * (1 + ROUNDING)
    for priority in served[0]:
        for first, second in (held, served):
            load, other = first[priority], second[priority]
            if abs(load - other) > given_up * max(load, other):
                return load > other
    return False


def is_better_or_cheaper(candidates: Candidates, one: Assignment, another: Assignment) -> bool:
    """Whether the first of two plans holds or serves more, or the same at a lower value."""
    if is_better(candidates, one, another):
        return True
    cheaper = one.objective(candidates) < another.objective(candidates)
    return cheaper and not is_better(candidates, another, one)


def share_given_up(candidates: Candidates) -> float:
    """Share of the load of a priority that later goals may take."""
    options = candidates.system.options
    entirely = options.saturation_policy is SaturationPolicy.NONE
    by_default = EXACT.given_up if entirely else GIVEN_UP
    return max(by_default, options.priority_tolerance or 0.0)
