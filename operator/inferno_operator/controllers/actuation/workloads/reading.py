"""Read the workloads of Servers: their kinds, numbers of replicas, pods and other writers."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime

from inferno_operator.controllers.actuation import status
from inferno_operator.controllers.actuation.decision import decision_for
from inferno_operator.controllers.actuation.pods import (
    PodCounts,
    count_pods,
    describe_refusal,
    failures_since,
    is_gated,
    is_unschedulable,
)
from inferno_operator.controllers.actuation.starts import ClusterClock, FirstStarts
from inferno_operator.controllers.actuation.status import PAUSE, RECHECK, refusal
from inferno_operator.controllers.actuation.workloads.scaled_server import (
    PATIENCE,
    ObservedWorkload,
    ScaledServer,
)
from inferno_operator.controllers.actuation.workloads.world import WorkloadObjects
from inferno_operator.controllers.actuation.writers import (
    ForeignWriter,
    ScaleTarget,
    autoscaler_of,
    last_writer,
    list_autoscalers,
    scalers_of,
)
from inferno_operator.resources import Server, Workload
from inferno_operator.resources.conditions import ACTUATED, Verdict
from inferno_operator.resources.objects import (
    POD,
    Key,
    Kind,
    Manifest,
    Place,
)
from inferno_operator.resources.observation import Observation
from inferno_operator.resources.pods import PodIndex
from inferno_operator.resources.serving_roles import find_role, groups_of, serving_role
from inferno_operator.resources.workload_kinds import kind_of_workload
from inferno_operator.runtime.cache import version_of
from inferno_operator.runtime.ports import Cluster, Scale, Served
from inferno_optimizer.errors import InfernoError

TRIES = 3
"""Failed writes in a row after which a Server is blocked."""

UNKNOWN = "an unknown writer"
"""Another writer of a number of replicas whom nobody knows."""

KindName = tuple[str, str]
"""The apiVersion and the kind of a workload."""


@dataclass(frozen=True, slots=True)
class Failure:
    """Failed writes of a workload in a row, with the last error and its time."""

    count: int
    error: str
    time: datetime


@dataclass(frozen=True, slots=True)
class ForeignNumber:
    """A number of replicas of another writer, when it was set, and when it set its first one."""

    replicas: int
    since: datetime
    first: datetime

    def followed_by(self, replicas: int, now: datetime) -> "ForeignNumber":
        """Return what is there now."""
        return self if replicas == self.replicas else ForeignNumber(replicas, now, self.first)

    @property
    def until(self) -> datetime:
        """Until when it is left alone, also if it changes all the time."""
        return min(self.since + PAUSE, self.first + 2 * PAUSE)


@dataclass(slots=True)
class Memory:
    """What is remembered between reconciles; without it, only messages and pauses differ.

    Parameters
    ----------
    kinds
        Kinds with a scale subresource.
    known
        The number of replicas by workload that this operator has written last, or has found and
        nobody disputes.
    uncertain
        Workloads whose last write failed: it may have arrived.
    seen
        What another writer of the number of replicas has set, by workload.
    failures
        Failed writes by workload, since the last one that succeeded.
    uids
        The uids of the workloads: one that was created again has nobody to fight with.
    gates
        When the gates of pods were opened, by workload and uid; None while they are gated.
    versions
        The versions of the workloads: one that is older now was restored, and nobody wrote it.
    clock
        The clock by which pods began.
    starts
        How long pods took to start.
    """

    kinds: dict[KindName, Served] = field(default_factory=dict)
    known: dict[Place, int] = field(default_factory=dict)
    uncertain: set[Place] = field(default_factory=set)
    seen: dict[Place, ForeignNumber] = field(default_factory=dict)
    failures: dict[Place, Failure] = field(default_factory=dict)
    uids: dict[Place, str] = field(default_factory=dict)
    gates: dict[Place, dict[str, datetime | None]] = field(default_factory=dict)
    versions: dict[Place, int] = field(default_factory=dict)
    clock: ClusterClock = field(default_factory=ClusterClock)
    starts: FirstStarts = field(default_factory=FirstStarts)

    def saw(self, place: Place, uid: str, version: int) -> None:
        """Take note of a workload; forget another one of the same name, and a newer version."""
        if self.uids.get(place, uid) != uid or version < self.versions.get(place, version):
            self.known.pop(place, None)
            self.gates.pop(place, None)
            self.uncertain.discard(place)
            self.seen.pop(place, None)
            self.failures.pop(place, None)
        self.uids[place] = uid
        self.versions[place] = version

    def note_gates(
        self, place: Place, pods: Iterable[Manifest], now: datetime
    ) -> Mapping[str, datetime]:
        """Return when the gates of pods were opened, by uid, as far as that was seen."""
        before, gates = self.gates.get(place, {}), dict[str, datetime | None]()
        for pod in pods:
            uid = pod["metadata"].get("uid", "")
            if is_gated(pod):
                gates[uid] = None
            elif uid in before:
                gates[uid] = before[uid] or now
        self.gates[place] = gates
        return {uid: opened for uid, opened in gates.items() if opened is not None}

    def wrote(self, place: Place, replicas: int) -> None:
        """Remember that a write succeeded."""
        self.accept(place, replicas)
        self.failures.pop(place, None)

    def accept(self, place: Place, replicas: int) -> None:
        """Remember a number that nobody disputes, or no longer."""
        self.known[place] = replicas
        self.uncertain.discard(place)
        self.seen.pop(place, None)

    def may_have_written(self, place: Place, known: int | None, wanted: int | None) -> bool:
        """Whether a number that the API server names nobody for may be the operator's own.

        It wrote that and got no answer, or ended before it recorded it.
        """
        return place in self.uncertain or (place not in self.known and known != wanted)

    def saw_foreign(
        self, place: Place, replicas: int, paused: datetime | None, now: datetime
    ) -> datetime:
        """Take note of a number of another writer; return until when it is left alone.

        `paused` says since when the condition of the Server tells of that writer.
        """
        since = now if paused is None else min(paused, now)
        seen = self.seen.get(place) or ForeignNumber(replicas, since, since)
        self.seen[place] = seen.followed_by(replicas, now)
        return self.seen[place].until

    def failed(self, place: Place, error: str, now: datetime) -> None:
        """Remember that a write failed."""
        before = self.failures.get(place)
        self.failures[place] = Failure(before.count + 1 if before else 1, error, now)
        self.uncertain.add(place)

    def obstacle(self, place: Place, now: datetime) -> Verdict | None:
        """Return the verdict that writes fail; None if the next write is to be tried."""
        failure = self.failures.get(place)
        if failure is None or failure.count < TRIES or now - failure.time >= RECHECK:
            return None
        return status.not_written(failure.error)


@dataclass(frozen=True, slots=True)
class _Area:
    """What the workloads of a namespace are compared with."""

    served: Mapping[KindName, Served | None]
    troubles: Mapping[Kind, InfernoError | None]
    """Why the workloads of a kind, or pods, are not known."""
    pods: PodIndex
    scalers: Mapping[ScaleTarget, str]
    taken: dict[Place, tuple[str, str]]
    """The Server and accelerator of each workload, as they are found."""
    recommending: str | None
    """Why no decision is to be actuated; "" if decisions are, None without an Optimizer."""


def workloads_of(observation: Observation) -> Sequence[Workload]:
    """Return the workloads that a Server names; none if it cannot be read."""
    server = observation.resource
    return server.spec.workloads if isinstance(server, Server) else ()


def _counted(observation: Observation) -> Sequence[Workload]:
    """Return the workloads that a Server names, and those that it named before."""
    server = observation.resource
    return server.counted_workloads if isinstance(server, Server) else ()


async def read_scaled_servers(
    observations: Iterable[Observation],
    world: WorkloadObjects,
    cluster: Cluster,
    memory: Memory,
    now: datetime,
    *,
    recommending: str | None = None,
) -> list[ScaledServer] | None:
    """Return the Servers of a namespace with their workloads, the oldest first.

    `recommending` says why no decision is to be actuated, if so. None if the first list of a kind
    is awaited, which causes a reconcile.
    """
    naming = [observation for observation in observations if workloads_of(observation)]
    served = await _served(naming, cluster, memory)
    places = list(_places(naming, served))
    kinds = {place.kind for place in places} | {POD}
    world.watch(sorted(kinds, key=str))
    if any(not world.is_complete(kind) and not world.trouble(kind) for kind in kinds):
        return None
    namespace = naming[0].reference.key.namespace
    await world.read_scales(places)
    scalers = scalers_of(await list_autoscalers(cluster, namespace))
    troubles = {kind: world.trouble(kind) or world.trouble(POD) for kind in kinds}
    area = _Area(served, troubles, world.pods(namespace), scalers, {}, recommending)
    reader = _Reader(world, memory, area, now)
    servers = sorted(((o, o.resource) for o in naming), key=lambda pair: _age(pair[0]))
    named = [reader.scaled_server(o, s) for o, s in servers if isinstance(s, Server)]
    return [reader.with_left(scaled) for scaled in named]


def _places(
    observations: Iterable[Observation], served: Mapping[KindName, Served | None]
) -> Iterator[Place]:
    """Return the places of the workloads that can be scaled."""
    for observation in observations:
        for workload in _counted(observation):
            kind = served[workload.api_version, workload.kind]
            if kind is not None and _is_scalable(workload, kind):
                yield _place(kind.kind, observation, workload)


def _is_scalable(workload: Workload, served: Served) -> bool:
    """Whether a workload has a number of replicas: that of its kind, or that of a role."""
    return served.is_scalable or bool(serving_role(workload))


def _place(kind: Kind, observation: Observation, workload: Workload) -> Place:
    key = Key(observation.reference.key.namespace, workload.name)
    return Place(kind, key, serving_role(workload))


async def _served(
    observations: Iterable[Observation], cluster: Cluster, memory: Memory
) -> Mapping[KindName, Served | None]:
    """Return the kinds that Servers name; those that can be scaled are asked for once."""
    names = {(w.api_version, w.kind) for o in observations for w in _counted(o)}
    kinds: dict[KindName, Served | None] = {}
    for name in sorted(names):
        served = kinds[name] = memory.kinds.get(name) or await cluster.find(*name)
        if served is not None and served.is_scalable:
            memory.kinds[name] = served
    return kinds


def _age(observation: Observation) -> tuple[object, str]:
    resource = observation.resource
    return resource.age if resource else ("", "")


def _problem_of_roles(serving: Manifest, workload: Workload, role: str) -> Verdict | None:
    """Return why the number of a role is not that of the replicas; None if it is."""
    if find_role(serving, role) is None:
        return status.no_role(workload, role)
    groups = groups_of(serving)
    return None if groups == 1 else status.several_groups(workload, groups)


def _uncreated(workload: Workload, manifest: Manifest, missing: int) -> Mapping[str, int]:
    """Return how many pods of a workload are not there, by why nobody creates them.

    A Deployment that is paused is scaled all the same, unless it has never had a ReplicaSet.
    """
    conditions = manifest.get("status", {}).get("conditions", ())
    words = [c.get("message", "") for c in conditions if c["type"] == "ReplicaFailure"]
    if manifest["spec"].get("paused") is True:
        words.append(status.is_paused(workload))
    return {describe_refusal(words[0]): missing} if words and missing > 0 else {}


def _rollout(workload: Workload, manifest: Manifest, replicas: int) -> str:
    """Return why a new pod of a rollout waits for a card; "" if an old one makes room for it."""
    counts = manifest.get("status", {})
    if counts and counts.get("updatedReplicas", 0) >= counts.get("replicas", 0):
        return ""  # surplus pods are about to go
    strategy = manifest["spec"].get("strategy", {})
    most = strategy.get("rollingUpdate", {}).get("maxUnavailable", "25%")
    share = str(most).removesuffix("%")
    count = int(share) * replicas // 100 if share != str(most) else int(share)
    if workload.kind != "Deployment" or strategy.get("type") == "Recreate" or count:
        return ""
    return status.rollout_waits(workload, str(most), replicas)


class _Reader:
    """Reads the workloads of one namespace."""

    def __init__(self, world: WorkloadObjects, memory: Memory, area: _Area, now: datetime) -> None:
        self._world = world
        self._memory = memory
        self._area = area
        self._now = now

    def scaled_server(self, observation: Observation, server: Server) -> ScaledServer:
        """Return a Server with its workloads."""
        workloads = [self._found(w, observation) for w in workloads_of(observation)]
        decision = decision_for(observation, self._area.recommending)
        return ScaledServer(observation, server, decision, tuple(workloads))

    def with_left(self, scaled: ScaledServer) -> ScaledServer:
        """Return a Server with what it names no more and has replicas; nobody else may name it."""
        left = (self._left(w, scaled.observation) for w in scaled.server.left_workloads)
        return replace(scaled, left=tuple(filter(None, left)))

    def _left(self, workload: Workload, observation: Observation) -> ObservedWorkload | None:
        """Return a workload that is named no more.

        None if it is gone or has no replicas, or if another Server names it.
        """
        served = self._area.served[workload.api_version, workload.kind]
        if served is None or not _is_scalable(workload, served):
            return None
        place = _place(served.kind, observation, workload)
        own = observation.reference.key.name, workload.place
        if self._area.taken.setdefault(place, own) != own:
            return None
        if self._area.troubles[served.kind] is None and self._world.get(place) is None:
            return None
        item = self._existing(workload, place, observation)
        return item if item.scale is None or item.has_replicas else None

    def _found(self, workload: Workload, observation: Observation) -> ObservedWorkload:
        """Return a workload as it is, or why it cannot be scaled."""
        served = self._area.served[workload.api_version, workload.kind]
        if served is None:
            return ObservedWorkload(workload, problem=status.not_served(workload))
        if not _is_scalable(workload, served):
            return ObservedWorkload(workload, problem=status.no_scale(workload))
        trouble = self._area.troubles[served.kind]
        if trouble is not None:
            return ObservedWorkload(workload, problem=refusal(trouble.reason, str(trouble)))
        place = _place(served.kind, observation, workload)
        own = observation.reference.key.name, workload.place
        holder = self._area.taken.setdefault(place, own)
        if holder != own:
            problem = status.in_use(workload, holder[0])
            return ObservedWorkload(workload, problem=problem, is_of_another=True)
        return self._existing(workload, place, observation)

    def _existing(
        self, workload: Workload, place: Place, observation: Observation
    ) -> ObservedWorkload:
        """Return a workload with its number of replicas and its pods, if it exists."""
        manifest, scale = self._world.get(place), self._world.scale(place)
        if place.part and manifest is not None:
            problem = _problem_of_roles(manifest, workload, place.part)
            if problem is not None:
                return ObservedWorkload(workload, problem=problem)
        if manifest is None or scale is None:
            return ObservedWorkload(workload, problem=status.not_found(workload))
        if "deletionTimestamp" in manifest["metadata"]:
            return ObservedWorkload(workload, problem=status.is_deleted(workload))
        self._memory.saw(place, scale.reference.uid, version_of(manifest))
        if not scale.selector and not kind_of_workload(workload).is_one_pod:
            return self._unselected(workload, manifest, scale)
        selector = scale.selector and kind_of_workload(workload).first_pods + scale.selector
        pods = self._counted(place, self._area.pods.selected(selector))
        if scale.is_unset:
            scale = replace(scale, replicas=pods.live)
        troubles = self._troubles(workload, manifest, scale.replicas, pods, selector)
        pods = replace(pods, troubles=troubles)
        foreign = autoscaler_of(place, self._area.scalers)
        is_older = version_of(manifest) < int(scale.reference.version)
        if foreign is not None:
            self._memory.accept(place, scale.replicas)
        elif not is_older:
            foreign = self._writer(workload, manifest, scale, observation)
        problem = self._memory.obstacle(place, self._now)
        is_behind = is_older and not self._world.is_written(place)
        starts = self._memory.starts.saw_ready(place, pods.start_seconds)
        return ObservedWorkload(
            workload, scale, pods, foreign, problem, is_behind=is_behind, start_seconds=starts
        )

    def _unselected(self, workload: Workload, manifest: Manifest, scale: Scale) -> ObservedWorkload:
        """Return a workload whose pods cannot be seen; a controller may be about to tell them."""
        created = datetime.fromisoformat(manifest["metadata"]["creationTimestamp"])
        is_young = self._now - created < RECHECK
        if kind_of_workload(workload).publishes_selector and is_young:
            return ObservedWorkload(workload, scale, is_behind=True)
        return ObservedWorkload(workload, problem=status.no_selector(workload))

    def _troubles(
        self,
        workload: Workload,
        manifest: Manifest,
        replicas: int,
        pods: PodCounts,
        selector: str,
    ) -> Mapping[str, int]:
        """Return why replicas are not ready: what pods say, and why some are not there."""
        uncreated = _uncreated(workload, manifest, replicas - pods.live)
        troubles = Counter({**pods.troubles, **uncreated})
        if pods.ready < replicas:
            since = self._now - self._memory.clock.ahead - PATIENCE
            troubles += failures_since(self._area.pods.selected_failed(selector), since)
        rollout = _rollout(workload, manifest, replicas)
        if rollout and pods.live > replicas:
            waiting = [
                pod
                for pod in self._area.pods.selected(selector)
                if is_unschedulable(pod) and "deletionTimestamp" not in pod["metadata"]
            ]
            for pod in waiting[: pods.live - replicas]:
                (words,) = count_pods([pod], self._now).troubles
                troubles[words] -= 1
                troubles[f"{rollout} ({words})"] += 1
        return +troubles

    def _counted(self, place: Place, pods: Sequence[Manifest]) -> PodCounts:
        """Count pods; when they changed is told by the operator's clock.

        The scheduler has looked at a pod since its gate was opened, and no longer.
        """
        clock = self._memory.clock
        clock.saw(pods, self._now)
        opened = self._memory.note_gates(place, pods, self._now)
        spared = {uid for uid, time in opened.items() if self._now - time < PATIENCE}
        counts = count_pods(pods, self._now - clock.ahead - PATIENCE, spared)
        if counts.changed is None:
            return counts
        changed = max([counts.changed + clock.ahead, *opened.values()])
        return replace(counts, changed=changed)

    def _writer(
        self, workload: Workload, manifest: Manifest, scale: Scale, observation: Observation
    ) -> ForeignWriter | None:
        """Return who has changed a number that this operator had written, or had found.

        What is known survives a restart in the status of the Server.
        """
        place, memory, server = scale.place, self._memory, observation.resource
        decision = decision_for(observation, self._area.recommending)
        if not isinstance(server, Server) or not decision.fresh:
            return None
        wanted = None if decision.replicas is None else decision.replicas.get(workload.place, 0)
        recorded = server.recorded_replicas(workload, scale.reference.uid)
        known = memory.known.get(place, recorded)
        name, paused = last_writer(manifest, place.part), _paused_since(observation)
        is_first = known is None and paused is None
        is_agreed = scale.is_unset or scale.replicas in (known, wanted)
        is_own = name is None or (not name and memory.may_have_written(place, known, wanted))
        if is_first or is_agreed or is_own or server.spec.actuation == "Publish":
            memory.accept(place, scale.replicas)
            return None
        until = memory.saw_foreign(place, scale.replicas, paused, self._now)
        if self._now < until:
            return ForeignWriter(name or UNKNOWN, until)
        memory.accept(place, scale.replicas)
        return None


def _paused_since(observation: Observation) -> datetime | None:
    """Return since when a Server is said to have another writer; None if it is not."""
    before = observation.status.condition(ACTUATED)
    if before is None or before.reason != "ForeignWriter":
        return None
    return before.last_transition_time
