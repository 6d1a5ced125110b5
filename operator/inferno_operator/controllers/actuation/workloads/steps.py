"""From the replicas of all servers, and the cards, to the next numbers of replicas; pure.

At any time, all pods that exist, and all that are written and do not exist yet, fit into the
cards; and the ready replicas of each server carry its present load, if they did so before. A
server that changes its accelerator first gets all new replicas, and loses the old ones when the
new ones are ready. Without room for that, it gives up one old replica at a time, as long as the
others carry its load. If servers wait for each other's cards, a server that can do without one
replica lends it.

Within a window no server loses more than a share of what serves, see `way_down`; but for a more
important server that waits for its cards.

Nothing is remembered: steps follow from what there is, so they continue after a restart.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from math import ceil
from operator import attrgetter
from types import MappingProxyType

from inferno_operator.controllers.actuation.workloads.fleet import (
    ReplicaSteps,
    ReplicaTarget,
    ServerProgress,
    ServerTargets,
    State,
    targets_of,
)

ServerAccelerator = tuple[str, str]
"""A server and an accelerator."""


def next_steps(
    servers: Sequence[ServerTargets],
    capacity: Mapping[str, int],
    waiting: Mapping[str, int] = MappingProxyType({}),
) -> ReplicaSteps:
    """Return the numbers of replicas to write next, and the progress of each server.

    Parameters
    ----------
    servers
        The servers, in any order.
    capacity
        Cards by type, without those that are used by anything but these servers.
    waiting
        The most important priority of other servers that lack cards, by type.
    """
    ordered = sorted(servers, key=attrgetter("rank"))
    draft = _Draft(ordered, capacity, waiting)
    draft.give_up_unscheduled()
    draft.reduce()
    short = draft.grow()
    draft.make_room(short)
    if not draft.replicas and not draft.in_flight:
        draft.lend(short)
    return ReplicaSteps(
        draft.replicas, {s.name: draft.progress(s) for s in ordered if s.is_writable}
    )


def goals(
    servers: Sequence[ServerTargets], capacity: Mapping[str, int]
) -> Mapping[ServerAccelerator, int]:
    """Return the replicas that each target may get at the end: all goals fit into the cards.

    What runs and is wanted stays; the rest of the cards goes to the servers in their order.
    """
    room = Counter(capacity)
    room.subtract(_occupied_by_others(servers))
    replicas: dict[ServerAccelerator, int] = {}
    writable = [server for server in servers if server.is_writable]
    for server, target in targets_of(writable):
        replicas[server.name, target.accelerator] = min(target.spec, target.wanted)
        room[target.card_type] -= min(target.spec, target.wanted) * target.cards
    for server, target in targets_of(writable):
        missing = max(target.wanted - target.spec, 0)
        added = min(missing, max(room[target.card_type], 0) // target.cards)
        replicas[server.name, target.accelerator] += added
        room[target.card_type] -= added * target.cards
    return replicas


def _occupied_by_others(servers: Sequence[ServerTargets]) -> Counter[str]:
    """Return the cards by type of servers that are not written, now or after their next change."""
    cards: Counter[str] = Counter()
    for server, target in targets_of(servers):
        if not server.is_writable:
            replicas = max(target.wanted, target.spec, target.live) + target.terminating
            cards[target.card_type] += replicas * target.cards
    return cards


class _Draft:
    """The numbers of replicas to write, as they are found.

    `replicas` has the numbers by server and accelerator; `in_flight` says whether pods of any
    server appear, start or end, and still make progress.
    """

    def __init__(
        self,
        servers: Sequence[ServerTargets],
        capacity: Mapping[str, int],
        waiting: Mapping[str, int],
    ) -> None:
        self._waiting = waiting
        self._slowed: set[ServerAccelerator] = set()
        """Targets whose replicas go step by step."""
        self._servers = [server for server in servers if server.is_writable]
        self._goals = goals(servers, capacity)
        self.replicas: dict[ServerAccelerator, int] = {}
        self._free = Counter(capacity)
        """Cards by type without a pod."""
        self._free.subtract(_occupied_by_others(servers))
        self._coming: Counter[str] = Counter()
        """Cards by type of pods that end."""
        self.in_flight = any(s.in_flight and not s.is_overdue for s in self._servers)
        for server, target in targets_of(self._servers):
            self._free[target.card_type] -= target.occupied
            if not server.is_overdue:
                self._coming[target.card_type] += target.leaving

    def give_up_unscheduled(self) -> None:
        """Remove replicas whose pods have found no node, before any that run."""
        for server, target in targets_of(self._servers):
            scheduled = target.live - target.unscheduled
            if not target.unscheduled or target.spec <= scheduled:
                continue
            is_enough = server.may_become({target.accelerator: scheduled})
            if is_enough or target.loses_nothing(scheduled):
                self._write(server, target, scheduled)

    def reduce(self) -> None:
        """Remove replicas that do not serve; and, if all new ones are ready, the old ones."""
        for server, target in targets_of(self._servers):
            if self._is_written(server, target) or not target.excess or not target.has_appeared:
                continue
            bound = target.wanted if server.has_arrived else max(target.wanted, target.ready)
            reduced = self._reduced(server)
            least = server.lowest(target, reduced, bound)
            fastest = server.lowest(target, reduced, bound, is_urgent=True)
            if fastest < least and (needed := self._needed_above(server, target.card_type)) > 0:
                urgent = max(target.spec - ceil(needed / target.cards), fastest)
                least = min(least, server.lowest(target, reduced, urgent, is_urgent=True))
            if fastest < least:
                self._slowed.add((server.name, target.accelerator))
                self.in_flight = True  # more go when the window is over
            if least < target.spec:
                self._write(server, target, least)

    def grow(self) -> list[tuple[ServerTargets, ReplicaTarget]]:
        """Add replicas on free cards; returns the targets that find none, in their order.

        Cards that become free soon are kept for the first server that waits for them.
        """
        short = []
        for server, target in self._growing():
            missing = self._missing(server, target)
            added = min(missing, max(self._free[target.card_type], 0) // target.cards)
            if added:
                self._write(server, target, target.spec + added)
                self._free[target.card_type] -= added * target.cards
            if added < missing and self._expects(target):
                self._coming[target.card_type] -= target.cards - self._free[target.card_type]
                self._free[target.card_type] = 0
            elif not added:
                short.append((server, target))
        return short

    def make_room(self, short: Sequence[tuple[ServerTargets, ReplicaTarget]]) -> None:
        """Remove one old replica of each server that finds no card for a new one.

        Only replicas on cards that a server waits for are removed, and only as many as needed.
        """
        needed = self._needed(short)
        for server in {server.name: server for server, _ in short}.values():
            if server.in_flight or any(self._is_written(server, t) for t in server.targets):
                continue
            for target in server.targets:
                reduced = {target.accelerator: target.spec - 1}
                if target.excess and needed[target.card_type] > 0 and server.may_become(reduced):
                    self._write(server, target, target.spec - 1)
                    needed[target.card_type] -= target.cards
                    break

    def lend(self, short: Sequence[tuple[ServerTargets, ReplicaTarget]]) -> None:
        """Remove replicas of servers that can do without, for the first server they suffice for.

        The server moves off other cards afterwards, so that the lenders get theirs back.
        """
        switching = [(server, target) for server, target in short if server.is_switching]
        able = {t: self._lenders(t) for t in {target.card_type for _, target in switching}}
        for server, target in switching:
            lenders = [
                (lending, lender)
                for lending, lender in able[target.card_type]
                if lending is not server and not _takes_back(lending, lender, server)
            ]
            missing = target.cards - self._free[target.card_type]
            if missing <= 0 or sum(lender.cards for _, lender in lenders) < missing:
                continue
            for lending, lender in lenders:
                self._write(lending, lender, lender.spec - 1)
                missing -= lender.cards
                if missing <= 0:
                    return

    def progress(self, server: ServerTargets) -> ServerProgress:
        """Return how far a server is."""
        missing: Counter[str] = Counter()
        for target in server.targets:
            lacking = target.wanted - self._replicas(server, target)
            if lacking > 0:
                missing[target.card_type] += lacking * target.cards
        slowed = {
            t.accelerator: (t.spec, self._replicas(server, t))
            for t in server.targets
            if (server.name, t.accelerator) in self._slowed
        }
        return ServerProgress(self._state(server, is_short=bool(missing)), missing, slowed)

    def _state(self, server: ServerTargets, *, is_short: bool) -> State:
        has_excess = any(target.excess for target in server.targets)
        is_active = server.in_flight or any(
            self._is_written(server, t) or (server.name, t.accelerator) in self._slowed
            for t in server.targets
        )
        if server.is_held or server.is_overdue or self._is_stuck(server, is_active=is_active):
            return State.BLOCKED
        if server.has_arrived and not is_short:
            return State.SHRINKING if has_excess or is_active else State.STEADY
        return State.MOVING if has_excess else State.GROWING

    def _is_stuck(self, server: ServerTargets, *, is_active: bool) -> bool:
        """Whether nothing that happens now brings the server nearer to what was decided."""
        is_done = server.has_arrived and not any(target.excess for target in server.targets)
        if is_active or is_done:
            return False
        beyond = any(self._goals[server.name, t.accelerator] < t.wanted for t in server.targets)
        return beyond or not (self.replicas or self.in_flight)

    def _growing(self) -> Iterator[tuple[ServerTargets, ReplicaTarget]]:
        """Return the targets below their goals, in the order in which they get cards.

        First come servers that do not carry their load, then those that free other cards.
        """
        order = sorted(self._servers, key=lambda s: _turn(s, is_switching=s.is_switching))
        for server, target in targets_of(order):
            if not server.is_held and self._missing(server, target) > 0:
                yield server, target

    def _missing(self, server: ServerTargets, target: ReplicaTarget) -> int:
        """Return the replicas that a target may get in addition to those that are written."""
        if self._is_written(server, target):
            return 0
        return self._goals[server.name, target.accelerator] - target.spec

    def _expects(self, target: ReplicaTarget) -> bool:
        """Whether cards for one more replica become free soon."""
        return self._free[target.card_type] + self._coming[target.card_type] >= target.cards

    def _needed(self, short: Sequence[tuple[ServerTargets, ReplicaTarget]]) -> Counter[str]:
        """Return the cards by type that are missing for one more replica of each target."""
        needed: Counter[str] = Counter()
        for _, target in short:
            needed[target.card_type] += target.cards
        for card_type in needed:
            needed[card_type] -= self._free[card_type] + self._coming[card_type]
        return needed

    def _needed_above(self, server: ServerTargets, card_type: str) -> int:
        """Return the cards of a type that more important servers lack and that nobody gives up."""
        needed = sum(
            max(target.wanted - target.spec, 0) * target.cards
            for other, target in targets_of(self._servers)
            if other.priority < server.priority and target.card_type == card_type
        )
        given_up = sum(
            max(target.spec - self._replicas(other, target), 0) * target.cards
            for other, target in targets_of(self._servers)
            if target.card_type == card_type
        )
        free = self._free[card_type]
        if self._waiting.get(card_type, server.priority) >= server.priority:
            free = max(free, 0)  # what is lacking there is for servers that are less important
        return needed - free - self._coming[card_type] - given_up

    def _lenders(self, card_type: str) -> Sequence[tuple[ServerTargets, ReplicaTarget]]:
        """Return a target of each server that can do without a replica, least loss first."""
        reducible = [
            (server, target)
            for server, target in targets_of(self._servers)
            if target.card_type == card_type
            and target.spec > 0
            and server.may_become({target.accelerator: target.spec - 1})
        ]
        distinct = {server.name: (server, target) for server, target in reversed(reducible)}
        return sorted(distinct.values(), key=lambda pair: (_loss(*pair), pair[0].rank))

    def _reduced(self, server: ServerTargets) -> Mapping[str, int]:
        """Return the numbers of a server that are written, by accelerator."""
        written = (target for target in server.targets if self._is_written(server, target))
        return {target.accelerator: self._replicas(server, target) for target in written}

    def _replicas(self, server: ServerTargets, target: ReplicaTarget) -> int:
        return self.replicas.get((server.name, target.accelerator), target.spec)

    def _is_written(self, server: ServerTargets, target: ReplicaTarget) -> bool:
        return (server.name, target.accelerator) in self.replicas

    def _write(self, server: ServerTargets, target: ReplicaTarget, replicas: int) -> None:
        self.replicas[server.name, target.accelerator] = replicas


def _turn(server: ServerTargets, *, is_switching: bool) -> tuple[bool, bool, tuple[int, str]]:
    """Return when it is a server's turn to get cards."""
    return server.carries_after({}), not is_switching, server.rank


def _takes_back(lending: ServerTargets, lender: ReplicaTarget, server: ServerTargets) -> bool:
    """Whether a server that lends a replica gets the card before the one that waits for it.

    Then the two would go on like that for ever.
    """
    if lender.excess:
        return False
    will_switch = any(target.excess for target in lending.targets)
    before = _turn(lending, is_switching=will_switch)
    return before < _turn(server, is_switching=server.is_switching)


def _loss(server: ServerTargets, target: ReplicaTarget) -> float:
    """Return the share of what a server carries that one replica of a target is."""
    carried = server.carried(server.serving)
    return (target.rate or 0.0) / carried if carried else 0.0
