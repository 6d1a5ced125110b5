"""Read the workloads of Servers: their kinds, numbers of replicas, pods and other writers."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime

from inferno_operator.controllers.actuation.autoscalers import (
    ScaleTarget,
    list_autoscalers,
    scalers_of,
)
from inferno_operator.controllers.actuation.cluster_clock import ClusterClock
from inferno_operator.controllers.actuation.lead_times import FirstStarts
from inferno_operator.controllers.actuation.pods import PodCounts, count_pods
from inferno_operator.controllers.actuation.recommendation import decision_for
from inferno_operator.controllers.actuation.status import PAUSE, RECHECK, refusal
from inferno_operator.controllers.actuation.workloads import status
from inferno_operator.controllers.actuation.workloads.conflicts import (
    ForeignWriter,
    autoscaler_of,
    last_writer,
)
from inferno_operator.controllers.actuation.workloads.scaled_server import (
    PATIENCE,
    ObservedWorkload,
    ScaledServer,
)
from inferno_operator.controllers.actuation.workloads.world import WorkloadObjects
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
from inferno_operator.runtime.texts import shortened
from inferno_optimizer.errors import InfernoError

TRIES = 3
"""Failed writes in a row after which a Server is blocked."""

UNKNOWN = "somebody whom the API server does not name"
"""Another writer of a number of replicas whom nobody knows."""

KindName = tuple[str, str]
"""The apiVersion and the kind of a workload."""


@dataclass(frozen=True, slots=True)
class Failure:
    """Failed writes of a workload in a row, with the last error and its time."""

    count: int
    error: str
    time: datetime


@dataclass(slots=True)
class Memory:
    """What is remembered between reconciles; without it, only messages and pauses differ.

    Parameters
    ----------
    kinds
        Kinds with a scale subresource.
    written
        The number of replicas that this operator has written last, by workload; None after a
        write that failed, which may have arrived.
    seen
        When another writer of the number of replicas was seen first, by workload.
    failures
        Failed writes by workload, since the last one that succeeded.
    uids
        The uids of the workloads: one that was created again has nobody to fight with.
    versions
        The versions of the workloads: one that is older now was restored, and nobody wrote it.
    clock
        The clock by which pods began.
    starts
        How long pods took to start.
    """

    kinds: dict[KindName, Served] = field(default_factory=dict)
    written: dict[Place, int | None] = field(default_factory=dict)
    seen: dict[Place, datetime] = field(default_factory=dict)
    failures: dict[Place, Failure] = field(default_factory=dict)
    uids: dict[Place, str] = field(default_factory=dict)
    versions: dict[Place, int] = field(default_factory=dict)
    clock: ClusterClock = field(default_factory=ClusterClock)
    starts: FirstStarts = field(default_factory=FirstStarts)

    def saw(self, place: Place, uid: str, version: int) -> None:
        """Take note of a workload; forget another one of the same name, and a newer version."""
        if self.uids.get(place, uid) != uid or version < self.versions.get(place, version):
            self.written.pop(place, None)
            self.seen.pop(place, None)
            self.failures.pop(place, None)
        self.uids[place] = uid
        self.versions[place] = version

    def wrote(self, place: Place, replicas: int) -> None:
        """Remember that a write succeeded."""
        self.written[place] = replicas
        self.seen.pop(place, None)
        self.failures.pop(place, None)

    def failed(self, place: Place, error: str, now: datetime) -> None:
        """Remember that a write failed."""
        before = self.failures.get(place)
        self.failures[place] = Failure(before.count + 1 if before else 1, error, now)
        if place in self.written:
            self.written[place] = None

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
    return {shortened(words[0]): missing} if words and missing > 0 else {}


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
        selector = scale.selector and kind_of_workload(workload).first_pods + scale.selector
        pods = self._counted(self._area.pods.selected(selector))
        if scale.is_unset:
            scale = replace(scale, replicas=pods.live)
        uncreated = _uncreated(workload, manifest, scale.replicas - pods.live)
        pods = replace(pods, troubles={**pods.troubles, **uncreated})
        foreign = autoscaler_of(place, self._area.scalers)
        is_older = version_of(manifest) < int(scale.reference.version)
        if foreign is None and not is_older:
            foreign = self._writer(place, manifest, scale, observation)
        problem = self._memory.obstacle(place, self._now)
        is_behind = is_older and not self._world.is_written(place)
        starts = self._memory.starts.saw_ready(place, pods.start_seconds)
        return ObservedWorkload(
            workload, scale, pods, foreign, problem, is_behind=is_behind, start_seconds=starts
        )

    def _counted(self, pods: Sequence[Manifest]) -> PodCounts:
        """Count pods; when they changed is told by the operator's clock."""
        clock = self._memory.clock
        clock.saw(pods, self._now)
        counts = count_pods(pods, self._now - clock.ahead - PATIENCE)
        if counts.changed is None:
            return counts
        return replace(counts, changed=counts.changed + clock.ahead)

    def _writer(
        self, place: Place, manifest: Manifest, scale: Scale, observation: Observation
    ) -> ForeignWriter | None:
        """Return who has changed the number of replicas after this operator."""
        name, before = last_writer(manifest, place.part), observation.status.condition(ACTUATED)
        foreign = before if before is not None and before.reason == "ForeignWriter" else None
        written = self._memory.written
        if name is None or (place not in written and foreign is None):
            return None
        if not name and place in written and written[place] in (None, scale.replicas):
            return None
        since = min(foreign.last_transition_time, self._now) if foreign else self._now
        until = self._memory.seen.setdefault(place, since) + PAUSE
        return ForeignWriter(name or UNKNOWN, until) if self._now < until else None
