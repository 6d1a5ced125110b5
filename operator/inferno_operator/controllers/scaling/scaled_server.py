"""A Server with its workloads as they are, the cards, and the replicas to scale; pure."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import cached_property

from inferno_operator.controllers.scaling.booster_workloads import BoosterPart
from inferno_operator.controllers.scaling.decision import (
    PlacedReplicas,
    Wanted,
    is_as_decided,
    reported_on,
    together_or_apart,
)
from inferno_operator.controllers.scaling.pods import PodCounts
from inferno_operator.controllers.scaling.reductions import (
    AT_ONCE,
    is_approved,
    note_fall,
    served_in_window,
)
from inferno_operator.controllers.scaling.starts import ReadySince
from inferno_operator.controllers.scaling.status import (
    FOREIGN_WRITER,
    RECHECK,
    left_behind,
    left_unknown,
    no_part,
    no_workload,
    pod_troubles,
    published,
    refusal,
    tells_given_up,
)
from inferno_operator.controllers.scaling.steps import ReplicaTarget, ServerTargets
from inferno_operator.controllers.scaling.writers import ForeignWriter
from inferno_operator.resources import (
    Condition,
    RecordedWorkload,
    ReplicaReduction,
    Server,
    ServerAllocation,
    Workload,
)
from inferno_operator.resources.conditions import ACTUATED, ALLOCATED, Verdict
from inferno_operator.resources.objects import Place
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


@dataclass(frozen=True, slots=True)
class Unit:
    """One replica of a model on an accelerator: the type of its cards and their number."""

    card_type: str
    cards: int


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

    def unit(self, model: str, accelerator: str, role: Role = Role.BOTH) -> Unit:
        """Return what one replica needs."""
        return Unit(*self._catalogue.cards_per_replica(model, accelerator, role))

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

    def cards(self, server: Server) -> Counter[str]:
        """Return the cards by type of a server: for what runs, and for what was decided."""
        cards: Counter[str] = Counter()
        counts = _replicas(server.spec.current_alloc) | _replicas(server.spec.desired_alloc)
        for (accelerator, role), replicas in counts.items():
            unit = self.unit(server.spec.model, accelerator, role)
            cards[unit.card_type] += replicas * unit.cards
        return cards

    def lacking_cards(self, server: Server) -> Counter[str]:
        """Return the cards by type that were decided for a server and that it does not have."""
        cards: Counter[str] = Counter()
        running = _replicas(server.spec.current_alloc)
        for (accelerator, role), replicas in _replicas(server.spec.desired_alloc).items():
            unit = self.unit(server.spec.model, accelerator, role)
            missing = max(replicas - running[accelerator, role], 0)
            cards[unit.card_type] += missing * unit.cards
        return +cards


def _replicas(whole: ServerAllocation | None) -> Counter[tuple[str, Role]]:
    """Return the replicas on each accelerator, in each role."""
    counts: Counter[tuple[str, Role]] = Counter()
    if whole is not None and whole.roles is not None:
        for role, replicas in whole.roles.by_role.items():
            counts[replicas.accelerator, role] = replicas.num_replicas
    elif whole is not None:
        for part in whole.parts:
            counts[part.accelerator, Role.BOTH] += part.num_replicas
    return counts


PATIENCE = timedelta(seconds=240)
"""Time without progress after which a server is blocked: twice the lead time of a replica."""


SETTLED = 0.1
"""Time after the end of a window at which the next replicas go [s]: not a moment before it."""


@dataclass(frozen=True, slots=True)
class ObservedWorkload:
    """A workload as it is; without `scale`, `problem` says why it cannot be scaled.

    `is_of_another` says that another Server has its replicas.
    `is_behind` says that somebody has written it after what was watched: who, is not known yet.
    `start_seconds` has the time from created to ready of each pod that is ready.
    `part` is the backend of a ModelBooster, or the role of it, that has the number of replicas,
    and `fight` who sets that back again and again.
    """

    workload: Workload
    scale: Scale | None = None
    pods: PodCounts = field(default_factory=PodCounts)
    foreign: ForeignWriter | None = None
    problem: Verdict | None = None
    is_of_another: bool = False
    is_behind: bool = False
    start_seconds: tuple[float, ...] = ()
    part: BoosterPart | None = None
    fight: ForeignWriter | None = None

    @property
    def replicas(self) -> int:
        """The number of replicas that the workload asks for."""
        return self.scale.replicas if self.scale else 0

    @property
    def is_unknown(self) -> bool:
        """Whether nobody knows how many replicas it has for the Server."""
        return self.scale is None and not self.is_of_another

    def standing(self, since: datetime) -> int:
        """The pods that have been ready since a time."""
        return sum(time <= since for time in self.pods.ready_since)

    @property
    def has_replicas(self) -> bool:
        """Whether it asks for replicas, or has pods."""
        return bool(self.replicas or self.pods.live or self.pods.terminating)


@dataclass(frozen=True)
class ScaledServer:
    """A Server, the decision for it, and its workloads.

    `left` are those that it names no more and that have replicas: they run, and are not scaled.
    """

    observation: Observation[Server]
    server: Server
    wanted: Wanted
    found: tuple[ObservedWorkload, ...] = ()
    left: tuple[ObservedWorkload, ...] = ()

    @cached_property
    def replicas(self) -> Mapping[str, int]:
        """The wanted replicas by place; those that there are if nothing is decided."""
        if self.wanted.replicas is not None:
            return self.wanted.replicas
        return {item.workload.place: item.replicas for item in self.found}

    def wanted_on(self, place: str) -> int | None:
        """Return the wanted replicas of a place; None if what runs stays as it is."""
        return None if self.wanted.replicas is None else self.wanted.replicas.get(place, 0)

    @property
    def may_dispute(self) -> bool:
        """Whether a number is to be as it was decided, by this operator."""
        is_decided = self.wanted.fresh and self.wanted.replicas is not None
        return is_decided and self.server.spec.actuation == "Scale"

    @property
    def counted(self) -> tuple[ObservedWorkload, ...]:
        """All workloads whose replicas run for the Server."""
        return (*self.found, *self.left)

    def recorded(self, known: Mapping[Place, int]) -> tuple[RecordedWorkload, ...]:
        """Return the workloads that its status has: one that is named no more is found there.

        `known` has the numbers of replicas that nobody disputes.
        """
        return tuple(self._recorded(item, known) for item in self.counted)

    def _recorded(self, item: ObservedWorkload, known: Mapping[Place, int]) -> RecordedWorkload:
        workload, scale = item.workload, item.scale
        uid = scale.reference.uid if scale else self.server.recorded_uid(workload)
        replicas = self.server.recorded_replicas(workload, uid)
        if scale is not None:
            replicas = known.get(scale.place, replicas)
        return RecordedWorkload.of(workload, replicas, uid)

    def placed(self, cold: Mapping[str, int]) -> Sequence[PlacedReplicas]:
        """The replicas that run; `cold` has those that have just started, by place.

        They are as `together_or_apart` tells them.
        """
        by_place = {item.workload.place: item.workload for item in self.counted}
        ready, starting = Counter[str](), Counter[str]()
        for item in self.counted:
            ready[item.workload.place] += item.pods.ready
            starting[item.workload.place] += item.pods.starting
        placed = (
            PlacedReplicas(
                on.accelerator,
                ready[place],
                min(cold.get(place, 0), ready[place]),
                starting[place],
                Role(on.role),
            )
            for place, on in by_place.items()
        )
        return together_or_apart(placed, self.wanted.replicas or ())

    @property
    def reported(self) -> Mapping[str, int]:
        """The replicas that served when they were last reported, by place."""
        places = {item.workload.place for item in self.found}
        return {place: reported_on(self.server, place) for place in places}

    def reductions(self, way_down: WayDown, now: datetime) -> tuple[ReplicaReduction, ...]:
        """What its status remembers, with what has failed or been evicted since the last report."""
        known = self.server.status.reductions
        is_reported = bool(self.server.status.workloads)  # else a person has written what runs
        if not is_reported or any(item.is_unknown for item in self.counted):
            return known
        since, ready, standing = window_start(way_down, now), Counter[str](), Counter[str]()
        for item in self.counted:
            ready[item.workload.place] += item.pods.ready
            standing[item.workload.place] += item.standing(since)
        return note_fall(known, ready, self.reported, way_down, now, standing)

    @property
    def ready_since(self) -> ReadySince:
        """When the replicas that compute prompts became ready, by place."""
        return {
            item.workload.place: item.pods.ready_since
            for item in self.found
            if item.workload.role != "Decode"
        }

    @property
    def start_seconds(self) -> Mapping[str, tuple[float, ...]]:
        """Time from created to ready of the ready pods, by place [s]."""
        return {item.workload.place: item.start_seconds for item in self.found}

    @cached_property
    def condition(self) -> Condition | None:
        """The condition that the Server has."""
        return self.observation.status.condition(ACTUATED)

    @property
    def is_known(self) -> bool:
        """Whether the whole decision is known, and who has written the workloads."""
        return self.wanted.fresh and not any(item.is_behind for item in self.found)

    @cached_property
    def obstacle(self) -> Verdict | None:
        """Why the operator writes nothing; None if it may write."""
        problems = [item.problem for item in self.found if item.problem]
        if problems:
            return problems[0]
        if self.wanted.replicas is None:
            return refusal(self.wanted.reason, f"the replicas stay as they are: {self.wanted.why}")
        places = {item.workload.place for item in self.found}
        if unknown := sorted(self.wanted.replicas.keys() - places):
            return (no_part if self.server.spec.model_booster else no_workload)(unknown)
        if self.server.spec.actuation == "Publish":
            return published(self.wanted.replicas, self.troubles)
        foreign = self.foreign
        return refusal(FOREIGN_WRITER, foreign.message) if foreign else None

    @property
    def may_set_back(self) -> bool:
        """Whether numbers that are too small may be set back, also while others are left alone."""
        return self.is_known and (self.obstacle is None or self.obstacle.reason == FOREIGN_WRITER)

    @property
    def troubles(self) -> str:
        """What hinders its pods, to be said after what runs."""
        return pod_troubles(item.pods for item in self.found)

    @property
    def remarks(self) -> str:
        """What autoscalers keep, and workloads that it names no more; to be said at the end."""
        kept = "".join(
            item.part.excuse(self.replicas.get(item.workload.place, 0))
            for item in self.found
            if item.part
        )
        unknown = {i.workload: i.problem.message for i in self.left if i.problem and i.is_unknown}
        known = {i.workload: i.replicas for i in self.left if i.workload not in unknown}
        return kept + left_behind(known) + left_unknown(unknown)

    @property
    def fight(self) -> ForeignWriter | None:
        """Another writer who sets a number of a ModelBooster again and again."""
        return next((item.fight for item in self.found if item.fight), None)

    @property
    def failure(self) -> str:
        """What the controller of its ModelBooster says of its failure; "" if nothing."""
        return next(filter(None, (item.part.failure for item in self.found if item.part)), "")

    @cached_property
    def foreign(self) -> ForeignWriter | None:
        """Another writer of a number of replicas that is not the wanted one."""
        return next((item.foreign for item in self.found if self.is_disputed(item)), None)

    def is_disputed(self, item: ObservedWorkload) -> bool:
        """Whether another writer has set a number that is not the wanted one."""
        is_wanted = item.replicas == self.replicas.get(item.workload.place, 0)
        return item.foreign is not None and not is_wanted

    def changed(self, now: datetime) -> datetime | None:
        """When something last changed: a pod, or the decision.

        What an operator with another clock has written may be in the future, and tells nothing.
        """
        times = [item.pods.changed for item in self.found]
        times += [r.time for r in self.server.status.reductions if r.time <= now]
        before = self.condition
        if before is not None and before.status == "Unknown" and before.last_transition_time <= now:
            times.append(before.last_transition_time)
        return max((time for time in times if time is not None), default=None)


def server_targets(
    scaled: ScaledServer, supply: Supply, now: datetime, way_down: WayDown = HALF
) -> ServerTargets:
    """Return the replicas of a Server as the order of steps takes them."""
    standing = window_start(way_down, now)
    targets = tuple(_target(scaled, item, supply, standing) for item in scaled.found)
    allocated = scaled.observation.status.condition(ALLOCATED)
    changed = scaled.changed(now)
    return ServerTargets(
        name=scaled.server.metadata.name,
        priority=supply.priority(scaled.server),
        load=supply.demand(scaled.server),
        targets=targets,
        is_best_effort=allocated is not None and allocated.reason != Reason.ALLOCATED,
        is_as_decided=is_as_decided(scaled.server),
        is_writable=scaled.is_known and scaled.obstacle is None,
        is_paused=pause_left(scaled, now) > timedelta(),
        is_overdue=changed is not None
        and now - changed > PATIENCE
        and any(target.in_flight for target in targets),
        way_down=AT_ONCE if is_approved(scaled.server, scaled.wanted.replicas) else way_down,
        served=served_in_window(scaled.reductions(way_down, now), way_down, now),
    )


def window_start(way_down: WayDown, now: datetime) -> datetime:
    """Return when the window of the way down that ends now began."""
    return now - timedelta(seconds=way_down.window_s)


def pause_left(scaled: ScaledServer, now: datetime) -> timedelta:
    """Return for how long no replica is added, after pods were given up."""
    before = scaled.condition
    if before is None or not tells_given_up(before):
        return timedelta()
    began = before.last_transition_time
    if began > now:  # by the clock of another operator: nobody knows how long ago it is
        return timedelta()
    return max(began + PATIENCE - now, timedelta())


def due_after(
    scaled: ScaledServer,
    targets: ServerTargets,
    now: datetime,
    window_ends: Iterable[datetime] = (),
) -> float | None:
    """Return after how many seconds a Server needs another look; None if only after a change.

    More of its replicas may go at `window_ends`, also those that other Servers wait for.
    """
    if scaled.foreign is not None and scaled.foreign.until is not None:
        return (scaled.foreign.until - now).total_seconds()
    if scaled.foreign is not None or any(i.problem or i.is_behind for i in scaled.found):
        return RECHECK.total_seconds()
    if scaled.obstacle is not None:
        return None
    if left := pause_left(scaled, now):
        return left.total_seconds()
    looks = [(end - now).total_seconds() + SETTLED for end in window_ends if end > now]
    if any(item.problem for item in scaled.left):
        looks.append(RECHECK.total_seconds())
    if scaled.fight is not None and scaled.fight.until is not None:
        looks.append((scaled.fight.until - now).total_seconds())
    if not targets.is_overdue and targets.in_flight:
        waited = now - (scaled.changed(now) or now)
        looks.append(max((PATIENCE - waited).total_seconds(), 0.0) + 1.0)
    return min(looks, default=None)


def left_cards(scaled: ScaledServer, supply: Supply) -> Counter[str]:
    """Return the cards by type of the workloads that a Server names no more."""
    cards: Counter[str] = Counter()
    for item in scaled.left:
        target = _target(scaled, item, supply)
        cards[target.card_type] += target.occupied
    return cards


def _given_up(item: ObservedWorkload) -> int:
    """Return the unscheduled pods that fewer replicas remove; those of a rollout come again."""
    pods = item.pods
    return min(pods.unscheduled, max(item.replicas - (pods.live - pods.unscheduled), 0))


def _target(
    scaled: ScaledServer,
    item: ObservedWorkload,
    supply: Supply,
    standing: datetime | None = None,
) -> ReplicaTarget:
    accelerator, place = item.workload.accelerator, item.workload.place
    role = Role(item.workload.role)
    unit = supply.unit(scaled.server.spec.model, accelerator, role)
    return ReplicaTarget(
        accelerator=place,
        card_type=unit.card_type,
        cards=unit.cards,
        wanted=max(scaled.replicas.get(place, 0), item.part.floor if item.part else 0),
        spec=reported_on(scaled.server, place) if item.is_unknown else item.replicas,
        live=item.pods.live,
        ready=item.pods.ready,
        unscheduled=_given_up(item),
        gated=item.pods.gated,
        terminating=item.pods.terminating,
        rate=supply.rate(scaled.server, place),
        loses_unready_first=kind_of_workload(item.workload).loses_unready_first,
        role=role,
        standing=item.standing(standing) if standing else 0,
        is_ceiling=item.part is not None and item.part.is_ceiling,
        is_observed=item.part is None or item.part.is_observed,
    )
