"""Checks whether it is plausible that another optimizer left servers out of its answer.

An optimizer that gives no reasons leaves out a server if there are not enough cards for it. It
also leaves out servers if it mixes up requests, exceeds a time limit or does not support the
performance data; a server must not be scaled down in these cases.
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
"""Relative error of a load in the sizing of optimizers that compute with 32 bits."""


def find_doubts(solution: Solution, system: System) -> Iterator[str]:
    """Find servers without an allocation although the remaining cards suffice for them.

    Parameters
    ----------
    solution
        The solution of an optimizer that gives no reasons.
    system
        The system that was sent to the optimizer.

    Yields
    ------
    A message for each server and accelerator, best first.
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
    """The system without percentiles of targets, because other optimizers ignore them."""
    return replace(system, classes=tuple(map(_class_without_percentiles, system.classes)))


def _class_without_percentiles(service_class: ServiceClass) -> ServiceClass:
    def plain(target: Target) -> Target:
        return replace(target, wait_percentile=0.0, ttft_percentile=0.0)

    return replace(
        service_class, targets={m: plain(target) for m, target in service_class.targets.items()}
    )


def _expected(candidates: Candidates) -> BoolArray:
    """Rows that an optimizer allocates if they fit into the capacity; shape (rows,).

    An answer may omit servers that need no replicas. The exact solver of the original also omits
    idle servers with a minimum of replicas.
    """
    options = candidates.system.options
    exact = options.milp and not options.unlimited
    needs = candidates.pairs.demand if exact else candidates.replicas
    return candidates.usable & (needs > 0)


def _most_cards(candidates: Candidates) -> FloatArray:
    """Largest number of cards that other optimizers may compute for a row; shape (rows,)."""
    rate = np.where(candidates.usable, candidates.sizing.max_rate, np.inf)
    needed: FloatArray = np.ceil(candidates.pairs.demand / rate * (1 + ROUNDING))
    return np.maximum(needed, candidates.replicas) * candidates.pairs.cards


def _cards_left(candidates: Candidates, solution: Solution) -> FloatArray:
    """Remaining cards of the type of each row; infinite if unlimited; shape (rows,)."""
    if candidates.system.options.unlimited:
        return np.full(len(candidates.usable), np.inf)
    left = {use.type: use.usable - use.used for use in solution.capacity}
    by_type = np.array([left.get(name, 0) for name in candidates.types], dtype=np.float64)
    return by_type[candidates.pairs.type]
