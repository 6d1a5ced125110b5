"""A Plan in numbers: from its decisions and the objects as they are now; pure.

Only Servers whose replicas follow from decisions have something to lose: those with workloads or a
ModelBooster, and those whose decisions are published. Load that a Server loses because a more
important one gets cards of its type does not count: priorities ask for that.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from inferno_operator.controllers.actuation.decision import UNDECIDED
from inferno_operator.controllers.approval.contents import StoredDecision, cost_of
from inferno_operator.controllers.optimization.allocations import priced_current
from inferno_operator.controllers.optimization.placements import (
    cards_of,
    cards_of_placements,
    is_whole,
    placements,
    replicas,
)
from inferno_operator.resources import (
    DIGITS,
    MAX_EMPTIED,
    Count,
    Placement,
    PlanTotals,
    Reduction,
    Resource,
    Server,
    ServerAllocation,
)
from inferno_operator.resources.conditions import ALLOCATED
from inferno_optimizer.sizing.cases import Catalogue
from inferno_optimizer.solution import Reason


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
        reduction=_reduction_of(decisions, servers, catalogue),
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


def standing(server: Server, catalogue: Catalogue) -> ServerAllocation | None:
    """Return what was decided before, or what runs if nothing was.

    A decision that was cleared because none was possible left what runs as it is.
    """
    desired, allocated = server.spec.desired_alloc, server.status.condition(ALLOCATED)
    is_cleared = not placements(desired) and allocated is not None and allocated.reason in UNDECIDED
    if desired is None or is_cleared:
        return priced_current(server, catalogue)
    return desired


def priority_of(server: Server, catalogue: Catalogue) -> int:
    """Return the priority of the class of a Server; 1 is the most important."""
    return catalogue.priority(server.spec.service_class)


def _holds(server: Server, catalogue: Catalogue) -> ServerAllocation | None:
    """Return what an optimization leaves to a Server: what runs, if none can be decided."""
    allocated = server.status.condition(ALLOCATED)
    if allocated is None or allocated.reason not in UNDECIDED:
        return standing(server, catalogue)
    return server.spec.current_alloc if catalogue.system.options.hold_undecided else None


@dataclass(frozen=True, slots=True)
class _Change:
    """A decision for a Server that is in service, and the replicas that run and that will."""

    server: Server
    decision: StoredDecision
    before: Sequence[Placement]
    after: Sequence[Placement]

    @property
    def taken(self) -> int:
        """How many replicas go; none where others come: those that serve stay until these do."""
        now, then = replicas(self.before), replicas(self.after)
        if self.after and any(n > now.get(place, 0) for place, n in then.items()):
            return 0
        return max(_count(self.before) - _count(self.after), 0)

    @property
    def load_lost(self) -> float:
        """The load that is not served then [requests/min]."""
        if not is_whole(self.after):
            return _load_of(self.server)
        if self.decision.allocated.reason == Reason.ALLOCATED:
            return 0.0
        return _load_of(self.server) * self.taken / _count(self.before)


def _reduction_of(
    decisions: Sequence[StoredDecision], servers: Sequence[Server], catalogue: Catalogue
) -> Reduction | None:
    """Return what decisions take away; None if no Server is in service."""
    by_name = {server.metadata.name: server for server in servers}
    running = {s.metadata.name: _running(s, catalogue) for s in servers if s.is_actuated}
    if not running:
        return None
    changes = [
        _Change(by_name[d.server], d, before, placements(d.after))
        for d in decisions
        if (before := running.get(d.server))
    ]
    gained = _gained(decisions, by_name, catalogue)
    losses = [c for c in changes if c.load_lost > 0 and not _is_displaced(c, gained, catalogue)]
    return Reduction(
        replicas=sum(map(_count, running.values())),
        replicas_taken=sum(change.taken for change in changes),
        load=round(sum(_load_of(by_name[n]) for n, placed in running.items() if placed), DIGITS),
        load_lost=round(sum(change.load_lost for change in losses), DIGITS),
        emptied=_emptied(losses),
    )


def _running(server: Server, catalogue: Catalogue) -> Sequence[Placement]:
    """Return the replicas that run; where the operator does not see them, those decided before."""
    runs = server.spec.current_alloc if server.names_workloads else standing(server, catalogue)
    return placements(runs)


def _emptied(losses: Iterable[_Change]) -> tuple[str, ...]:
    """Return the Servers with load that nothing serves then, as many as a Plan names.

    A role alone serves nothing: the last replica of prefill is as needed as that of decode.
    """
    emptied = sorted(change.decision.server for change in losses if not is_whole(change.after))
    return tuple(emptied[:MAX_EMPTIED])


def _load_of(server: Server) -> float:
    """Return the load of a Server [requests/min]."""
    current = server.spec.current_alloc
    return max(current.load.arrival_rate, 0.0) if current and current.load else 0.0


def _count(placed: Iterable[Placement]) -> int:
    return sum(placement.replicas for placement in placed)


def _gained(
    decisions: Iterable[StoredDecision], servers: Mapping[str, Server], catalogue: Catalogue
) -> Mapping[str, int]:
    """Return the most important priority that gets more cards, by type of card."""
    gained: dict[str, int] = {}
    for decision in decisions:
        server = servers.get(decision.server)
        if server is None:
            continue
        before, after = (
            cards_of_placements(placed, server, catalogue)
            for placed in (decision.before, placements(decision.after))
        )
        for card in after:
            if after[card] > before.get(card, 0):
                priority = priority_of(server, catalogue)
                gained[card] = min(gained.get(card, priority), priority)
    return gained


def _is_displaced(change: _Change, gained: Mapping[str, int], catalogue: Catalogue) -> bool:
    """Whether a more important Server gets cards of a type that a Server runs on."""
    priority = priority_of(change.server, catalogue)
    cards = cards_of_placements(change.before, change.server, catalogue)
    return any(gained.get(card, priority) < priority for card in cards)
