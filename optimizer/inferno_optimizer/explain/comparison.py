"""Two solutions of the same servers -> what differs between them."""

import math
from dataclasses import dataclass

from inferno_optimizer.system import Allocation, Decision, Reason, Solution

ROUNDING = 1e-9
"""Numbers that differ by so little, relative, are the same."""


@dataclass(frozen=True, slots=True)
class Difference:
    """What is decided for one server, before and after."""

    before: Decision
    after: Decision

    @property
    def server(self) -> str:
        """Its name."""
        return self.before.server


@dataclass(frozen=True, slots=True)
class Comparison:
    """Two solutions, and the servers for which they differ, in the order of the system."""

    before: Solution
    after: Solution
    differences: tuple[Difference, ...]


def compare(before: Solution, after: Solution) -> Comparison:
    """Find the servers for which two solutions decide differently.

    That is another accelerator, other replicas, another cost or another reason; and for a
    server that gets less than its targets take, other latencies too.
    """
    pairs = zip(before.decisions, after.decisions, strict=True)
    differences = (Difference(old, new) for old, new in pairs if not _same(old, new))
    return Comparison(before, after, tuple(differences))


def served(solution: Solution) -> int:
    """How many servers get all that their targets take."""
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
