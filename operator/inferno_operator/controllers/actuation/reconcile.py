"""Drive the ModelBooster of a Server towards its decision; safe to repeat.

A reconcile reads the objects, decides the next step and takes it, and reports on the Server
which replicas run and whether they are those of the decision.
"""

import asyncio
import logging
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Protocol

from inferno_operator.controllers.actuation.booster_bounds import Write, owns_more
from inferno_operator.controllers.actuation.changes import ActuationPlan, Inputs, decide
from inferno_operator.controllers.actuation.current import (
    current_allocation,
    has_changed,
    is_mistyped,
    reported_on,
    running,
    unit_costs,
)
from inferno_operator.controllers.actuation.decision import (
    OPTIMIZER,
    Wanted,
    decision_for,
    is_as_decided,
    recommending,
)
from inferno_operator.controllers.actuation.disputes import Disputes, Fight
from inferno_operator.controllers.actuation.index import ServerIndex
from inferno_operator.controllers.actuation.move import Limits, Move
from inferno_operator.controllers.actuation.reductions import (
    AT_ONCE,
    is_approved,
    note_fall,
    reductions_of,
    served_in_window,
    way_down_of,
)
from inferno_operator.controllers.actuation.release import (
    SERVER,
    names_workloads,
    reference_of,
    release,
    release_fields,
)
from inferno_operator.controllers.actuation.serving_pods import ServingPods
from inferno_operator.controllers.actuation.starts import FirstStarts, Starts, read_starts
from inferno_operator.controllers.actuation.status import (
    RELEASED,
    condition,
    conflict,
    refusal,
    released,
    status_of,
)
from inferno_operator.controllers.actuation.targets import (
    ScaledObjects,
    booster_places,
    dialect,
    holders,
    read_places,
    replica_places,
    revision,
    serving_places,
)
from inferno_operator.controllers.actuation.writers import (
    list_autoscalers,
    scaler_of,
    scalers_of,
)
from inferno_operator.resources import (
    CURRENT_ALLOC,
    Accelerator,
    Capacity,
    MeasuredLeadTime,
    Model,
    ModelBoosterRef,
    Optimizer,
    ReplicaReduction,
    Resource,
    Server,
    ServerStatus,
    ServiceClass,
)
from inferno_operator.resources.conditions import ACTUATED, ALLOCATED, Verdict
from inferno_operator.resources.objects import Key, Kind, Manifest, Now, Place, Reference, kind_of
from inferno_operator.resources.observation import Observation, observe, readable
from inferno_operator.runtime.ports import (
    Cluster,
    ConflictError,
    FieldManager,
    GoneError,
    StaleError,
)
from inferno_operator.runtime.work_queue import ReconcileResult
from inferno_optimizer.errors import InfernoError, UnavailableError
from inferno_optimizer.solution import Reason
from inferno_optimizer.way_down import strengths

logger = logging.getLogger(__name__)


class Supplies(Protocol):
    """What replicas of the Servers of a system carry, and which cards they need."""

    def rate(self, server: Server, place: str) -> float | None:
        """Return what one replica carries [requests/min]; None if that is not known."""

    def demand(self, server: Server) -> float:
        """Return what the replicas of a server have to carry now [requests/min]."""

    def urgent_replicas(
        self, server: Server, servers: Iterable[Server], places: Iterable[str]
    ) -> Mapping[str, int]:
        """Return the replicas by place whose cards more important servers need now."""


SuppliesOf = Callable[[Iterable[Resource]], Supplies]
"""Reads what replicas carry from the objects of a namespace."""


@dataclass(frozen=True, slots=True)
class Context:
    """What reconciles need.

    `pods` has the pods of servings by dialect; `disputes` remembers what was taken over from
    other managers, and `first_starts` how long pods took. Without `supplies_of`, replicas of
    different accelerators count alike where they go slowly.
    """

    cluster: Cluster
    now: Now
    index: ServerIndex = field(default_factory=ServerIndex)
    disputes: Disputes = field(default_factory=Disputes)
    pods: Mapping[str, ServingPods] = field(default_factory=dict)
    first_starts: FirstStarts = field(default_factory=FirstStarts)
    supplies_of: SuppliesOf | None = None


async def reconcile(key: Key, context: Context) -> ReconcileResult:
    """Actuate the decision for a Server; a key without a name releases unreferenced objects."""
    try:
        if not key.name:
            await release(key.namespace, context.cluster)
            return ReconcileResult.SETTLED
        return await _actuate(await context.cluster.get(SERVER, key), context)
    except GoneError:
        return ReconcileResult.SETTLED
    except StaleError as error:
        logger.debug("%s; trying again", error)
        return ReconcileResult.FAILED
    except InfernoError as error:
        logger.warning("Server %s: not actuated: %s", key, error)
        return ReconcileResult.FAILED


async def _actuate(manifest: Manifest, context: Context) -> ReconcileResult:
    observation = observe(Server, manifest)
    if observation.resource is None or observation.deleted is not None:
        return ReconcileResult.SETTLED  # the optimization controller reports why it cannot be read
    reference = reference_of(observation)
    if names_workloads(observation):
        return ReconcileResult.SETTLED
    if reference is None:
        return await _release(observation, context)
    try:
        inputs = await _read(observation, reference, context)
        inputs = await _with_limits(inputs, observation, context)
        plan = decide(inputs, context.now())
        manifest = await _remember(plan, manifest, context)
        plan = await _execute(plan, inputs, context)
        starts = _starts(observation, reference, context)
        current = await _current(observation, inputs, starts, context)
    except (StaleError, UnavailableError):
        raise  # a later reconcile may succeed, and the progress of the move is not known
    except InfernoError as error:
        times, verdict = _reported_lead_times(observation), refusal(error.reason, str(error))
        await _report(observation, manifest, verdict, times, context)
        raise
    if current is not None:
        manifest = await _report_current(observation, current, context)
    times = starts.lead_times if starts else _reported_lead_times(observation)
    await _report(observation, manifest, plan.verdict, times, context, plan.reductions)
    looks = plan.again_after, starts.warm_after if starts else None
    return ReconcileResult.due_after(min(filter(None, looks), default=None))


async def _release(observation: Observation, context: Context) -> ReconcileResult:
    """Release the objects of a Server without reference, unless its status reports that."""
    before = observation.status.condition(ACTUATED)
    if before is None or before.reason == RELEASED:
        return ReconcileResult.SETTLED
    await release(observation.reference.key.namespace, context.cluster)
    newest = await context.cluster.get(SERVER, observation.reference.key)
    await _report(observation, newest, released(), (), context)
    return ReconcileResult.SETTLED


async def _read(observation: Observation, reference: ModelBoosterRef, context: Context) -> Inputs:
    """Read the inputs of the plan."""
    key = observation.reference.key
    why = await recommending(key.namespace, context.cluster)
    inputs = Inputs(reference, decision_for(observation, why), observation.status)
    rival = _rival(reference, key, context)
    if rival is not None:
        return replace(inputs, rival=rival)
    places = read_places(reference, key.namespace)
    manifests = await _get_all(places, context)
    scalers = await _scalers(reference, key.namespace, context)
    needed = [place.kind for place in places] if None in manifests else []
    if reference.target == "Binding" and not scalers:
        needed.append(dialect(reference).binding)
    unserved = await _unserved(needed, context)
    if unserved is not None:
        return replace(inputs, unserved=unserved)
    boosters, servings = manifests[: len(reference.boosters)], manifests[len(reference.boosters) :]
    live, ready = _live_by_name(boosters), _ready_roles(reference, key.namespace, context)
    if ready is None:
        inputs = replace(inputs, wanted=Wanted(None, fresh=False))
    there = ScaledObjects(live, _live_by_name(servings), scalers, ready or {})
    workload = there if live else None
    autoscaler = await _autoscaler(reference, key.namespace, context)
    return replace(inputs, workload=workload, autoscaler=autoscaler)


async def _with_limits(inputs: Inputs, observation: Observation, context: Context) -> Inputs:
    """Return the inputs with what limits how fast replicas go, if any are to go."""
    move, server = inputs.move, observation.resource
    if move is None or not isinstance(server, Server):
        return inputs
    reported = _reported(server, move)
    has_fallen = any(move.serving[place] < n for place, n in reported.items())
    if not (move.shrinks or server.status.reductions or has_fallen):
        return inputs
    namespace = observation.reference.key.namespace
    try:
        optimizers = (await context.cluster.list(OPTIMIZER, namespace)).manifests
    except GoneError:  # the kind is not installed
        optimizers = ()
    way_down, now = way_down_of(optimizers), context.now()
    window = timedelta(seconds=way_down.window_s)
    standing = _standing(inputs.reference, namespace, now - window, context)
    known = server.status.reductions
    fallen = note_fall(known, move.serving, reported, way_down, now, standing)
    limits = Limits(
        AT_ONCE if is_approved(server, inputs.wanted.replicas) else way_down,
        served_in_window(fallen, way_down, now),
        standing,
    )
    is_news = has_fallen and fallen != note_fall(known, {}, {}, way_down, now)
    inputs = replace(inputs, limits=limits, fallen=fallen if is_news else None)
    if not move.shrinks or context.supplies_of is None:
        return inputs
    others, servers = await _list_resources(namespace, context)
    own = context.supplies_of([*others, server])
    limits = replace(
        limits,
        rates={place: own.rate(server, place) for place in move.roles},
        load=_floor(server, own, move),
    )
    inputs = replace(inputs, limits=limits)
    if inputs.move is not None and inputs.move.slowed:
        every = context.supplies_of([*others, *servers])
        urgent = every.urgent_replicas(server, servers, move.roles)
        inputs = replace(inputs, limits=replace(limits, urgent=urgent))
    return inputs


def _reported(server: Server, move: Move) -> Mapping[str, int]:
    """Return the replicas by place that served when they were last reported, if they were."""
    if server.status.condition(ACTUATED) is None:  # a person has written what runs
        return {}
    return {place: reported_on(server, place) for place in move.roles}


async def _list_resources(
    namespace: str, context: Context
) -> tuple[Sequence[Resource], Sequence[Server]]:
    """Return what a system is built from: all other objects of a namespace, and its Servers."""
    observations = []
    for kind in (Accelerator, Capacity, Model, Optimizer, ServiceClass, Server):
        listing = await context.cluster.list(kind_of(kind), namespace)
        observations += [observe(kind, manifest) for manifest in listing.manifests]
    resources = list(readable(observations))
    servers = [each for each in resources if isinstance(each, Server)]
    return [each for each in resources if not isinstance(each, Server)], servers


def _floor(server: Server, supplies: Supplies, move: Move) -> float:
    """Return what replicas that stay must carry [requests/min].

    A decision that is carried out carries the load that it was made for, or a part on purpose.
    """
    load, allocated = supplies.demand(server), server.status.condition(ALLOCATED)
    is_best_effort = allocated is not None and allocated.reason != Reason.ALLOCATED
    if not (is_best_effort or is_as_decided(server)):
        return load
    rates = {place: supplies.rate(server, place) for place in move.roles}
    weights = strengths(move.roles, rates)
    return min(load, *(sum(w * move.wanted.get(p, 0) for p, w in half.items()) for half in weights))


def _standing(
    reference: ModelBoosterRef, namespace: str, since: datetime, context: Context
) -> Mapping[str, int]:
    """Return the replicas by place that have been ready since a time, as far as pods tell."""
    pods = context.pods.get(reference.dialect)
    if pods is None:
        return {}
    places = zip(reference.backends, replica_places(reference, namespace), strict=True)
    counts = {backend.place: pods.ready(place) for backend, place in places}
    return {
        place: sum(time <= since for time in each.ready_since)
        for place, each in counts.items()
        if each is not None
    }


async def _remember(plan: ActuationPlan, manifest: Manifest, context: Context) -> Manifest:
    """Write on a Server what served before some of it goes; returns the Server after the write."""
    status = observe(Server, manifest).status
    if not plan.takes or not isinstance(status, ServerStatus):
        return manifest
    fields = status_of(status.condition(ACTUATED), status.lead_times, (), plan.reductions or ())
    body = Reference.of(SERVER, manifest).manifest_at_version(status=fields)
    return await context.cluster.apply(SERVER, body, FieldManager.ACTUATION)


def _ready_roles(
    reference: ModelBoosterRef, namespace: str, context: Context
) -> Mapping[str, int] | None:
    """Return the ready replicas of roles; None while the first list of pods is awaited.

    Raises
    ------
    InfernoError
        Pods may not be read: nothing else tells how many replicas of a role are ready.
    """
    if not reference.has_roles:
        return {}
    pods = context.pods[reference.dialect]
    if pods.trouble is not None:
        raise pods.trouble
    places = zip(reference.backends, replica_places(reference, namespace), strict=True)
    counts = {reference.part_of(b): pods.ready(place) for b, place in places if b.worker}
    known = {name: count.ready for name, count in counts.items() if count is not None}
    return known if len(known) == len(counts) else None


def _rival(reference: ModelBoosterRef, key: Key, context: Context) -> tuple[str, str] | None:
    """Return an older Server that refers to one of the boosters, and that booster, if any."""
    for place in booster_places(reference, key.namespace):
        holder = context.index.holder(place)
        if holder is not None and holder != key:
            return holder.name, place.key.name
    return None


async def _scalers(
    reference: ModelBoosterRef, namespace: str, context: Context
) -> Mapping[Kind, Sequence[Manifest]]:
    """Return the bindings and policies of a namespace, by those of their kinds that are served."""
    by_kind: dict[Kind, Sequence[Manifest]] = {}
    for kind in dialect(reference).scalers if reference.target == "Binding" else ():
        try:
            by_kind[kind] = (await context.cluster.list(kind, namespace)).manifests
        except GoneError:
            logger.debug("%s is not served", kind)  # each release has one of them
    return by_kind


async def _autoscaler(
    reference: ModelBoosterRef, namespace: str, context: Context
) -> tuple[str, Place] | None:
    """Return an autoscaler that chooses the number of a serving that actuation pins, if any."""
    if reference.target != "ModelServing" or reference.bounds != "Pin":
        return None
    scalers = scalers_of(await list_autoscalers(context.cluster, namespace))
    named = ((scaler_of(place, scalers), place) for place in serving_places(reference, namespace))
    return next(((name, place) for name, place in named if name is not None), None)


async def _unserved(kinds: Iterable[Kind], context: Context) -> Kind | None:
    """Return the first of these kinds that the API server does not serve, if any."""
    for kind in dict.fromkeys(kinds):
        if kind.plural not in await context.cluster.verbs(kind.group, kind.version):
            return kind
    return None


async def _get_all(places: Iterable[Place], context: Context) -> list[Manifest | None]:
    async def get(place: Place) -> Manifest | None:
        try:
            return await context.cluster.get(place.kind, place.key)
        except GoneError:
            return None

    return await asyncio.gather(*map(get, places))


def _live_by_name(manifests: Iterable[Manifest | None]) -> dict[str, Manifest]:
    """Return the objects that exist and are not being deleted: those replace nothing."""
    live = (m for m in manifests if m is not None and "deletionTimestamp" not in m["metadata"])
    return {m["metadata"]["name"]: m for m in live}


async def _execute(plan: ActuationPlan, inputs: Inputs, context: Context) -> ActuationPlan:
    """Do the writes of a plan; returns the plan, or one that reports a fight.

    A conflict about one object does not keep the others from being written.
    """
    fights: list[Fight] = []
    for write in plan.writes:
        for booster in inputs.workload.boosters.values() if inputs.workload is not None else ():
            await _drop_unnamed(write, booster, context)
        try:
            await _apply(write, context, force=False)
        except ConflictError as error:
            fights += await _take_over(write, error, inputs, context)
        context.disputes.wrote(write.reference.uid)
    now, uids = context.now(), _written_uids(inputs)
    return _reporting(plan, context.disputes.fights(fights, uids, now), now)


def _written_uids(inputs: Inputs) -> Collection[str]:
    """Return the uids of the objects that have the numbers of replicas."""
    if inputs.workload is None:
        return ()
    written = holders(inputs.reference, inputs.workload).values()
    return dict.fromkeys(holder.manifest["metadata"]["uid"] for holder in written)


async def _take_over(
    write: Write, error: ConflictError, inputs: Inputs, context: Context
) -> Sequence[Fight]:
    """Take fields over from another manager, unless the two fight about them.

    During a fight numbers are only raised: those of the other manager may be less than what was
    decided, or what runs.
    """
    edit = revision(inputs.reference, inputs.workload) if inputs.workload is not None else ""
    uid = write.reference.uid
    until = context.disputes.until(uid, error.causes, edit, context.now())
    if until is None or not write.reduces:
        await _apply(write, context, force=True)
    return [] if until is None else [Fight(uid, str(error), until, has_raised=not write.reduces)]


def _reporting(plan: ActuationPlan, fights: Sequence[Fight], now: datetime) -> ActuationPlan:
    """Return the plan that reports a fight, unless it reports an obstacle."""
    if not fights or plan.verdict is None or plan.verdict.holds is False:
        return plan
    last = max(fights, key=lambda fight: fight.until)
    left = (last.until - now).total_seconds()
    return replace(plan, verdict=conflict(last.problem), again_after=left)


async def _apply(write: Write, context: Context, *, force: bool) -> Manifest:
    reference = write.reference
    manifest_of = reference.manifest_at_version if write.has_list else reference.manifest
    manifest = manifest_of(spec=write.spec)
    return await context.cluster.apply(
        reference.kind, manifest, FieldManager.ACTUATION, force=force
    )


async def _drop_unnamed(write: Write, booster: Manifest, context: Context) -> None:
    """Release fields of backends and roles that the reference names no more; values stay."""
    if booster["metadata"]["uid"] == write.reference.uid and owns_more(booster, write.spec):
        await release_fields(write.reference.kind, booster, context.cluster)


def _starts(
    observation: Observation, reference: ModelBoosterRef, context: Context
) -> Starts | None:
    """Return what the pods of the Server tell; None while they are awaited."""
    server, pods = observation.resource, context.pods.get(reference.dialect)
    if not isinstance(server, Server):
        return None
    return read_starts(server, reference, pods, context.first_starts, context.now())


async def _current(
    observation: Observation, inputs: Inputs, starts: Starts | None, context: Context
) -> Manifest | None:
    """Return the current allocation of the Server, if its spec has another one."""
    server = observation.resource
    if not isinstance(server, Server) or inputs.workload is None or not inputs.workload.servings:
        return None
    if starts is None:
        return None  # the list of pods that is awaited causes a reconcile
    placed = running(inputs.reference, inputs.workload, starts.cold, inputs.wanted.replicas or ())
    if not has_changed(server, placed):
        return None
    observations = []
    for kind in (Accelerator, Model):
        listing = await context.cluster.list(kind_of(kind), server.metadata.namespace)
        observations += [observe(kind, manifest) for manifest in listing.manifests]
    costs = unit_costs(readable(observations), server.spec.model)
    if is_mistyped(server, placed, costs):
        return None
    return current_allocation(server, placed, costs)


async def _report_current(
    observation: Observation, current: Manifest, context: Context
) -> Manifest:
    """Write the current allocation on the Server; returns the Server after the write."""
    write = Write(observation.reference, {CURRENT_ALLOC: current})
    return await _apply(write, context, force=True)


async def _report(
    observation: Observation,
    manifest: Manifest,
    verdict: Verdict | None,
    times: Sequence[MeasuredLeadTime],
    context: Context,
    reductions: Sequence[ReplicaReduction] | None = None,
) -> None:
    """Write the condition, the lead times and the reductions, unless the Server has them already.

    Without `reductions` those stay that it has.
    """
    generation = manifest["metadata"]["generation"]
    status = observe(Server, manifest).status
    known = reductions_of(status)
    reductions = known if reductions is None else tuple(reductions)
    wanted = condition(observation.status, verdict, generation, context.now())
    if wanted is None and (times, reductions) == (_reported_lead_times(observation), known):
        return
    fields = status_of(
        wanted or observation.status.condition(ACTUATED), times, reductions=reductions
    )
    body = Reference.of(SERVER, manifest).manifest_at_version(status=fields)
    await context.cluster.apply(SERVER, body, FieldManager.ACTUATION)


def _reported_lead_times(observation: Observation) -> Sequence[MeasuredLeadTime]:
    """Return the lead times that the Server has."""
    server = observation.resource
    return server.status.lead_times if isinstance(server, Server) else ()
