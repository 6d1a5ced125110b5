"""Reconcile an Optimizer: optimize its namespace if it requests that; safe to repeat.

A reconcile reads the Optimizer, decides the next step, and takes it: it optimizes and writes
the decisions on the objects of the namespace, or it only writes the Optimizer's status.
"""

import logging
from collections.abc import Iterable
from datetime import datetime, timedelta

from inferno_operator.controllers.planning import status
from inferno_operator.controllers.planning.memory import find_calmed_servers
from inferno_operator.controllers.planning.nodes import (
    Nodes,
    find_spanning,
    has_room_on_nodes,
    solve_on_nodes,
)
from inferno_operator.controllers.planning.ports import OPTIMIZER, Context, Optimization
from inferno_operator.controllers.planning.snapshot import Inputs, take_snapshot
from inferno_operator.controllers.planning.updates import (
    Update,
    list_troubles,
    list_written_uids,
    plan_updates,
)
from inferno_operator.controllers.planning.waking import leave_woken
from inferno_operator.resources import Optimizer, OptimizerStatus
from inferno_operator.resources.objects import Key, Reference
from inferno_operator.resources.observation import Observation, observe, readable, still_running
from inferno_operator.runtime.finalizers import DefinitionTerminatingError, remove_finalizer
from inferno_operator.runtime.ports import Cluster, FieldManager, GoneError, StaleError
from inferno_operator.runtime.updates import Writer
from inferno_operator.runtime.work_queue import ReconcileResult
from inferno_optimizer.errors import InfernoError
from inferno_optimizer.surplus import keep_roles, with_surplus

logger = logging.getLogger(__name__)


async def reconcile(key: Key, context: Context) -> ReconcileResult:
    """Do what an Optimizer requests; a failure is written on its status and retried later."""
    urgent = context.memories[key.namespace].urgent_optimizers
    is_urgent = key.name in urgent
    urgent.discard(key.name)
    result = ReconcileResult.FAILED
    try:
        result = await _take_next_step(key, context, is_urgent=is_urgent)
    except GoneError:
        context.observer.forgot(key)
        result = await _forget(key.namespace, context)
    except InfernoError as error:
        logger.warning("Optimizer %s: its status is not up to date: %s", key, error)
    if result.failed and is_urgent:
        urgent.add(key.name)
    return result


async def _take_next_step(key: Key, context: Context, *, is_urgent: bool) -> ReconcileResult:
    observation = observe(Optimizer, await context.cluster.get(OPTIMIZER, key))
    if observation.deleted is not None:
        return await _release(observation, context)
    optimizer, rival = observation.resource, await _read_rival(observation, context)
    wait_s = find_seconds_until_due(observation, context.now())
    interval = optimizer.spec.interval if optimizer and rival is None else None
    context.observer.scheduled(key, interval)
    if optimizer is None:
        update = status.report_unreadable_optimizer(observation)
    elif rival is not None:
        update, wait_s = status.report_rival(observation, rival.metadata.name), rival.spec.interval
    elif wait_s is None or (wait_s > 0 and not is_urgent):
        update = status.report_settled(observation)
    else:
        return await _try_to_optimize(observation, optimizer, context)
    await context.writer.write(update)
    return ReconcileResult.due_after(wait_s)


async def _try_to_optimize(
    observation: Observation[Optimizer], optimizer: Optimizer, context: Context
) -> ReconcileResult:
    """Optimize, one after the other in a namespace; a failure is written on the status."""
    key = observation.reference.key
    try:
        async with context.locks[key.namespace]:
            await _optimize(observation, optimizer, context)
    except StaleError as error:
        logger.info("%s; trying again", error)
        return ReconcileResult.FAILED
    except InfernoError as error:
        logger.warning("%s: %s", observation.reference, error)
        context.observer.failed(key, error.reason)
        await context.writer.write(status.report_failure(observation, error))
        return ReconcileResult.FAILED
    return ReconcileResult.due_after(optimizer.spec.interval)


async def _optimize(
    observation: Observation[Optimizer], optimizer: Optimizer, context: Context
) -> None:
    """Observe, solve, propose, write what may be written, and report; then clear the request.

    Decisions that wait for approval are not written; they are in the Plan that is recorded.
    """
    key, writer = observation.reference.key, context.writer
    memory = context.memories[key.namespace]
    context.observer.started(key)
    is_requested = optimizer.spec.optimize
    if is_requested:  # an optimization at an interval is only reported when it is done
        observation = await _write_status(observation, status.report_start(observation), writer)

    # Observe.
    machines = await context.machines.nodes(key.namespace)
    stored = await context.source.objects(key.namespace)
    objects = await context.loads.with_loads(stored)
    resources = readable(objects)
    servers = find_calmed_servers(resources)
    memory.note_servers(servers, context.steady())
    inputs = Inputs(
        [*resources, *still_running(objects)],
        optimizer,
        context.time_limit,
        readable(stored),
        memory,
        context.now(),
    )
    snapshot = take_snapshot(inputs)

    # Solve. Measured Servers keep replicas until fewer have been enough for some time.
    nodes = Nodes(machines, find_spanning(resources))
    placed = await solve_on_nodes(snapshot.system, nodes, context.optimizer)
    memory.note_plan(servers, placed.solution, context.steady())
    fewest = memory.count_fewest_replicas(servers)
    settled = keep_roles(snapshot.system, with_surplus(snapshot.system, placed.solution, fewest))
    fits = settled is placed.solution or has_room_on_nodes(snapshot.system, nodes, settled)
    solution = settled if fits else placed.solution

    async with context.writes[key.namespace]:  # from here, nobody else decides for the namespace
        # Propose. A person may have deleted the Optimizer, or set its mode to Approve.
        newest = observe(Optimizer, await context.cluster.get(OPTIMIZER, key))
        _check_is_unchanged(observation, newest)
        move_times = memory.find_moves(servers, solution, context.steady())
        recent = memory.find_recently_written(context.steady())
        updates = plan_updates(objects, snapshot, solution, recent, move_times)
        # Servers that woke meanwhile keep what they got, and the next plan counts them. Others
        # grow on what is left beside those.
        objects, updates, stays = await leave_woken(
            objects, updates, snapshot.system, memory, context.cluster
        )

        # Limit, and write.
        permission = await context.approver.permit(
            Optimization(optimizer, objects, updates, snapshot, solution, is_requested)
        )
        permitted = [u for u in permission.updates if u.reference.uid not in stays]
        await writer.write_all(permitted, status.summarize_events(observation, permitted))
        memory.note_written(list_written_uids(permitted), context.steady())
        await context.approver.written(permission)

    # Report.
    troubles = [*placed.problems, *list_troubles(objects, snapshot)]
    result = status.report_result(
        observation, solution, context.now(), troubles, permission.message
    )
    observation = await _write_status(observation, result, writer)
    if is_requested:
        await clear_request(observation.reference, context.cluster)
    context.observer.optimized(key, snapshot.system, solution)
    logger.info("%s: %s", observation.reference, result.main.message)


async def _read_rival(observation: Observation[Optimizer], context: Context) -> Optimizer | None:
    optimizer = observation.resource
    if optimizer is None or (optimizer.spec.interval is None and not optimizer.spec.optimize):
        return None
    listing = await context.cluster.list(OPTIMIZER, observation.reference.key.namespace)
    return find_rival(observation, [observe(Optimizer, found) for found in listing.manifests])


async def _release(observation: Observation[Optimizer], context: Context) -> ReconcileResult:
    try:
        await remove_finalizer([observation], context.cluster)
    except DefinitionTerminatingError as error:  # the finalizer must wait
        await context.writer.write(status.report_failure(observation, error))
        return ReconcileResult.FAILED
    return ReconcileResult.SETTLED


async def _forget(namespace: str, context: Context) -> ReconcileResult:
    try:
        if not (await context.cluster.list(OPTIMIZER, namespace)).manifests:
            context.memories.pop(namespace, None)
    except InfernoError as error:
        logger.warning("namespace %s: %s", namespace, error)
        return ReconcileResult.FAILED
    return ReconcileResult.SETTLED


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
    _check_is_unchanged(observation, written)
    return written


def _check_is_unchanged(observation: Observation[Optimizer], newest: Observation) -> None:
    """Raise `StaleError` if the Optimizer is not as it was when the optimization began."""
    before, after = ((o.reference.uid, o.generation, o.deleted) for o in (observation, newest))
    if before != after:
        raise StaleError(f"{observation.reference} changed during the optimization")


def find_seconds_until_due(observation: Observation[Optimizer], now: datetime) -> float | None:
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


def find_rival(
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
