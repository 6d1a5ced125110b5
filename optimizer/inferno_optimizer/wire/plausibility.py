"""Whether another optimizer may have left out the servers that its answer does not speak of.

An optimizer that gives no reasons leaves out a server for which cards are short. It also does
so when it mixes up requests, misses a time limit or does not know the performance data; a
server must not be scaled down for that.
"""

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from inferno_optimizer.decisions import size_servers
from inferno_optimizer.sizing.candidates import Candidates
from inferno_optimizer.sizing.cases import Catalogue
from inferno_optimizer.sizing.queueing import FloatArray
from inferno_optimizer.system import Reason, ServiceClass, Solution, System, Target

BoolArray = npt.NDArray[np.bool_]

ROUNDING = 0.01
"""Share of the load by which sizing with numbers of 32 bits may differ."""


def find_doubts(solution: Solution, system: System) -> Iterator[str]:
    """Servers that have no capacity although what is left holds all the replicas they need.

    Parameters
    ----------
    solution
        The answer of an optimizer that gives no reasons.
    system
        What was asked.

    Yields
    ------
    A sentence for each server and accelerator, best first.
    """
    short = {d.server for d in solution.decisions if d.reason is Reason.NO_CAPACITY}
    servers = [server for server in system.servers if server.name in short]
    if not servers:
        return
    candidates, _ = size_servers(Catalogue(_without_percentiles(system)), servers)
    fits = _most_cards(candidates) <= _cards_left(candidates, solution)
    wronged = _expected(candidates) & fits
    for row in candidates.ranked().tolist():
        if wronged[row]:
            name = candidates.cases[int(candidates.pairs.case[row])].server.name
            accelerator = system.accelerators[int(candidates.pairs.accelerator[row])].name
            yield (
                f"it gives nothing to server {name!r}, although there are cards for"
                f" {candidates.replicas[row]} x {accelerator}, which would serve it"
            )


def _without_percentiles(system: System) -> System:
    """The system as others read it: they know no percentiles of targets."""
    return replace(system, classes=tuple(map(_class_without_percentiles, system.classes)))


def _class_without_percentiles(service_class: ServiceClass) -> ServiceClass:
    def plain(target: Target) -> Target:
        return replace(target, wait_percentile=0.0, ttft_percentile=0.0)

    return replace(
        service_class, targets={m: plain(target) for m, target in service_class.targets.items()}
    )


def _expected(candidates: Candidates) -> BoolArray:
    """Rows that an optimizer gives to a server if they fit; shape (rows,).

    What takes no replica need not be spoken of, and the original's exact solver leaves out
    idle servers even where they have a floor.
    """
    options = candidates.system.options
    exact = options.milp and not options.unlimited
    needs = candidates.pairs.demand if exact else candidates.replicas
    return candidates.usable & (needs > 0)


def _most_cards(candidates: Candidates) -> FloatArray:
    """Cards that a row takes at most in the arithmetic of others; shape (rows,)."""
    rate = np.where(candidates.usable, candidates.sizing.max_rate, np.inf)
    needed: FloatArray = np.ceil(candidates.pairs.demand / rate * (1 + ROUNDING))
    return np.maximum(needed, candidates.replicas) * candidates.pairs.cards


def _cards_left(candidates: Candidates, solution: Solution) -> FloatArray:
    """Cards that the solution leaves over for a row; shape (rows,)."""
    if candidates.system.options.unlimited:
        return np.full(len(candidates.usable), np.inf)
    left = {use.type: use.usable - use.used for use in solution.capacity}
    by_type = np.array([left.get(name, 0) for name in candidates.types], dtype=np.float64)
    return by_type[candidates.pairs.type]
