"""Who becomes far dearer by performance data that are not trusted, and is served as it is; pure.

A Model that says all at once that a replica carries far less is wrong as often as one that says
that it carries far more. Its Servers would get many times their replicas, and take the cards of
less important ones. See `doubt`.
"""

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from inferno_operator.controllers.approval.contents import StoredDecision, cost_of
from inferno_operator.controllers.approval.reduction import follows, load_of, standing
from inferno_operator.controllers.optimization.doubt import Doubts, trusting
from inferno_operator.controllers.optimization.placements import placements
from inferno_operator.controllers.optimization.profiles import Place
from inferno_operator.controllers.optimization.replica_rates import (
    ReplicaRates,
    carried,
    replica_rates,
)
from inferno_operator.resources import MAX_EMPTIED, Server, ServerAllocation
from inferno_operator.resources.measurement import misses_targets
from inferno_optimizer.sizing.cases import Catalogue
from inferno_optimizer.system import Role

DEARER = 2.0
"""How many times as much as it has to a Server may cost, by the data that are trusted."""


@dataclass(frozen=True, slots=True)
class _Change:
    """A decision for a Server, and what was decided before."""

    server: Server
    before: ServerAllocation
    after: ServerAllocation

    @property
    def places(self) -> Iterator[Place]:
        """The model, with all places where it has replicas or gets some."""
        for whole in (self.before, self.after):
            for placed in placements(whole):
                yield self.server.spec.model, placed.accelerator, Role(placed.role)

    def is_inflated(self, rates: ReplicaRates) -> bool:
        """Whether what was decided before carries the load, or nearly, and costs far less."""
        has = carried(self.before, self.server.spec.name, rates)
        more = max(load_of(self.server) / has, 1.0) if has > 0 else math.inf
        return cost_of(self.after) > DEARER * more * cost_of(self.before)


def inflated(
    decisions: Iterable[StoredDecision],
    servers: Iterable[Server],
    catalogue: Catalogue,
    in_doubt: Doubts,
) -> tuple[str, ...]:
    """Return the Servers that become far dearer by data in doubt, as many as a Plan names.

    A Server that misses a target now is none of them: what runs may really be slow.

    Parameters
    ----------
    decisions, catalogue
        Those of a Plan, and the system that was optimized.
    servers
        All Servers of the namespace, as they are now.
    in_doubt
        The profiles of the system that are not trusted.
    """
    slower = {place for place, doubt in in_doubt.items() if not doubt.carries_more}
    if not slower:
        return ()
    served = {
        s.metadata.name: s for s in servers if follows(s) and not misses_targets(s.status.measured)
    }
    changes = {
        name: change
        for name, change in _changes(decisions, served, catalogue)
        if not slower.isdisjoint(change.places)
    }
    names = {change.server.spec.name for change in changes.values()}
    cards = {place[1] for change in changes.values() for place in change.places}
    rates = replica_rates(trusting(catalogue.system, in_doubt), names, cards)
    found = sorted(name for name, change in changes.items() if change.is_inflated(rates))
    return tuple(found[:MAX_EMPTIED])


def _changes(
    decisions: Iterable[StoredDecision], servers: Mapping[str, Server], catalogue: Catalogue
) -> Iterator[tuple[str, _Change]]:
    """Yield the decisions for Servers that run, by name."""
    for decision in decisions:
        server = servers.get(decision.server)
        before = standing(server, catalogue) if server else None
        if server is not None and before is not None:
            yield decision.server, _Change(server, before, decision.after)
