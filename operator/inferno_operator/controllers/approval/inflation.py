"""Who becomes far dearer by performance data that are not trusted, and is served as it is; pure.

A Model that says all at once that a replica carries far less is wrong as often as one that says
that it carries far more. Its Servers would get many times their replicas, and take the cards of
less important ones. See `doubt`; of a Model that was made anew while no operator ran, the last
decision tells what a replica carried, see `speedup`.
"""

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from inferno_operator.controllers.approval.contents import StoredDecision, cost_of
from inferno_operator.controllers.approval.reduction import load_of, standing
from inferno_operator.controllers.approval.speedup import slowdown
from inferno_operator.controllers.optimization.doubt import SLOWER, Doubts, trusting
from inferno_operator.controllers.optimization.placements import placements
from inferno_operator.controllers.optimization.profiles import Place
from inferno_operator.controllers.optimization.replica_rates import (
    carried,
    replica_rates,
)
from inferno_operator.resources import MAX_EMPTIED, Server, ServerAllocation
from inferno_operator.resources.measurement import misses_targets
from inferno_optimizer.sizing.cases import Catalogue
from inferno_optimizer.system import Role, System

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

    def is_inflated(self, has: float) -> bool:
        """Whether what was decided before carries the load, or nearly, and costs far less.

        `has` is what it carries [requests/min].
        """
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
    served = {
        s.metadata.name: s
        for s in servers
        if s.is_actuated and not misses_targets(s.status.measured)
    }
    changes = dict(_changes(decisions, served, catalogue))
    system = catalogue.system
    found = {*_by_doubts(changes, system, in_doubt), *_by_decisions(changes, system)}
    return tuple(sorted(found)[:MAX_EMPTIED])


def _by_doubts(changes: Mapping[str, _Change], system: System, in_doubt: Doubts) -> Iterator[str]:
    """Yield who becomes far dearer than by the data that were trusted before."""
    slower = {place for place, doubt in in_doubt.items() if not doubt.carries_more}
    if not slower:
        return
    slowed = {n: change for n, change in changes.items() if not slower.isdisjoint(change.places)}
    names = {change.server.spec.name for change in slowed.values()}
    cards = {place[1] for change in slowed.values() for place in change.places}
    rates = replica_rates(trusting(system, in_doubt), names, cards)
    for name, change in slowed.items():
        has = carried(change.before, change.server.spec.name, rates)
        if change.is_inflated(has):
            yield name


def _by_decisions(changes: Mapping[str, _Change], system: System) -> Iterator[str]:
    """Yield who becomes far dearer, and is far slower than its last decision says.

    The decision carries its own load.
    """
    for name, change in changes.items():
        decided = change.server.spec.desired_alloc
        has = decided.load.arrival_rate if decided is not None and decided.load else 0.0
        if has > 0 and change.is_inflated(has) and slowdown(change.server, system) > SLOWER:
            yield name


def _changes(
    decisions: Iterable[StoredDecision], servers: Mapping[str, Server], catalogue: Catalogue
) -> Iterator[tuple[str, _Change]]:
    """Yield the decisions for Servers that run, by name."""
    for decision in decisions:
        server = servers.get(decision.server)
        before = standing(server, catalogue) if server else None
        if server is not None and before is not None:
            yield decision.server, _Change(server, before, decision.after)
