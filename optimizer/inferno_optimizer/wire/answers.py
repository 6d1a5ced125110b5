"""Checks the answer of another optimizer and turns it into a Solution.

If the answer does not fit the system, the whole answer is rejected, so that no part of a wrong
plan is used.
"""

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType

from inferno_optimizer.capacity import capacity_use, cards_in_use
from inferno_optimizer.caveats import warned
from inferno_optimizer.decisions import size_servers
from inferno_optimizer.errors import InputError
from inferno_optimizer.sizing.cases import Catalogue
from inferno_optimizer.system import (
    IDLE,
    Allocation,
    CapacityUse,
    Certificate,
    Decision,
    MarginalValue,
    Reason,
    Server,
    Solution,
    Status,
    System,
)

SAME_LOAD = 1e-4
"""Relative difference of loads that may result from rounding."""


@dataclass(frozen=True, slots=True)
class Answer:
    """The answer of another optimizer, before it is checked.

    `given` are decisions with an allocation, `refused` decisions without one. If the optimizer
    gives no reasons, `refused` is empty and there is no certificate. `marginal` is the value of
    one more card by type.
    """

    given: tuple[Decision, ...]
    refused: tuple[Decision, ...] = ()
    certificate: Certificate | None = None
    marginal: Mapping[str, MarginalValue] = field(default_factory=lambda: MappingProxyType({}))


def solution_of(answer: Answer, system: System) -> Solution:
    """The solution for a system from an answer.

    A server that is missing from the answer gets the reason NoCapacity, unless it needs no
    replicas, cannot be sized or cannot attain its targets. `plausibility` checks whether enough
    cards were left for such a server.

    Raises
    ------
    InputError
        The answer does not fit the system; the message says why.
    """
    catalogue = Catalogue(system)
    decided = {d.server: d for d in (*answer.refused, *answer.given)}
    _refuse(_contradictions(answer, catalogue, decided))
    silent = [server for server in system.servers if server.name not in decided]
    decided |= {decision.server: decision for decision in _unexplained(catalogue, silent)}
    told = (_in_our_words(decided[server.name], server) for server in system.servers)
    decisions = warned(catalogue, told)
    capacity = _capacity(catalogue, decisions, answer.marginal)
    if not system.options.unlimited:
        _refuse(_excess(capacity))
    unproven = Certificate("unknown", Status.FEASIBLE, _cost(decisions), None, 0.0)
    return Solution(decisions, answer.certificate or unproven, capacity)


def _refuse(contradictions: Iterator[str]) -> None:
    for contradiction in contradictions:
        raise InputError(contradiction)


def _contradictions(
    answer: Answer, catalogue: Catalogue, decided: Mapping[str, Decision]
) -> Iterator[str]:
    servers = {server.name: server for server in catalogue.system.servers}
    for name in sorted(decided.keys() - servers.keys()):
        yield f"there is a decision for server {name!r}, which it was not asked about"
    counts = Counter(decision.server for decision in (*answer.refused, *answer.given))
    for name, count in counts.items():
        if count > 1:
            yield f"server {name!r} is both served and unserved"
    usable = {(p.model, p.accelerator) for p in catalogue.system.profiles}
    for decision in answer.given:
        allocation = decision.allocation or Allocation()
        server = servers[decision.server]
        for problem in _misfits(server, allocation, usable):
            yield f"allocation of server {server.name!r}: {problem}"


def _misfits(server: Server, allocation: Allocation, usable: set[tuple[str, str]]) -> Iterator[str]:
    numbers = {
        "numReplicas": allocation.replicas,
        "maxBatch": allocation.max_batch_size,
        "cost": allocation.cost,
        "itlAverage": allocation.itl_ms,
        "waitAverage": allocation.wait_ms,
        "ttftAverage": allocation.ttft_ms,
    }
    for name, number in numbers.items():
        if number < 0:
            yield f"{name}: {number:g} is negative"
    runs_on = {part.accelerator for part in server.current.parts}
    for part in allocation.parts:  # what runs may stay where it is
        known = (server.model, part.accelerator) in usable or part.accelerator in runs_on
        if part.replicas and not known:
            yield f"model {server.model!r} has no performance data for {part.accelerator!r}"
    told, asked = allocation.load.arrival_rate, server.load.arrival_rate
    if told and not math.isclose(told, asked, rel_tol=SAME_LOAD):
        yield f"it is for {told:g} requests/min, not the {asked:g} that were asked for"


def _in_our_words(decision: Decision, server: Server) -> Decision:
    """The decision with the load of the server, and with a message if it has none."""
    allocation = decision.allocation
    if allocation is None:
        return decision
    placement = allocation.placement if allocation.replicas else IDLE
    message = decision.message or placement
    return replace(decision, message=message, allocation=replace(allocation, load=server.load))


def _unexplained(catalogue: Catalogue, servers: Iterable[Server]) -> Iterator[Decision]:
    """Decisions for servers that are missing from the answer."""
    candidates, undecided = size_servers(catalogue, servers)
    for case in candidates.cases:
        yield _without_words(case.server)
    yield from undecided  # servers that cannot be sized or cannot attain their targets


def _without_words(server: Server) -> Decision:
    """The decision for a server that can be sized but is missing from the answer."""
    if server.load.idle and server.min_replicas == 0:
        return Decision(server.name, Reason.ALLOCATED, "", Allocation())
    message = "the optimizer found no allocation for it; add capacity or lower the load"
    return Decision(server.name, Reason.NO_CAPACITY, message)


def _capacity(
    catalogue: Catalogue, decisions: Sequence[Decision], marginal: Mapping[str, MarginalValue]
) -> tuple[CapacityUse, ...]:
    models = {server.name: server.model for server in catalogue.system.servers}
    used: Counter[str] = Counter()
    for decision in decisions:
        if decision.allocation is not None:
            used.update(cards_in_use(catalogue, models[decision.server], decision.allocation))
    return capacity_use(catalogue, decisions, used, marginal)


def _excess(capacity: Iterable[CapacityUse]) -> Iterator[str]:
    for use in capacity:
        if use.used > use.usable:
            yield f"it uses {use.used} cards of type {use.type!r}, where there are {use.usable}"


def _cost(decisions: Iterable[Decision]) -> float:
    return sum(d.allocation.cost for d in decisions if d.allocation is not None)
