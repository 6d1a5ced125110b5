"""Checks whether what another optimizer gives, and whom it leaves out, is plausible.

An optimizer leaves out a server if there are not enough cards for it, and gives it fewer replicas
than it needs if a saturation policy shares out what is left. It also gives too little if it mixes
up requests, exceeds a time limit or does not read the performance data; a server must not be
scaled down in these cases. Our own sizing tells them apart.
"""

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from inferno_optimizer.sizing.candidates import Candidates
from inferno_optimizer.sizing.cases import Catalogue
from inferno_optimizer.sizing.queueing import FloatArray
from inferno_optimizer.solution import Decision, Reason, Solution
from inferno_optimizer.system import Allocation, SaturationPolicy, Server
from inferno_optimizer.wire.sizes import ROUNDING, Sizes, data_of

BoolArray = npt.NDArray[np.bool_]

BATCHES = 2
"""How many times as large as ours, or as small, the batch of another optimizer may be."""


def find_doubts(solution: Solution, sizes: Sizes) -> Iterator[str]:
    """Find servers that get less than they need without a lack of cards.

    Parameters
    ----------
    solution
        The solution of another optimizer.
    sizes
        The sizes of the servers of the system that was sent to it.

    Yields
    ------
    A message for each server that gets too few replicas or another batch, and then for each server
    without any and each accelerator whose remaining cards suffice, best first.
    """
    decided = {decision.server: decision for decision in solution.decisions}
    for server in sizes.system.servers:
        decision = decided[server.name]
        if decision.allocation is not None:
            yield from _too_few(server, decision, decision.allocation, sizes)
            yield from _other_batch(server, decision.allocation, sizes)
    if any(decision.reason is Reason.NO_CAPACITY for decision in solution.decisions):
        yield from _left_out(solution, sizes)


def _too_few(
    server: Server, decision: Decision, allocation: Allocation, sizes: Sizes
) -> Iterator[str]:
    """What an allocation lacks, unless it is best effort."""
    if sizes.suffices(server, allocation) or _is_best_effort(decision, allocation, sizes):
        return
    field = f"allocation of server {server.name!r}: numReplicas: {allocation.replicas}"
    if not allocation.replicas:
        data = data_of(server, Catalogue(sizes.system))
        yield f"{field}, although it has a load or a minimum; does the optimizer read {data}?"
    elif allocation.replicas < server.min_replicas:
        yield f"{field}, although minNumReplicas is {server.min_replicas}"
    else:
        share = 100 * sizes.share(server.name, allocation)
        placement = Catalogue(sizes.system).placement(server.model, allocation)
        yield (f"{field}, although {placement} carry {share:.3g} % of its load within the targets")


def _other_batch(server: Server, allocation: Allocation, sizes: Sizes) -> Iterator[str]:
    """The batches of an allocation that are not nearly those of the performance data."""
    if allocation.roles or not sizes.has_demand(server.name):
        return
    for part in allocation.mix or (allocation,):
        for row, replicas in sizes.parts(server.name, part):
            own, given = int(sizes.candidates.pairs.batch[row]), part.max_batch_size
            if replicas and not own <= BATCHES * given <= BATCHES**2 * own:
                yield (
                    f"allocation of server {server.name!r}: maxBatch: {given}, although"
                    f" {own} requests fit into a batch on {part.accelerator}; does the optimizer"
                    f" read {data_of(server, Catalogue(sizes.system))}?"
                )


def _is_best_effort(decision: Decision, allocation: Allocation, sizes: Sizes) -> bool:
    is_shared = sizes.system.options.saturation_policy is not SaturationPolicy.NONE
    return is_shared and decision.reason is Reason.BEST_EFFORT and allocation.replicas > 0


def _left_out(solution: Solution, sizes: Sizes) -> Iterator[str]:
    """Servers without an allocation for which there are cards."""
    candidates = sizes.candidates
    fits = _most_replicas(candidates) <= _room_left(candidates, solution)
    wronged = _expected(candidates, is_ours=sizes.is_ours) & fits
    short = {d.server for d in solution.decisions if d.reason is Reason.NO_CAPACITY}
    nobody = not any(given.replicas for given in solution.allocations.values())
    for row in candidates.ranked().tolist():
        server = candidates.case_of(row).server
        if wronged[row] and server.name in short:
            data = data_of(server, Catalogue(sizes.system)) if nobody else ""
            yield (
                f"it gives nothing to server {server.name!r}, although there are cards for"
                f" {candidates.replicas[row]} x {candidates.placement(row)}, which would serve it"
                + (f"; does the optimizer read {data}?" if data else "")
            )


def _expected(candidates: Candidates, *, is_ours: bool) -> BoolArray:
    """Rows that an optimizer allocates if they fit into the capacity; shape (rows,).

    An answer may omit servers that need no replicas. The exact solver of the original also omits
    idle servers with a minimum of replicas.
    """
    options = candidates.system.options
    omits_idle = options.milp and not options.unlimited and not is_ours
    needs = candidates.pairs.demand if omits_idle else candidates.replicas
    return candidates.usable & (needs > 0)


def _most_replicas(candidates: Candidates) -> FloatArray:
    """Largest number of replicas that other optimizers may compute for a row; shape (rows,)."""
    rate = np.where(candidates.usable, candidates.sizing.max_rate, np.inf)
    needed: FloatArray = np.ceil(candidates.pairs.demand / rate * (1 + ROUNDING))
    return np.maximum(needed, candidates.replicas)


def _room_left(candidates: Candidates, solution: Solution) -> FloatArray:
    """Replicas of each row for which cards remain; infinite if unlimited; shape (rows,)."""
    if candidates.system.options.unlimited:
        return np.full(len(candidates.usable), np.inf)
    left = {use.type: use.usable - use.used for use in solution.capacity}
    by_type = np.array([max(left.get(name, 0), 0) for name in candidates.types], dtype=np.int64)
    return candidates.fitting(by_type).astype(np.float64)
