"""Reconcile an Optimizer: optimize its namespace if it requests that; safe to repeat.

A reconcile reads the Optimizer, decides the next step, and takes it: it optimizes and writes
the decisions on the objects of the namespace, or it only writes the Optimizer's status.
"""

import logging
from collections.abc import Container, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from inferno_operator.controllers.planning import status
from inferno_operator.controllers.planning.memory import Memory, calm_servers
from inferno_operator.controllers.planning.nodes import (
    Nodes,
    Placed,
    are_placed,
    solve_on_nodes,
    spanning,
)
from inferno_operator.controllers.planning.ports import (
    OPTIMIZER,
    Context,
    Optimization,
)
from inferno_operator.controllers.planning.snapshot import Inputs, take_snapshot
from inferno_operator.controllers.planning.updates import (
    Update,
    numbered,
    plan_troubles,
    plan_updates,
)
from inferno_operator.controllers.planning.waking import (
    is_asleep,
    without_room,
)
from inferno_operator.resources import Optimizer, OptimizerStatus, Server
from inferno_operator.resources.objects import Key, Reference
from inferno_operator.resources.observation import Observation, observe, readable, still_running
from inferno_operator.runtime.finalizers import DefinitionTerminatingError, release
from inferno_operator.runtime.ports import Cluster, FieldManager, GoneError, StaleError
from inferno_operator.runtime.updates import Writer
from inferno_operator.runtime.work_queue import ReconcileResult
from inferno_optimizer.errors import InfernoError
from inferno_optimizer.surplus import keep_roles, with_surplus
from inferno_optimizer.system import System

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class ScheduleStep:
    """The next step for an Optimizer.

    Parameters
    ----------
    update
        The update of its status, before the optimization if there is one.
    resource
        The Optimizer, if an optimization is due now.
    again_after
        Seconds until the next reconcile; None: when the Optimizer changes.
    interval
        Seconds between two optimizations; None if there are none without a request.
    """

    update: Update
    resource: Optimizer | None = None
    again_after: float | None = None
    interval: float | None = None

    @property
    def is_requested(self) -> bool:
        """Whether `spec.optimize` requested it, so that the request is to be cleared."""
        return self.resource is not None and self.resource.spec.optimize


async def reconcile(key: Key, context: Context) -> ReconcileResult:
    """Do what an Optimizer requests; a failure is written on its status and retried later."""
    urgent = context.memories[key.namespace].urgent
    is_urgent = key.name in urgent
    urgent.discard(key.name)
    outcome = await _reconcile(key, context, is_urgent=is_urgent)
    if outcome.failed and is_urgent:
        urgent.add(key.name)
    return outcome


async def _reconcile(key: Key, context: Context, *, is_urgent: bool) -> ReconcileResult:
    try:
        observation = observe(Optimizer, await context.cluster.get(OPTIMIZER, key))
        if observation.deleted is not None:
            return await _release(observation, context)
        others = await _others(observation, context)
        step = next_step(observation, others, context.now(), is_urgent=is_urgent)
        context.observer.scheduled(key, step.interval)
        if step.resource is not None:
            return await _attempt(observation, step, step.resource, context)
        await context.writer.write(step.update)
        return ReconcileResult.due_after(step.again_after)
    except GoneError:
        context.observer.forgot(key)
        return await _forget(key, context)
    except InfernoError as error:
        logger.warning("Optimizer %s: its status is not up to date: %s", key, error)
        return ReconcileResult.FAILED


async def _forget(key: Key, context: Context) -> ReconcileResult:
    """Forget a namespace that has no Optimizer any more."""
    try:
        if not (await context.cluster.list(OPTIMIZER, key.namespace)).manifests:
            context.memories.pop(key.namespace, None)
    except InfernoError as error:
        logger.warning("Optimizer %s: %s", key, error)
        return ReconcileResult.FAILED
    return ReconcileResult.SETTLED


async def _release(observation: Observation[Optimizer], context: Context) -> ReconcileResult:
    """Remove the finalizer from a deleted Optimizer, or write on it why that must wait."""
    try:
        await release([observation], context.cluster)
    except DefinitionTerminatingError as error:
        await context.writer.write(status.failed(observation, error))
        return ReconcileResult.FAILED
    return ReconcileResult.SETTLED


async def _others(
    observation: Observation[Optimizer], context: Context
) -> list[Observation[Optimizer]]:
    """Return all Optimizers of the namespace, if this one is to optimize; else none."""
    resource = observation.resource
    if resource is None:
        return []
    if resource.spec.interval is None and not resource.spec.optimize:
        return []
    listing = await context.cluster.list(OPTIMIZER, observation.reference.key.namespace)
    return [observe(Optimizer, manifest) for manifest in listing.manifests]


async def _attempt(
    observation: Observation[Optimizer], step: ScheduleStep, optimizer: Optimizer, context: Context
) -> ReconcileResult:
    """Optimize, or write on the Optimizer why that failed."""
    key = observation.reference.key
    try:
        async with context.locks[key.namespace]:
            await _optimize(observation, step, optimizer, context)
    except StaleError as error:
        logger.info("%s; trying again", error)
        return ReconcileResult.FAILED
    except InfernoError as error:
        logger.warning("%s: %s", observation.reference, error)
        context.observer.failed(key, error.reason)
        await context.writer.write(status.failed(observation, error))
        return ReconcileResult.FAILED
    return ReconcileResult.due_after(step.again_after)


async def _optimize(
    observation: Observation[Optimizer], step: ScheduleStep, optimizer: Optimizer, context: Context
) -> None:
    """Observe, solve, propose, write what may be written, and report; then clear the request.

    Decisions that wait for approval are not written; they are in the Plan that is recorded.
    """
    key, writer = observation.reference.key, context.writer
    memory = context.memories[key.namespace]
    context.observer.started(key)
    if step.is_requested:  # an optimization at an interval is only reported when it is done
        observation = await _write_status(observation, step.update, writer)

    nodes = await context.machines.nodes(key.namespace)
    typed = await context.source.objects(key.namespace)
    objects = await context.loads.with_loads(typed)
    resources = readable(objects)
    servers = calm_servers(resources)
    memory.observe(servers, context.steady())
    snapshot = take_snapshot(
        Inputs(
            [*resources, *still_running(objects)],
            optimizer,
            context.time_limit,
            readable(typed),
            memory,
            context.now(),
        )
    )

    where = Nodes(nodes, spanning(resources))
    placed = await _solve(snapshot.system, where, servers, memory, context)
    solution = placed.solution

    async with context.writes[key.namespace]:  # from here, nobody else decides for the namespace
        _must_be_same(observation, observe(Optimizer, await context.cluster.get(OPTIMIZER, key)))
        lately = memory.written_lately(context.steady())
        moved = memory.find_moves(servers, solution, context.steady())
        updates = plan_updates(objects, snapshot, solution, lately, moved)
        objects, woken = await _read_woken(objects, memory, context)
        waiting = woken
        if woken:  # others grow on what is left beside those
            updates = _without_changes(updates, woken)
            waiting |= without_room(objects, updates, snapshot.system)
        proposed = _without_changes(updates, waiting)
        permission = await context.approver.permit(
            Optimization(optimizer, objects, proposed, snapshot, solution, step.is_requested)
        )
        permitted = [u for u in permission.updates if u.reference.uid not in waiting]
        await writer.write_all(permitted, status.digest(observation, permitted))
        memory.note_written(numbered(permitted), context.steady())
        await context.approver.written(permission)

    troubles = [*placed.problems, *plan_troubles(objects, snapshot)]
    done = status.optimized(observation, solution, context.now(), troubles, permission.message)
    observation = await _write_status(observation, done, writer)
    if step.is_requested:
        await clear_request(observation.reference, context.cluster)
    context.observer.optimized(key, snapshot.system, solution)
    logger.info("%s: %s", observation.reference, done.main.message)


async def _solve(
    system: System,
    where: Nodes,
    servers: Sequence[Server],
    memory: Memory,
    context: Context,
) -> Placed:
    """Solve; measured Servers keep replicas until fewer have been enough for some time."""
    placed = await solve_on_nodes(system, where, context.optimizer)
    memory.note_plan(servers, placed.solution, context.steady())
    calm = with_surplus(system, placed.solution, memory.fewest_replicas(servers))
    calm = keep_roles(system, calm)
    if calm is placed.solution or not are_placed(system, where, calm):
        return placed
    return replace(placed, solution=calm)


async def _read_woken(
    observations: Sequence[Observation], memory: Memory, context: Context
) -> tuple[Sequence[Observation], frozenset[str]]:
    """Return the objects with those Servers as they are now that woke since they were read.

    The plan was made without them: they keep what they got, and the next plan counts them.
    """
    woken = dict[str, Observation[Server]]()
    for slept in observations:
        if slept.reference.uid in memory.woken and is_asleep(slept):
            place = slept.reference
            with suppress(GoneError):
                newest = observe(Server, await context.cluster.get(place.kind, place.key))
                if not is_asleep(newest):
                    woken[place.uid] = newest
    memory.woken = set(woken)
    return [woken.get(o.reference.uid, o) for o in observations], frozenset(woken)


def _without_changes(updates: Iterable[Update], uids: Container[str]) -> list[Update]:
    """Return the updates, which leave the spec of some Servers as it is."""
    return [replace(u, spec=None) if u.reference.uid in uids else u for u in updates]


async def clear_request(reference: Reference, cluster: Cluster) -> None:
    """Set `optimize` to false; `StaleError` if the Optimizer changed since it was read."""
    manifest = reference.manifest_at_version(spec={"optimize": False})
    await cluster.merge(reference.kind, manifest, FieldManager.DECISIONS)


async def _write_status(
    observation: Observation[Optimizer], update: Update, writer: Writer
) -> Observation[Optimizer]:
    """Write the Optimizer's status; `StaleError` if its spec changed since it was read."""
    manifest = await writer.write(update)
    if manifest is None:
        return observation
    written = observe(Optimizer, manifest)
    _must_be_same(observation, written)
    return written


def _must_be_same(observation: Observation[Optimizer], newest: Observation) -> None:
    """Raise `StaleError` if the Optimizer is not as it was when the optimization began.

    A person may have deleted it or set its mode to Approve: then nothing is written any more.
    """
    before, after = ((o.reference.uid, o.generation, o.deleted) for o in (observation, newest))
    if before != after:
        raise StaleError(f"{observation.reference} changed during the optimization")


def next_step(
    observation: Observation[Optimizer],
    others: Iterable[Observation[Optimizer]],
    now: datetime,
    *,
    is_urgent: bool = False,
) -> ScheduleStep:
    """Decide the next step for an Optimizer.

    Parameters
    ----------
    observation
        The Optimizer.
    others
        All Optimizers of its namespace.
    now
        The time.
    is_urgent
        Whether an Optimizer with an interval does not wait for it.
    """
    resource = observation.resource
    if resource is None:
        return ScheduleStep(status.unreadable(observation))
    other = rival(observation, others)
    if other is not None:
        update = status.refused(observation, other.metadata.name)
        return ScheduleStep(update, again_after=other.spec.interval)
    waits, interval = seconds_until_due(observation, now), resource.spec.interval
    if waits and is_urgent:
        waits = 0.0
    if waits != 0:
        return ScheduleStep(status.settled(observation), again_after=waits, interval=interval)
    return ScheduleStep(status.working(observation), resource, interval, interval)


def seconds_until_due(observation: Observation[Optimizer], now: datetime) -> float | None:
    """Return the seconds until an optimization is due; None if none is requested.

    A request by `spec.optimize` does not wait for the interval; the next interval begins after
    it. If the last optimization is in the future, the clock was set back: then one is due at
    once, as the time since the last one is not known.
    """
    resource, before = observation.resource, observation.status
    if resource is None:
        return None
    if resource.spec.optimize:
        return 0.0
    if resource.spec.interval is None:
        return None
    last = before.last_optimization if isinstance(before, OptimizerStatus) else None
    if last is None:
        return 0.0
    if last.time > now:
        return 0.0
    due = last.time + timedelta(seconds=resource.spec.interval)
    return max(0.0, (due - now).total_seconds())


def rival(
    observation: Observation[Optimizer], others: Iterable[Observation[Optimizer]]
) -> Optimizer | None:
    """Return the oldest Optimizer with an interval, unless it is this one: it alone optimizes.

    Two Optimizers would overwrite each other's decisions for the same Servers: a request to one is
    undone at the next interval of the other.
    """
    resources = [o.resource for o in (observation, *others) if o.deleted is None]
    regular = [r for r in resources if r and r.spec.interval is not None]
    oldest = min(regular, key=lambda r: r.age, default=None)
    own = observation.reference.key.name
    return None if oldest is None or oldest.metadata.name == own else oldest
