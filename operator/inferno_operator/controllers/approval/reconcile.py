"""Drive the Plans of a namespace to their end; safe to repeat.

A reconcile reads the Plans and their Optimizers, decides what becomes of each, and does it: it
writes decisions on Servers, or only the status of the Plan.
"""

import asyncio
import logging
from collections import defaultdict
from collections.abc import Awaitable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TypeVar

from inferno_operator.controllers.approval import status
from inferno_operator.controllers.approval.contents import (
    StoredDecision,
    UnreadablePlanError,
    contradiction,
    unpack_decisions,
)
from inferno_operator.controllers.approval.guard import hold_of
from inferno_operator.controllers.approval.inputs import (
    inputs_digest,
    missing_cards,
    moved_load,
)
from inferno_operator.controllers.approval.seal import is_of
from inferno_operator.controllers.approval.store import OPTIMIZER, SERVER, PlanStore
from inferno_operator.controllers.approval.totals import cards_then, totals_of
from inferno_operator.controllers.approval.transitions import (
    Next,
    absences,
    arrivals,
    next_of,
    pruned,
    replaced,
    written,
)
from inferno_operator.controllers.optimization.changes import Update
from inferno_operator.controllers.optimization.ports import Loads
from inferno_operator.controllers.optimization.snapshot import build_system
from inferno_operator.controllers.optimization.source import ObjectSource
from inferno_operator.controllers.optimization.status import digest
from inferno_operator.resources import FINISHED, Optimizer, Plan, PlanStatus, Server
from inferno_operator.resources.objects import Key, Now
from inferno_operator.resources.observation import (
    Observation,
    observe,
    readable,
    still_running,
)
from inferno_operator.runtime.ports import Cluster, FieldManager, GoneError, RejectedError
from inferno_operator.runtime.updates import Writer
from inferno_operator.runtime.work_queue import ReconcileResult
from inferno_optimizer.errors import InfernoError
from inferno_optimizer.sizing.cases import Catalogue

SOONEST, LATEST = 1.0, 60.0
"""Limits of the seconds until a Plan that is being carried out is looked at again."""

CHANGED = "its inputs changed"
SPEC_CHANGED = "the spec of an object is not what it was decided from"

Result = TypeVar("Result")

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Context:
    """What reconciles need.

    `source` and `loads` give what a Plan would be decided from now; `locks` and `writes` are those
    of the optimizations: no other one runs meanwhile, and nobody else writes decisions of the
    namespace between the check of a Plan and its write.
    """

    cluster: Cluster
    store: PlanStore
    source: ObjectSource
    loads: Loads
    now: Now
    locks: defaultdict[str, asyncio.Lock]
    writes: defaultdict[str, asyncio.Lock]


async def reconcile(namespace: str, context: Context) -> ReconcileResult:
    """Take the next step of all Plans of a namespace."""
    try:
        async with context.locks[namespace]:
            return await _reconcile(namespace, context)
    except InfernoError as error:
        logger.warning("Plans of namespace %s: %s; trying again", namespace, error)
        return ReconcileResult.FAILED


async def _reconcile(namespace: str, context: Context) -> ReconcileResult:
    store, steps = context.store, _Steps()
    for observation in await store.strangers(namespace):
        await steps.take(_dismiss(observation, context), observation)
    for observation, newer in replaced(await store.plans(namespace)):
        update = status.superseded(observation, f"Plan {newer} is newer", context.now())
        await steps.take(store.write(observation, update), observation)
    waits = [
        await steps.take(_advance(observation, context), observation)
        for observation in await store.plans(namespace)
    ]
    plans, strangers = await store.plans(namespace), await store.strangers(namespace)
    for observation in pruned(plans, strangers, store.history(namespace)):
        await steps.take(store.delete(observation), observation)
    if steps.failed:
        return ReconcileResult.FAILED
    return ReconcileResult.due_after(min(filter(None, waits), default=None))


@dataclass(slots=True)
class _Steps:
    """Takes steps of Plans one by one: one that fails stops none of the others."""

    failed: bool = False

    async def take(self, step: Awaitable[Result], observation: Observation) -> Result | None:
        """Take a step of a Plan; a failure is logged."""
        try:
            return await step
        except InfernoError as error:
            logger.warning("%s: %s; trying again", observation.reference, error)
        except Exception:
            logger.exception("%s: unexpected error; trying again", observation.reference)
        self.failed = True
        return None


async def _dismiss(observation: Observation, context: Context) -> None:
    """Finish a Plan that the operator did not make, or cannot read."""
    before = observation.status
    if isinstance(before, PlanStatus) and before.phase in FINISHED:
        return
    is_read = observation.resource is not None
    update = status.stranger if is_read else status.unreadable
    await context.store.write(observation, update(observation, context.now()))


async def _advance(observation: Observation, context: Context) -> float | None:
    """Take the next step of a Plan; returns the seconds until the one after it, if known."""
    plan = observation.resource
    if not isinstance(plan, Plan) or plan.is_finished:
        return None
    if plan.status.phase == "Acting":
        return await _follow(observation, plan, context)
    optimizer = await _optimizer(plan, context)
    if optimizer is None:
        return None
    servers = context.store.servers(plan.metadata.namespace)
    following = next_of(observation, plan, optimizer, servers, context.now())
    if following.update is None:
        return await _carry_out(observation, plan, optimizer, following, context)
    await context.store.write(observation, following.update)
    return following.again_after


async def _optimizer(plan: Plan, context: Context) -> Optimizer | None:
    """Return the Optimizer of a Plan; None if it was deleted or cannot be read."""
    key = Key(plan.metadata.namespace, plan.spec.optimizer)
    try:
        observation = observe(Optimizer, await context.cluster.get(OPTIMIZER, key))
    except GoneError:
        return None
    optimizer = observation.resource
    return optimizer if isinstance(optimizer, Optimizer) and is_of(plan, optimizer) else None


async def _carry_out(
    observation: Observation, plan: Plan, optimizer: Optimizer, following: Next, context: Context
) -> float | None:
    """Write the decisions of a Plan on the Servers, if its inputs are still the same."""
    namespace = plan.metadata.namespace
    # Servers that were never measured are waited for now; under the lock, others would wait, too.
    servers = [o for o in context.store.servers(namespace) if o.deleted is None]
    await context.loads.with_loads(servers)
    async with context.writes[namespace]:
        observations = await context.source.objects(namespace)
        objects = context.loads.with_known_loads(observations)
        return await _carry_out_with(objects, observation, plan, optimizer, following, context)


async def _carry_out_with(
    objects: Sequence[Observation],
    observation: Observation,
    plan: Plan,
    optimizer: Optimizer,
    following: Next,
    context: Context,
) -> float | None:
    """Write the decisions of a Plan on Servers as they are now, while nobody else writes any."""
    store, by = context.store, following.by
    checked = _checked(observation, plan, optimizer, objects, context.now())
    if isinstance(checked, Update):
        await store.write(observation, checked)
        return None
    if plan.status.phase != "Approved":
        observation = await store.write(observation, status.approved(observation, by))
    await _write(observation, list(_decisions(checked, plan, objects)), context)
    logger.info("%s: written on %d Servers by %s", observation.reference, len(checked), by)
    after = written(observation, plan, optimizer.spec.mode, by, context.now())
    await store.write(observation, after)
    return SOONEST


def _checked(
    observation: Observation,
    plan: Plan,
    optimizer: Optimizer,
    objects: Sequence[Observation],
    now: datetime,
) -> Sequence[StoredDecision] | Update:
    """Return the decisions of a Plan; or its status, if they are not to be written.

    What costs little comes first: decisions are unpacked only if the inputs are the same.
    """
    resources = readable(objects)
    if inputs_digest(resources, optimizer) != plan.spec.inputs_digest:
        return status.superseded(observation, f"{CHANGED}: {SPEC_CHANGED}", now)
    try:
        decisions = unpack_decisions(plan.spec.decisions)
    except UnreadablePlanError as error:
        return status.finished(observation, "Failed", error.reason, str(error), now)
    if wrong := contradiction(plan.spec, decisions):
        return status.finished(observation, "Failed", "Contradiction", wrong, now)
    system = build_system(resources, optimizer).system
    cards, catalogue = plan.spec.totals.cards, Catalogue(system)
    servers = [*(r for r in resources if isinstance(r, Server)), *still_running(objects)]
    needed = [] if system.options.unlimited else cards_then(decisions, servers, catalogue)
    missing = missing_cards([*cards, *needed], system.capacity)
    if change := moved_load(decisions, resources) or missing:
        return status.superseded(observation, f"{CHANGED}: {change}", now)
    totals = totals_of(decisions, resources, catalogue, cards)
    hold = None if plan.status.approval else hold_of(optimizer, totals, now)
    return status.waiting(observation, hold, absences(plan, objects)) if hold else decisions


def _decisions(
    decisions: Sequence[StoredDecision], plan: Plan, objects: Sequence[Observation]
) -> Iterator[Update]:
    """Yield the updates that write decisions of a Plan on the Servers."""
    servers = {o.reference.key.name: o for o in objects if o.kind is Server}
    name = plan.metadata.name if plan.status.approval else ""
    yield from (d.update(servers[d.server], name) for d in decisions if d.server in servers)


async def _write(observation: Observation, updates: Sequence[Update], context: Context) -> None:
    """Write the updates of a Plan; objects that have them already stay as they are.

    Raises
    ------
    RejectedError
        The API server refuses a write; the Plan says so, and a later try may succeed.
    """
    writer = Writer(context.cluster, FieldManager.DECISIONS, context.now)
    try:
        await writer.write_all(updates, digest(observation, updates))
    except RejectedError as error:
        await context.store.write(observation, status.not_written(observation, error))
        raise


async def _follow(observation: Observation, plan: Plan, context: Context) -> float | None:
    """Note how many Servers run what a Plan decided; returns the seconds until another look."""
    arrived = arrivals(plan, context.store.servers(plan.metadata.namespace))
    if arrived.is_complete:  # a Server of before the decision looks as if it ran it
        listing = await context.cluster.list(SERVER, plan.metadata.namespace)
        arrived = arrivals(plan, [observe(Server, manifest) for manifest in listing.manifests])
    now, by = context.now(), plan.status.by
    if arrived.is_complete:
        await context.store.write(observation, status.done(observation, by, arrived, now))
        return None
    await context.store.write(observation, status.acting(observation, by, arrived))
    age = status.acting_for(observation, now).total_seconds()
    return min(max(age / 10, SOONEST), LATEST)
