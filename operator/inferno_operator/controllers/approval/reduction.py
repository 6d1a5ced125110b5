"""What a Plan takes away from Servers that are in service: replicas, and load; pure.

Only Servers whose replicas follow from decisions count: those with workloads or a ModelBooster, and
those whose decisions are published. Replicas on other cards are compared by what they carry within
the targets, where it is known: one faster card may replace several slower ones. Load that a Server
loses because a more important one gets cards of its type does not count: priorities ask for that.
Where a Model says all at once that replicas carry far more, what was known before counts, too: see
`doubt`.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from inferno_operator.controllers.actuation.decision import UNDECIDED
from inferno_operator.controllers.approval.contents import StoredDecision
from inferno_operator.controllers.approval.speedup import speedup
from inferno_operator.controllers.optimization.allocations import priced_current
from inferno_operator.controllers.optimization.doubt import FASTER, Doubts, trusting
from inferno_operator.controllers.optimization.placements import (
    cards_of_placements,
    is_whole,
    placements,
    replicas,
)
from inferno_operator.controllers.optimization.replica_rates import (
    ReplicaRates,
    carried,
    replica_rates,
)
from inferno_operator.resources import (
    DIGITS,
    MAX_EMPTIED,
    Placement,
    Reduction,
    Server,
    ServerAllocation,
)
from inferno_operator.resources.conditions import ALLOCATED
from inferno_optimizer.sizing.cases import Catalogue
from inferno_optimizer.solution import Reason
from inferno_optimizer.system import Role, System


@dataclass(frozen=True, slots=True)
class _Change:
    """A decision for a Server that is in service, and what runs there."""

    server: Server
    decision: StoredDecision
    runs: ServerAllocation | None

    @property
    def before(self) -> tuple[Placement, ...]:
        return placements(self.runs)

    @property
    def after(self) -> tuple[Placement, ...]:
        return placements(self.decision.after)

    @property
    def moves(self) -> bool:
        """Whether it goes on, on other accelerators or in other roles."""
        return bool(self.after) and replicas(self.after).keys() != replicas(self.before).keys()

    @property
    def loses(self) -> bool:
        """Whether replicas are taken away on some accelerator, or in some role."""
        after = replicas(self.after)
        return any(after.get(place, 0) < n for place, n in replicas(self.before).items())

    @property
    def loses_most(self) -> bool:
        """Whether it moves, or more than half of the replicas go; all of them are no doubt."""
        most = _count(self.before) > 2 * _count(self.after)
        return bool(self.after) and self.loses and (self.moves or most)

    @property
    def is_served(self) -> bool:
        """Whether the whole load is served."""
        return is_whole(self.after) and self.decision.allocated.reason == Reason.ALLOCATED


def standing(server: Server, catalogue: Catalogue) -> ServerAllocation | None:
    """Return what was decided before, or what runs if nothing was.

    A decision that was cleared because none was possible left what runs as it is.
    """
    desired, allocated = server.spec.desired_alloc, server.status.condition(ALLOCATED)
    is_cleared = not placements(desired) and allocated is not None and allocated.reason in UNDECIDED
    if desired is None or is_cleared:
        return priced_current(server, catalogue)
    return desired


def reduction_of(
    decisions: Sequence[StoredDecision],
    servers: Iterable[Server],
    catalogue: Catalogue,
    in_doubt: Doubts,
) -> Reduction | None:
    """Return what decisions take away; None if no Server is in service.

    Parameters
    ----------
    decisions, catalogue
        Those of a Plan, and the system that was optimized.
    servers
        All Servers of the namespace, as they are now.
    in_doubt
        The profiles of the system that are not trusted.
    """
    fleet = list(servers)
    running = {s.metadata.name: _running(s, catalogue) for s in fleet if s.is_actuated}
    if not running:
        return None
    by_name = {server.metadata.name: server for server in fleet}
    in_service = {name: whole for name, whole in running.items() if placements(whole)}
    changes = [
        _Change(by_name[d.server], d, in_service[d.server])
        for d in decisions
        if d.server in in_service
    ]
    rates = _rates([change for change in changes if change.moves], catalogue.system)
    gained = _gained(decisions, by_name, catalogue)
    losses = [c for c in changes if not c.is_served and not _is_displaced(c, gained, catalogue)]
    return Reduction(
        replicas=sum(_count(placements(whole)) for whole in in_service.values()),
        replicas_taken=round(sum(_taken(change, rates) for change in changes), DIGITS),
        load=round(sum(load_of(by_name[name]) for name in in_service), DIGITS),
        load_lost=round(sum(_lost(change, rates) for change in losses), DIGITS),
        emptied=_emptied(losses),
        doubted=_doubted(changes, catalogue.system, in_doubt),
    )


def _emptied(losses: Iterable[_Change]) -> tuple[str, ...]:
    """Return the Servers with load that nothing serves then, as many as a Plan names.

    A role alone serves nothing: the last replica of prefill is as needed as that of decode.
    """
    emptied = sorted(
        c.decision.server for c in losses if not is_whole(c.after) and load_of(c.server) > 0
    )
    return tuple(emptied[:MAX_EMPTIED])


def _running(server: Server, catalogue: Catalogue) -> ServerAllocation | None:
    """Return the replicas that run; where the operator does not see them, those decided before."""
    if server.names_workloads:
        return server.spec.current_alloc
    return standing(server, catalogue)


def load_of(server: Server) -> float:
    """Return the load of a Server [requests/min]."""
    current = server.spec.current_alloc
    return max(current.load.arrival_rate, 0.0) if current and current.load else 0.0


def _count(placed: Iterable[Placement]) -> int:
    return sum(placement.replicas for placement in placed)


def _taken(change: _Change, rates: ReplicaRates) -> float:
    """Return the replicas that a Server loses, in replicas of what runs."""
    return max(_count(change.before) - _worth(change, rates), 0.0)


def _lost(change: _Change, rates: ReplicaRates) -> float:
    """Return the load that a Server loses: as large a share as that of its replicas."""
    return load_of(change.server) * _taken(change, rates) / _count(change.before)


def _worth(change: _Change, rates: ReplicaRates) -> float:
    """Return how many replicas of what runs carry as much as those that are decided."""
    if not is_whole(change.after):
        return 0.0
    if not change.moves:
        return _count(change.before) * _share_left(change)
    name = change.server.spec.name
    carries_now, carries = (
        carried(whole, name, rates) for whole in (change.runs, change.decision.after)
    )
    places = (placed.place for placed in (*change.before, *change.after))
    if carries_now <= 0 or any((name, place) not in rates for place in places):
        return _count(change.after)
    return _count(change.before) * carries / carries_now


def _share_left(change: _Change) -> float:
    """Return the share that is left of what runs; of prefill and decode, that of the weaker one."""
    before, after = replicas(change.before), replicas(change.after)
    if all(Role(placed.role) is Role.BOTH for placed in change.before):
        return sum(after.values()) / sum(before.values())
    return min(after[place] / count for place, count in before.items())


def _rates(changes: Sequence[_Change], system: System) -> ReplicaRates:
    """Return what a replica carries, of Servers of changes on what they leave and get."""
    if not changes:
        return {}
    names = {change.server.spec.name for change in changes}
    cards = {p.accelerator for change in changes for p in (*change.before, *change.after)}
    return replica_rates(system, names, cards)


def _doubted(changes: Sequence[_Change], system: System, in_doubt: Doubts) -> tuple[str, ...]:
    """Return the Servers that lose replicas and, by what is trusted, are not served then."""
    losing = [c for c in changes if c.loses and _is_in_doubt(c, in_doubt)]
    unserved = {*_unserved(losing, trusting(system, in_doubt)), *_outpaced(changes, system)}
    return tuple(sorted(unserved)[:MAX_EMPTIED])


def _unserved(losing: Sequence[_Change], system: System) -> Iterator[str]:
    """Yield the Servers whose load is more than what is decided carries."""
    rates = _rates(losing, system)
    for change in losing:
        if carried(change.decision.after, change.server.spec.name, rates) < load_of(change.server):
            yield change.decision.server


def _outpaced(changes: Iterable[_Change], system: System) -> Iterator[str]:
    """Yield the Servers that lose most by data far faster than those of their last decision."""
    losing = [c for c in changes if c.loses_most]
    speeds = {c.decision.server: speedup(c.server, system) for c in losing}
    faster = [c for c in losing if speeds[c.decision.server] > FASTER]
    rates = _rates(faster, system)
    for change in faster:
        carries = carried(change.decision.after, change.server.spec.name, rates)
        if carries / speeds[change.decision.server] < load_of(change.server):
            yield change.decision.server


def _is_in_doubt(change: _Change, in_doubt: Doubts) -> bool:
    """Whether a Server goes on with replicas that may carry less than the new data say."""
    model = change.server.spec.model
    found = (in_doubt.get((model, p.accelerator, Role(p.role))) for p in change.after)
    return any(doubt is not None and doubt.carries_more for doubt in found)


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


def priority_of(server: Server, catalogue: Catalogue) -> int:
    """Return the priority of the class of a Server; 1 is the most important."""
    return catalogue.priority(server.spec.service_class)
