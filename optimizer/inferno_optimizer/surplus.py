"""Keeps replicas that a plan gives up, on cards that it leaves: nobody else gets less for them."""

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import replace

import numpy as np

from inferno_optimizer.decisions import decide_rows, size_servers
from inferno_optimizer.sizing.cases import Catalogue
from inferno_optimizer.sizing.moves import PENALTY_SHARE
from inferno_optimizer.sizing.queueing import IntArray
from inferno_optimizer.solution import Decision, Reason, Solution
from inferno_optimizer.system import Allocation, Server, System

LARGEST_CUT = 0.25
"""Share of the replicas that a plan takes at most; it may take one in any case."""

LEAST_PAYBACK_S = 60.0
"""Lead times are whole seconds, and a first pod that is ready at once says little of the next."""


def payback_s(lead_s: float) -> float:
    """Return the time in which a move to another accelerator pays for itself [s].

    For a lead time [s], a server that moves pays for what it leaves and for what it moves to. A
    plan has it move only if that saves more than `PENALTY_SHARE` of both costs.
    """
    return max(lead_s / PENALTY_SHARE, LEAST_PAYBACK_S)


def kept_replicas(
    present: int | IntArray, most: int | IntArray, largest_cut: float = LARGEST_CUT
) -> IntArray:
    """Return what remains of replicas where fewer are enough: reductions wait, and go step by step.

    Parameters
    ----------
    present
        The replicas that there are; one number, or an array of any shape.
    most
        The most that a plan of the last time wanted; of the same shape.
    largest_cut
        Share of the replicas that go at once.
    """
    cut = np.maximum(np.floor(np.multiply(present, largest_cut)), 1)
    kept = np.minimum(present, np.maximum(most, np.subtract(present, cut)))
    return np.asarray(kept).astype(np.int64)


def with_surplus(system: System, solution: Solution, fewest: Mapping[str, int]) -> Solution:
    """Give servers more replicas than their targets take, as far as cards are left.

    Parameters
    ----------
    system, solution
        What was solved, and the plan.
    fewest
        By server, the fewest replicas on the accelerator that the plan chose. They are for
        servers that the plan serves entirely on one accelerator; for others they do nothing.

    Returns
    -------
    Solution
        The plan with these replicas; the most important servers are the first to keep theirs.
        The certificate remains that of the plan without them.
    """
    wanted = {
        decision.server: decision.allocation
        for decision in solution.decisions
        if decision.reason is Reason.ALLOCATED
        and decision.allocation is not None
        and not (decision.allocation.mix or decision.allocation.roles)
        and 0 < decision.allocation.replicas < fewest.get(decision.server, 0)
    }
    if not wanted:
        return solution
    catalogue = Catalogue(system)
    left = {use.type: use.usable - use.used for use in solution.capacity}
    given = dict(_share_out(catalogue, left, wanted, fewest))
    if not given:
        return solution
    decisions = _sized(catalogue, wanted, given)
    taken = _cards(catalogue, wanted, given)
    return replace(
        solution,
        decisions=tuple(
            replace(decisions[d.server], warnings=d.warnings) if d.server in decisions else d
            for d in solution.decisions
        ),
        capacity=tuple(replace(u, used=u.used + taken[u.type]) for u in solution.capacity),
    )


def keep_roles(system: System, solution: Solution) -> Solution:
    """Let servers that must not lose replicas keep those of each role, as far as cards are left.

    Their `least_rate` is what both roles carry together. The role that carries more than the other
    would lose replicas, though nothing shows that fewer are enough. Latencies remain those of the
    plan, which are above what more replicas have.

    Parameters
    ----------
    system, solution
        What was solved, and the plan.

    Returns
    -------
    Solution
        The plan with these replicas; the most important servers are the first to keep theirs.
    """
    servers = [s for s in system.servers if s.least_rate > 0 and s.current.roles]
    if not servers:
        return solution
    catalogue, taken = Catalogue(system), Counter[str]()
    free = {use.type: use.usable - use.used for use in solution.capacity}
    decisions = {decision.server: decision for decision in solution.decisions}
    for server in sorted(servers, key=lambda s: _rank(catalogue, s)):
        decision = decisions.get(server.name)
        planned = decision.allocation if decision else None
        if decision is None or planned is None or planned.place != server.current.place:
            continue
        parts = []
        for part, runs in zip(planned.roles, server.current.roles, strict=True):
            unit = server.model, part.accelerator, part.role
            card_type, cards = catalogue.cards_per_replica(*unit)
            more = max(runs.replicas - part.replicas, 0)
            if not system.options.unlimited:
                left = free.get(card_type, 0) - taken[card_type]
                more = min(more, max(left, 0) // cards)
            taken[card_type] += more * cards
            cost = part.cost + more * catalogue.unit_cost(*unit)
            parts.append(replace(part, replicas=part.replicas + more, cost=cost))
        if tuple(parts) == planned.roles:
            continue
        kept = replace(
            planned,
            roles=tuple(parts),
            replicas=sum(part.replicas for part in parts),
            cost=sum(part.cost for part in parts),
        )
        needed = catalogue.placement(server.model, planned)
        decisions[server.name] = replace(
            decision,
            allocation=kept,
            message=f"{catalogue.placement(server.model, kept)} (needed now: {needed})",
        )
    return replace(
        solution,
        decisions=tuple(decisions.values()),
        capacity=tuple(replace(u, used=u.used + taken[u.type]) for u in solution.capacity),
    )


def _share_out(
    catalogue: Catalogue,
    left: Mapping[str, int],
    wanted: Mapping[str, Allocation],
    fewest: Mapping[str, int],
) -> Iterator[tuple[str, int]]:
    """Yield the replicas of each server that gets more than it wants."""
    free, unlimited = Counter(left), catalogue.system.options.unlimited
    for server in sorted(catalogue.system.servers, key=lambda s: _rank(catalogue, s)):
        if server.name not in wanted:
            continue
        allocation = wanted[server.name]
        card_type, cards = catalogue.cards_per_replica(server.model, allocation.accelerator)
        more = fewest[server.name] - allocation.replicas
        more = more if unlimited else min(more, max(free[card_type], 0) // cards)
        free[card_type] -= more * cards
        if more:
            yield server.name, allocation.replicas + more


def _rank(catalogue: Catalogue, server: Server) -> tuple[int, str]:
    return catalogue.priority(server.service_class), server.name


def _cards(
    catalogue: Catalogue, wanted: Mapping[str, Allocation], given: Mapping[str, int]
) -> Counter[str]:
    """Count the cards by type of the replicas that are kept."""
    taken: Counter[str] = Counter()
    for server in catalogue.system.servers:
        if server.name in given:
            allocation = wanted[server.name]
            card_type, cards = catalogue.cards_per_replica(server.model, allocation.accelerator)
            taken[card_type] += (given[server.name] - allocation.replicas) * cards
    return taken


def _sized(
    catalogue: Catalogue, wanted: Mapping[str, Allocation], given: Mapping[str, int]
) -> dict[str, Decision]:
    """Return the decisions for the servers that keep replicas, with their latencies then."""
    servers = [server for server in catalogue.system.servers if server.name in given]
    candidates, _ = size_servers(catalogue, servers)
    rows = {
        candidates.cases[case].server.name: row
        for row, case in enumerate(candidates.pairs.case.tolist())
        if candidates.placement(row) == wanted[candidates.cases[case].server.name].accelerator
    }
    models = {server.name: server.model for server in servers}
    counts = [given[name] for name in rows]
    decisions = decide_rows(candidates, list(rows.values()), counts)
    return {
        decision.server: replace(
            decision,
            reason=Reason.ALLOCATED,
            message=_message(catalogue, models[decision.server], decision, n),
        )
        for decision, n in zip(decisions, (wanted[name].replicas for name in rows), strict=True)
    }


def _message(catalogue: Catalogue, model: str, decision: Decision, needed: int) -> str:
    placement = catalogue.placement(model, decision.allocation or Allocation())
    return f"{placement} ({needed} needed now; the others are removed if this lasts)"
