"""A Server with its workloads as they are, the cards, and the replicas to scale; pure."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import cached_property

from inferno_operator.controllers.scaling.boosters import ScaledBackend
from inferno_operator.controllers.scaling.decision import (
    PlacedReplicas,
    WantedReplicas,
    is_as_decided,
    select_roles,
)
from inferno_operator.controllers.scaling.pods import PodCounts, ReadySince
from inferno_operator.controllers.scaling.reductions import (
    AT_ONCE,
    add_fallen,
    is_approved,
    list_served,
)
from inferno_operator.controllers.scaling.status import (
    FOREIGN_WRITER,
    RECHECK,
    build_refusal,
    describe_pod_troubles,
    has_given_up_pods,
)
from inferno_operator.controllers.scaling.steps import ReplicaTarget, ServerTargets
from inferno_operator.controllers.scaling.writers import ForeignWriter, WriteMemory
from inferno_operator.resources import (
    Condition,
    RecordedWorkload,
    ReplicaReduction,
    Server,
    ServerAllocation,
    Workload,
)
from inferno_operator.resources.conditions import ACTUATED, ALLOCATED, NOT_FOUND, Verdict
from inferno_operator.resources.observation import Observation
from inferno_operator.resources.workload_kinds import kind_of_workload
from inferno_operator.runtime.ports import Scale
from inferno_optimizer.explain.rates import Rates, rates
from inferno_optimizer.sizing.cases import Catalogue
from inferno_optimizer.solution import Reason
from inferno_optimizer.system import Role, System, place_of
from inferno_optimizer.way_down import HALF, WayDown

UNLIMITED = 10**9
"""Cards of each type if the Optimizer ignores the capacity."""

PATIENCE = timedelta(seconds=240)
"""Time without progress after which a server is blocked: twice the lead time of a replica."""

SETTLED = 0.1
"""Time after the end of a window at which the next replicas go [s]: not a moment before it."""


class Supply:
    """The cards, replicas and rates of a system."""

    def __init__(self, system: System) -> None:
        self.system = system
        self._catalogue = Catalogue(system)

    @cached_property
    def _rates(self) -> Rates:
        return rates(self.system)

    @property
    def capacity(self) -> Mapping[str, int]:
        """The cards by type."""
        system = self.system
        if system.options.unlimited:
            return {accelerator.type: UNLIMITED for accelerator in system.accelerators}
        return system.capacity

    def cards_of_replica(self, model: str, accelerator: str, role: Role) -> tuple[str, int]:
        """Return the type of the cards that one replica needs, and their number."""
        return self._catalogue.cards_per_replica(model, accelerator, role)

    def unit_costs(self, model: str) -> Mapping[str, float]:
        """Return the cost of one replica of a model by place [cents/hour]."""
        return {
            place_of(name, role): self._catalogue.unit_cost(model, name, role)
            for name in self._catalogue.accelerators
            for role in Role
        }

    def rate(self, server: Server, place: str) -> float | None:
        """Return what one replica carries [requests/min]; None if that is not known."""
        return self._rates.replica.get((server.spec.name, place))

    def demand(self, server: Server) -> float:
        """Return what the replicas of a server have to carry now [requests/min]."""
        current = server.spec.current_alloc
        load = current.load.arrival_rate if current and current.load else 0.0
        return self._rates.demand.get(server.spec.name, load)

    def priority(self, server: Server) -> int:
        """Return the priority of the class of a server; 1 is the most important."""
        return self._catalogue.priority(server.spec.service_class)

    def count_cards(self, server: Server) -> Counter[str]:
        """Return the cards by type of a server: for what runs, and for what was decided."""
        spec = server.spec
        needed = _replicas(spec.current_alloc) | _replicas(spec.desired_alloc)
        return self._sum_cards(server, needed)

    def count_lacking_cards(self, server: Server) -> Counter[str]:
        """Return the cards by type that were decided for a server and that it does not have."""
        spec = server.spec
        lacking = _replicas(spec.desired_alloc) - _replicas(spec.current_alloc)
        return +self._sum_cards(server, lacking)

    def _sum_cards(self, server: Server, replicas: Mapping[tuple[str, Role], int]) -> Counter[str]:
        cards: Counter[str] = Counter()
        for (accelerator, role), count in replicas.items():
            card_type, each = self.cards_of_replica(server.spec.model, accelerator, role)
            cards[card_type] += count * each
        return cards


def _replicas(whole: ServerAllocation | None) -> Counter[tuple[str, Role]]:
    """Return the replicas on each accelerator, in each role."""
    counts: Counter[tuple[str, Role]] = Counter()
    for role, part in whole.parts_by_role if whole else ():
        counts[part.accelerator, role] += part.num_replicas
    return counts


@dataclass(frozen=True, slots=True)
class ObservedWorkload:
    """A workload as it is; without `scale`, `problem` says why it cannot be scaled."""

    workload: Workload
    scale: Scale | None = None
    pods: PodCounts = field(default_factory=PodCounts)
    foreign_writer: ForeignWriter | None = None  # who set its number, and is left alone
    problem: Verdict | None = None
    is_of_another: bool = False  # another Server has its replicas
    is_behind: bool = False  # somebody has written it after what was watched: who, is not known
    start_seconds: tuple[float, ...] = ()  # from created to ready, of each ready pod [s]
    backend: ScaledBackend | None = None  # of a ModelBooster, with the number of replicas
    repeated_writer: ForeignWriter | None = None  # who sets that back again and again

    @property
    def place(self) -> str:
        """The accelerator that it is for, with the role."""
        return self.workload.place

    @property
    def replicas(self) -> int:
        """The number of replicas that the workload asks for."""
        return self.scale.replicas if self.scale else 0

    @property
    def is_unknown(self) -> bool:
        """Whether nobody knows how many replicas it has for the Server."""
        return self.scale is None and not self.is_of_another

    @property
    def has_replicas(self) -> bool:
        """Whether it asks for replicas, or has pods."""
        return bool(self.replicas or self.pods.live or self.pods.terminating)

    def count_standing(self, since: datetime) -> int:
        """Return how many pods have been ready since a time."""
        return sum(time <= since for time in self.pods.ready_since)


@dataclass(frozen=True)
class ScaledServer:
    """A Server, the decision for it, and its workloads.

    `left` are those that it names no more and that have replicas: they run, and are not scaled.
    """

    observation: Observation[Server]
    server: Server
    wanted: WantedReplicas
    named: tuple[ObservedWorkload, ...] = ()
    left: tuple[ObservedWorkload, ...] = ()

    @cached_property
    def replicas(self) -> Mapping[str, int]:
        """The wanted replicas by place; those that there are if nothing is decided."""
        if self.wanted.replicas is not None:
            return self.wanted.replicas
        return {item.place: item.replicas for item in self.named}

    @property
    def counted(self) -> tuple[ObservedWorkload, ...]:
        """All workloads whose replicas run for the Server."""
        return (*self.named, *self.left)

    @property
    def has_unknown(self) -> bool:
        """Whether nobody knows how many replicas run for the Server."""
        return any(item.is_unknown for item in self.counted)

    @cached_property
    def condition(self) -> Condition | None:
        """The condition that the Server has."""
        return self.observation.status.condition(ACTUATED)

    @property
    def is_known(self) -> bool:
        """Whether the whole decision is known, and who has written the workloads."""
        return self.wanted.is_written and not any(item.is_behind for item in self.named)

    @cached_property
    def obstacle(self) -> Verdict | None:
        """Why the operator writes nothing; None if it may write."""
        problems = [item.problem for item in self.named if item.problem]
        if problems:
            return problems[0]
        if self.wanted.replicas is None:
            return build_refusal(
                self.wanted.reason, f"the replicas stay as they are: {self.wanted.why}"
            )
        places = {item.place for item in self.named}
        if unnamed := ", ".join(map(repr, sorted(self.wanted.replicas.keys() - places))):
            reason, item = NOT_FOUND, "item of spec.workloads"
            if self.server.spec.model_booster:
                reason, item = "NoBackend", "backend in modelBooster.backends"
            return build_refusal(reason, f"no {item} runs on accelerator {unnamed}: add one")
        if self.server.spec.actuation == "Publish":
            left = " + ".join(f"{n} x {place}" for place, n in self.wanted.replicas.items() if n)
            message = f"{left or 'no replicas'}{self.troubles}; spec.actuation is Publish: the"
            message += " operator scales nothing"
            return Verdict(ACTUATED, holds=True, reason="Published", message=message)
        return (
            build_refusal(FOREIGN_WRITER, self.foreign_writer.message)
            if self.foreign_writer
            else None
        )

    @cached_property
    def foreign_writer(self) -> ForeignWriter | None:
        """Another writer of a number of replicas that is not the wanted one."""
        return next((item.foreign_writer for item in self.named if self.is_disputed(item)), None)

    def is_disputed(self, item: ObservedWorkload) -> bool:
        """Whether another writer has set a number that is not the wanted one."""
        return item.foreign_writer is not None and item.replicas != self.replicas.get(item.place, 0)

    @property
    def repeated_writer(self) -> ForeignWriter | None:
        """Another writer who sets a number of a ModelBooster again and again."""
        return next((item.repeated_writer for item in self.named if item.repeated_writer), None)

    @property
    def troubles(self) -> str:
        """What hinders its pods, to be said after what runs."""
        return describe_pod_troubles(item.pods for item in self.named)

    @property
    def remarks(self) -> str:
        """What autoscalers keep, and workloads that it names no more; to be said at the end."""
        said = [
            item.backend.describe_surplus(self.replicas.get(item.place, 0))
            for item in self.named
            if item.backend
        ]
        unknown = []
        for item in self.left:
            name = f"{item.workload.kind} {item.workload.name!r}"
            if item.problem and item.is_unknown:
                unknown.append(
                    f"; the replicas of {name}, which is not in spec.workloads any more, are not"
                    f" known: {item.problem.message}"
                )
            else:
                said.append(
                    f"; {name} has {item.replicas} replicas on {item.place} and is not in"
                    " spec.workloads any more: name it again, or scale it to 0"
                )
        return "".join((*said, *unknown))

    def list_recorded(self, memory: WriteMemory) -> tuple[RecordedWorkload, ...]:
        """Return the workloads that its status has: one that is named no more is found there.

        Their numbers are those that nobody disputes. Bounds of a backend that mean no number, as
        somebody else had set them, have none: after a restart they are found anew.
        """
        recorded = []
        for item in self.counted:
            workload, scale, backend = item.workload, item.scale, item.backend
            uid = scale.reference.uid if scale else self.server.recorded_uid(workload)
            known = memory[scale.place].replicas if scale else None
            replicas = self.server.recorded_replicas(workload, uid) if known is None else known
            bounds = memory[scale.place].bounds if scale else None
            if backend and known is not None and bounds not in (None, backend.bounds_for(known)):
                replicas = None
            recorded.append(RecordedWorkload.of(workload, replicas, uid))
        return tuple(recorded)

    def list_placed(self, cold: Mapping[str, int]) -> Sequence[PlacedReplicas]:
        """Return the replicas that run, those of `select_roles`.

        `cold` has those that have just started, by place.
        """
        ready, starting = Counter[str](), Counter[str]()
        for item in self.counted:
            ready[item.place] += item.pods.ready
            starting[item.place] += item.pods.starting
        placed = (
            PlacedReplicas(
                workload.accelerator,
                ready[place],
                min(cold.get(place, 0), ready[place]),
                starting[place],
                Role(workload.role),
            )
            for place, workload in {item.place: item.workload for item in self.counted}.items()
        )
        return select_roles(placed, self.wanted.replicas or ())

    @property
    def reported(self) -> Mapping[str, int]:
        """The replicas that served when they were last reported, by place."""
        current = self.server.spec.current_alloc
        counts = current.by_place if current else {}
        return {item.place: counts.get(item.place, 0) for item in self.named}

    def list_reductions(self, way_down: WayDown, now: datetime) -> tuple[ReplicaReduction, ...]:
        """Return what its status remembers, with what has failed since the last report."""
        known = self.server.status.reductions
        is_reported = bool(self.server.status.workloads)  # else a person has written what runs
        if not is_reported or self.has_unknown:
            return known
        since, ready, standing = _window_start(way_down, now), Counter[str](), Counter[str]()
        for item in self.counted:
            ready[item.place] += item.pods.ready
            standing[item.place] += item.count_standing(since)
        return add_fallen(known, ready, self.reported, way_down, now, standing)

    @property
    def ready_since(self) -> ReadySince:
        """When the replicas that compute prompts became ready, by place."""
        found = (item for item in self.named if item.workload.role != "Decode")
        return {item.place: item.pods.ready_since for item in found}

    def find_last_change(self, now: datetime) -> datetime | None:
        """Return when something last changed: a pod, or the decision.

        What an operator with another clock has written may be in the future, and tells nothing.
        """
        times = [item.pods.changed for item in self.named]
        times += [r.time for r in self.server.status.reductions if r.time <= now]
        before = self.condition
        if before is not None and before.status == "Unknown" and before.last_transition_time <= now:
            times.append(before.last_transition_time)
        return max((time for time in times if time is not None), default=None)

    def find_pause_left(self, now: datetime) -> timedelta:
        """Return for how long no replica is added, after pods were given up."""
        before = self.condition
        # What began in the future, by the clock of another operator, tells nothing.
        if not has_given_up_pods(before) or before is None or before.last_transition_time > now:
            return timedelta()
        return max(before.last_transition_time + PATIENCE - now, timedelta())


def build_targets(
    scaled: ScaledServer, supply: Supply, now: datetime, way_down: WayDown = HALF
) -> ServerTargets:
    """Return the replicas of a Server as the order of steps takes them."""
    since = _window_start(way_down, now)
    targets = tuple(_build_target(scaled, item, supply, since) for item in scaled.named)
    allocated = scaled.observation.status.condition(ALLOCATED)
    changed = scaled.find_last_change(now)
    is_late = changed is not None and now - changed > PATIENCE
    return ServerTargets(
        name=scaled.server.metadata.name,
        priority=supply.priority(scaled.server),
        load=supply.demand(scaled.server),
        targets=targets,
        is_best_effort=allocated is not None and allocated.reason != Reason.ALLOCATED,
        is_as_decided=is_as_decided(scaled.server),
        is_writable=scaled.is_known and scaled.obstacle is None,
        is_paused=scaled.find_pause_left(now) > timedelta(),
        is_overdue=is_late and any(target.is_in_flight for target in targets),
        way_down=AT_ONCE if is_approved(scaled.server, scaled.wanted.replicas) else way_down,
        served=list_served(scaled.list_reductions(way_down, now), way_down, now),
    )


def _build_target(
    scaled: ScaledServer, item: ObservedWorkload, supply: Supply, since: datetime
) -> ReplicaTarget:
    pods, backend, role = item.pods, item.backend, Role(item.workload.role)
    model, accelerator = scaled.server.spec.model, item.workload.accelerator
    current = scaled.server.spec.current_alloc
    reported = current.by_place if current else {}
    card_type, cards = supply.cards_of_replica(model, accelerator, role)
    # Fewer replicas remove pods that find no node, but for those of a rollout: they come again.
    surplus = item.replicas - (pods.live - pods.unscheduled)
    return ReplicaTarget(
        accelerator=item.place,
        card_type=card_type,
        cards=cards,
        wanted=max(scaled.replicas.get(item.place, 0), backend.fewest_replicas if backend else 0),
        spec=reported.get(item.place, 0) if item.is_unknown else item.replicas,
        live=pods.live,
        ready=pods.ready,
        unscheduled=min(pods.unscheduled, max(surplus, 0)),
        gated=pods.gated,
        terminating=pods.terminating,
        rate=supply.rate(scaled.server, item.place),
        loses_unready_first=kind_of_workload(item.workload).loses_unready_first,
        role=role,
        standing=item.count_standing(since),
        is_ceiling=backend is not None and backend.is_ceiling,
        is_observed=backend is None or backend.is_observed,
    )


def count_left_cards(scaled: ScaledServer, supply: Supply, now: datetime) -> Counter[str]:
    """Return the cards by type of the workloads that a Server names no more."""
    cards: Counter[str] = Counter()
    for item in scaled.left:
        target = _build_target(scaled, item, supply, now)
        cards[target.card_type] += target.occupied
    return cards


def find_next_look(
    scaled: ScaledServer,
    targets: ServerTargets,
    now: datetime,
    window_ends: Iterable[datetime] = (),
) -> float | None:
    """Return after how many seconds a Server needs another look; None if only after a change.

    More of its replicas may go at `window_ends`, also those that other Servers wait for.
    """
    if scaled.foreign_writer is not None and scaled.foreign_writer.until is not None:
        return (scaled.foreign_writer.until - now).total_seconds()
    if scaled.foreign_writer is not None or any(i.problem or i.is_behind for i in scaled.named):
        return RECHECK.total_seconds()
    if scaled.obstacle is not None:
        return None
    if left := scaled.find_pause_left(now):
        return left.total_seconds()
    looks = [(end - now).total_seconds() + SETTLED for end in window_ends if end > now]
    if any(item.problem for item in scaled.left):
        looks.append(RECHECK.total_seconds())
    writer = scaled.repeated_writer
    if writer is not None and writer.until is not None:
        looks.append((writer.until - now).total_seconds())
    if not targets.is_overdue and targets.is_in_flight:
        waited = now - (scaled.find_last_change(now) or now)
        looks.append(max((PATIENCE - waited).total_seconds(), 0.0) + 1.0)
    return min(looks, default=None)


def _window_start(way_down: WayDown, now: datetime) -> datetime:
    return now - timedelta(seconds=way_down.window_s)
