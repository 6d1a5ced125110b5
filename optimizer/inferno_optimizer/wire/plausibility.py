"""Compares what another optimizer gives, and whom it leaves out, with our own sizing.

An optimizer leaves out a server if there are not enough cards for it, and gives it fewer replicas
than it needs if a saturation policy shares out what is left. It also gives too little if it mixes
up requests, exceeds a time limit or does not read the performance data; a server must not be
scaled down in these cases. `Sizes` tell them apart.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple, Self

import numpy as np
import numpy.typing as npt

from inferno_optimizer.decisions import decide_rows, size_servers
from inferno_optimizer.sizing.candidates import Candidates
from inferno_optimizer.sizing.cases import Catalogue
from inferno_optimizer.sizing.queueing import FloatArray
from inferno_optimizer.solution import Decision, Reason, Solution
from inferno_optimizer.system import Allocation, SaturationPolicy, Server, System

BoolArray = npt.NDArray[np.bool_]

BATCHES = 2
"""How many times as large as ours, or as small, the batch of another optimizer may be."""

ROUNDING = 0.01
"""Relative error of a load in the sizing of optimizers that compute with 32 bits."""


class RowReplicas(NamedTuple):
    """A row of the candidates, and replicas of it."""

    row: int
    replicas: int


@dataclass(frozen=True)
class Sizes:
    """What each server of a system takes on each accelerator, by our own sizing.

    `is_ours` tells that the optimizer is one of Inferno, which knows all fields; the sizing for
    others leaves out those that they ignore.
    """

    system: System
    candidates: Candidates
    is_ours: bool

    @classmethod
    def of(cls, system: System, *, is_ours: bool) -> Self:
        """Size all servers of a system."""
        system = system.with_least_replicas()
        understood = system if is_ours else _drop_fields_of_ours(system)
        candidates, _ = size_servers(Catalogue(understood), understood.servers)
        return cls(system, candidates, is_ours)

    @cached_property
    def _rows(self) -> Mapping[str, Mapping[int, int]]:
        """Rows by server and place; servers that cannot be sized have none."""
        pairs = self.candidates.pairs
        names = [case.server.name for case in self.candidates.cases]
        rows: dict[str, dict[int, int]] = {name: {} for name in names}
        keys = zip(pairs.case.tolist(), pairs.accelerator.tolist(), strict=True)
        for row, (case, place) in enumerate(keys):
            rows[names[case]][place] = row
        return rows

    def parts(self, server: str, allocation: Allocation) -> list[RowReplicas]:
        """The replicas of an allocation by row."""
        rows, catalogue = self._rows.get(server, {}), Catalogue(self.candidates.system)
        parts = allocation.mix or (allocation,)
        placed = ((rows.get(catalogue.place(part)), part) for part in parts)
        return [
            RowReplicas(row, self.candidates.replicas_of(row, part))
            for row, part in placed
            if row is not None
        ]

    def has_demand(self, server: str) -> bool:
        """Whether a server has a load, or a minimum to provide for."""
        demand = self.candidates.pairs.demand
        return any(demand[row] for row in self._rows.get(server, {}).values())

    def share(self, server: str, allocation: Allocation) -> float:
        """Share of the demand that an allocation carries within the targets; 1 without demand."""
        rate, demand = self.candidates.sizing.max_rate, self.candidates.pairs.demand
        if not self.has_demand(server):
            return 1.0
        parts = self.parts(server, allocation)
        return float(sum(part.replicas * rate[part.row] / demand[part.row] for part in parts))

    def suffices(self, server: Server, allocation: Allocation) -> bool:
        """Whether an allocation carries the demand of a server, and has its minimum of replicas."""
        enough = allocation.replicas >= server.min_replicas
        return enough and self.share(server.name, allocation) >= 1 - ROUNDING


def describe_data(server: Server, catalogue: Catalogue) -> str:
    """The performance data of a server's model with their generation, as words of a message."""
    profiles = (catalogue.system.profiles[i] for i in catalogue.profiles[server.model])
    generations = sorted({int(profile.parameters.generation) for profile in profiles})
    return f"performance data of generation {' and '.join(map(str, generations))}"


def _drop_fields_of_ours(system: System) -> System:
    """The system without percentiles of targets, because other optimizers ignore them.

    They ignore the bounds of a replica's memory as well.
    """
    profiles = tuple(replace(p, max_tokens=0, max_sequences=0) for p in system.profiles)
    without = {"wait_percentile": 0.0, "ttft_percentile": 0.0, "itl_percentile": 0.0}
    classes = (
        replace(c, targets={m: replace(target, **without) for m, target in c.targets.items()})
        for c in system.classes
    )
    return replace(system, profiles=profiles, classes=tuple(classes))


def mark_best_effort(solution: Solution, sizes: Sizes) -> Solution:
    """Mark the allocations that carry less than the load for want of cards.

    A saturation policy gives a server fewer replicas than it needs only while the remaining cards
    do not suffice for one more. The latencies of such an allocation are predicted anew: the
    original gives those of the full number of replicas. The solution is that of an optimizer that
    gives no reasons; the sizes are those of the system that was sent to it.
    """
    options, candidates = sizes.system.options, sizes.candidates
    if options.unlimited or options.saturation_policy is SaturationPolicy.NONE:
        return solution
    has_room = _count_room(candidates, solution) >= 1
    servers = {server.name: server for server in sizes.system.servers}
    short: dict[str, Decision] = {}
    for decision in solution.decisions:
        allocation, server = decision.allocation, servers[decision.server]
        if allocation and allocation.replicas and not sizes.suffices(server, allocation):
            parts = sizes.parts(server.name, allocation)
            if len(parts) == 1 and not has_room[parts[0].row]:
                (predicted,) = decide_rows(candidates, [parts[0].row], [parts[0].replicas])
                short[server.name] = replace(predicted, warnings=decision.warnings)
    decisions = tuple(short.get(decision.server, decision) for decision in solution.decisions)
    return replace(solution, decisions=decisions)


def find_doubts(solution: Solution, sizes: Sizes) -> Iterator[str]:
    """Find servers to which another optimizer gives less than they need, without a lack of cards.

    Yields a message for each server that gets too few replicas or another batch, and then for each
    server without any and each accelerator whose remaining cards suffice, best first. The sizes
    are those of the system that was sent to the optimizer.
    """
    decided = {decision.server: decision for decision in solution.decisions}
    for server in sizes.system.servers:
        decision = decided[server.name]
        if decision.allocation is not None:
            yield from _find_too_few(server, decision, decision.allocation, sizes)
            yield from _find_other_batches(server, decision.allocation, sizes)
    if any(decision.reason is Reason.NO_CAPACITY for decision in solution.decisions):
        yield from _find_left_out(solution, sizes)


def _find_too_few(
    server: Server, decision: Decision, allocation: Allocation, sizes: Sizes
) -> Iterator[str]:
    """What an allocation lacks, unless it is best effort."""
    is_shared = sizes.system.options.saturation_policy is not SaturationPolicy.NONE
    is_best_effort = is_shared and decision.reason is Reason.BEST_EFFORT and allocation.replicas > 0
    if is_best_effort or sizes.suffices(server, allocation):
        return
    field = f"allocation of server {server.name!r}: numReplicas: {allocation.replicas}"
    if not allocation.replicas:
        data = describe_data(server, Catalogue(sizes.system))
        yield f"{field}, although it has a load or a minimum; does the optimizer read {data}?"
    elif allocation.replicas < server.min_replicas:
        yield f"{field}, although minNumReplicas is {server.min_replicas}"
    else:
        share = 100 * sizes.share(server.name, allocation)
        placement = Catalogue(sizes.system).placement(server.model, allocation)
        yield (f"{field}, although {placement} carry {share:.3g} % of its load within the targets")


def _find_other_batches(server: Server, allocation: Allocation, sizes: Sizes) -> Iterator[str]:
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
                    f" read {describe_data(server, Catalogue(sizes.system))}?"
                )


def _find_left_out(solution: Solution, sizes: Sizes) -> Iterator[str]:
    """Servers without an allocation for which there are cards."""
    candidates = sizes.candidates
    fits = _count_most_replicas(candidates) <= _count_room(candidates, solution)
    wronged = _find_expected_rows(candidates, is_ours=sizes.is_ours) & fits
    short = {d.server for d in solution.decisions if d.reason is Reason.NO_CAPACITY}
    nobody = not any(given.replicas for given in solution.allocations.values())
    for row in candidates.ranked().tolist():
        server = candidates.case_of(row).server
        if wronged[row] and server.name in short:
            data = describe_data(server, Catalogue(sizes.system)) if nobody else ""
            yield (
                f"it gives nothing to server {server.name!r}, although there are cards for"
                f" {candidates.replicas[row]} x {candidates.placement(row)}, which would serve it"
                + (f"; does the optimizer read {data}?" if data else "")
            )


def _find_expected_rows(candidates: Candidates, *, is_ours: bool) -> BoolArray:
    """Rows that an optimizer allocates if they fit into the capacity; shape (rows,).

    An answer may omit servers that need no replicas. The exact solver of the original also omits
    idle servers with a minimum of replicas.
    """
    options = candidates.system.options
    omits_idle = options.milp and not options.unlimited and not is_ours
    needs = candidates.pairs.demand if omits_idle else candidates.replicas
    return candidates.usable & (needs > 0)


def _count_most_replicas(candidates: Candidates) -> FloatArray:
    """Largest number of replicas that other optimizers may compute for a row; shape (rows,)."""
    rate = np.where(candidates.usable, candidates.sizing.max_rate, np.inf)
    needed: FloatArray = np.ceil(candidates.pairs.demand / rate * (1 + ROUNDING))
    return np.maximum(needed, candidates.replicas)


def _count_room(candidates: Candidates, solution: Solution) -> FloatArray:
    """Replicas of each row for which cards remain; infinite if unlimited; shape (rows,)."""
    if candidates.system.options.unlimited:
        return np.full(len(candidates.usable), np.inf)
    left = {use.type: use.usable - use.used for use in solution.capacity}
    by_type = np.array([max(left.get(name, 0), 0) for name in candidates.types], dtype=np.int64)
    return candidates.fitting(by_type).astype(np.float64)
