"""Scale what runs the Servers of a namespace by one step; safe to repeat.

A reconcile reads what there is, decides the next numbers of replicas of all Servers together,
writes them, and reports on each Server how far it is: `_take_step` is the whole story.
"""

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime

from inferno_operator.controllers.scaling.booster_workloads import (
    SERVER,
    apply_bounds,
    release,
    writes_for,
)
from inferno_operator.controllers.scaling.decision import (
    current_allocation,
    has_changed,
    is_mistyped,
    recommended_by,
)
from inferno_operator.controllers.scaling.reading import read_scaled_servers
from inferno_operator.controllers.scaling.reductions import (
    Guards,
    next_time,
    note_fall,
    remember,
    window_ends,
)
from inferno_operator.controllers.scaling.scaled_server import (
    ScaledServer,
    Supply,
    due_after,
    left_cards,
    server_targets,
)
from inferno_operator.controllers.scaling.starts import (
    cold_replicas,
    lead_times,
    warm_after,
)
from inferno_operator.controllers.scaling.status import (
    FOREIGN_WRITER,
    RELEASED,
    condition,
    progress_verdict,
    refusal,
    released,
    status_of,
)
from inferno_operator.controllers.scaling.steps import ReplicaSteps, ServerTargets, next_steps
from inferno_operator.controllers.scaling.world import WorkloadObjects
from inferno_operator.controllers.scaling.writers import WriteMemory
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
from inferno_operator.resources.conditions import ACTUATED, Verdict
from inferno_operator.resources.objects import EVENTS, Event, Manifest, Now, Reference, kind_of
from inferno_operator.resources.observation import Observation, observe, readable
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
    memory: WriteMemory = field(default_factory=WriteMemory)
    guards: Guards = field(default_factory=Guards)
    supplies: dict[str, Supply] = field(default_factory=dict)
    """What was computed of the last system of each namespace."""


async def reconcile(namespace: str, context: Context) -> ReconcileResult:
    """Take the next step of all Servers of a namespace; in all of them ("") only release."""
    world = context.world
    try:
        is_released = not world.may_be_released(namespace) or await _release(namespace, context)
        observations = world.servers(namespace) if namespace else ()
        for observation in observations:
            # What a Server has given up during the release, the next reconcile releases.
            if has_given_up(observation) and not world.may_be_released(namespace):
                await _report_release(observation, context)
        if any(map(is_scaled, observations)):
            result = await _take_step(namespace, observations, context)
        else:
            context.supplies.pop(namespace, None)
            result = ReconcileResult.SETTLED
    except StaleError as error:
        logger.debug("%s; trying again", error)
        return ReconcileResult.FAILED
    except InfernoError as error:
        logger.warning("namespace %s: nothing is scaled: %s", namespace, error)
        return ReconcileResult.FAILED
    return result if is_released else ReconcileResult.FAILED


async def _release(namespace: str, context: Context) -> bool:
    """Release what no Server refers to any more; returns whether all of it is released."""
    context.world.begins_release(namespace)
    try:
        is_released = await release(namespace, context.cluster)
    except InfernoError as error:
        logger.warning("namespace %s: nothing is released: %s", namespace, error)
        is_released = False
    if not is_released:
        context.world.must_release(namespace)
    return is_released


async def _take_step(
    namespace: str, observations: Sequence[Observation[Server]], context: Context
) -> ReconcileResult:
    now = context.now()
    # What runs, and what is wanted. The mode of Optimizers is read after the Servers: a decision
    # is written after the mode of its Optimizer.
    objects = await _read(namespace, context)
    recommending = recommended_by(objects[Optimizer])
    servers = await read_scaled_servers(
        observations, context.world, context.cluster, context.memory, now, recommending=recommending
    )
    if servers is None:
        return ReconcileResult.SETTLED  # the list that is awaited causes a reconcile
    # What may be done next within the cards, and within the way down.
    supply = _supply(namespace, objects, observations, context)
    way_down = context.guards.way_down(namespace, objects[Optimizer])
    targets = [server_targets(scaled, supply, now, way_down) for scaled in servers]
    lacking = _lacking(supply, observations)
    steps = next_steps(targets, _capacity(supply, observations, servers), lacking)
    server_steps = [
        _server_step(*pair, steps, way_down, now) for pair in zip(servers, targets, strict=True)
    ]
    # Remember what served before some of it goes; write; report.
    server_steps, steps = await _record(server_steps, steps, context)
    failures = await _write(steps, servers, context)
    if steps.replicas and not all(scaled.wanted.fresh for scaled in servers):
        # First scale what the rest of the plan says.
        return ReconcileResult.due_after(ARRIVAL_SECONDS)
    await _report_all(server_steps, steps, supply, context)
    if failures or any(server_step.is_refused for server_step in server_steps):
        return ReconcileResult.FAILED
    waits_s = [
        due_after(s.scaled, s.targets, now, window_ends(s.reductions, way_down))
        for s in server_steps
    ]
    waits_s += [warm_after(scaled.server, scaled.ready_since, now) for scaled in servers]
    return ReconcileResult.due_after(min(filter(None, waits_s), default=None))


def is_scaled(observation: Observation[Server]) -> bool:
    """Whether a Server names what its replicas run in."""
    server = observation.resource
    return server is not None and server.names_workloads


def has_given_up(observation: Observation[Server]) -> bool:
    """Whether a Server names nothing any more, and its status still says how it is scaled."""
    before, server = observation.status.condition(ACTUATED), observation.resource
    is_named = server is None or server.names_workloads
    return not is_named and before is not None and before.reason != RELEASED


async def _report_release(observation: Observation[Server], context: Context) -> None:
    verdict, generation = released(), observation.generation
    actuated = condition(observation.status, verdict, generation, context.now())
    body = observation.reference.manifest(status=status_of(actuated, ()))
    context.world.written(await context.cluster.apply(SERVER, body, FieldManager.ACTUATION))


@dataclass(frozen=True, slots=True)
class _ServerStep:
    """A Server, its replicas, and what its status is to remember of those that went.

    `must_record_first` says that it must do so before anything else is written, `next_reduction`
    when more replicas may go, and `is_refused` that its status could not be written.
    """

    scaled: ScaledServer
    targets: ServerTargets
    reductions: tuple[ReplicaReduction, ...]
    must_record_first: bool = False
    next_reduction: datetime | None = None
    is_refused: bool = False


def _server_step(
    scaled: ScaledServer,
    targets: ServerTargets,
    steps: ReplicaSteps,
    way_down: WayDown,
    now: datetime,
) -> _ServerStep:
    """Return what is to be remembered of the replicas of a Server that go in a step."""
    server = scaled.server
    if not scaled.is_known or any(item.is_unknown for item in scaled.counted):
        return _ServerStep(scaled, targets, server.status.reductions)
    if server.spec.actuation == "Publish":
        serving = {t.accelerator: t.ready for t in targets.targets}
        closed = remember(server.status.reductions, serving, way_down, now)
        fallen = note_fall(closed, serving, scaled.reported, way_down, now)
        return _ServerStep(scaled, targets, fallen, must_record_first=fallen != closed)
    known = scaled.reductions(way_down, now)
    failed_since_report = known != remember(server.status.reductions, {}, way_down, now, goes=True)
    places = [t.accelerator for t in targets.targets]
    written = {
        p: steps.replicas[targets.name, p] for p in places if (targets.name, p) in steps.replicas
    }
    after, takes_now = targets.serving_after(written), targets.loses(written)
    still_ending = any(target.ready > after[target.accelerator] for target in targets.targets)
    served = targets.served_before(written)
    reductions = remember(known, served, way_down, now, loses=takes_now, goes=still_ending)
    progress = steps.progress.get(targets.name)
    choices = [
        {**after, place: after[place] - 1} for place in (progress.slowed if progress else ())
    ]
    following = (
        next_time(choices, after, reductions, targets.weights, way_down, now) if choices else None
    )
    return _ServerStep(scaled, targets, reductions, takes_now or failed_since_report, following)


async def _record(
    server_steps: Sequence[_ServerStep], steps: ReplicaSteps, context: Context
) -> tuple[list[_ServerStep], ReplicaSteps]:
    """Write on Servers what served before some of it goes; what cannot be remembered stays."""
    refused: set[str] = set()

    async def record(server_step: _ServerStep) -> _ServerStep:
        if not server_step.must_record_first:
            return server_step
        scaled = server_step.scaled
        status = status_of(
            scaled.condition,
            scaled.server.status.lead_times,
            scaled.recorded(context.memory.known),
            server_step.reductions,
        )
        body = scaled.observation.reference.manifest_at_version(status=status)
        try:
            written = await context.cluster.apply(SERVER, body, FieldManager.ACTUATION)
        except InfernoError as error:
            logger.info("%s: no replicas are taken away: %s", scaled.observation.reference, error)
            refused.add(server_step.targets.name)
            return replace(server_step, is_refused=True)
        context.world.written(written)
        newest = observe(Server, written)
        server = newest.resource or scaled.server
        return replace(server_step, scaled=replace(scaled, observation=newest, server=server))

    recorded = await asyncio.gather(*map(record, server_steps))
    kept = {step: n for step, n in steps.replicas.items() if step[0] not in refused}
    return list(recorded), replace(steps, replicas=kept)


async def _read(namespace: str, context: Context) -> Objects:
    """Read the objects that are not watched."""
    return {kind: (await context.cluster.list(kind_of(kind), namespace)).manifests for kind in READ}


def _supply(
    namespace: str, objects: Objects, observations: Sequence[Observation[Server]], context: Context
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
    supply: Supply, observations: Iterable[Observation[Server]], servers: Iterable[ScaledServer]
) -> Mapping[str, int]:
    """Return the cards by type for workloads that Servers name, without those of all others."""
    left = Counter(supply.capacity)
    for scaled in servers:
        left.subtract(left_cards(scaled, supply))
    known = (observation.resource or observation.remains for observation in observations)
    for server in filter(None, known):
        if not server.names_workloads:
            left.subtract(supply.cards(server))
    return left


def _lacking(supply: Supply, observations: Iterable[Observation[Server]]) -> Mapping[str, int]:
    """Return the most important priority that lacks cards by type, of Servers others scale."""
    lacking: dict[str, int] = {}
    for server in (o.resource for o in observations if o.resource):
        if not (server.names_workloads and server.spec.actuation == "Scale"):
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

    async def write_bounds(scaled: ScaledServer) -> None:
        nonlocal failures
        try:
            await _set_bounds(scaled, steps, context)
        except InfernoError as error:
            failures += 1
            logger.info("%s: not scaled: %s", scaled.observation.reference, error)

    scales = {
        (scaled.server.metadata.name, item.workload.place): item.scale
        for scaled in servers
        for item in scaled.found
        if item.scale is not None and item.part is None
    }
    numbers = [(scales[step], n) for step, n in steps.replicas.items() if step in scales]
    await write_each(numbers, lambda number: write(*number))
    of_boosters = (s for s in servers if s.server.spec.model_booster and s.may_set_back)
    await write_each(of_boosters, write_bounds)
    return failures


async def _set_bounds(scaled: ScaledServer, steps: ReplicaSteps, context: Context) -> None:
    """Have the backends of a Server ask for their next numbers, where they do not.

    Bounds that another writer has set are left out, so they stay as they are.
    """
    name = scaled.server.metadata.name
    items = [item for item in scaled.found if not scaled.is_disputed(item)]
    numbers = {
        item.workload.place: steps.replicas.get((name, item.workload.place), item.replicas)
        for item in items
    }
    parts = {item.workload.place: item.part for item in items if item.part}
    for write in writes_for(parts, numbers):
        places = {
            item.workload.place: item.scale.place
            for item in items
            if item.scale and item.scale.reference == write.reference
        }
        manifest = next(parts[each].holder.manifest for each in places)
        try:
            written = await apply_bounds(write, manifest, context.cluster)
        except StaleError:
            raise
        except InfernoError as error:
            for place in places.values():
                context.memory.failed(place, str(error), context.now())
            raise
        context.world.applied(write.reference.kind, written)
        for on, place in places.items():
            context.memory.wrote(place, numbers[on])
        logger.info("%s: scaled to %s", write.reference, {on: numbers[on] for on in places})


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
    server_steps: Sequence[_ServerStep],
    steps: ReplicaSteps,
    supply: Supply,
    context: Context,
) -> None:
    """Report on all Servers; if very many change or move, only the first problems get an event.

    Servers that have changed since they were read are left to the next reconcile.
    """
    events: list[Event] = []

    async def report(server_step: _ServerStep) -> None:
        reference = server_step.scaled.observation.reference
        if server_step.is_refused or not context.world.is_newest(reference):
            return
        event = await _report(server_step, steps, supply, context)
        if event is not None:
            events.append(event)

    await write_each(server_steps, report)
    in_motion = sum(progress.state.is_in_motion for progress in steps.progress.values())
    if max(len(events), in_motion) > EVENTS:  # a plan arrives a few Servers at a time
        events = [event for event in events if event.type == "Warning"][:EVENTS]
    await write_each(events, context.cluster.publish)


async def _report(
    server_step: _ServerStep, steps: ReplicaSteps, supply: Supply, context: Context
) -> Event | None:
    """Write the current allocation and the condition of a Server, where they differ.

    Returns the event that the condition has another reason, if it has.
    """
    scaled, before = server_step.scaled, server_step.scaled.condition
    reference, generation = scaled.observation.reference, scaled.observation.generation
    placed = scaled.placed(cold_replicas(scaled.server, scaled.ready_since, context.now()))
    costs, server = supply.unit_costs(scaled.server.spec.model), scaled.server
    is_known = not any(item.is_unknown for item in scaled.counted)
    if is_known and has_changed(server, placed) and not is_mistyped(server, placed, costs):
        current = current_allocation(server, placed, costs)
        body = reference.manifest(spec={CURRENT_ALLOC: current})
        written = await context.cluster.apply(SERVER, body, FieldManager.ACTUATION)
        context.world.written(written)
        reference = Reference.of(SERVER, written)
        generation = written["metadata"]["generation"]
    verdict = _verdict(server_step, steps)
    actuated = condition(scaled.observation.status, verdict, generation, context.now())
    newest = lead_times(server, scaled.start_seconds)
    known = newest, scaled.recorded(context.memory.known), server_step.reductions
    status = server.status
    if actuated is None and known == (status.lead_times, status.workloads, status.reductions):
        return None
    body = reference.manifest_at_version(status=status_of(actuated or before, *known))
    context.world.written(await context.cluster.apply(SERVER, body, FieldManager.ACTUATION))
    if verdict is None or actuated is None or (before and before.reason == verdict.reason):
        return None
    return Event(
        reference,
        "Warning" if verdict.holds is False else "Normal",
        verdict.reason,
        verdict.message,
        action="Scale",
    )


def _verdict(server_step: _ServerStep, steps: ReplicaSteps) -> Verdict | None:
    """Return what to say of a Server; None leaves its condition as it is."""
    scaled, targets = server_step.scaled, server_step.targets
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
            next_reduction=server_step.next_reduction,
        )
        if verdict.holds is not True and scaled.failure:
            verdict = refusal("ModelBoosterFailed", f"{scaled.failure}; {verdict.message}")
        if scaled.fight is not None:
            verdict = refusal(FOREIGN_WRITER, f"{scaled.fight.message}; {verdict.message}")
    return replace(verdict, message=f"{verdict.message}{scaled.remarks}")
