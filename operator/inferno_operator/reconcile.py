"""Drive the objects of a namespace towards the optimizer's answer; safe to repeat."""

import asyncio
import logging
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from inferno_operator import report
from inferno_operator.observation import Observation, observe, readable
from inferno_operator.observer import Observer
from inferno_operator.planning import Update, plan_troubles, plan_updates
from inferno_operator.ports import (
    Cluster,
    Event,
    GoneError,
    Key,
    Manifest,
    Now,
    Optimizer,
    StaleError,
)
from inferno_operator.resources import Optimizer as OptimizerResource
from inferno_operator.runtime.concurrently import write_each
from inferno_operator.runtime.finalizers import DefinitionTerminatingError, release
from inferno_operator.runtime.source import Source
from inferno_operator.runtime.work_queue import Outcome
from inferno_operator.schedule import rival, seconds_until_due
from inferno_operator.snapshot import build_system
from inferno_optimizer.errors import InfernoError

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Context:
    """What reconciling works with.

    `time_limit` is the exact solver's [s]; `observer` is told what happens; `turns` let the
    requests of one namespace wait for each other.
    """

    cluster: Cluster
    source: Source
    optimizer: Optimizer
    now: Now
    time_limit: float = 30.0
    observer: Observer = field(default_factory=Observer)
    turns: defaultdict[str, asyncio.Lock] = field(default_factory=lambda: defaultdict(asyncio.Lock))


async def reconcile_optimizer(key: Key, context: Context) -> Outcome:
    """Do what an Optimizer asks for; a failure is told on it, and is to be tried again."""
    try:
        manifest = await context.cluster.get(OptimizerResource, key)
        return await _serve(observe(OptimizerResource, manifest), context)
    except GoneError:
        context.observer.forgot(key)
        return Outcome.SETTLED
    except InfernoError as error:
        logger.warning("%s: cannot be told what happened: %s", key, error)
        return Outcome.FAILED


async def _serve(observation: Observation, context: Context) -> Outcome:
    resource = observation.resource
    if observation.deleted is not None:
        return await _let_go(observation, context)
    if not isinstance(resource, OptimizerResource):
        await carry_out(report.unreadable(observation), context)
        return Outcome.SETTLED
    if not resource.spec.optimize:
        older = await _rival(observation, resource, context)
        waits = seconds_until_due(observation, context.now())
        if older is not None:
            await carry_out(report.refused(observation, older), context)
            return Outcome.due_after(resource.spec.interval)
        if waits != 0:
            await carry_out(report.settled(observation), context)
            return Outcome.due_after(waits)
    return await _attempt(observation, resource, context)


async def _let_go(observation: Observation, context: Context) -> Outcome:
    """Take our finalizer off one that is to go, unless it has to stay; then say so on it."""
    try:
        await release([observation], context.cluster)
    except DefinitionTerminatingError as error:
        await carry_out(report.failed(observation, error), context)
        return Outcome.FAILED
    return Outcome.SETTLED


async def _rival(
    observation: Observation, resource: OptimizerResource, context: Context
) -> str | None:
    """The Optimizer that optimizes by itself in the namespace, if that is another one."""
    if resource.spec.interval is None:
        return None
    manifests = await context.cluster.list(OptimizerResource, resource.metadata.namespace)
    return rival(observation, (observe(OptimizerResource, manifest) for manifest in manifests))


async def _attempt(
    observation: Observation, resource: OptimizerResource, context: Context
) -> Outcome:
    """Optimize, or tell why not."""
    try:
        async with context.turns[resource.metadata.namespace]:
            await _optimize(observation, resource, context)
    except StaleError as error:
        logger.info("%s; starting over", error)
        return Outcome.FAILED
    except InfernoError as error:
        logger.warning("%s: %s", observation.reference, error)
        context.observer.failed(observation.reference.key, error.reason)
        await carry_out(report.failed(observation, error), context)
        return Outcome.FAILED
    return Outcome.due_after(resource.spec.interval)


async def _optimize(
    observation: Observation, resource: OptimizerResource, context: Context
) -> None:
    """Read, solve, write on every object what came out; the request is cleared last of all."""
    key = observation.reference.key
    context.observer.started(key)
    if resource.spec.optimize:  # what goes on by itself is told when it is done
        observation = await _tell(observation, report.working(observation), context)
    observations = await context.source.objects(key.namespace)
    snapshot = build_system(readable(observations), resource, context.time_limit)
    solution = await context.optimizer.optimize(snapshot.system)
    updates = plan_updates(observations, snapshot, solution)
    await carry_out_all(updates, report.digest(observation, updates), context)
    troubles = plan_troubles(observations, snapshot)
    done = report.optimized(observation, solution, context.now(), troubles)
    observation = await _tell(observation, done, context)
    if resource.spec.optimize:
        await context.cluster.clear_request(observation.reference)
    context.observer.optimized(key, snapshot.system, solution)
    logger.info("%s: %s", observation.reference, done.verdicts[-1].message)


async def _tell(observation: Observation, update: Update, context: Context) -> Observation:
    """Carry out an update of the Optimizer itself; its spec must still be the one worked on."""
    manifest = await carry_out(update, context)
    if manifest is None:
        return observation
    told = observe(OptimizerResource, manifest)
    if told.generation != observation.generation:
        raise StaleError(f"{observation.reference} changed while it was worked on")
    return told


async def carry_out_all(
    updates: Sequence[Update], digest: Sequence[Event], context: Context
) -> None:
    """Carry out updates, some at once; all are tried before the first failure is raised.

    Each object has its own events unless there is a digest of them.
    """
    carry = _write if digest else carry_out
    await write_each(updates, lambda update: carry(update, context))
    for event in digest:
        await context.cluster.publish(event)


async def carry_out(update: Update, context: Context) -> Manifest | None:
    """Write what is to change on one object, and tell what is news; None if nothing changes."""
    written = await _write(update, context)
    for event in update.events():
        await context.cluster.publish(event)
    return written


async def _write(update: Update, context: Context) -> Manifest | None:
    """Write what is to change on one object, spec before status; None if nothing is."""
    reference, generation, written = update.reference, update.generation, None
    if update.spec is not None:
        written = await context.cluster.apply_spec(reference, update.spec)
        reference = replace(reference, version=written["metadata"]["resourceVersion"])
        if written["metadata"]["generation"] == generation + 1:  # by us alone
            generation += 1
    status = update.status_at(generation, context.now())
    if status is not None:
        written = await context.cluster.apply_status(reference, status)
    return written
