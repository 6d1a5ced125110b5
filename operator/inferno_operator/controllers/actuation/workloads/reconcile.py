"""Scale the workloads of all Servers of a namespace by one step; safe to repeat.

A reconcile reads what there is, decides the next numbers of replicas of all Servers together,
writes them, and reports on each Server how far it is.
"""

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime

from inferno_operator.controllers.actuation.current import (
    PlacedReplicas,
    current_allocation,
    has_changed,
    is_mistyped,
)
from inferno_operator.controllers.actuation.decision import recommended_by
from inferno_operator.controllers.actuation.reductions import (
    next_time,
    note_fall,
    remember,
    way_down_of,
    window_ends,
)
from inferno_operator.controllers.actuation.release import SERVER
from inferno_operator.controllers.actuation.starts import (
    cold_replicas,
    lead_times,
    warm_after,
)
from inferno_operator.controllers.actuation.status import (
    condition,
    left_behind,
    progress_verdict,
    status_of,
)
from inferno_operator.controllers.actuation.steps import ReplicaSteps, ServerTargets, next_steps
from inferno_operator.controllers.actuation.workloads.reading import (
    Memory,
    read_scaled_servers,
    workloads_of,
)
from inferno_operator.controllers.actuation.workloads.scaled_server import (
    ScaledServer,
    due_after,
    left_cards,
    server_targets,
)
from inferno_operator.controllers.actuation.workloads.supply import Supply
from inferno_operator.controllers.actuation.workloads.world import WorkloadObjects
from inferno_operator.resources import (
    CURRENT_ALLOC,
    Accelerator,
    Capacity,
    Model,
    Optimizer,
    ReplicaReduction,
    Resource,
    Server,
    ServiceClass,
)
from inferno_operator.resources.conditions import Verdict
from inferno_operator.resources.objects import EVENTS, Event, Manifest, Now, Reference, kind_of
from inferno_operator.resources.observation import Observation, observe, readable, still_running
from inferno_operator.runtime.concurrency import write_each
from inferno_operator.runtime.ports import Cluster, FieldManager, Scale, StaleError
from inferno_operator.runtime.work_queue import ReconcileResult
from inferno_optimizer.errors import InfernoError
from inferno_optimizer.system import System
from inferno_optimizer.way_down import WayDown

READ = (Accelerator, Capacity, Model, Optimizer, ServiceClass)
"""The kinds that are read for each reconcile; Servers are watched."""

ARRIVAL_SECONDS = 1.0
"""Time until the next reconcile while the decisions of a plan are being written."""

Objects = Mapping[type[Resource], Sequence[Manifest]]
"""Objects of a namespace by kind."""

SystemOf = Callable[[Iterable[Resource]], System]
"""Builds the system that the objects of a namespace describe."""

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Context:
    """What reconciles need."""

    cluster: Cluster
    world: WorkloadObjects
    system_of: SystemOf
    now: Now
    memory: Memory = field(default_factory=Memory)
    supplies: dict[str, Supply] = field(default_factory=dict)
    """What was computed of the last system of each namespace."""


async def reconcile(namespace: str, context: Context) -> ReconcileResult:
    """Take the next step of all Servers of a namespace."""
    observations = context.world.servers(namespace)
    if not any(map(workloads_of, observations)):
        context.supplies.pop(namespace, None)
        return ReconcileResult.SETTLED
    try:
        return await _reconcile(namespace, observations, context)
    except StaleError as error:
        logger.debug("%s; trying again", error)
        return ReconcileResult.FAILED
    except InfernoError as error:
        logger.warning("namespace %s: workloads are not scaled: %s", namespace, error)
        return ReconcileResult.FAILED


async def _reconcile(
    namespace: str, observations: Sequence[Observation], context: Context
) -> ReconcileResult:
    now = context.now()
    # Read after the Servers: a decision is written after the mode of its Optimizer.
    objects = await _read(namespace, context)
    why = recommended_by(objects[Optimizer])
    servers = await read_scaled_servers(
        observations, context.world, context.cluster, context.memory, now, recommending=why
    )
    if servers is None:
        return ReconcileResult.SETTLED  # the list that is awaited causes a reconcile
    supply = _supply(namespace, objects, observations, context)
    way_down = way_down_of(objects[Optimizer])
    targets = [server_targets(scaled, supply, now, way_down) for scaled in servers]
    lacking = _lacking(supply, observations)
    steps = next_steps(targets, _capacity(supply, observations, servers), lacking)
    scalings = [
        _scaling(*pair, steps, way_down, now) for pair in zip(servers, targets, strict=True)
    ]
    scalings, steps = await _record(scalings, steps, context)
    failures = await _write(steps, servers, context)
    if steps.replicas and not all(scaled.wanted.fresh for scaled in servers):
        return ReconcileResult.due_after(
            ARRIVAL_SECONDS
        )  # first scale what the rest of the plan says
    await _report_all(scalings, steps, supply, context)
    if failures or any(scaling.is_refused for scaling in scalings):
        return ReconcileResult.FAILED
    looks = [
        due_after(s.scaled, s.targets, now, window_ends(s.reductions, way_down)) for s in scalings
    ]
    looks += [warm_after(scaled.server, scaled.ready_since, now) for scaled in servers]
    return ReconcileResult.due_after(min(filter(None, looks), default=None))


@dataclass(frozen=True, slots=True)
class _Scaling:
    """A Server, its replicas, and what its status is to remember of those that went.

    `is_news` says that it must do so before anything else is written, `next_reduction` when more
    replicas may go, and `is_refused` that its status could not be written.
    """

    scaled: ScaledServer
    targets: ServerTargets
    reductions: tuple[ReplicaReduction, ...]
    is_news: bool = False
    next_reduction: datetime | None = None
    is_refused: bool = False


def _scaling(
    scaled: ScaledServer,
    targets: ServerTargets,
    steps: ReplicaSteps,
    way_down: WayDown,
    now: datetime,
) -> _Scaling:
    """Return what is to be remembered of the replicas of a Server that go in a step."""
    server = scaled.server
    if not scaled.is_known or any(item.is_unknown for item in scaled.counted):
        return _Scaling(scaled, targets, server.status.reductions)
    if server.spec.actuation == "Publish":
        serving = {t.accelerator: t.ready for t in targets.targets}
        closed = remember(server.status.reductions, serving, way_down, now)
        fallen = note_fall(closed, serving, scaled.reported, way_down, now)
        return _Scaling(scaled, targets, fallen, is_news=fallen != closed)
    known = scaled.reductions(way_down, now)
    has_fallen = known != remember(server.status.reductions, {}, way_down, now, goes=True)
    places = [t.accelerator for t in targets.targets]
    written = {
        p: steps.replicas[targets.name, p] for p in places if (targets.name, p) in steps.replicas
    }
    after, loses = targets.serving_after(written), targets.loses(written)
    goes = any(target.ready > after[target.accelerator] for target in targets.targets)
    served = targets.served_before(written)
    reductions = remember(known, served, way_down, now, loses=loses, goes=goes)
    progress = steps.progress.get(targets.name)
    choices = [
        {**after, place: after[place] - 1} for place in (progress.slowed if progress else ())
    ]
    following = (
        next_time(choices, after, reductions, targets.weights, way_down, now) if choices else None
    )
    return _Scaling(scaled, targets, reductions, loses or has_fallen, following)


async def _record(
    scalings: Sequence[_Scaling], steps: ReplicaSteps, context: Context
) -> tuple[list[_Scaling], ReplicaSteps]:
    """Write on Servers what served before some of it goes; what cannot be remembered stays."""
    refused: set[str] = set()

    async def record(scaling: _Scaling) -> _Scaling:
        if not scaling.is_news:
            return scaling
        scaled = scaling.scaled
        status = status_of(
            scaled.condition,
            scaled.server.status.lead_times,
            scaled.recorded(context.memory.known),
            scaling.reductions,
        )
        body = scaled.observation.reference.manifest_at_version(status=status)
        try:
            written = await context.cluster.apply(SERVER, body, FieldManager.ACTUATION)
        except InfernoError as error:
            logger.info("%s: no replicas are taken away: %s", scaled.observation.reference, error)
            refused.add(scaling.targets.name)
            return replace(scaling, is_refused=True)
        context.world.written(written)
        newest = observe(Server, written)
        server = newest.resource if isinstance(newest.resource, Server) else scaled.server
        return replace(scaling, scaled=replace(scaled, observation=newest, server=server))

    recorded = await asyncio.gather(*map(record, scalings))
    kept = {step: n for step, n in steps.replicas.items() if step[0] not in refused}
    return list(recorded), replace(steps, replicas=kept)


async def _read(namespace: str, context: Context) -> Objects:
    """Read the objects that are not watched."""
    return {kind: (await context.cluster.list(kind_of(kind), namespace)).manifests for kind in READ}


def _supply(
    namespace: str, objects: Objects, observations: Sequence[Observation], context: Context
) -> Supply:
    """Return the cards, and what the replicas need and carry.

    That sizes all Servers, so it is computed again only if the system is another one: while a
    plan arrives, only decisions change.
    """
    others = [
        observe(kind, manifest) for kind, manifests in objects.items() for manifest in manifests
    ]
    system, known = context.system_of(readable([*observations, *others])), context.supplies
    if namespace not in known or known[namespace].system != system:
        known[namespace] = Supply(system)
    return known[namespace]


def _capacity(
    supply: Supply, observations: Iterable[Observation], servers: Iterable[ScaledServer]
) -> Mapping[str, int]:
    """Return the cards by type for workloads that Servers name, without those of all others."""
    left = Counter(supply.capacity)
    for scaled in servers:
        left.subtract(left_cards(scaled, supply))
    for server in (*readable(observations), *still_running(observations)):
        if isinstance(server, Server) and not server.spec.workloads:
            left.subtract(supply.cards(server))
    return left


def _lacking(supply: Supply, observations: Iterable[Observation]) -> Mapping[str, int]:
    """Return the most important priority that lacks cards by type, of Servers others scale."""
    lacking: dict[str, int] = {}
    for server in readable(observations):
        if isinstance(server, Server) and not (
            server.spec.workloads and server.spec.actuation == "Scale"
        ):
            priority = supply.priority(server)
            for card_type in supply.lacking_cards(server):
                lacking[card_type] = min(priority, lacking.get(card_type, priority))
    return lacking


async def _write(steps: ReplicaSteps, servers: Iterable[ScaledServer], context: Context) -> int:
    """Write numbers of replicas; returns how many writes failed, which are tried again."""
    failures = 0

    async def write(scale: Scale, replicas: int) -> None:
        nonlocal failures
        try:
            await _set_scale(scale, replicas, context)
        except InfernoError as error:
            failures += 1
            logger.info("%s: not scaled to %d: %s", scale.place, replicas, error)

    scales = {
        (scaled.server.metadata.name, item.workload.place): item.scale
        for scaled in servers
        for item in scaled.found
        if item.scale is not None
    }
    await write_each(steps.replicas.items(), lambda step: write(scales[step[0]], step[1]))
    return failures


async def _set_scale(scale: Scale, replicas: int, context: Context) -> None:
    place, memory = scale.place, context.memory
    try:
        context.world.scaled(
            await context.cluster.set_scale(scale, replicas, FieldManager.ACTUATION)
        )
    except StaleError:
        context.world.forget(place)
        raise
    except InfernoError as error:
        memory.failed(place, str(error), context.now())
        raise
    memory.wrote(place, replicas)
    logger.info("%s: scaled from %d to %d replicas", place, scale.replicas, replicas)


async def _report_all(
    scalings: Sequence[_Scaling],
    steps: ReplicaSteps,
    supply: Supply,
    context: Context,
) -> None:
    """Report on all Servers; if very many change or move, only the first problems get an event.

    Servers that have changed since they were read are left to the next reconcile.
    """
    events: list[Event] = []

    async def report(scaling: _Scaling) -> None:
        reference = scaling.scaled.observation.reference
        if scaling.is_refused or not context.world.is_newest(reference):
            return
        event = await _report(scaling, steps, supply, context)
        if event is not None:
            events.append(event)

    await write_each(scalings, report)
    in_motion = sum(progress.state.is_in_motion for progress in steps.progress.values())
    if max(len(events), in_motion) > EVENTS:  # a plan arrives a few Servers at a time
        events = [event for event in events if event.type == "Warning"][:EVENTS]
    await write_each(events, context.cluster.publish)


async def _report(
    scaling: _Scaling, steps: ReplicaSteps, supply: Supply, context: Context
) -> Event | None:
    """Write the current allocation and the condition of a Server, where they differ.

    Returns the event that the condition has another reason, if it has.
    """
    scaled, reductions = scaling.scaled, scaling.reductions
    reference, generation = scaled.observation.reference, scaled.observation.generation
    placed = scaled.placed(cold_replicas(scaled.server, scaled.ready_since, context.now()))
    if _runs_something_else(scaled, placed):
        current = _current(scaled, placed, supply)
        if current is not None:
            body = reference.manifest(spec={CURRENT_ALLOC: current})
            written = await context.cluster.apply(SERVER, body, FieldManager.ACTUATION)
            context.world.written(written)
            reference = Reference.of(SERVER, written)
            generation = written["metadata"]["generation"]
    verdict, before = _verdict(scaling, steps), scaled.condition
    actuated = condition(scaled.observation.status, verdict, generation, context.now())
    newest = lead_times(scaled.server, scaled.start_seconds)
    known = newest, scaled.recorded(context.memory.known), reductions
    status = scaled.server.status
    if actuated is None and known == (
        status.lead_times,
        status.workloads,
        status.reductions,
    ):
        return None
    body = reference.manifest_at_version(status=status_of(actuated or before, *known))
    context.world.written(await context.cluster.apply(SERVER, body, FieldManager.ACTUATION))
    if verdict is None or actuated is None:
        return None
    is_news = before is None or before.reason != verdict.reason
    return _event(reference, verdict) if is_news else None


def _runs_something_else(scaled: ScaledServer, placed: Sequence[PlacedReplicas]) -> bool:
    """Whether the current allocation of a Server is not what runs; unknown pods change nothing."""
    is_known = not any(item.is_unknown for item in scaled.counted)
    return is_known and has_changed(scaled.server, placed)


def _current(
    scaled: ScaledServer, placed: Sequence[PlacedReplicas], supply: Supply
) -> Manifest | None:
    """Return what runs as `currentAlloc`; None if the name of its accelerator is mistyped."""
    costs = supply.unit_costs(scaled.server.spec.model)
    if is_mistyped(scaled.server, placed, costs):
        return None
    return current_allocation(scaled.server, placed, costs)


def _verdict(scaling: _Scaling, steps: ReplicaSteps) -> Verdict | None:
    """Return what to say of a Server; None leaves its condition as it is."""
    scaled, targets = scaling.scaled, scaling.targets
    if not scaled.is_known:
        return None
    verdict = scaled.obstacle
    if verdict is None:
        gives_up = any(
            target.unscheduled
            and steps.replicas.get((targets.name, target.accelerator), target.spec) < target.spec
            for target in targets.targets
        )
        verdict = progress_verdict(
            targets,
            steps.progress[targets.name],
            scaled.troubles,
            scaled.condition,
            gives_up=gives_up,
            next_reduction=scaling.next_reduction,
        )
    left = left_behind({item.workload: item.replicas for item in scaled.left})
    return replace(verdict, message=f"{verdict.message}{left}")


def _event(reference: Reference, verdict: Verdict) -> Event:
    """Return the event that a condition has another reason."""
    return Event(
        reference,
        "Warning" if verdict.holds is False else "Normal",
        verdict.reason,
        verdict.message,
        action="Scale",
    )
