"""Compares two solutions for the same servers."""

import math
from dataclasses import dataclass

from inferno_optimizer.solution import Decision, Reason, Solution
from inferno_optimizer.system import Allocation

ROUNDING = 1e-9
"""Largest relative difference of numbers that count as equal."""


@dataclass(frozen=True, slots=True)
class DecisionDifference:
    """The decisions for one server, before and after."""

    before: Decision
    after: Decision

    @property
    def server(self) -> str:
        """Name of the server."""
        return self.before.server


@dataclass(frozen=True, slots=True)
class Comparison:
    """Two solutions, and the servers with different decisions, in the order of the system."""

    before: Solution
    after: Solution
    differences: tuple[DecisionDifference, ...]


def compare(before: Solution, after: Solution) -> Comparison:
    """Find the servers for which two solutions decide differently.

    Decisions differ in accelerator, number of replicas, cost or reason; for a server that gets
    less than its targets need, also in latencies.
    """
    pairs = zip(before.decisions, after.decisions, strict=True)
    differences = (DecisionDifference(old, new) for old, new in pairs if not _same(old, new))
    return Comparison(before, after, tuple(differences))


def served(solution: Solution) -> int:
    """Number of servers that get all replicas that their targets need."""
    return sum(decision.reason is Reason.ALLOCATED for decision in solution.decisions)


def _same(old: Decision, new: Decision) -> bool:
    if old.reason != new.reason:
        return False
    if old.allocation is None or new.allocation is None:
        return old.allocation is new.allocation
    if not _same_placement(old.allocation, new.allocation):
        return False
    return old.reason is Reason.ALLOCATED or _same_latencies(old.allocation, new.allocation)


def _same_placement(old: Allocation, new: Allocation) -> bool:
    return _placement(old) == _placement(new) and _equal(old.cost, new.cost)


def _placement(allocation: Allocation) -> dict[str, int]:
    return {part.accelerator: part.replicas for part in allocation.parts}


def _same_latencies(old: Allocation, new: Allocation) -> bool:
    pairs = ((old.itl_ms, new.itl_ms), (old.wait_ms, new.wait_ms), (old.ttft_ms, new.ttft_ms))
    return all(_equal(*pair) for pair in pairs)


def _equal(old: float, new: float) -> bool:
    return math.isclose(old, new, rel_tol=ROUNDING, abs_tol=ROUNDING)
