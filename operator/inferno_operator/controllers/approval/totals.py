"""A Plan in numbers: from its decisions and the objects as they are now; pure."""

from collections import Counter
from collections.abc import Iterable, Sequence

from inferno_operator.controllers.actuation.decision import UNDECIDED
from inferno_operator.controllers.approval.contents import StoredDecision, cost_of
from inferno_operator.controllers.approval.inflation import inflated
from inferno_operator.controllers.approval.reduction import reduction_of, standing
from inferno_operator.controllers.optimization.placements import cards_of
from inferno_operator.controllers.optimization.snapshot import Snapshot
from inferno_operator.resources import (
    DIGITS,
    Count,
    PlanTotals,
    Resource,
    Server,
    ServerAllocation,
)
from inferno_operator.resources.conditions import ALLOCATED
from inferno_optimizer.sizing.cases import Catalogue


def totals_of(
    decisions: Sequence[StoredDecision],
    resources: Iterable[Resource],
    snapshot: Snapshot,
    cards: Iterable[Count],
) -> PlanTotals:
    """Return what decisions come to.

    Parameters
    ----------
    decisions
        Those of a Plan.
    resources
        All objects of the namespace, as they are now.
    snapshot
        The system of these objects.
    cards
        The cards that all Servers take then.
    """
    catalogue = Catalogue(snapshot.system)
    servers = [resource for resource in resources if isinstance(resource, Server)]
    costs = {s.metadata.name: cost_of(standing(s, catalogue)) for s in servers}
    before = sum(costs.values())
    change = sum(cost_of(d.after) - costs.get(d.server, d.cost_before) for d in decisions)
    return PlanTotals(
        servers=len(decisions),
        cost_before=round(before, DIGITS),
        cost_after=round(before + change, DIGITS),
        cards=tuple(cards),
        reduction=reduction_of(decisions, servers, catalogue, snapshot.in_doubt),
        inflated=inflated(decisions, servers, catalogue, snapshot.in_doubt),
    )


def cards_then(
    decisions: Sequence[StoredDecision], servers: Iterable[Server], catalogue: Catalogue
) -> Sequence[Count]:
    """Return the cards that all Servers take with decisions, of the types that these need more of.

    Other Servers may have got cards after the Plan was made, such as one that woke.

    Parameters
    ----------
    decisions
        Those of a Plan.
    servers
        All Servers of the namespace, as they are now.
    catalogue
        The system of these objects.
    """
    by_name = {decision.server: decision for decision in decisions}
    taken: Counter[str] = Counter()
    growing: set[str] = set()
    for server in servers:
        before = cards_of(_holds(server, catalogue), server, catalogue)
        decision = by_name.get(server.metadata.name)
        after = cards_of(decision.after, server, catalogue) if decision else before
        taken.update(after)
        growing |= {card for card, count in after.items() if count > before.get(card, 0)}
    return [Count(type=card, count=taken[card]) for card in sorted(growing)]


def _holds(server: Server, catalogue: Catalogue) -> ServerAllocation | None:
    """Return what an optimization leaves to a Server: what runs, if none can be decided."""
    allocated = server.status.condition(ALLOCATED)
    if allocated is None or allocated.reason not in UNDECIDED:
        return standing(server, catalogue)
    return server.spec.current_alloc if catalogue.system.options.hold_undecided else None
