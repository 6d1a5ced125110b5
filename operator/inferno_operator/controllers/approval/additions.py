"""What a plan only adds: it does not wait because of what the plan takes away; pure."""

from collections import Counter
from collections.abc import Iterable, Mapping
from datetime import datetime

from inferno_operator.controllers.approval.contents import StoredDecision
from inferno_operator.controllers.approval.guard import hold_of
from inferno_operator.controllers.approval.proposal import Proposal
from inferno_operator.controllers.approval.totals import priority_of, standing, totals_of
from inferno_operator.controllers.optimization.permission import Optimization
from inferno_operator.controllers.optimization.placements import cards_of, placements, replicas
from inferno_operator.resources import Server
from inferno_operator.resources.observation import readable, still_running
from inferno_optimizer.sizing.cases import Catalogue


def additions(optimization: Optimization, proposal: Proposal, now: datetime) -> frozenset[str]:
    """Return the Servers that only get replicas, on cards that nobody has to give up for them.

    They are none if they are beyond the guard by themselves, or if every plan waits.

    Parameters
    ----------
    optimization, proposal
        What was decided, and its changes.
    now
        The time of day.
    """
    catalogue = Catalogue(optimization.snapshot.system)
    resources = readable(optimization.observations)
    servers = {r.metadata.name: r for r in resources if isinstance(r, Server)}
    adding = [d for d in proposal.decisions if _only_adds(d)]
    adding.sort(key=lambda d: (priority_of(servers[d.server], catalogue), d.server))
    if not optimization.optimizer.spec.data.optimizer.unlimited:
        unreadable = still_running(optimization.observations)
        free = _free_cards([*servers.values(), *unreadable], catalogue)
        adding = _fitting(adding, servers, catalogue, free)
    totals = totals_of(adding, resources, catalogue, ())
    if not adding or hold_of(optimization.optimizer, totals, now) is not None:
        return frozenset()
    return frozenset(decision.server for decision in adding)


def _only_adds(decision: StoredDecision) -> bool:
    """Whether no replica is taken away on any accelerator."""
    after = replicas(placements(decision.after))
    return all(after.get(name, 0) >= n for name, n in replicas(decision.before).items())


def _free_cards(servers: Iterable[Server], catalogue: Catalogue) -> Counter[str]:
    """Return the cards by type that are left beside all that stands."""
    free = Counter(catalogue.system.capacity)
    for server in servers:
        free.subtract(cards_of(standing(server, catalogue), server, catalogue))
    return free


def _fitting(
    adding: Iterable[StoredDecision],
    servers: Mapping[str, Server],
    catalogue: Catalogue,
    free: Counter[str],
) -> list[StoredDecision]:
    """Return the decisions, in their order, that fit into the free cards, which become fewer."""
    fitting = []
    for decision in adding:
        server = servers[decision.server]
        more = cards_of(decision.after, server, catalogue)
        more.subtract(cards_of(standing(server, catalogue), server, catalogue))
        if all(count <= 0 or count <= free[card] for card, count in more.items()):
            free.subtract(more)
            fitting.append(decision)
    return fitting
