"""Scale what runs the Servers of a namespace by one step; safe to repeat.

A reconcile reads what there is, decides the next numbers of replicas of all Servers together,
writes them, and reports on each Server how far it is: `_take_step` is the whole story.
"""

import asyncio
import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import partial

from inferno_operator.controllers.scaling.boosters import (
    SERVER,
    BoundsWrite,
    plan_writes,
    release_unreferenced,
)
from inferno_operator.controllers.scaling.decision import (
    build_current_alloc,
    explain_recommendation,
    has_changed,
    is_mistyped,
)
from inferno_operator.controllers.scaling.pods import (
    count_cold,
    find_next_warm,
    measure_lead_times,
)
from inferno_operator.controllers.scaling.reading import read_scaled_servers
from inferno_operator.controllers.scaling.reductions import (
    Guards,
    add_fallen,
    find_next_time,
    list_window_ends,
    update_reductions,
)
from inferno_operator.controllers.scaling.scaled_server import (
    ScaledServer,
    Supply,
    build_targets,
    count_left_cards,
    find_next_look,
)
from inferno_operator.controllers.scaling.status import (
    FOREIGN_WRITER,
    RELEASED,
    build_refusal,
    build_status,
    judge_progress,
    merge_condition,
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
from inferno_operator.resources.objects import (
    EVENTS,
    Event,
    Manifest,
    Now,
    Place,
    Reference,
    kind_of,
)
from inferno_operator.resources.observation import Observation, observe, readable
from inferno_operator.runtime.ports import Cluster, FieldManager, Scale, StaleError
from inferno_operator.runtime.updates import write_each
from inferno_operator.runtime.work_queue import ReconcileResult
from inferno_optimizer.errors import InfernoError
from inferno_optimizer.system import System
from inferno_optimizer.way_down import WayDown

LISTED = (Accelerator, Capacity, Model, Optimizer, ServiceClass)
"""The kinds that are listed for each reconcile; Servers are watched."""

ARRIVAL_SECONDS = 1.0
"""Time until the next reconcile while the decisions of a plan are being written."""

Objects = Mapping[type[Resource], Sequence[Manifest]]
"""Objects of a namespace by kind."""

SystemOf = Callable[[Iterable[Resource]], System]
"""Builds the system that the objects of a namespace describe."""

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Context:
    """What reconciles need; `supplies` is what was computed of the last system by namespace."""

    cluster: Cluster
    world: WorkloadObjects
    system_of: SystemOf
    now: Now
    memory: WriteMemory = field(default_factory=WriteMemory)
    guards: Guards = field(default_factory=Guards)
    supplies: dict[str, Supply] = field(default_factory=dict)

    async def write_server(self, body: Manifest) -> Manifest:
        """Apply fields of a Server."""
        written = await self.cluster.apply(SERVER, body, FieldManager.ACTUATION)
        self.world.note_server(written)
        return written


async def reconcile(namespace: str, context: Context) -> ReconcileResult:
    """Take the next step of all Servers of a namespace; in all of them ("") only release."""
    world = context.world
    try:
        is_released = namespace not in world.unreferenced or await _release(namespace, context)
        observations = world.list_servers(namespace) if namespace else ()
        for observation in observations:
            # What a Server has left during the release, the next reconcile releases.
            if namespace not in world.unreferenced:
                await _report_release(observation, context)
        if any(o.resource is not None and o.resource.names_workloads for o in observations):
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
    # What Servers give up from now on needs another release.
    context.world.unreferenced.discard(namespace)
    try:
        is_released = await release_unreferenced(namespace, context.cluster)
    except InfernoError as error:
        logger.warning("namespace %s: nothing is released: %s", namespace, error)
        is_released = False
    if not is_released:
        context.world.unreferenced.add(namespace)
    return is_released


async def _report_release(observation: Observation[Server], context: Context) -> None:
    """Report on a Server that names nothing any more, while its status says how it is scaled."""
    before, server = observation.status.condition(ACTUATED), observation.resource
    is_named = server is None or server.names_workloads
    if is_named or before is None or before.reason == RELEASED:
        return
    message = "the numbers of replicas stay as they are; the operator does not own them any more"
    verdict, generation = build_refusal(RELEASED, message), observation.generation
    actuated = merge_condition(observation.status, verdict, generation, context.now())
    await context.write_server(observation.reference.manifest(status=build_status(actuated, ())))


async def _take_step(
    namespace: str, observations: Sequence[Observation[Server]], context: Context
) -> ReconcileResult:
    now, world = context.now(), context.world
    # What is wanted, and what runs. Optimizers are read after the Servers: a decision is written
    # after the mode of its Optimizer, so none is seen without that mode.
    objects: Objects = {
        kind: (await context.cluster.list(kind_of(kind), namespace)).manifests for kind in LISTED
    }
    recommending = explain_recommendation(objects[Optimizer])
    way_down = context.guards.way_down(namespace, objects[Optimizer])
    servers = await read_scaled_servers(
        observations, world, context.cluster, context.memory, now, recommending=recommending
    )
    if servers is None:
        return ReconcileResult.SETTLED  # the list that is awaited causes a reconcile

    # What may be done next within the cards, and within the way down.
    supply = _find_supply(namespace, objects, observations, context)
    capacity, lacking = _count_free_cards(supply, observations, servers, now)
    targets = [build_targets(scaled, supply, now, way_down) for scaled in servers]
    steps = next_steps(targets, capacity, lacking)
    server_steps = [
        _plan_server_step(scaled, its, steps, way_down, now)
        for scaled, its in zip(servers, targets, strict=True)
    ]

    # Record what served before some of it goes: after a crash the next operator knows the window.
    # Where that cannot be recorded, nothing goes. Then write.
    server_steps = await asyncio.gather(*(_record(step, context) for step in server_steps))
    refused = {step.targets.name for step in server_steps if step.is_refused}
    numbers = {step: n for step, n in steps.replicas.items() if step[0] not in refused}
    steps = replace(steps, replicas=numbers)
    failures = await _write(steps, servers, context)
    if steps.replicas and not all(scaled.wanted.is_written for scaled in servers):
        # First scale what the rest of the plan says.
        return ReconcileResult.due_after(ARRIVAL_SECONDS)

    # Report, and look again when a window, a pause or a warming up ends.
    await _report_all(server_steps, steps, supply, context)
    if failures or refused:
        return ReconcileResult.FAILED
    looks = [
        find_next_look(s.scaled, s.targets, now, list_window_ends(s.reductions, way_down))
        for s in server_steps
    ]
    looks += [find_next_warm(scaled.server, scaled.ready_since, now) for scaled in servers]
    return ReconcileResult.due_after(min(filter(None, looks), default=None))


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


def _find_supply(
    namespace: str,
    objects: Objects,
    observations: Sequence[Observation[Server]],
    context: Context,
) -> Supply:
    """Return the cards, and what the replicas need and carry.

    That sizes all Servers, so it is computed again only if the system is another one: while a
    plan arrives, only decisions change.
    """
    others = [observe(kind, m) for kind, manifests in objects.items() for m in manifests]
    system, known = context.system_of(readable([*observations, *others])), context.supplies
    if namespace not in known or known[namespace].system != system:
        known[namespace] = Supply(system)
    return known[namespace]


def _count_free_cards(
    supply: Supply,
    observations: Iterable[Observation[Server]],
    servers: Iterable[ScaledServer],
    now: datetime,
) -> tuple[Mapping[str, int], Mapping[str, int]]:
    """Return the cards by type for the workloads that Servers name, without those of all others.

    Beside them, the most important priority that lacks cards by type, of Servers others scale.
    """
    free, lacking = Counter(supply.capacity), dict[str, int]()
    for scaled in servers:
        free.subtract(count_left_cards(scaled, supply, now))
    for observation in observations:
        server = observation.resource or observation.remains
        if server is not None and not server.names_workloads:
            free.subtract(supply.count_cards(server))
        server = observation.resource
        if server and not (server.names_workloads and server.spec.actuation == "Scale"):
            priority = supply.priority(server)
            for card_type in supply.count_lacking_cards(server):
                lacking[card_type] = min(priority, lacking.get(card_type, priority))
    return free, lacking


def _plan_server_step(
    scaled: ScaledServer,
    targets: ServerTargets,
    steps: ReplicaSteps,
    way_down: WayDown,
    now: datetime,
) -> _ServerStep:
    """Return the step of a Server, with what is to be remembered of replicas that go."""
    reported = scaled.server.status.reductions
    if not scaled.is_known or scaled.has_unknown:
        return _ServerStep(scaled, targets, reported)
    if scaled.server.spec.actuation == "Publish":
        serving = {t.accelerator: t.ready for t in targets.targets}
        closed = update_reductions(reported, serving, way_down, now)
        reductions = add_fallen(closed, serving, scaled.reported, way_down, now)
        must_record = reductions != closed
        return _ServerStep(scaled, targets, reductions, must_record_first=must_record)
    known = scaled.list_reductions(way_down, now)
    has_failed = known != update_reductions(reported, {}, way_down, now, goes=True)
    name, places = targets.name, [target.accelerator for target in targets.targets]
    written = {p: steps.replicas[name, p] for p in places if (name, p) in steps.replicas}
    after, loses = targets.serving_after(written), targets.loses(written)
    still_ends = any(target.ready > after[target.accelerator] for target in targets.targets)
    before = targets.served_before(written)
    reductions = update_reductions(known, before, way_down, now, loses=loses, goes=still_ends)
    slowed = steps.progress[name].slowed if name in steps.progress else ()
    choices = [{**after, place: after[place] - 1} for place in slowed]
    following = find_next_time(choices, after, reductions, targets.weights, way_down, now)
    return _ServerStep(scaled, targets, reductions, loses or has_failed, following)


async def _record(step: _ServerStep, context: Context) -> _ServerStep:
    """Write on a Server what served, if that must come first."""
    if not step.must_record_first:
        return step
    scaled = step.scaled
    status = build_status(
        scaled.condition,
        scaled.server.status.lead_times,
        scaled.list_recorded(context.memory),
        step.reductions,
    )
    try:
        body = scaled.observation.reference.manifest_at_version(status=status)
        newest = observe(Server, await context.write_server(body))
    except InfernoError as error:
        logger.info("%s: no replicas are taken away: %s", scaled.observation.reference, error)
        return replace(step, is_refused=True)
    server = newest.resource or scaled.server
    return replace(step, scaled=replace(scaled, observation=newest, server=server))


Write = tuple[Mapping[Place, int], Callable[[], Awaitable[None]]]
"""New numbers of replicas in one object, and what writes them."""


async def _write(steps: ReplicaSteps, servers: Iterable[ScaledServer], context: Context) -> int:
    """Write numbers of replicas; returns how many writes failed, which are tried again."""
    memory, failures = context.memory, 0

    async def attempt(writes: Iterable[Write]) -> None:
        """Do writes one after the other, up to the first that fails."""
        nonlocal failures
        for numbers, write in writes:
            try:
                await write()
            except InfernoError as error:
                failures += 1
                for place, n in numbers.items():
                    logger.info("%s: not scaled to %d: %s", place, n, error)
                    if isinstance(error, StaleError):
                        context.world.forget_scale(place)
                    else:
                        memory[place].note_failure(str(error), context.now())
                return
            for place, n in numbers.items():
                memory[place].note_write(n)

    scales = {
        (scaled.server.metadata.name, item.place): item.scale
        for scaled in servers
        for item in scaled.named
        if item.scale is not None and item.backend is None
    }
    numbers = [(scales[step], n) for step, n in steps.replicas.items() if step in scales]
    own = ([({s.place: n}, partial(_write_scale, s, n, context))] for s, n in numbers)
    await write_each(own, attempt)
    await write_each((_plan_bounds_writes(each, steps, context) for each in servers), attempt)
    return failures


async def _write_scale(scale: Scale, replicas: int, context: Context) -> None:
    written = await context.cluster.set_scale(scale, replicas, FieldManager.ACTUATION)
    context.world.note_scale(written)
    logger.info("%s: scaled from %d to %d replicas", scale.place, scale.replicas, replicas)


def _plan_bounds_writes(
    scaled: ScaledServer, steps: ReplicaSteps, context: Context
) -> Iterator[Write]:
    """Yield what has the backends of a Server ask for their next numbers, where they do not.

    Numbers that are too small are set back, also while other writers are left alone. Bounds that
    another writer has set are left out, so they stay as they are.
    """
    is_writable = scaled.obstacle is None or scaled.obstacle.reason == FOREIGN_WRITER
    if not (scaled.server.spec.model_booster and scaled.is_known and is_writable):
        return
    items = {item.place: item for item in scaled.named if not scaled.is_disputed(item)}
    name = scaled.server.metadata.name
    numbers = {place: steps.replicas.get((name, place), i.replicas) for place, i in items.items()}
    backends = {place: item.backend for place, item in items.items() if item.backend}
    places = {place: item.scale.place for place, item in items.items() if item.scale}
    for write in plan_writes(backends, numbers):
        own = {place: numbers[place] for place in write.places}
        yield {places[on]: n for on, n in own.items()}, partial(_write_bounds, write, own, context)


async def _write_bounds(write: BoundsWrite, numbers: Mapping[str, int], context: Context) -> None:
    context.world.note_object(write.kind, await write.apply(context.cluster))
    logger.info("%s: scaled to %s", Reference.of(write.kind, write.manifest), numbers)


async def _report_all(
    server_steps: Sequence[_ServerStep], steps: ReplicaSteps, supply: Supply, context: Context
) -> None:
    """Report on all Servers; if very many change or move, only the first problems get an event.

    Servers that have changed since they were read are left to the next reconcile.
    """
    events: list[Event] = []

    async def report(step: _ServerStep) -> None:
        reference = step.scaled.observation.reference
        if not step.is_refused and context.world.is_newest(reference):
            events.extend(filter(None, [await _report(step, steps, supply, context)]))

    await write_each(server_steps, report)
    in_motion = sum(progress.state.is_in_motion for progress in steps.progress.values())
    if max(len(events), in_motion) > EVENTS:  # a plan arrives a few Servers at a time
        events = [event for event in events if event.type == "Warning"][:EVENTS]
    await write_each(events, context.cluster.publish)


async def _report(
    step: _ServerStep, steps: ReplicaSteps, supply: Supply, context: Context
) -> Event | None:
    """Write the current allocation and the condition of a Server, where they differ.

    Returns the event that the condition has another reason, if it has.
    """
    scaled, server, now = step.scaled, step.scaled.server, context.now()
    reference, generation = scaled.observation.reference, scaled.observation.generation
    placed = scaled.list_placed(count_cold(server, scaled.ready_since, now))
    costs = supply.unit_costs(server.spec.model)
    is_new = not scaled.has_unknown and has_changed(server, placed)
    if is_new and not is_mistyped(server, placed, costs):
        current = build_current_alloc(server, placed, costs)
        written = await context.write_server(reference.manifest(spec={CURRENT_ALLOC: current}))
        reference = Reference.of(SERVER, written)
        generation = written["metadata"]["generation"]
    verdict, before = _judge(step, steps), scaled.condition
    actuated = merge_condition(scaled.observation.status, verdict, generation, now)
    starts = {item.place: item.start_seconds for item in scaled.named}
    lead_times, recorded = measure_lead_times(server, starts), scaled.list_recorded(context.memory)
    known = server.status.lead_times, server.status.workloads, server.status.reductions
    if actuated is None and known == (lead_times, recorded, step.reductions):
        return None
    status = build_status(actuated or before, lead_times, recorded, step.reductions)
    await context.write_server(reference.manifest_at_version(status=status))
    if verdict is None or actuated is None or (before and before.reason == verdict.reason):
        return None
    return Event(
        reference,
        "Warning" if verdict.holds is False else "Normal",
        verdict.reason,
        verdict.message,
        action="Scale",
    )


def _judge(step: _ServerStep, steps: ReplicaSteps) -> Verdict | None:
    """Return what to say of a Server; None leaves its condition as it is."""
    scaled, targets = step.scaled, step.targets
    if not scaled.is_known:
        return None
    verdict = scaled.obstacle
    if verdict is None:
        gives_up = any(
            target.unscheduled
            and steps.replicas.get((targets.name, target.accelerator), target.spec) < target.spec
            for target in targets.targets
        )
        verdict = judge_progress(
            targets,
            steps.progress[targets.name],
            scaled.troubles,
            scaled.condition,
            gives_up=gives_up,
            next_reduction=step.next_reduction,
        )
        failures = (item.backend.failure for item in scaled.named if item.backend)
        if verdict.holds is not True and (failure := next(filter(None, failures), "")):
            verdict = build_refusal("ModelBoosterFailed", f"{failure}; {verdict.message}")
        if scaled.repeated_writer is not None:
            message = f"{scaled.repeated_writer.message}; {verdict.message}"
            verdict = build_refusal(FOREIGN_WRITER, message)
    return replace(verdict, message=f"{verdict.message}{scaled.remarks}")
