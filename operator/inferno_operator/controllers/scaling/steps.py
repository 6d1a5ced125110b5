"""From the replicas of all servers, and the cards, to the next numbers of replicas; pure.

At any time, all pods that exist, and all that are written and do not exist yet, fit into the
cards; and the ready replicas of each server carry its present load, if they did so before. A
server that changes its accelerator first gets all new replicas, and loses the old ones when the
new ones are ready. Without room for that, it gives up one old replica at a time, as long as the
others carry its load. If servers wait for each other's cards, a server that can do without one
replica lends it.

Within a window no server loses more than a share of what serves, see `way_down`; a more important
server that waits for its cards may take more.

Nothing is remembered: steps follow from what there is, so they continue after a restart.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from math import ceil
from operator import attrgetter
from types import MappingProxyType

from inferno_optimizer.system import Role, can_answer
from inferno_optimizer.way_down import HALF, WayDown, choose_weights

ROUNDING = 1e-9
"""Replicas that carry less than a load by this share carry it."""


class State(StrEnum):
    """How far a server is from what was decided for it."""

    STEADY = "Steady"
    GROWING = "Growing"
    SHRINKING = "Shrinking"
    MOVING = "Moving"
    BLOCKED = "Blocked"

    @property
    def is_in_motion(self) -> bool:
        """Whether replicas are being started or ended."""
        return self not in (State.STEADY, State.BLOCKED)


@dataclass(frozen=True, slots=True)
class ReplicaTarget:
    """The replicas of a server on one accelerator, in one role."""

    accelerator: str  # its name with the role, as in `Workload.place`
    card_type: str
    cards: int  # of one replica
    wanted: int  # replicas that were decided
    spec: int  # those that the workload asks for now
    live: int = 0  # existing pods that are not being deleted
    ready: int = 0
    unscheduled: int = 0  # pods that have had no node for so long that they are given up
    gated: int = 0  # pods that hold no card, as the scheduler may not look at them yet
    terminating: int = 0
    rate: float | None = None  # what one ready replica carries, if known [requests/min]
    loses_unready_first: bool = True  # as a Deployment; others lose the highest ordinals first
    role: Role = Role.BOTH
    standing: int = 0  # ready for a whole window: the others may be here to take over
    is_ceiling: bool = False  # an autoscaler may run fewer replicas than are asked for
    is_observed: bool = True  # the other counts are about the number that is asked for now

    @property
    def occupied(self) -> int:
        """Cards of all pods that exist, and of those that are written and do not exist yet."""
        return (max(self.spec, self.live) - self.gated + self.terminating) * self.cards

    @property
    def leaving(self) -> int:
        """Cards of the pods that are being deleted, or will be."""
        return (max(self.live - self.spec, 0) + self.terminating) * self.cards

    @property
    def excess(self) -> int:
        """Replicas that the workload asks for beyond those that were decided."""
        return max(self.spec - self.wanted, 0)

    @property
    def staying(self) -> int:
        """The ready replicas that are asked for."""
        return min(self.ready, self.spec) if self.is_observed else 0

    @property
    def has_appeared(self) -> bool:
        """Whether a pod exists for every replica that the workload asks for.

        Before that, the workload's controller may still create a pod for a number that was
        replaced meanwhile.
        """
        return self.is_ceiling or self.live >= self.spec

    @property
    def is_in_flight(self) -> bool:
        """Whether pods appear, start or end."""
        is_as_asked = self.live == self.spec or (self.is_ceiling and self.live < self.spec)
        is_ready = is_as_asked and self.ready >= self.live and not self.terminating
        return not (is_ready and self.is_observed)

    def count_kept(self, replicas: int) -> int:
        """Return the ready replicas that certainly remain after a reduction."""
        if self.loses_unready_first or self.live <= replicas:
            return min(self.ready, replicas)
        return max(self.ready - (self.live - replicas), 0)

    def loses_nothing(self, replicas: int) -> bool:
        """Whether all ready replicas certainly remain after a reduction."""
        return self.count_kept(replicas) >= self.count_kept(self.spec)


@dataclass(frozen=True, slots=True)
class ServerTargets:
    """A server: its load, and its replicas on each accelerator."""

    name: str  # unique in the fleet
    priority: int  # of its service class; 1 is the most important
    load: float  # the present one [requests/min]
    targets: tuple[ReplicaTarget, ...]
    is_best_effort: bool = False  # the decision gives the server less than its load needs
    is_as_decided: bool = False  # the load is about that of the decision: its replicas carry it
    is_writable: bool = True  # False also if nothing is decided
    is_paused: bool = False  # nothing is added, because the last replicas found no node
    is_overdue: bool = False  # its pods have made no progress for too long
    way_down: WayDown = HALF
    served: tuple[Mapping[str, int], ...] = ()  # each time that replicas went in the window

    @property
    def rank(self) -> tuple[int, str]:
        """The order of servers: by priority, then by name."""
        return self.priority, self.name

    @property
    def has_arrived(self) -> bool:
        """Whether all wanted replicas of all targets are ready and stay.

        Below a ceiling an autoscaler may run fewer: as many as serve elsewhere and will go.
        """
        return all(
            target.staying >= self._count_needed_on(target) for target in self.targets
        ) and all(target.spec >= target.wanted for target in self.targets)

    def _count_needed_on(self, target: ReplicaTarget) -> int:
        if not target.is_ceiling:
            return target.wanted
        leaving = sum(
            other.staying for other in self.targets if other is not target and other.excess
        )
        return min(target.wanted, max(leaving, 1))

    @property
    def is_unplaced(self) -> bool:
        """Whether no replica may be added, because pods find no node."""
        return self.is_paused or any(target.unscheduled for target in self.targets)

    @property
    def is_switching(self) -> bool:
        """Whether replicas on one accelerator wait for those on another."""
        return not self.has_arrived and any(target.excess for target in self.targets)

    @property
    def is_in_flight(self) -> bool:
        """Whether pods appear, start or end."""
        return any(target.is_in_flight for target in self.targets)

    def count_carried(self, replicas: Mapping[str, int]) -> float:
        """Return what ready replicas carry, by accelerator [requests/min].

        Replicas of one role carry what those of the other carry as well.
        """
        carried = dict.fromkeys(Role, 0.0)
        for target in self.targets:
            carried[target.role] += (target.rate or 0.0) * replicas.get(target.accelerator, 0)
        return carried[Role.BOTH] + min(carried[Role.PREFILL], carried[Role.DECODE])

    def _may_answer(self, replicas: Mapping[str, int]) -> bool:
        """Whether ready replicas, by accelerator, can answer a request: both roles, or whole."""
        roles = {target.role for target in self.targets if replicas.get(target.accelerator, 0)}
        return can_answer(roles)

    @property
    def least_load(self) -> float:
        """What ready replicas must carry at any time [requests/min]."""
        if not (self.is_best_effort or self.is_as_decided):
            return self.load
        return min(self.load, self.count_carried({t.accelerator: t.wanted for t in self.targets}))

    @property
    def serving(self) -> dict[str, int]:
        """The ready replicas that stay, by accelerator."""
        return self.serving_after({})

    def carries_after(self, reduced: Mapping[str, int]) -> bool:
        """Whether what stays carries the least load, with other numbers on some targets.

        The last ready replica of a server that is to have replicas stays also without load, and
        so does the last one of each role.
        """
        after = self.serving_after(reduced)
        is_last = self._may_answer(self.serving) and not self._may_answer(after)
        if is_last and any(target.wanted for target in self.targets):
            return False
        return self.count_carried(after) >= self.least_load * (1 - ROUNDING)

    @property
    def weights(self) -> Sequence[Mapping[str, float]]:
        """What one replica counts on the way down, by accelerator, for each half of the work."""
        return choose_weights(
            {t.accelerator: t.role for t in self.targets},
            {t.accelerator: t.rate for t in self.targets},
        )

    def loses(self, reduced: Mapping[str, int]) -> bool:
        """Whether fewer ready replicas stay, with other numbers of replicas on some targets."""
        return any(
            not t.loses_nothing(reduced[t.accelerator])
            for t in self.targets
            if t.accelerator in reduced
        )

    def serving_after(self, reduced: Mapping[str, int]) -> dict[str, int]:
        """The ready replicas that stay, with other numbers of replicas on some targets."""
        return {
            t.accelerator: t.count_kept(reduced.get(t.accelerator, t.spec)) for t in self.targets
        }

    def served_before(self, reduced: Mapping[str, int]) -> dict[str, int]:
        """The ready replicas that count before other numbers are written on some targets.

        Those that have just come do not, unless they go again: they may be here to take over.
        """
        return {
            t.accelerator: t.ready if t.excess or t.accelerator in reduced else t.standing
            for t in self.targets
        }

    def goes_slowly(self, reduced: Mapping[str, int]) -> bool:
        """Whether enough serves of what served in the window, with other numbers of replicas."""
        if not self.loses(reduced):
            return self._asks_for_enough(reduced)
        before = [self.served_before(reduced), *self.served]
        return self.way_down.permits(self.serving_after(reduced), before, self.weights)

    def _asks_for_enough(self, reduced: Mapping[str, int]) -> bool:
        """Whether enough would serve of what served in the window, if all that is asked for did.

        Replicas that have served, and are not ready for a while, do not go any faster.
        """
        asked = {t.accelerator: reduced.get(t.accelerator, t.spec) for t in self.targets}
        return self.way_down.permits(asked, self.served, self.weights)

    def may_become(self, reduced: Mapping[str, int]) -> bool:
        """Whether what stays carries the least load, and replicas go slowly enough."""
        return self.carries_after(reduced) and self.goes_slowly(reduced)

    def find_lowest(
        self,
        target: ReplicaTarget,
        reduced: Mapping[str, int],
        least: int,
        *,
        is_urgent: bool = False,
    ) -> int:
        """Return the smallest number of replicas, from `least`, that a target may be reduced to.

        What stays carries the least load. Pods that start may be needed for that, unless they take
        too long. Replicas go slowly, unless it is urgent. `reduced` has the numbers of targets
        that are reduced at the same time.
        """
        for replicas in range(least, target.spec):
            after = {**reduced, target.accelerator: replicas}
            if self.carries_after(after) and (is_urgent or self.goes_slowly(after)):
                return replicas
            is_dead = self.is_overdue and target.loses_nothing(replicas)
            is_unused = target.is_ceiling and replicas >= target.live
            if is_unused or (is_dead and (is_urgent or self._asks_for_enough(after))):
                return replicas
        return target.spec


@dataclass(frozen=True, slots=True)
class ServerProgress:
    """How far a server is; `missing` has the cards by type that it waits for in vain.

    `slowed` has the targets whose replicas go step by step, with the number before and after this
    step by accelerator.
    """

    state: State
    missing: Mapping[str, int]
    slowed: Mapping[str, tuple[int, int]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ReplicaSteps:
    """The next numbers of replicas by server and accelerator, and the progress by server."""

    replicas: Mapping[tuple[str, str], int]
    progress: Mapping[str, ServerProgress]


def list_targets(servers: Sequence[ServerTargets]) -> Iterator[tuple[ServerTargets, ReplicaTarget]]:
    """Return each target with its server, in order."""
    return ((server, target) for server in servers for target in server.targets)


ServerAccelerator = tuple[str, str]
"""A server and an accelerator."""


def next_steps(
    servers: Sequence[ServerTargets],
    capacity: Mapping[str, int],
    lacking: Mapping[str, int] = MappingProxyType({}),
) -> ReplicaSteps:
    """Return the numbers of replicas to write next, and the progress of each server.

    `capacity` are the cards by type, without those that anything but these servers uses; `lacking`
    is the most important priority of other servers that lack cards, by type.
    """
    ordered = sorted(servers, key=attrgetter("rank"))
    draft = _StepDraft(ordered, capacity, lacking)
    draft.give_up_unscheduled()
    draft.reduce()
    short = draft.grow()
    draft.make_room(short)
    if not draft.replicas and not draft.is_in_flight:
        draft.lend(short)
    return ReplicaSteps(
        draft.replicas, {s.name: draft.progress(s) for s in ordered if s.is_writable}
    )


def find_goals(
    servers: Sequence[ServerTargets], capacity: Mapping[str, int]
) -> Mapping[ServerAccelerator, int]:
    """Return the replicas that each target may get at the end: all of them fit into the cards.

    What runs and is wanted stays; the rest of the cards goes to the servers in their order.
    """
    room = Counter(capacity)
    room.subtract(_count_cards_of_others(servers))
    replicas: dict[ServerAccelerator, int] = {}
    writable = [server for server in servers if server.is_writable]
    for server, target in list_targets(writable):
        replicas[server.name, target.accelerator] = min(target.spec, target.wanted)
        room[target.card_type] -= min(target.spec, target.wanted) * target.cards
    for server, target in list_targets(writable):
        missing = max(target.wanted - target.spec, 0)
        added = min(missing, max(room[target.card_type], 0) // target.cards)
        replicas[server.name, target.accelerator] += added
        room[target.card_type] -= added * target.cards
    return replicas


def _count_cards_of_others(servers: Sequence[ServerTargets]) -> Counter[str]:
    """Return the cards by type of servers that are not written, now or after their next change."""
    cards: Counter[str] = Counter()
    for server, target in list_targets(servers):
        if not server.is_writable:
            replicas = max(target.wanted, target.spec, target.live) + target.terminating
            cards[target.card_type] += replicas * target.cards
    return cards


class _StepDraft:
    """The numbers of replicas to write, as they are found.

    `replicas` has the numbers by server and accelerator; `is_in_flight` says whether pods of any
    server appear, start or end, and still make progress.
    """

    def __init__(
        self,
        servers: Sequence[ServerTargets],
        capacity: Mapping[str, int],
        lacking: Mapping[str, int],
    ) -> None:
        self._lacking = lacking
        self._slowed: set[ServerAccelerator] = set()
        """Targets whose replicas go step by step."""
        self._servers = [server for server in servers if server.is_writable]
        self._goals = find_goals(servers, capacity)
        self.replicas: dict[ServerAccelerator, int] = {}
        self._free_cards = Counter(capacity)
        """Cards by type without a pod."""
        self._free_cards.subtract(_count_cards_of_others(servers))
        self._ending_cards: Counter[str] = Counter()
        """Cards by type of pods that end."""
        self.is_in_flight = any(s.is_in_flight and not s.is_overdue for s in self._servers)
        for server, target in list_targets(self._servers):
            self._free_cards[target.card_type] -= target.occupied
            if not server.is_overdue:
                self._ending_cards[target.card_type] += target.leaving

    def give_up_unscheduled(self) -> None:
        """Remove replicas whose pods have found no node, before any that run."""
        for server, target in list_targets(self._servers):
            scheduled = target.live - target.unscheduled
            if not target.unscheduled or target.spec <= scheduled:
                continue
            is_enough = server.may_become({target.accelerator: scheduled})
            if is_enough or target.loses_nothing(scheduled):
                self._write(server, target, scheduled)

    def reduce(self) -> None:
        """Remove replicas that do not serve; and, if all new ones are ready, the old ones."""
        for server, target in list_targets(self._servers):
            if self._is_written(server, target) or not target.excess or not target.has_appeared:
                continue
            bound = target.wanted if server.has_arrived else max(target.wanted, target.ready)
            reduced = {
                each.accelerator: self._next_replicas(server, each)
                for each in server.targets
                if self._is_written(server, each)
            }
            least = server.find_lowest(target, reduced, bound)
            fastest = server.find_lowest(target, reduced, bound, is_urgent=True)
            needed = self._count_needed_above(server, target.card_type) if fastest < least else 0
            if needed > 0:
                urgent = max(target.spec - ceil(needed / target.cards), fastest)
                least = min(least, server.find_lowest(target, reduced, urgent, is_urgent=True))
            if fastest < least:
                self._note_slowed(server, target)
            if least < target.spec:
                self._write(server, target, least)

    def grow(self) -> list[tuple[ServerTargets, ReplicaTarget]]:
        """Add replicas on free cards; returns the targets that find none, in their order.

        First come servers that do not carry their load, then those that free other cards. Cards
        that become free soon are kept for the first server that waits for them.
        """
        order = sorted(self._servers, key=lambda s: _order_of(s, is_switching=s.is_switching))
        free, ending, short = self._free_cards, self._ending_cards, []
        for server, target in list_targets(order):
            missing = self._goals[server.name, target.accelerator] - target.spec
            if server.is_unplaced or missing <= 0 or self._is_written(server, target):
                continue
            card_type, cards = target.card_type, target.cards
            added = min(missing, max(free[card_type], 0) // cards)
            if added:
                self._write(server, target, target.spec + added)
                free[card_type] -= added * cards
            if added < missing and free[card_type] + ending[card_type] >= cards:
                ending[card_type] -= cards - free[card_type]
                free[card_type] = 0
            elif not added:
                short.append((server, target))
        return short

    def make_room(self, short: Sequence[tuple[ServerTargets, ReplicaTarget]]) -> None:
        """Remove one old replica of each server that finds no card for a new one.

        Only replicas on cards that a server waits for are removed, and only as many as needed.
        """
        needed: Counter[str] = Counter()
        for _, target in short:
            needed[target.card_type] += target.cards
        for card_type in needed:
            needed[card_type] -= self._free_cards[card_type] + self._ending_cards[card_type]
        for server in {server.name: server for server, _ in short}.values():
            if server.is_in_flight or any(self._is_written(server, t) for t in server.targets):
                continue
            for target in server.targets:
                reduced = {target.accelerator: target.spec - 1}
                if not target.excess or needed[target.card_type] <= 0:
                    continue
                if server.may_become(reduced):
                    self._write(server, target, target.spec - 1)
                    needed[target.card_type] -= target.cards
                    break
                if server.carries_after(reduced):
                    self._note_slowed(server, target)

    def lend(self, short: Sequence[tuple[ServerTargets, ReplicaTarget]]) -> None:
        """Remove replicas of servers that can do without, for the first server they suffice for.

        The server moves off other cards afterwards, so that the lenders get theirs back.
        """
        switching = [(server, target) for server, target in short if server.is_switching]
        able = {t: self._find_lenders(t) for t in {target.card_type for _, target in switching}}
        for server, target in switching:
            lenders = [
                (lending, lender)
                for lending, lender in able[target.card_type]
                if lending is not server and not _would_take_back(lending, lender, server)
            ]
            missing = target.cards - self._free_cards[target.card_type]
            if missing <= 0 or sum(lender.cards for _, lender in lenders) < missing:
                continue
            for lending, lender in lenders:
                self._write(lending, lender, lender.spec - 1)
                missing -= lender.cards
                if missing <= 0:
                    return

    def progress(self, server: ServerTargets) -> ServerProgress:
        """Return how far a server is."""
        missing, slowed = Counter[str](), dict[str, tuple[int, int]]()
        for target in server.targets:
            after = self._next_replicas(server, target)
            if target.wanted > after:
                missing[target.card_type] += (target.wanted - after) * target.cards
            if (server.name, target.accelerator) in self._slowed:
                slowed[target.accelerator] = target.spec, after
        has_excess = any(target.excess for target in server.targets)
        is_written = any(self._is_written(server, target) for target in server.targets)
        is_active = server.is_in_flight or is_written or bool(slowed)
        is_done = server.has_arrived and not has_excess
        # Nothing that happens now brings the server nearer to what was decided.
        is_stuck = not (is_active or is_done) and (
            any(self._goals[server.name, t.accelerator] < t.wanted for t in server.targets)
            or not (self.replicas or self.is_in_flight)
        )
        if server.is_unplaced or server.is_overdue or is_stuck:
            state = State.BLOCKED
        elif server.has_arrived and not missing:
            state = State.SHRINKING if has_excess or is_active else State.STEADY
        else:
            state = State.MOVING if has_excess else State.GROWING
        return ServerProgress(state, missing, slowed)

    def _count_needed_above(self, server: ServerTargets, card_type: str) -> int:
        """Return the cards of a type that more important servers lack and that nobody gives up."""
        needed = sum(
            max(target.wanted - target.spec, 0) * target.cards
            for other, target in list_targets(self._servers)
            if other.priority < server.priority and target.card_type == card_type
        )
        given_up = sum(
            max(target.spec - self._next_replicas(other, target), 0) * target.cards
            for other, target in list_targets(self._servers)
            if target.card_type == card_type
        )
        free = self._free_cards[card_type]
        if self._lacking.get(card_type, server.priority) >= server.priority:
            # What is lacking there is for servers that are less important.
            free = max(free, 0)
        return needed - free - self._ending_cards[card_type] - given_up

    def _find_lenders(self, card_type: str) -> Sequence[tuple[ServerTargets, ReplicaTarget]]:
        """Return a target of each server that can do without a replica, least loss first."""
        reducible = [
            (server, target)
            for server, target in list_targets(self._servers)
            if target.card_type == card_type
            and target.spec > 0
            and server.may_become({target.accelerator: target.spec - 1})
        ]

        def rank(pair: tuple[ServerTargets, ReplicaTarget]) -> tuple[float, tuple[int, str]]:
            server, target = pair
            carried = server.count_carried(server.serving)
            share = (target.rate or 0.0) / carried if carried else 0.0
            return share, server.rank

        distinct = {server.name: (server, target) for server, target in reversed(reducible)}
        return sorted(distinct.values(), key=rank)

    def _next_replicas(self, server: ServerTargets, target: ReplicaTarget) -> int:
        return self.replicas.get((server.name, target.accelerator), target.spec)

    def _is_written(self, server: ServerTargets, target: ReplicaTarget) -> bool:
        return (server.name, target.accelerator) in self.replicas

    def _note_slowed(self, server: ServerTargets, target: ReplicaTarget) -> None:
        self._slowed.add((server.name, target.accelerator))
        self.is_in_flight = True  # more go when the window is over

    def _write(self, server: ServerTargets, target: ReplicaTarget, replicas: int) -> None:
        self.replicas[server.name, target.accelerator] = replicas


def _order_of(server: ServerTargets, *, is_switching: bool) -> tuple[bool, bool, tuple[int, str]]:
    """Return when it is a server's turn to get cards."""
    return server.carries_after({}), not is_switching, server.rank


def _would_take_back(lending: ServerTargets, lender: ReplicaTarget, server: ServerTargets) -> bool:
    """Whether a server that lends a replica gets the card before the one that waits for it.

    Then the two would go on like that for ever.
    """
    if lender.excess:
        return False
    will_switch = any(target.excess for target in lending.targets)
    before = _order_of(lending, is_switching=will_switch)
    return before < _order_of(server, is_switching=server.is_switching)
