"""The replicas of servers on their accelerators: how many there are, and what they carry; pure."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from inferno_optimizer.system import Role, can_answer
from inferno_optimizer.way_down import HALF, WayDown, strengths

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
    """The replicas of a server on one accelerator, in one role.

    Parameters
    ----------
    accelerator, card_type, cards
        Name of the accelerator with the role, as in `Workload.place`; type of its cards, and cards
        of one replica.
    wanted, spec
        Replicas that were decided, and those that the workload asks for now.
    live, ready, unscheduled, gated
        Existing pods that are not being deleted; those of them that are ready; those that
        have had no node for so long that they are given up; and those that hold no card, as the
        scheduler may not look at them yet.
    terminating
        Pods that are being deleted.
    rate
        What one ready replica carries [requests/min]; None if that is not known.
    loses_unready_first
        Whether a reduction removes pods that are not ready before those that are, as that of a
        Deployment does; other kinds remove the pods with the highest ordinals.
    role
        What the replicas do.
    standing
        The ready replicas that have served for a whole window of the way down; the others may be
        here to take over from replicas elsewhere.
    """

    accelerator: str
    card_type: str
    cards: int
    wanted: int
    spec: int
    live: int = 0
    ready: int = 0
    unscheduled: int = 0
    gated: int = 0
    terminating: int = 0
    rate: float | None = None
    loses_unready_first: bool = True
    role: Role = Role.BOTH
    standing: int = 0

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
    def has_arrived(self) -> bool:
        """Whether all wanted replicas are ready and stay."""
        return min(self.ready, self.spec) >= self.wanted

    @property
    def has_appeared(self) -> bool:
        """Whether a pod exists for every replica that the workload asks for.

        Before that, the workload's controller may still create a pod for a number that was
        replaced meanwhile.
        """
        return self.live >= self.spec

    @property
    def in_flight(self) -> bool:
        """Whether pods appear, start or end."""
        return self.spec != self.live or self.ready < self.live or self.terminating > 0

    def kept(self, replicas: int) -> int:
        """Return the ready replicas that certainly remain after a reduction."""
        if self.loses_unready_first or self.live <= replicas:
            return min(self.ready, replicas)
        return max(self.ready - (self.live - replicas), 0)

    def loses_nothing(self, replicas: int) -> bool:
        """Whether all ready replicas certainly remain after a reduction."""
        return self.kept(replicas) >= self.kept(self.spec)


@dataclass(frozen=True, slots=True)
class ServerTargets:
    """A server: its load, and its replicas on each accelerator.

    Parameters
    ----------
    name
        Name of the server, unique in the fleet.
    priority
        Priority of its service class; 1 is the most important.
    load
        The present load [requests/min].
    targets
        One for each accelerator.
    is_best_effort
        Whether the decision gives the server less than its load needs.
    is_as_decided
        Whether the load is still about the one of the decision: the replicas that were decided
        then carry it, whatever the noise of its measurement.
    is_writable
        Whether its numbers of replicas may be written; False also if nothing is decided.
    is_paused
        Whether no replica may be added for a while, because the last ones found no node.
    is_overdue
        Whether its pods have made no progress for too long.
    way_down
        How many of the replicas that serve may go within a window.
    served
        What served by accelerator, at each moment of the window at which replicas went.
    """

    name: str
    priority: int
    load: float
    targets: tuple[ReplicaTarget, ...]
    is_best_effort: bool = False
    is_as_decided: bool = False
    is_writable: bool = True
    is_paused: bool = False
    is_overdue: bool = False
    way_down: WayDown = HALF
    served: tuple[Mapping[str, int], ...] = ()

    @property
    def rank(self) -> tuple[int, str]:
        """The order of servers: by priority, then by name."""
        return self.priority, self.name

    @property
    def has_arrived(self) -> bool:
        """Whether all wanted replicas of all targets are ready."""
        return all(target.has_arrived for target in self.targets)

    @property
    def is_held(self) -> bool:
        """Whether no replica may be added, because pods find no node."""
        return self.is_paused or any(target.unscheduled for target in self.targets)

    @property
    def is_switching(self) -> bool:
        """Whether replicas on one accelerator wait for those on another."""
        return not self.has_arrived and any(target.excess for target in self.targets)

    @property
    def in_flight(self) -> bool:
        """Whether pods appear, start or end."""
        return any(target.in_flight for target in self.targets)

    def carried(self, replicas: Mapping[str, int]) -> float:
        """Return what ready replicas carry, by accelerator [requests/min].

        Replicas of one role carry what those of the other carry as well.
        """
        carried = dict.fromkeys(Role, 0.0)
        for target in self.targets:
            carried[target.role] += (target.rate or 0.0) * replicas.get(target.accelerator, 0)
        return carried[Role.BOTH] + min(carried[Role.PREFILL], carried[Role.DECODE])

    def _answers(self, replicas: Mapping[str, int]) -> bool:
        """Whether ready replicas, by accelerator, can answer a request: both roles, or whole."""
        roles = {target.role for target in self.targets if replicas.get(target.accelerator, 0)}
        return can_answer(roles)

    @property
    def floor(self) -> float:
        """What ready replicas must carry at any time [requests/min]."""
        if not (self.is_best_effort or self.is_as_decided):
            return self.load
        return min(self.load, self.carried({t.accelerator: t.wanted for t in self.targets}))

    @property
    def serving(self) -> dict[str, int]:
        """The ready replicas that stay, by accelerator."""
        return self.serving_after({})

    def carries_after(self, reduced: Mapping[str, int]) -> bool:
        """Whether what stays carries the floor, with other numbers of replicas on some targets.

        The last ready replica of a server that is to have replicas stays also without load, and
        so does the last one of each role.
        """
        after = self.serving_after(reduced)
        is_last = self._answers(self.serving) and not self._answers(after)
        if is_last and any(target.wanted for target in self.targets):
            return False
        return self.carried(after) >= self.floor * (1 - ROUNDING)

    @property
    def weights(self) -> Sequence[Mapping[str, float]]:
        """What one replica counts on the way down, by accelerator, for each half of the work."""
        return strengths(
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
        return {t.accelerator: t.kept(reduced.get(t.accelerator, t.spec)) for t in self.targets}

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
        """Whether what stays carries the floor, and replicas go slowly enough."""
        return self.carries_after(reduced) and self.goes_slowly(reduced)

    def lowest(
        self,
        target: ReplicaTarget,
        reduced: Mapping[str, int],
        least: int,
        *,
        is_urgent: bool = False,
    ) -> int:
        """Return the smallest number of replicas, from `least`, that a target may be reduced to.

        What stays carries the floor. Pods that start may be needed for that, unless they take too
        long. Replicas go slowly, unless it is urgent. `reduced` has the numbers of targets that
        are reduced at the same time.
        """
        for replicas in range(least, target.spec):
            after = {**reduced, target.accelerator: replicas}
            if self.carries_after(after) and (is_urgent or self.goes_slowly(after)):
                return replicas
            is_dead = self.is_overdue and target.loses_nothing(replicas)
            if is_dead and (is_urgent or self._asks_for_enough(after)):
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


def targets_of(servers: Sequence[ServerTargets]) -> Iterator[tuple[ServerTargets, ReplicaTarget]]:
    """Return each target with its server, in order."""
    return ((server, target) for server in servers for target in server.targets)
