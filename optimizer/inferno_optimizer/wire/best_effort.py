"""Tells best effort in the answers of optimizers that give no reasons."""

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from inferno_optimizer.decisions import decide_rows
from inferno_optimizer.solution import Decision, Solution
from inferno_optimizer.system import Allocation, SaturationPolicy, Server
from inferno_optimizer.wire.sizes import RowReplicas, Sizes


def tell_best_effort(solution: Solution, sizes: Sizes) -> Solution:
    """Mark the allocations that carry less than the load for want of cards.

    A saturation policy gives a server fewer replicas than it needs only while the remaining cards
    do not suffice for one more. The latencies of such an allocation are predicted anew: the
    original gives those of the full number of replicas.

    Parameters
    ----------
    solution
        The solution of an optimizer that gives no reasons.
    sizes
        The sizes of the servers of the system that was sent to it.
    """
    shortened = {decision.server: decision for decision in _shortened(solution, sizes)}
    decisions = tuple(shortened.get(decision.server, decision) for decision in solution.decisions)
    return replace(solution, decisions=decisions)


def _shortened(solution: Solution, sizes: Sizes) -> Iterator[Decision]:
    options = sizes.system.options
    if options.unlimited or options.saturation_policy is SaturationPolicy.NONE:
        return
    left = {use.type: use.usable - use.used for use in solution.capacity}
    servers = {server.name: server for server in sizes.system.servers}
    for decision in solution.decisions:
        part = _short_part(servers[decision.server], decision.allocation, sizes)
        if part is not None and not _fits_one_more(part.row, left, sizes):
            (told,) = decide_rows(sizes.candidates, [part.row], [part.replicas])
            yield replace(told, warnings=decision.warnings)


def _short_part(server: Server, allocation: Allocation | None, sizes: Sizes) -> RowReplicas | None:
    """The only part of an allocation that has replicas, but too few."""
    if allocation is None or not allocation.replicas or sizes.suffices(server, allocation):
        return None
    parts = sizes.parts(server.name, allocation)
    return parts[0] if len(parts) == 1 else None


def _fits_one_more(row: int, left: dict[str, int], sizes: Sizes) -> bool:
    candidates = sizes.candidates
    by_type = np.array([max(left.get(name, 0), 0) for name in candidates.types], dtype=np.int64)
    return bool(candidates.fitting(by_type)[row])
