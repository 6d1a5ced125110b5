"""Read what runs for Servers: kinds, numbers of replicas, pods and other writers."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime

from inferno_operator.controllers.scaling.boosters import (
    BoosterObjects,
    ScaledBackend,
    dialect_of,
    find_backend,
    kinds_of,
    pod_selector_of,
    workload_of,
)
from inferno_operator.controllers.scaling.decision import read_decision
from inferno_operator.controllers.scaling.pods import (
    PodCounts,
    count_failures,
    count_pods,
    describe_refusal,
    is_unschedulable,
    select_pod_of_each_replica,
)
from inferno_operator.controllers.scaling.scaled_server import (
    PATIENCE,
    ObservedWorkload,
    ScaledServer,
)
from inferno_operator.controllers.scaling.status import FOREIGN_WRITER, RECHECK, build_refusal
from inferno_operator.controllers.scaling.world import WorkloadObjects
from inferno_operator.controllers.scaling.writers import (
    UNKNOWN,
    ForeignWriter,
    KindName,
    ScaleTarget,
    WriteMemory,
    find_autoscaler,
    find_last_writer,
    list_autoscalers,
    scalers_of,
)
from inferno_operator.resources import ModelBoosterRef, Server, Workload
from inferno_operator.resources.conditions import NOT_FOUND, Verdict
from inferno_operator.resources.model_booster import Backend
from inferno_operator.resources.objects import POD, Key, Kind, Manifest, Place, Reference
from inferno_operator.resources.observation import Observation
from inferno_operator.resources.pods import PodIndex
from inferno_operator.resources.serving_roles import (
    SERVINGS,
    find_role,
    groups_of,
    kind_of_serving,
    serving_group,
    serving_role,
)
from inferno_operator.resources.workload_kinds import kind_of_workload
from inferno_operator.runtime.cache import version_of
from inferno_operator.runtime.ports import Cluster, RejectedError, Scale, Served
from inferno_optimizer.errors import InfernoError


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
            ScaledServer(observation, server, read_decision(server, recommending))
            for observation in observations
            if (server := observation.resource) and server.names_workloads
        ),
        key=lambda scaled: scaled.server.age,
    )
    if not servers:
        return []
    namespace = servers[0].server.metadata.namespace
    workloads = [w for scaled in servers for w in scaled.server.counted_workloads]
    served = await _find_kinds(workloads, cluster, memory)
    places = [
        _place_of(kind.kind, namespace, workload)
        for workload in workloads
        if (kind := served[workload.api_version, workload.kind]) and _has_number(workload, kind)
    ]
    booster_kinds, missing = await _find_booster_kinds(servers, cluster, memory)
    kinds = {place.kind for place in places} | (booster_kinds & memory.booster_kinds) | {POD}
    world.watch(sorted(kinds | booster_kinds, key=str))  # also those that may be installed later
    if any(not world.is_complete(kind) and not world.trouble_of(kind) for kind in kinds):
        return None
    rejected = await world.read_scales(places)
    scalers = scalers_of(await list_autoscalers(cluster, namespace))
    reader = _Reader(
        world,
        memory,
        now,
        namespace,
        served,
        missing,
        {kind: world.trouble_of(kind) or world.trouble_of(POD) for kind in kinds},
        rejected,
        scalers,
        world.index_pods(namespace),
    )
    # What is named comes first: what another Server names no more is of the one that names it.
    named = [reader.read_named(scaled) for scaled in servers]
    return [reader.claim_former_workloads(scaled) for scaled in named]


async def _find_kinds(
    workloads: Iterable[Workload], cluster: Cluster, memory: WriteMemory
) -> Mapping[KindName, Served | None]:
    """Return the kinds of workloads; those that can be scaled are asked for once."""
    kinds: dict[KindName, Served | None] = {}
    for name in sorted({(workload.api_version, workload.kind) for workload in workloads}):
        served = kinds[name] = memory.kinds.get(name) or await cluster.find(*name)
        if served is not None and served.is_scalable:
            memory.kinds[name] = served
    return kinds


async def _find_booster_kinds(
    servers: Iterable[ScaledServer], cluster: Cluster, memory: WriteMemory
) -> tuple[set[Kind], Mapping[str, Kind]]:
    """Return the kinds of the ModelBoosters, and by Server one that is needed and not served.

    Of the kinds that bind an autoscaler to a serving each release has one.
    """
    found, missing = set[Kind](), dict[str, Kind]()
    for server in (scaled.server for scaled in servers):
        reference = server.spec.model_booster
        if reference is None:
            continue
        booster, serving, *scalers = kinds = kinds_of(reference)
        found.update(kinds)
        for kind in kinds:
            if kind in memory.booster_kinds:
                continue
            if kind.plural in await cluster.verbs(kind.group, kind.version):
                memory.booster_kinds.add(kind)
        needed = [booster, serving]
        if scalers and memory.booster_kinds.isdisjoint(scalers):
            needed.append(dialect_of(reference).binding)
        absent = [kind for kind in needed if kind not in memory.booster_kinds]
        if absent:
            missing[server.metadata.name] = absent[0]
    return found, missing


def _is_scalable(workload: Workload, served: Served) -> bool:
    """Whether a workload has a number that can be set: that of its kind, or that of a role."""
    return served.is_scalable or bool(serving_role(workload))


def _has_number(workload: Workload, served: Served) -> bool:
    """Whether a workload tells its number of replicas: what a booster left may not be scalable."""
    return _is_scalable(workload, served) or kind_of_serving(workload) is not None


def _refuse(
    workload: Workload, reason: str, message: str, *, is_of_another: bool = False
) -> ObservedWorkload:
    problem = build_refusal(reason, message)
    return ObservedWorkload(workload, problem=problem, is_of_another=is_of_another)


def _refuse_second_owner(owner: str | None, workload: Workload) -> ObservedWorkload:
    message = f"Server {owner!r} names {workload.kind} {workload.name!r} already: each"
    message += " workload runs one server on one accelerator"
    return _refuse(workload, "Conflict", message, is_of_another=True)


def _place_of(kind: Kind, namespace: str, workload: Workload) -> Place:
    return Place(kind, Key(namespace, workload.name), serving_role(workload))


@dataclass(frozen=True, slots=True)
class _Reader:
    """Reads the workloads of one namespace."""

    world: WorkloadObjects
    memory: WriteMemory
    now: datetime
    namespace: str
    served: Mapping[KindName, Served | None]
    missing: Mapping[str, Kind]  # a kind that is needed and not served, by Server
    troubles: Mapping[Kind, InfernoError | None]  # why its objects, or pods, are not known
    rejected: Mapping[Place, RejectedError]  # why the number of a workload is not known
    scalers: Mapping[ScaleTarget, str]  # beside this operator
    pods: PodIndex
    owners: dict[Place, tuple[str, str]] = field(default_factory=dict)
    """The Server and accelerator of each workload, as they are found."""

    def read_named(self, scaled: ScaledServer) -> ScaledServer:
        """Return a Server with the workloads that it names."""
        reference = scaled.server.spec.model_booster
        if reference is None:
            named = [self._read_workload(each, scaled) for each in scaled.server.spec.workloads]
        else:
            objects = self._collect_objects(reference)
            named = [
                self._read_backend(each, reference, objects, scaled) for each in reference.backends
            ]
        return replace(scaled, named=tuple(named))

    def claim_former_workloads(self, scaled: ScaledServer) -> ScaledServer:
        """Return a Server with what it names no more and has replicas; nobody else may name it."""
        left = []
        for workload in scaled.server.left_workloads:
            served = self.served[workload.api_version, workload.kind]
            if served is None or not _has_number(workload, served):
                continue
            place = _place_of(served.kind, self.namespace, workload)
            is_gone = self.troubles[served.kind] is None and self.world.get(place) is None
            if is_gone or self._is_named_in_part_or_whole(place):
                continue
            if self._find_owner(place, scaled, workload.place) is not None:
                continue
            item = self._read_existing(workload, place, scaled)
            if item.scale is None or item.has_replicas:
                left.append(item)
        return replace(scaled, left=tuple(left))

    def _is_named_in_part_or_whole(self, place: Place) -> bool:
        """Whether a role of an object, or the whole of it, is that of a Server already."""
        return any(
            (other.kind, other.key) == (place.kind, place.key)
            and bool(other.part) != bool(place.part)
            for other in self.owners
        )

    def _find_owner(self, place: Place, scaled: ScaledServer, accelerator: str) -> str | None:
        """Return another Server that has an object, or this one on another accelerator."""
        own = scaled.server.metadata.name, accelerator
        owner = self.owners.setdefault(place, own)
        return None if owner == own else owner[0]

    def _read_workload(self, workload: Workload, scaled: ScaledServer) -> ObservedWorkload:
        """Return a workload as it is, or why it cannot be scaled."""
        kind, version = workload.kind, workload.api_version
        served = self.served[version, kind]
        if served is None:
            message = f"the API server does not serve {kind} of {version}: install its definition,"
            return _refuse(workload, NOT_FOUND, f"{message} or correct spec.workloads")
        if not _is_scalable(workload, served):
            message = f"{kind} of {version} has no scale subresource: name"
            return _refuse(workload, "NoScale", f"{message} {kind_of_workload(workload).instead}")
        trouble = self.troubles[served.kind]
        if trouble is not None:
            return _refuse(workload, trouble.reason, str(trouble))
        place = _place_of(served.kind, self.namespace, workload)
        owner = self._find_owner(place, scaled, workload.place)
        if owner is not None:
            return _refuse_second_owner(owner, workload)
        return self._read_existing(workload, place, scaled)

    def _read_existing(
        self, workload: Workload, place: Place, scaled: ScaledServer
    ) -> ObservedWorkload:
        """Return a workload with its number of replicas and its pods, if it exists."""
        manifest, scale = self.world.get(place), self.world.scale_of(place)
        problem = self._find_problem(workload, place)
        if problem is not None or manifest is None or scale is None:
            return ObservedWorkload(workload, problem=problem)
        memory, kind = self.memory[place], kind_of_workload(workload)
        memory.note_object(scale.reference.uid, version_of(manifest))
        if not scale.selector and not kind.is_one_pod:  # its pods cannot be seen
            age = self.now - datetime.fromisoformat(manifest["metadata"]["creationTimestamp"])
            if kind.publishes_selector and age < RECHECK:  # its controller may be about to
                return ObservedWorkload(workload, scale, is_behind=True)
            remedy = f"add labelSelectorPath to the definition of {workload.kind},"
            if kind.publishes_selector:
                remedy = "check that its controller runs, which fills that field"
            else:
                remedy += " and fill that field"
            message = f"the scale subresource of {workload.kind} {workload.name!r} has no selector"
            message += f" (status.selector), so its pods cannot be seen: {remedy}"
            return _refuse(workload, "NoScale", message)
        selector = scale.selector and kind.first_pods + scale.selector
        own_pods: Sequence[Manifest] = self.pods.selected(selector)
        if place.kind in SERVINGS and not place.part:  # each role of a replica has a first pod
            own_pods = select_pod_of_each_replica(own_pods, serving_group(place.kind))
        pods = self._count_pods(place, own_pods)
        if scale.is_unset:
            scale = replace(scale, replicas=pods.live)
        troubles = self._find_troubles(workload, manifest, scale.replicas, pods, selector)
        foreign = find_autoscaler(place, self.scalers)
        is_older = version_of(manifest) < int(scale.reference.version)
        if foreign is not None:
            memory.note_undisputed(scale.replicas)
        elif not is_older:
            foreign = self._find_writer(workload, manifest, scale, scaled)
        return ObservedWorkload(
            workload,
            scale,
            replace(pods, troubles=troubles),
            foreign,
            memory.find_obstacle(self.now),
            is_behind=is_older and not self.world.is_written(place),
            start_seconds=memory.starts.note_ready(pods.start_seconds),
        )

    def _find_problem(self, workload: Workload, place: Place) -> Verdict | None:
        """Return why the number of an object, or a role of it, is not known."""
        manifest, error = self.world.get(place), self.rejected.get(place)
        name, problem = f"{workload.kind} {workload.name!r}", ""
        if error is not None:
            return build_refusal(error.reason, str(error))
        if place.part and manifest is not None and find_role(manifest, place.part) is None:
            problem = f"has no role {place.part!r}: add it there"
        elif place.part and manifest is not None and groups_of(manifest) != 1:
            message = f"{name} has {groups_of(manifest)} groups: set its spec.replicas to 1, as the"
            return build_refusal(
                "SeveralGroups", f"{message} operator scales the roles of one group"
            )
        elif manifest is None or self.world.scale_of(place) is None:
            problem = "does not exist: create it"
        elif "deletionTimestamp" in manifest["metadata"]:
            problem = "is being deleted: create it again"
        if not problem:
            return None
        return build_refusal(NOT_FOUND, f"{name} {problem}, or correct spec.workloads")

    def _find_troubles(
        self,
        workload: Workload,
        manifest: Manifest,
        replicas: int,
        pods: PodCounts,
        selector: str,
    ) -> Mapping[str, int]:
        """Return why replicas are not ready: what pods say, and why some are not there."""
        troubles = Counter(pods.troubles)
        conditions = manifest.get("status", {}).get("conditions", ())
        refusals = [c.get("message", "") for c in conditions if c["type"] == "ReplicaFailure"]
        # A Deployment that is paused is scaled all the same, unless it never had a ReplicaSet.
        if manifest["spec"].get("paused") is True:
            name = f"{workload.kind} {workload.name!r}"
            refusals.append(f"{name} is paused: set its spec.paused to false")
        if refusals and replicas > pods.live:
            troubles[describe_refusal(refusals[0])] = replicas - pods.live
        if pods.ready < replicas:
            since = self.now - self.memory.clock.ahead - PATIENCE
            troubles += count_failures(self.pods.selected_failed(selector), since)
        rollout = _describe_rollout(workload, manifest, replicas)
        if rollout and pods.live > replicas:
            surplus = [
                pod
                for pod in self.pods.selected(selector)
                if is_unschedulable(pod) and "deletionTimestamp" not in pod["metadata"]
            ]
            for pod in surplus[: pods.live - replicas]:
                (words,) = count_pods([pod], self.now).troubles
                troubles[words] -= 1
                troubles[f"{rollout} ({words})"] += 1
        return +troubles

    def _count_pods(self, place: Place, pods: Sequence[Manifest]) -> PodCounts:
        """Count pods; when they changed is told by the operator's clock.

        The scheduler has looked at a pod since its gate was opened, and no longer.
        """
        clock = self.memory.clock
        clock.note_pods(pods, self.now)
        opened = self.memory[place].note_gates(pods, self.now)
        lately_gated = {uid for uid, time in opened.items() if self.now - time < PATIENCE}
        counts = count_pods(pods, self.now - clock.ahead - PATIENCE, lately_gated)
        if counts.changed is None:
            return counts
        return replace(counts, changed=max([counts.changed + clock.ahead, *opened.values()]))

    def _find_writer(
        self, workload: Workload, manifest: Manifest, scale: Scale, scaled: ScaledServer
    ) -> ForeignWriter | None:
        """Return who has changed a number that this operator had written, or had found."""
        if not scaled.wanted.is_written:
            return None
        memory, replicas = self.memory[scale.place], scale.replicas
        known, paused = self._recall(workload, scale, scaled)
        wanted = _wanted_on(workload.place, scaled)
        name = find_last_writer(manifest, scale.place.part)
        is_agreed = scale.is_unset or replicas in (known, wanted)
        is_own = name is None or (not name and memory.may_have_written(known, wanted))
        is_first = known is None and paused is None
        if is_first or is_agreed or is_own or scaled.server.spec.actuation == "Publish":
            memory.note_undisputed(replicas)
            return None
        return memory.leave_alone(replicas, name or UNKNOWN, paused, self.now)

    def _recall(
        self, workload: Workload, scale: Scale, scaled: ScaledServer
    ) -> tuple[int | None, datetime | None]:
        """Return the number that nobody disputed, and since when another writer is left alone.

        Both survive a restart in the status of the Server.
        """
        known, before = self.memory[scale.place].replicas, scaled.condition
        if known is None:
            known = scaled.server.recorded_replicas(workload, scale.reference.uid)
        is_paused = before is not None and before.reason == FOREIGN_WRITER
        return known, before.last_transition_time if before is not None and is_paused else None

    def _collect_objects(self, reference: ModelBoosterRef) -> BoosterObjects:
        """Return the objects of a reference that exist and are not being deleted."""
        kinds, world = dialect_of(reference), self.world

        def get_all(kind: Kind, names: Iterable[str]) -> Mapping[str, Manifest]:
            if kind not in self.troubles:  # it is not served
                return {}
            found = {name: world.get(Place(kind, Key(self.namespace, name))) for name in names}
            return {
                n: m for n, m in found.items() if m and "deletionTimestamp" not in m["metadata"]
            }

        return BoosterObjects(
            get_all(kinds.booster, reference.boosters),
            get_all(kinds.serving, map(reference.serving_of, reference.backends)),
            {
                kind: world.list_objects(kind, self.namespace)
                for kind in (kinds.scalers if reference.target == "Binding" else ())
                if kind in self.troubles
            },
        )

    def _read_backend(
        self,
        backend: Backend,
        reference: ModelBoosterRef,
        objects: BoosterObjects,
        scaled: ScaledServer,
    ) -> ObservedWorkload:
        """Return a backend of a ModelBooster, or a role of it, or why it cannot be scaled."""
        workload, kinds = workload_of(reference, backend), dialect_of(reference)
        booster = Place(kinds.booster, Key(self.namespace, reference.booster_of(backend)))
        owner = self._find_owner(booster, scaled, "")
        if owner is not None:
            message = f"the older Server {owner!r} refers to {booster.key.name!r} too: remove"
            message += " spec.modelBooster from one of the two Servers"
            return _refuse(workload, "Conflict", message, is_of_another=True)
        # What runs is no longer that of a Server that left it.
        serving = _place_of(kinds.serving, self.namespace, workload)
        owner = self._find_owner(serving, scaled, workload.place)
        if owner not in (None, scaled.server.metadata.name):
            return _refuse_second_owner(owner, workload)
        kind = self.missing.get(scaled.server.metadata.name)
        if kind is not None:
            remedy = f"install the custom resource definitions of {kind.group}"
            return _refuse(workload, "CRDMissing", f"{kind} is not served: {remedy}")
        for trouble in filter(None, map(self.troubles.get, kinds_of(reference))):
            return _refuse(workload, trouble.reason, str(trouble))
        found = find_backend(reference, backend, objects)
        if isinstance(found, Verdict):
            return ObservedWorkload(workload, problem=found)
        written = Reference.of(found.fields.kind, found.fields.manifest)
        place = Place(written.kind, written.key, found.name)
        memory = self.memory[place]
        selector, group = pod_selector_of(reference, backend)
        own_pods = select_pod_of_each_replica(self.pods.selected(selector), group)
        pods = self._count_pods(place, own_pods)
        if backend.worker:
            found = replace(found, available=pods.ready)
        pods = replace(pods, ready=found.available, live=max(found.requested, found.available))
        replicas = found.count_replicas(_wanted_on(backend.place, scaled))
        scale = Scale(written, replicas, selector, role=found.name)
        memory.note_object(scale.reference.uid, version_of(found.fields.manifest))
        replicas, foreign = self._judge_backend_change(found, scale, workload, scaled)
        return ObservedWorkload(
            workload,
            replace(scale, replicas=replicas),
            pods,
            foreign,
            memory.find_obstacle(self.now),
            start_seconds=memory.starts.note_ready(pods.start_seconds),
            backend=found,
            repeated_writer=memory.find_repeated_writer(self.now),
        )

    def _judge_backend_change(
        self, backend: ScaledBackend, scale: Scale, workload: Workload, scaled: ScaledServer
    ) -> tuple[int, ForeignWriter | None]:
        """Return the replicas that a backend asks for, and who has changed them.

        A number that is too small counts as the one before: it is set back at once. One that is
        left alone may be ours too: a write of other targets of a policy owns the list of all.
        """
        memory, fields, replicas = self.memory[scale.place], backend.fields, scale.replicas
        known, paused = self._recall(workload, scale, scaled)
        wanted = _wanted_on(workload.place, scaled)
        foreign = None
        if backend.reference.target == "ModelServing" and not backend.is_ceiling:
            serving = dialect_of(backend.reference).serving
            place = Place(serving, Key(self.namespace, workload.name))
            foreign = find_autoscaler(place, self.scalers)
        is_decided = scaled.wanted.is_written and scaled.wanted.replicas is not None
        if (
            foreign is not None
            or not (is_decided and scaled.server.spec.actuation == "Scale")
            or (fields.is_ours and memory.foreign_number is None)
            or backend.is_ignored
            or (backend.is_ceiling and fields.is_exact)
            or (known is None and paused is None)
        ):
            memory.note_undisputed(replicas, fields.bounds)
            return replicas, foreign
        writer = fields.other_writer or UNKNOWN
        if known is not None and not fields.bounds.covers(backend.bounds_for(known)):
            memory.note_reset(writer, backend.revision, self.now)
            return max(known, replicas), None
        agreed = [backend.bounds_for(n) for n in (known, wanted) if n is not None]
        if fields.bounds in (*agreed, memory.bounds):
            memory.note_undisputed(replicas, fields.bounds)
            return replicas, None
        return replicas, memory.leave_alone(replicas, writer, paused, self.now)


def _wanted_on(place: str, scaled: ScaledServer) -> int | None:
    """Return the wanted replicas of a place; None if what runs stays as it is."""
    wanted = scaled.wanted.replicas
    return None if wanted is None else wanted.get(place, 0)


def _describe_rollout(workload: Workload, manifest: Manifest, replicas: int) -> str:
    """Return why a new pod of a rollout waits for a card; "" if an old one makes room for it."""
    counts = manifest.get("status", {})
    if counts and counts.get("updatedReplicas", 0) >= counts.get("replicas", 0):
        return ""  # surplus pods are about to go
    strategy = manifest["spec"].get("strategy", {})
    most = str(strategy.get("rollingUpdate", {}).get("maxUnavailable", "25%"))
    count = int(most[:-1]) * replicas // 100 if most.endswith("%") else int(most)
    if workload.kind != "Deployment" or strategy.get("type") == "Recreate" or count:
        return ""
    return (
        f"the rollout of {workload.kind} {workload.name!r} waits for a card: its maxUnavailable"
        f" ({most} of {replicas} replicas) is 0; set it to 1, or add a card"
    )
