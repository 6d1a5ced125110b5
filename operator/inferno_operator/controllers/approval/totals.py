"""A Plan in numbers: from its decisions and the objects as they are now; pure."""

from collections.abc import Iterable, Sequence

from inferno_operator.controllers.approval.contents import StoredDecision, cost_of
from inferno_operator.controllers.approval.reduction import reduction_of, standing
from inferno_operator.resources import DIGITS, Count, PlanTotals, Resource, Server
from inferno_optimizer.sizing.cases import Catalogue


def totals_of(
    decisions: Sequence[StoredDecision],
    resources: Iterable[Resource],
    catalogue: Catalogue,
    cards: Iterable[Count],
) -> PlanTotals:
    """Return what decisions come to.

    Parameters
    ----------
    decisions
        Those of a Plan.
    resources
        All objects of the namespace, as they are now.
    catalogue
        The system of these objects.
    cards
        The cards that all Servers take then.
    """
    servers = [resource for resource in resources if isinstance(resource, Server)]
    costs = {s.metadata.name: cost_of(standing(s, catalogue)) for s in servers}
    before = sum(costs.values())
    change = sum(cost_of(d.after) - costs.get(d.server, d.cost_before) for d in decisions)
    return PlanTotals(
        servers=len(decisions),
        cost_before=round(before, DIGITS),
        cost_after=round(before + change, DIGITS),
        cards=tuple(cards),
        reduction=reduction_of(decisions, servers, catalogue),
    )
