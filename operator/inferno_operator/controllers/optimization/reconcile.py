"""Reconcile an Optimizer: optimize its namespace if it requests that; safe to repeat.

A reconcile reads the Optimizer, decides the next step, and takes it: it optimizes and writes
the decisions on the objects of the namespace, or it only writes the Optimizer's status.
"""

import asyncio
import logging
from collections import defaultdict
from collections.abc import Container, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace

from inferno_operator.controllers.optimization import status
from inferno_operator.controllers.optimization.changes import Update, plan_troubles, plan_updates
from inferno_operator.controllers.optimization.held import with_held_rates
from inferno_operator.controllers.optimization.memory import Memory, calm_servers
from inferno_operator.controllers.optimization.nodes import (
    Nodes,
    Placed,
    are_placed,
    solve_on_nodes,
    spanning,
)
from inferno_operator.controllers.optimization.permission import (
    ApproveAll,
    Approver,
    Optimization,
)
from inferno_operator.controllers.optimization.ports import (
    Loads,
    Machines,
    NoNodes,
    SystemOptimizer,
    TypedLoads,
)
from inferno_operator.controllers.optimization.schedule import ScheduleStep, next_step
from inferno_operator.controllers.optimization.snapshot import Snapshot, build_system
from inferno_operator.controllers.optimization.source import ObjectSource
from inferno_operator.controllers.optimization.wake_changes import (
    is_asleep,
    without_room,
)
from inferno_operator.resources import Optimizer, Resource, Server
from inferno_operator.resources.objects import Key, Now, Reference, kind_of
from inferno_operator.resources.observation import Observation, observe, readable, still_running
from inferno_operator.runtime.finalizers import DefinitionTerminatingError, release
from inferno_operator.runtime.observer import Observer
from inferno_operator.runtime.ports import Cluster, FieldManager, GoneError, StaleError
from inferno_operator.runtime.updates import Writer
from inferno_operator.runtime.work_queue import ReconcileResult
from inferno_optimizer.errors import InfernoError
from inferno_optimizer.placement import Node
from inferno_optimizer.surplus import keep_roles, with_surplus
from inferno_optimizer.system import System

OPTIMIZER = kind_of(Optimizer)

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Context:
    """What reconciles need.

    Attributes
    ----------
    cluster, source
        Where objects are written, and where all objects of a namespace are read.
    optimizer, time_limit
        What optimizes, and the time limit of its exact solver [s].
    now, steady
        The time of day; and the one for what is remembered of the last minutes, which never jumps.
    observer
        Receives a call for each optimization.
    loads, machines
        Know the measured loads, and the nodes.
    approver
        Says which updates may be written.
    locks, writes
        Of each namespace: held during an optimization; and while updates are decided from the
        newest objects and written, which is short.
    memories
        What is known from earlier plans, by namespace.
    """

    cluster: Cluster
    source: ObjectSource
    optimizer: SystemOptimizer
    now: Now
    steady: Now
    time_limit: float = 30.0
    observer: Observer = field(default_factory=Observer)
    loads: Loads = field(default_factory=TypedLoads)
    machines: Machines = field(default_factory=NoNodes)
    approver: Approver = field(default_factory=ApproveAll)
    locks: defaultdict[str, asyncio.Lock] = field(default_factory=lambda: defaultdict(asyncio.Lock))
    writes: defaultdict[str, asyncio.Lock] = field(
        default_factory=lambda: defaultdict(asyncio.Lock)
    )
    memories: defaultdict[str, Memory] = field(default_factory=lambda: defaultdict(Memory))

    @property
    def writer(self) -> Writer:
        """The writer of updates."""
        return Writer(self.cluster, FieldManager.DECISIONS, self.now)


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
        return ReconcileResult.SETTLED
    except InfernoError as error:
        logger.warning("Optimizer %s: its status is not up to date: %s", key, error)
        return ReconcileResult.FAILED


async def _release(observation: Observation, context: Context) -> ReconcileResult:
    """Remove the finalizer from a deleted Optimizer, or write on it why that must wait."""
    try:
        await release([observation], context.cluster)
    except DefinitionTerminatingError as error:
        await context.writer.write(status.failed(observation, error))
        return ReconcileResult.FAILED
    return ReconcileResult.SETTLED


async def _others(observation: Observation, context: Context) -> list[Observation]:
    """Return all Optimizers of the namespace, if this one is to optimize; else none."""
    resource = observation.resource
    if not isinstance(resource, Optimizer):
        return []
    if resource.spec.interval is None and not resource.spec.optimize:
        return []
    listing = await context.cluster.list(OPTIMIZER, observation.reference.key.namespace)
    return [observe(Optimizer, manifest) for manifest in listing.manifests]


async def _attempt(
    observation: Observation, step: ScheduleStep, optimizer: Optimizer, context: Context
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
    observation: Observation, step: ScheduleStep, optimizer: Optimizer, context: Context
) -> None:
    """Read the objects, solve, write the results on every object, and then clear the request.

    Decisions that wait for approval are not written; they are in the Plan that is recorded.
    """
    key, writer = observation.reference.key, context.writer
    context.observer.started(key)
    if step.is_requested:  # an optimization at an interval is only reported when it is done
        observation = await _write_status(observation, step.update, writer)
    nodes = await context.machines.nodes(key.namespace)
    objects = await context.source.objects(key.namespace)
    observations: Sequence[Observation] = await context.loads.with_loads(objects)
    resources = readable(observations)
    every = [*resources, *still_running(observations)]
    snapshot = build_system(every, optimizer, context.time_limit)
    snapshot = _held(snapshot, objects, resources, context)
    memory, servers = context.memories[key.namespace], calm_servers(resources)
    memory.observe(servers, context.steady())
    snapshot = replace(snapshot, system=memory.set_destinations(snapshot.system, servers))
    placed = await _solved(snapshot.system, nodes, resources, memory, context)
    solution = placed.solution
    async with context.writes[key.namespace]:
        _must_be_same(observation, observe(Optimizer, await context.cluster.get(OPTIMIZER, key)))
        observations, woken = await _read_woken(observations, memory, context)
        lately = memory.written_lately(context.steady())
        moved = memory.find_moves(calm_servers(readable(observations)), solution, context.steady())
        updates = plan_updates(observations, snapshot, solution, lately, moved)
        waiting = woken
        if woken:  # others grow on what is left beside those
            updates = _without_changes(updates, woken)
            waiting |= without_room(observations, updates, snapshot.system)
        permission = await context.approver.permit(
            Optimization(
                optimizer,
                observations,
                _without_changes(updates, waiting),
                snapshot,
                solution,
                step.is_requested,
            )
        )
        permitted = [u for u in permission.updates if u.reference.uid not in waiting]
        await writer.write_all(permitted, status.digest(observation, permitted))
        memory.note_written(numbered(permitted), context.steady())
        await context.approver.written(permission)
    troubles = [*placed.problems, *plan_troubles(observations, snapshot)]
    done = status.optimized(observation, solution, context.now(), troubles, permission.message)
    observation = await _write_status(observation, done, writer)
    if step.is_requested:
        await clear_request(observation.reference, context.cluster)
    context.observer.optimized(key, snapshot.system, solution)
    logger.info("%s: %s", observation.reference, done.main.message)


def _held(
    snapshot: Snapshot,
    objects: Sequence[Observation],
    resources: Sequence[Resource],
    context: Context,
) -> Snapshot:
    """Return a snapshot in which Servers keep what their replicas carry, wherever they go."""
    servers, unmeasured = calm_servers(resources), calm_servers(readable(objects))
    system = with_held_rates(snapshot.system, servers, unmeasured, context.now())
    return replace(snapshot, system=system)


async def _solved(
    system: System,
    nodes: Sequence[Node],
    resources: Sequence[Resource],
    memory: Memory,
    context: Context,
) -> Placed:
    """Solve; measured Servers keep replicas until fewer were enough for some time."""
    servers, where = calm_servers(resources), Nodes(nodes, spanning(resources))
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
    slept = [o for o in observations if o.reference.uid in memory.woken and is_asleep(o)]
    manifests = [await context.cluster.get(o.reference.kind, o.reference.key) for o in slept]
    woken = {
        o.reference.uid: o for o in (observe(Server, m) for m in manifests) if not is_asleep(o)
    }
    memory.woken = set(woken)
    return [woken.get(o.reference.uid, o) for o in observations], frozenset(woken)


def _without_changes(updates: Iterable[Update], uids: Container[str]) -> list[Update]:
    """Return the updates, which leave the spec of some Servers as it is."""
    return [replace(u, spec=None) if u.reference.uid in uids else u for u in updates]


def numbered(updates: Iterable[Update]) -> Iterator[str]:
    """Yield the uids of Servers whose numbers are written."""
    return (update.reference.uid for update in updates if update.spec is not None)


async def clear_request(reference: Reference, cluster: Cluster) -> None:
    """Set `optimize` to false; `StaleError` if the Optimizer changed since it was read."""
    manifest = reference.manifest_at_version(spec={"optimize": False})
    await cluster.merge(reference.kind, manifest, FieldManager.DECISIONS)


async def _write_status(observation: Observation, update: Update, writer: Writer) -> Observation:
    """Write the Optimizer's status; `StaleError` if its spec changed since it was read."""
    manifest = await writer.write(update)
    if manifest is None:
        return observation
    written = observe(Optimizer, manifest)
    _must_be_same(observation, written)
    return written


def _must_be_same(observation: Observation, newest: Observation) -> None:
    """Raise `StaleError` if the Optimizer is not as it was when the optimization began.

    A person may have deleted it or set its mode to Approve: then nothing is written any more.
    """
    before, after = ((o.reference.uid, o.generation, o.deleted) for o in (observation, newest))
    if before != after:
        raise StaleError(f"{observation.reference} changed during the optimization")
