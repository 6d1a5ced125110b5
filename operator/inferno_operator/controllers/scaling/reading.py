"""Read what runs for Servers: kinds, numbers of replicas, pods and other writers."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from inferno_operator.controllers.scaling import status
from inferno_operator.controllers.scaling.booster_workloads import (
    BoosterObjects,
    BoosterPart,
    count_selector,
    dialect_of,
    kinds_of,
    read_part,
    workload_of,
)
from inferno_operator.controllers.scaling.decision import decision_for
from inferno_operator.controllers.scaling.pods import (
    PodCounts,
    count_pods,
    describe_refusal,
    failures_since,
    is_unschedulable,
    one_pod_each,
)
from inferno_operator.controllers.scaling.scaled_server import (
    PATIENCE,
    ObservedWorkload,
    ScaledServer,
)
from inferno_operator.controllers.scaling.status import RECHECK, refusal
from inferno_operator.controllers.scaling.world import WorkloadObjects
from inferno_operator.controllers.scaling.writers import (
    UNKNOWN,
    ForeignWriter,
    KindName,
    ScaleTarget,
    WriteMemory,
    autoscaler_of,
    last_writer,
    list_autoscalers,
    scalers_of,
)
from inferno_operator.resources import ModelBoosterRef, Server, Workload
from inferno_operator.resources.conditions import ACTUATED, Verdict
from inferno_operator.resources.model_booster import Backend
from inferno_operator.resources.objects import POD, Key, Kind, Manifest, Place, Reference
from inferno_operator.resources.observation import Observation
from inferno_operator.resources.pods import PodIndex
from inferno_operator.resources.serving_roles import (
    find_role,
    groups_of,
    kind_of_serving,
    serving_role,
)
from inferno_operator.resources.workload_kinds import kind_of_workload
from inferno_operator.runtime.cache import version_of
from inferno_operator.runtime.ports import Cluster, RejectedError, Scale, Served
from inferno_optimizer.errors import InfernoError


@dataclass(frozen=True, slots=True)
class _Area:
    """What the workloads of a namespace are compared with."""

    served: Mapping[KindName, Served | None]
    unserved: Mapping[str, Kind]
    """A kind of ModelBoosters that the API server does not serve, by Server that needs it."""
    troubles: Mapping[Kind, InfernoError | None]
    """Why the workloads of a kind, or pods, are not known."""
    rejected: Mapping[Place, RejectedError]
    """Why the number of replicas of a workload is not known."""
    pods: PodIndex
    scalers: Mapping[ScaleTarget, str]
    taken: dict[Place, tuple[str, str]]
    """The Server and accelerator of each workload, as they are found."""
    recommending: str | None
    """Why no decision is to be actuated; "" if decisions are, None without an Optimizer."""


async def read_scaled_servers(
    observations: Iterable[Observation[Server]],
    world: WorkloadObjects,
    cluster: Cluster,
    memory: WriteMemory,
    now: datetime,
    *,
    recommending: str | None = None,
) -> list[ScaledServer] | None:
    """Return the Servers of a namespace that name what runs them, the oldest first.

    `recommending` says why no decision is to be actuated, if so. None if the first list of a kind
    is awaited, which causes a reconcile.
    """
    servers = sorted(
        (
            (observation, server)
            for observation in observations
            if (server := observation.resource) and server.names_workloads
        ),
        key=lambda pair: pair[1].age,
    )
    if not servers:
        return []
    namespace = servers[0][1].metadata.namespace
    served = await _served([server for _, server in servers], cluster, memory)
    of_boosters, unserved = await _kinds_of_boosters(servers, cluster, memory)
    places = [place for _, server in servers for place in _places(server, served)]
    kinds = {place.kind for place in places} | (of_boosters & memory.served) | {POD}
    world.watch(sorted(kinds | of_boosters, key=str))  # also those that may be installed later
    if any(not world.is_complete(kind) and not world.trouble(kind) for kind in kinds):
        return None
    rejected = await world.read_scales(places)
    scalers = scalers_of(await list_autoscalers(cluster, namespace))
    troubles = {kind: world.trouble(kind) or world.trouble(POD) for kind in kinds}
    pods = world.pods(namespace)
    area = _Area(served, unserved, troubles, rejected, pods, scalers, {}, recommending)
    reader = _Reader(world, memory, area, now)
    found = [reader.scaled_server(observation, server) for observation, server in servers]
    return [reader.with_left(scaled) for scaled in found]


def _places(server: Server, served: Mapping[KindName, Served | None]) -> Iterator[Place]:
    """Return the places of the workloads of a Server that have a number of replicas."""
    for workload in server.counted_workloads:
        kind = served[workload.api_version, workload.kind]
        if kind is not None and _is_counted(workload, kind):
            yield _place(kind.kind, server, workload)


def _is_scalable(workload: Workload, served: Served) -> bool:
    """Whether a workload has a number of replicas: that of its kind, or that of a role."""
    return served.is_scalable or bool(serving_role(workload))


def _is_counted(workload: Workload, served: Served) -> bool:
    """Whether a workload tells its number of replicas: what a booster left may not be scalable."""
    return _is_scalable(workload, served) or kind_of_serving(workload) is not None


def _place(kind: Kind, server: Server, workload: Workload) -> Place:
    return Place(kind, Key(server.metadata.namespace, workload.name), serving_role(workload))


async def _served(
    servers: Iterable[Server], cluster: Cluster, memory: WriteMemory
) -> Mapping[KindName, Served | None]:
    """Return the kinds that Servers name; those that can be scaled are asked for once."""
    names = {(w.api_version, w.kind) for server in servers for w in server.counted_workloads}
    kinds: dict[KindName, Served | None] = {}
    for name in sorted(names):
        served = kinds[name] = memory.kinds.get(name) or await cluster.find(*name)
        if served is not None and served.is_scalable:
            memory.kinds[name] = served
    return kinds


async def _kinds_of_boosters(
    servers: Iterable[tuple[Observation[Server], Server]], cluster: Cluster, memory: WriteMemory
) -> tuple[set[Kind], Mapping[str, Kind]]:
    """Return the kinds of the ModelBoosters, and by Server one that is needed and not served.

    Of the kinds that bind an autoscaler to a serving each release has one.
    """
    found, unserved = set[Kind](), dict[str, Kind]()
    for _, server in servers:
        reference = server.spec.model_booster
        if reference is None:
            continue
        booster, serving, *scalers = kinds = kinds_of(reference)
        served = {kind for kind in kinds if await _is_served(kind, cluster, memory)}
        needed = [booster, serving]
        needed += [dialect_of(reference).binding] if scalers and not served & {*scalers} else []
        missing = next((kind for kind in needed if kind not in served), None)
        if missing is not None:
            unserved[server.metadata.name] = missing
        found.update(kinds)
    return found, unserved


async def _is_served(kind: Kind, cluster: Cluster, memory: WriteMemory) -> bool:
    if kind not in memory.served and kind.plural in await cluster.verbs(kind.group, kind.version):
        memory.served.add(kind)
    return kind in memory.served


def _problem_of_roles(serving: Manifest, workload: Workload, role: str) -> Verdict | None:
    """Return why the number of a role is not that of the replicas; None if it is."""
    if find_role(serving, role) is None:
        return status.unusable(workload, f"has no role {role!r}: add it there")
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

    def __init__(
        self, world: WorkloadObjects, memory: WriteMemory, area: _Area, now: datetime
    ) -> None:
        self._world = world
        self._memory = memory
        self._area = area
        self._now = now

    def scaled_server(self, observation: Observation[Server], server: Server) -> ScaledServer:
        """Return a Server with its workloads."""
        decision = decision_for(server, self._area.recommending)
        scaled = ScaledServer(observation, server, decision)
        reference = server.spec.model_booster
        if reference is None:
            found = [self._found(workload, scaled) for workload in server.spec.workloads]
        else:
            there = self._there(reference, server.metadata.namespace)
            found = [
                self._of_booster(each, reference, there, scaled) for each in reference.backends
            ]
        return replace(scaled, found=tuple(found))

    def with_left(self, scaled: ScaledServer) -> ScaledServer:
        """Return a Server with what it names no more and has replicas; nobody else may name it."""
        left = (self._left(workload, scaled) for workload in scaled.server.left_workloads)
        return replace(scaled, left=tuple(filter(None, left)))

    def _left(self, workload: Workload, scaled: ScaledServer) -> ObservedWorkload | None:
        """Return a workload that is named no more.

        None if it is gone or has no replicas, or if another Server names it.
        """
        served = self._area.served[workload.api_version, workload.kind]
        if served is None or not _is_counted(workload, served):
            return None
        place = _place(served.kind, scaled.server, workload)
        if self._holder(place, scaled, workload.place) is not None:
            return None
        if self._area.troubles[served.kind] is None and self._world.get(place) is None:
            return None
        item = self._existing(workload, place, scaled)
        return item if item.scale is None or item.has_replicas else None

    def _holder(self, place: Place, scaled: ScaledServer, accelerator: str) -> str | None:
        """Return another Server that has an object, or this one on another accelerator."""
        own = scaled.server.metadata.name, accelerator
        holder = self._area.taken.setdefault(place, own)
        return None if holder == own else holder[0]

    def _found(self, workload: Workload, scaled: ScaledServer) -> ObservedWorkload:
        """Return a workload as it is, or why it cannot be scaled."""
        served = self._area.served[workload.api_version, workload.kind]
        if served is None:
            return ObservedWorkload(workload, problem=status.not_served(workload))
        if not _is_scalable(workload, served):
            return ObservedWorkload(workload, problem=status.no_scale(workload))
        trouble = self._area.troubles[served.kind]
        if trouble is not None:
            return ObservedWorkload(workload, problem=refusal(trouble.reason, str(trouble)))
        place = _place(served.kind, scaled.server, workload)
        holder = self._holder(place, scaled, workload.place)
        if holder is not None:
            problem = status.in_use(workload, holder)
            return ObservedWorkload(workload, problem=problem, is_of_another=True)
        return self._existing(workload, place, scaled)

    def _there(self, reference: ModelBoosterRef, namespace: str) -> BoosterObjects:
        """Return the objects of a reference that exist and are not being deleted."""
        kinds, world = dialect_of(reference), self._world

        def get_all(kind: Kind, names: Iterable[str]) -> Mapping[str, Manifest]:
            if kind not in self._area.troubles:  # it is not served
                return {}
            found = {name: world.get(Place(kind, Key(namespace, name))) for name in names}
            return {
                n: m for n, m in found.items() if m and "deletionTimestamp" not in m["metadata"]
            }

        return BoosterObjects(
            get_all(kinds.booster, reference.boosters),
            get_all(kinds.serving, map(reference.serving_of, reference.backends)),
            {
                kind: world.manifests(kind, namespace)
                for kind in (kinds.scalers if reference.target == "Binding" else ())
                if kind in self._area.troubles
            },
        )

    def _of_booster(
        self,
        backend: Backend,
        reference: ModelBoosterRef,
        there: BoosterObjects,
        scaled: ScaledServer,
    ) -> ObservedWorkload:
        """Return a backend of a ModelBooster, or a role of it, or why it cannot be scaled."""
        workload, kinds = workload_of(reference, backend), dialect_of(reference)
        name, namespace = scaled.server.metadata.name, scaled.server.metadata.namespace
        booster = Place(kinds.booster, Key(namespace, reference.booster_of(backend)))
        holder = self._holder(booster, scaled, "")
        if holder is not None:
            problem = status.booster_in_use(holder, booster.key.name)
            return ObservedWorkload(workload, problem=problem, is_of_another=True)
        if name in self._area.unserved:
            problem = status.crd_missing(self._area.unserved[name])
            return ObservedWorkload(workload, problem=problem)
        troubles = filter(None, map(self._area.troubles.get, kinds_of(reference)))
        if (trouble := next(troubles, None)) is not None:
            return ObservedWorkload(workload, problem=refusal(trouble.reason, str(trouble)))
        part = read_part(reference, backend, there)
        if isinstance(part, Verdict):
            return ObservedWorkload(workload, problem=part)
        selector, group = count_selector(reference, backend)
        place = Place(part.holder.kind, Key.of(part.holder.manifest), part.name)
        pods = self._counted(place, one_pod_each(self._area.pods.selected(selector), group))
        if backend.worker:
            part = replace(part, available=pods.ready)
        ready = part.available
        pods = replace(pods, ready=ready, live=max(part.asked, ready))
        wanted = scaled.wanted_on(backend.place)
        scale = Scale(
            Reference.of(part.holder.kind, part.holder.manifest),
            part.replicas(wanted),
            selector,
            role=part.name,
        )
        self._memory.saw(place, scale.reference.uid, version_of(part.holder.manifest))
        replicas, foreign = self._disputed(part, scale, workload, scaled)
        return ObservedWorkload(
            workload,
            replace(scale, replicas=replicas),
            pods,
            foreign,
            self._memory.obstacle(place, self._now),
            start_seconds=self._memory.starts.saw_ready(place, pods.start_seconds),
            part=part,
            fight=self._memory.fight(place, self._now),
        )

    def _disputed(
        self, part: BoosterPart, scale: Scale, workload: Workload, scaled: ScaledServer
    ) -> tuple[int, ForeignWriter | None]:
        """Return the replicas that a part asks for, and who has changed the number.

        A number that is too small counts as the one before: it is set back at once. One that is
        left alone may be ours too: a write of other targets of a policy owns the list of all.
        """
        place, memory, replicas = scale.place, self._memory, scale.replicas
        is_pinned = part.reference.target == "ModelServing" and not part.is_ceiling
        serving = Place(dialect_of(part.reference).serving, Key(place.key.namespace, workload.name))
        foreign = autoscaler_of(serving, self._area.scalers) if is_pinned else None
        wanted = scaled.wanted_on(workload.place)
        known = memory.known.get(
            place, scaled.server.recorded_replicas(workload, scale.reference.uid)
        )
        paused = _paused_since(scaled.observation)
        bounds = part.holder.bounds
        if (
            foreign is not None
            or not scaled.may_dispute
            or (part.holder.is_ours and place not in memory.seen)
            or part.is_ignored
            or (part.is_ceiling and part.holder.is_number)
            or (known is None and paused is None)
        ):
            memory.accept(place, replicas)
            return replicas, foreign
        writer = part.holder.writer or UNKNOWN
        if known is not None and not bounds.covers(part.bounds_for(known)):
            memory.sets_back(place, writer, part.revision, self._now)
            return max(known, replicas), None
        if bounds in (part.bounds_for(n) for n in (known, wanted) if n is not None):
            memory.accept(place, replicas)
            return replicas, None
        return replicas, memory.leave_alone(place, replicas, writer, paused, self._now)

    def _existing(self, workload: Workload, place: Place, scaled: ScaledServer) -> ObservedWorkload:
        """Return a workload with its number of replicas and its pods, if it exists."""
        manifest, scale = self._world.get(place), self._world.scale(place)
        if (error := self._area.rejected.get(place)) is not None:
            return ObservedWorkload(workload, problem=refusal(error.reason, str(error)))
        if place.part and manifest is not None:
            problem = _problem_of_roles(manifest, workload, place.part)
            if problem is not None:
                return ObservedWorkload(workload, problem=problem)
        if manifest is None or scale is None:
            return ObservedWorkload(
                workload, problem=status.unusable(workload, "does not exist: create it")
            )
        if "deletionTimestamp" in manifest["metadata"]:
            return ObservedWorkload(
                workload, problem=status.unusable(workload, "is being deleted: create it again")
            )
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
            foreign = self._writer(workload, manifest, scale, scaled)
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
        self, workload: Workload, manifest: Manifest, scale: Scale, scaled: ScaledServer
    ) -> ForeignWriter | None:
        """Return who has changed a number that this operator had written, or had found.

        What is known survives a restart in the status of the Server.
        """
        if not scaled.wanted.fresh:
            return None
        place, memory, server = scale.place, self._memory, scaled.server
        wanted = scaled.wanted_on(workload.place)
        recorded = server.recorded_replicas(workload, scale.reference.uid)
        known = memory.known.get(place, recorded)
        name, paused = last_writer(manifest, place.part), _paused_since(scaled.observation)
        is_first = known is None and paused is None
        is_agreed = scale.is_unset or scale.replicas in (known, wanted)
        is_own = name is None or (not name and memory.may_have_written(place, known, wanted))
        if is_first or is_agreed or is_own or server.spec.actuation == "Publish":
            memory.accept(place, scale.replicas)
            return None
        return memory.leave_alone(place, scale.replicas, name or UNKNOWN, paused, self._now)


def _paused_since(observation: Observation[Server]) -> datetime | None:
    """Return since when a Server is said to have another writer; None if it is not."""
    before = observation.status.condition(ACTUATED)
    if before is None or before.reason != status.FOREIGN_WRITER:
        return None
    return before.last_transition_time
