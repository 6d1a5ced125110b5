"""Drive Plans: record what optimizations decide, and carry out what people approve.

The order of writes is: the Plan, the Servers, the status of the Plan, the status of the Optimizer,
and at last its request. So a later run completes whatever an earlier one left behind: a Plan
without a status is carried out or held back again, decisions that are written already are not
written twice, and a request that was not cleared finds the Plan that it has caused.
"""

import logging
from collections import Counter
from collections.abc import Awaitable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import lru_cache
from typing import TypeVar

from inferno_operator.controllers.planning import plan_status as status
from inferno_operator.controllers.planning.allocations import cards_of, placements, replicas
from inferno_operator.controllers.planning.plan_status import Arrivals, Hold, hold_of
from inferno_operator.controllers.planning.plan_store import PlanStore
from inferno_operator.controllers.planning.ports import (
    OPTIMIZER,
    SERVER,
    Loads,
    ObjectSource,
    Optimization,
    Permission,
)
from inferno_operator.controllers.planning.proposal import (
    Proposal,
    StoredDecision,
    UnreadablePlanError,
    cards_then,
    contradiction,
    inputs_digest,
    is_of,
    is_undecided,
    missing_cards,
    moved_load,
    priority_of,
    proposal_of,
    standing,
    totals_of,
    unpack_decisions,
)
from inferno_operator.controllers.planning.snapshot import build_system
from inferno_operator.controllers.planning.status import digest
from inferno_operator.controllers.planning.updates import Update, approve
from inferno_operator.controllers.scaling.decision import PROPOSED, UNDECIDED
from inferno_operator.resources import (
    FINISHED,
    Approval,
    Optimizer,
    Placement,
    Plan,
    PlanStatus,
    Resource,
    Server,
)
from inferno_operator.resources.conditions import ACTUATED, ALLOCATED, READY, Verdict, absence
from inferno_operator.resources.objects import Key, Now
from inferno_operator.resources.observation import (
    Observation,
    observe,
    only,
    readable,
    still_running,
)
from inferno_operator.runtime.ports import Cluster, FieldManager, GoneError, RejectedError
from inferno_operator.runtime.updates import Writer
from inferno_operator.runtime.work_queue import Locks, ReconcileResult
from inferno_optimizer.errors import InfernoError
from inferno_optimizer.sizing.cases import Catalogue

SOMEBODY = "somebody"
"""Who answered, if the client does not say."""


@dataclass(frozen=True, slots=True)
class Next:
    """What to do with a Plan that is not finished and not carried out yet.

    `update` is its status to write; without one it is to be carried out, in the name of `by`.
    `again_after` are the seconds until it is to be looked at again, if any.
    """

    update: Update | None = None
    by: str = ""
    again_after: float | None = None


def next_of(
    observation: Observation[Plan],
    plan: Plan,
    optimizer: Optimizer,
    objects: Iterable[Observation],
    now: datetime,
) -> Next:
    """Decide what to do with a Plan; an answer of a person counts more than mode and guard."""
    if plan.status.approval is not None:
        return _answered(observation, plan, plan.status.approval, now)
    hold = hold_of(optimizer, plan.spec.totals, now)
    if hold is None:
        return Next(by=f"mode {optimizer.spec.mode}")
    left = None if hold.until is None else max((hold.until - now).total_seconds(), 0.0)
    absent = absences(plan, objects)
    return Next(status.waiting(observation, hold, absent), again_after=left)


def _answered(
    observation: Observation[Plan], plan: Plan, approval: Approval, now: datetime
) -> Next:
    """Decide what to do with a Plan that a person approved or rejected."""
    by = approval.by or SOMEBODY
    if approval.digest != plan.spec.digest:
        message = (
            f"the answer of {by} is for a Plan with digest {approval.digest}, not for this one"
        )
        return Next(status.waiting(observation, Hold("WrongDigest", message)))
    if approval.state == "Rejected":
        message = f"rejected by {by}"
        return Next(status.finished(observation, "Rejected", "NotApproved", message, now, by))
    if approval.until is not None and approval.until <= now:
        message = f"the approval of {by} was valid until {approval.until:%Y-%m-%d %H:%M:%S UTC}"
        return Next(status.finished(observation, "Expired", "Expired", message, now, by))
    return Next(by=by)


def written(
    observation: Observation[Plan], plan: Plan, mode: str, by: str, now: datetime
) -> Update:
    """Return the status of a Plan whose decisions are written on the Servers."""
    if mode == "Recommend":
        return status.recommended(observation, by, plan.spec.totals.servers, now)
    return status.acting(observation, by, Arrivals(0, plan.spec.totals.servers))


def replaced(plans: Sequence[Observation[Plan]]) -> Iterator[tuple[Observation[Plan], str]]:
    """Yield the Plans that a newer one supersedes, with the name of the newer one.

    A Plan that waits is superseded by any newer one, a Plan that is being carried out only by
    one that was carried out too. `plans` are all Plans of a namespace, the oldest first.
    """
    for place, observation in enumerate(plans):
        plan = observation.resource
        if plan is None or plan.is_finished:
            continue
        newer = [o for o in plans[place + 1 :] if plan.status.phase != "Acting" or _has_acted(o)]
        if newer:
            yield observation, newer[-1].reference.key.name


def _has_acted(observation: Observation[Plan]) -> bool:
    plan = observation.resource
    return plan is not None and plan.status.phase in ("Acting", "Done", "Written")


def pruned(
    plans: Sequence[Observation[Plan]],
    strangers: Sequence[Observation[Plan]],
    history: Mapping[str, int],
) -> Iterator[Observation[Plan]]:
    """Yield the finished Plans beyond the history of their Optimizer, the oldest first.

    Strangers, which the operator did not make, go before all others.
    """
    for optimizer, kept in history.items():
        own = [o for o in (*strangers, *plans) if _is_finished_of(o, optimizer)]
        yield from own[: max(len(own) - kept, 0)]


def _is_finished_of(observation: Observation[Plan], optimizer: str) -> bool:
    plan = observation.resource
    return plan is not None and plan.is_finished and plan.spec.optimizer == optimizer


def arrivals(plan: Plan, servers: Iterable[Observation[Server]]) -> Arrivals:
    """Return which Servers of a Plan run what was decided, and which the operator does not scale.

    Nothing is awaited for the latter: those that name no workloads, or are only published.
    """
    by_name = {o.reference.key.name: o for o in servers}
    changed = _changed(plan)
    gone = tuple(name for name in changed if name not in by_name)
    present = [by_name[name] for name in changed if name in by_name]
    scaled = [observation for observation in present if _is_scaled(observation)]
    unscaled = tuple(o.reference.key.name for o in present if not _is_scaled(o))
    others = tuple(filter(None, map(_lag, scaled)))
    return Arrivals(len(scaled) - len(others), len(changed), others, gone, unscaled)


def _is_scaled(observation: Observation[Server]) -> bool:
    """Whether the operator scales a Server."""
    server = observation.resource
    return server is not None and server.names_workloads and server.spec.actuation != "Publish"


def _lag(observation: Observation[Server]) -> str:
    """Return what a Server waits for, "" if for nothing."""
    name, actuated = observation.reference.key.name, observation.status.condition(ACTUATED)
    if actuated is None or actuated.observed_generation != observation.generation:
        return f"{name} (not reported yet)"
    if actuated.status == "True":
        return ""
    return f"{name} ({absence(observation.status) or actuated.reason})"


def absences(plan: Plan, objects: Iterable[Observation]) -> Sequence[str]:
    """Return why there is nothing to scale of Servers that a Plan changes."""
    changed = set(_changed(plan))
    named = [o for o in objects if o.kind is Server and o.reference.key.name in changed]
    return [f"{o.reference.key.name}: {what}" for o in named if (what := absence(o.status))]


def _changed(plan: Plan) -> Sequence[str]:
    """Return the names of the Servers that a Plan changes, as `decided` has them, in order."""
    if _is_listed(plan):
        return sorted(step.server for step in plan.spec.steps)
    return _names_in(plan.spec.decisions)


@lru_cache(maxsize=8)
def _names_in(decisions: str) -> Sequence[str]:
    """Return the names of the Servers in packed decisions, in order.

    They are kept: a Plan that is carried out is looked at each second at first, and to unpack the
    decisions for 10,000 Servers takes most of a second.
    """
    return tuple(sorted(decision.server for decision in unpack_decisions(decisions)))


def _is_listed(plan: Plan) -> bool:
    """Whether the steps that a Plan lists are all that is known of its decisions."""
    return not plan.spec.steps_omitted or not plan.spec.decisions


def decided(plan: Plan) -> Mapping[str, tuple[Placement, ...]]:
    """Return what a Plan decides, by name of the Server object.

    If its decisions are left out, these are only the changes that it lists.
    """
    if _is_listed(plan):
        return {step.server: step.after for step in plan.spec.steps}
    return {
        decision.server: placements(decision.after)
        for decision in unpack_decisions(plan.spec.decisions)
    }


def is_same(plan: Plan, proposal: Proposal) -> bool:
    """Whether a Plan from the same inputs has all changes of a proposal.

    It may have more: those that are written already.
    """
    if plan.spec.inputs_digest != proposal.spec.inputs_digest:
        return False
    placed = decided(plan)
    return all(
        name in placed and replicas(placed[name]) == replicas(step.after)
        for name, step in proposal.steps.items()
    )


def is_close(plan: Plan, proposal: Proposal, resources: Iterable[Resource]) -> bool:
    """Whether an answer to a Plan is an answer to a proposal too, although the two may differ.

    Loads that are measured move all the time, so decisions move too. The proposal is close if it
    has the same inputs, changes no other Server, and no load has moved by more than the tolerance.
    """
    if not plan.spec.decisions or plan.spec.inputs_digest != proposal.spec.inputs_digest:
        return False
    if not proposal.steps.keys() <= decided(plan).keys():
        return False
    return not moved_load(unpack_decisions(plan.spec.decisions), resources)


def additions(optimization: Optimization, proposal: Proposal, now: datetime) -> frozenset[str]:
    """Return the Servers that only get replicas, on cards that nobody has to give up for them.

    They are none if they are beyond the guard by themselves, or if every plan waits.

    Parameters
    ----------
    optimization, proposal
        What was decided, and its changes.
    now
        The time of day.
    """
    catalogue = Catalogue(optimization.snapshot.system)
    resources = readable(optimization.observations)
    servers = {s.metadata.name: s for s in only(Server, resources)}
    adding = [d for d in proposal.decisions if _only_adds(d)]
    adding.sort(key=lambda d: (priority_of(servers[d.server], catalogue), d.server))
    if not optimization.optimizer.spec.data.optimizer.unlimited:
        unreadable = still_running(optimization.observations)
        free = _free_cards([*servers.values(), *unreadable], catalogue)
        adding = _fitting(adding, servers, catalogue, free)
    totals = totals_of(adding, resources, catalogue, ())
    if not adding or hold_of(optimization.optimizer, totals, now) is not None:
        return frozenset()
    return frozenset(decision.server for decision in adding)


def _only_adds(decision: StoredDecision) -> bool:
    """Whether no replica is taken away on any accelerator."""
    after = replicas(placements(decision.after))
    return all(after.get(name, 0) >= n for name, n in replicas(decision.before).items())


def _free_cards(servers: Iterable[Server], catalogue: Catalogue) -> Counter[str]:
    """Return the cards by type that are left beside all that stands."""
    free = Counter(catalogue.system.capacity)
    for server in servers:
        free.subtract(cards_of(standing(server, catalogue), server, catalogue))
    return free


def _fitting(
    adding: Iterable[StoredDecision],
    servers: Mapping[str, Server],
    catalogue: Catalogue,
    free: Counter[str],
) -> list[StoredDecision]:
    """Return the decisions, in their order, that fit into the free cards, which become fewer."""
    fitting = []
    for decision in adding:
        server = servers[decision.server]
        more = cards_of(decision.after, server, catalogue)
        more.subtract(cards_of(standing(server, catalogue), server, catalogue))
        if all(count <= 0 or count <= free[card] for card, count in more.items()):
            free.subtract(more)
            fitting.append(decision)
    return fitting


class PlanApprover:
    """Lets optimizations write what needs no approval, and records what they decide."""

    def __init__(self, store: PlanStore, now: Now) -> None:
        self._store = store
        self._now = now

    async def permit(self, optimization: Optimization) -> Permission:
        """Record an optimization, of which nothing is written yet.

        Raises
        ------
        RejectedError
            Plans may have to wait for approval, but there can be none.
        """
        optimizer, proposal = optimization.optimizer, proposal_of(optimization)
        trouble = self._store.trouble()
        if isinstance(trouble, GoneError | RejectedError):
            return _unrecorded(optimization, proposal, trouble, self._now())
        plans = await self._store.plans(optimizer.metadata.namespace)
        if proposal is None:
            await self._withdraw(plans, optimizer)
            return Permission(_permitted(optimization))
        refused = _rejected(plans, proposal, optimization)
        if refused is not None and not optimization.is_requested:
            message = f"Plan {refused} was rejected; set spec.optimize to propose it again"
            return _waiting(optimization, proposal.steps, message)
        recorded = self._known(plans, proposal, optimization)
        plan = recorded or await self._store.create(optimizer, proposal)
        return self._decided(plan, optimization, proposal)

    async def permit_additions(self, optimization: Optimization) -> Permission:
        """Return the updates of Servers that only get replicas, unless a person has to approve."""
        proposal = proposal_of(optimization)
        if proposal is None or await self._is_refused(proposal, optimization):
            return Permission(())
        added = additions(optimization, proposal, self._now())
        return Permission([u for u in optimization.updates if _is_of(u, added)])

    async def _is_refused(self, proposal: Proposal, optimization: Optimization) -> bool:
        """Whether a person rejected it, or could not because there are no Plans."""
        if isinstance(self._store.trouble(), GoneError | RejectedError):
            return optimization.optimizer.spec.guard is not None
        plans = await self._store.plans(optimization.optimizer.metadata.namespace)
        return _rejected(plans, proposal, optimization) is not None

    async def written(self, permission: Permission) -> None:
        """Note on the Plan that its decisions are written."""
        if permission.plan is not None and permission.afterwards is not None:
            await self._store.write(permission.plan, permission.afterwards)

    async def _withdraw(self, plans: Sequence[Observation[Plan]], optimizer: Optimizer) -> None:
        """Finish the Plans that wait, as nothing is to be changed any more."""
        for observation in plans:
            plan = observation.resource
            if plan is None or not is_of(plan, optimizer):
                continue
            if plan.status.phase == "Proposed":
                why = "a newer optimization changes nothing"
                await self._store.write(
                    observation, status.superseded(observation, why, self._now())
                )

    def _known(
        self, plans: Sequence[Observation[Plan]], proposal: Proposal, optimization: Optimization
    ) -> Observation[Plan] | None:
        """Return the newest Plan, if it is not finished and is what was decided now."""
        plan = plans[-1].resource if plans else None
        if plan is None or plan.is_finished:
            return None
        if not is_of(plan, optimization.optimizer):
            return None
        if is_same(plan, proposal):
            return plans[-1]
        if plan.status.phase != "Proposed":
            return None
        waits = next_of(plans[-1], plan, optimization.optimizer, (), self._now()).update is not None
        resources = readable(optimization.observations)
        return plans[-1] if waits and is_close(plan, proposal, resources) else None

    def _decided(
        self, observation: Observation[Plan], optimization: Optimization, proposal: Proposal
    ) -> Permission:
        """Return what may be written of a Plan."""
        plan, optimizer, now = observation.resource, optimization.optimizer, self._now()
        if plan is None:
            raise RejectedError(f"{observation.reference}: {observation.problem}")
        is_acting = plan.status.phase == "Acting"
        objects = optimization.observations
        following = Next() if is_acting else next_of(observation, plan, optimizer, objects, now)
        if following.update is not None:
            why = following.update.main.message
            added = () if plan.status.approval else additions(optimization, proposal, now)
            message = f"Plan {plan.metadata.name} awaits approval: {why}{_apart(added)}"
            return _waiting(optimization, proposal.steps.keys() - set(added), message)
        after = written(observation, plan, optimizer.spec.mode, following.by, now)
        updates = _permitted(optimization)
        if plan.status.approval is not None:
            updates = _approved(updates, plan, proposal)
        return Permission(updates, plan=observation, afterwards=after)


def _rejected(
    plans: Sequence[Observation[Plan]], proposal: Proposal, optimization: Optimization
) -> str | None:
    """Return the name of the newest Plan, if a person rejected what is proposed again."""
    plan = plans[-1].resource if plans else None
    if plan is None or plan.status.phase != "Rejected":
        return None
    if not is_of(plan, optimization.optimizer):
        return None
    resources = readable(optimization.observations)
    is_again = is_same(plan, proposal) or is_close(plan, proposal, resources)
    return plan.metadata.name if is_again else None


def _permitted(optimization: Optimization) -> list[Update]:
    """Return all updates; in mode Approve no decision is cleared without a person."""
    updates = optimization.updates
    if optimization.optimizer.spec.mode != "Approve":
        return list(updates)
    return [_without_clearing(update) for update in updates]


def _approved(updates: Sequence[Update], plan: Plan, proposal: Proposal) -> list[Update]:
    """Return the updates with those of Servers that a Plan changes marked as approved."""
    steps, name = proposal.steps, plan.metadata.name
    return [
        approve(u, name, steps[u.reference.key.name].after) if _is_of(u, steps.keys()) else u
        for u in updates
    ]


def _waiting(optimization: Optimization, servers: Collection[str], why: str) -> Permission:
    """Permit nothing of these Servers but to tell those without a decision what it waits for."""
    updates = []
    for observation, update in zip(optimization.observations, optimization.updates, strict=True):
        if not _is_of(update, servers):
            updates.append(_without_clearing(update))
        elif _lacks_decision(observation):
            verdicts = (Verdict(kind, False, PROPOSED, why) for kind in (READY, ALLOCATED))
            updates.append(Update.of(observation, tuple(verdicts), active=False))
    return Permission(updates, why)


def _lacks_decision(observation: Observation) -> bool:
    """Whether no decision stands for a Server: it has none yet, or none was possible."""
    allocated = observation.status.condition(ALLOCATED)
    return allocated is None or allocated.reason in UNDECIDED


def _is_of(update: Update, servers: Collection[str]) -> bool:
    """Whether an update is one of these Servers."""
    return update.reference.kind == SERVER and update.reference.key.name in servers


def _without_clearing(update: Update) -> Update:
    """Return an update that keeps `desiredAlloc` of a Server for which nothing is decided.

    Actuation keeps what runs, for the reason in the status, whatever is in `desiredAlloc`.
    """
    if update.reference.kind != SERVER or not is_undecided(update):
        return update
    return replace(update, spec=None)


def _unrecorded(
    optimization: Optimization, proposal: Proposal | None, trouble: InfernoError, now: datetime
) -> Permission:
    """Return what may be written without Plans, such as where their kind is not installed."""
    spec = optimization.optimizer.spec
    if spec.mode == "Approve" or spec.guard is not None:
        raise RejectedError(f"mode Approve and guards need Plans: {trouble}") from trouble
    reason = f"decisions are not recorded as Plans: {trouble}"
    hold = hold_of(optimization.optimizer, proposal.spec.totals, now) if proposal else None
    if proposal is None or hold is None:
        return Permission(optimization.updates, reason)
    added = additions(optimization, proposal, now)
    why = f"not carried out: {hold.message}{_apart(added)}; {reason}"
    return _waiting(optimization, proposal.steps.keys() - added, why)


def _apart(added: Collection[str]) -> str:
    """Return what is said of Servers that need not wait; "" without any."""
    return f"; {len(added)} Servers that only get replicas do not wait" if added else ""


SOONEST, LATEST = 1.0, 60.0
"""Limits of the seconds until a Plan that is being carried out is looked at again."""

CHANGED = "its inputs changed"
SPEC_CHANGED = "the spec of an object is not what it was decided from"

Result = TypeVar("Result")

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class PlanContext:
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
    locks: Locks
    writes: Locks


async def reconcile_plans(namespace: str, context: PlanContext) -> ReconcileResult:
    """Take the next step of all Plans of a namespace."""
    try:
        async with context.locks[namespace]:
            return await _reconcile(namespace, context)
    except InfernoError as error:
        logger.warning("Plans of namespace %s: %s; trying again", namespace, error)
        return ReconcileResult.FAILED


async def _reconcile(namespace: str, context: PlanContext) -> ReconcileResult:
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

    async def take(self, step: Awaitable[Result], observation: Observation[Plan]) -> Result | None:
        """Take a step of a Plan; a failure is logged."""
        try:
            return await step
        except InfernoError as error:
            logger.warning("%s: %s; trying again", observation.reference, error)
        except Exception:
            logger.exception("%s: unexpected error; trying again", observation.reference)
        self.failed = True
        return None


async def _dismiss(observation: Observation[Plan], context: PlanContext) -> None:
    """Finish a Plan that the operator did not make, or cannot read."""
    before = observation.status
    if isinstance(before, PlanStatus) and before.phase in FINISHED:
        return
    is_read = observation.resource is not None
    update = status.stranger if is_read else status.unreadable
    await context.store.write(observation, update(observation, context.now()))


async def _advance(observation: Observation[Plan], context: PlanContext) -> float | None:
    """Take the next step of a Plan; returns the seconds until the one after it, if known."""
    plan = observation.resource
    if plan is None or plan.is_finished:
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


async def _optimizer(plan: Plan, context: PlanContext) -> Optimizer | None:
    """Return the Optimizer of a Plan; None if it was deleted or cannot be read."""
    key = Key(plan.metadata.namespace, plan.spec.optimizer)
    try:
        observation = observe(Optimizer, await context.cluster.get(OPTIMIZER, key))
    except GoneError:
        return None
    optimizer = observation.resource
    return optimizer if optimizer and is_of(plan, optimizer) else None


async def _carry_out(
    observation: Observation[Plan],
    plan: Plan,
    optimizer: Optimizer,
    following: Next,
    context: PlanContext,
) -> float | None:
    """Write the decisions of a Plan on the Servers, if its inputs are still the same."""
    namespace = plan.metadata.namespace
    # Servers that were never measured are waited for now; under the lock, others would wait, too.
    servers = [o for o in context.store.servers(namespace) if o.deleted is None]
    await context.loads.with_loads(servers)
    async with context.writes[namespace]:
        observations = await context.source.objects(namespace)
        return await _carry_out_with(observations, observation, plan, optimizer, following, context)


async def _carry_out_with(
    typed: Sequence[Observation],
    observation: Observation[Plan],
    plan: Plan,
    optimizer: Optimizer,
    following: Next,
    context: PlanContext,
) -> float | None:
    """Write the decisions of a Plan on Servers as they are now, while nobody else writes any."""
    store, by = context.store, following.by
    if inputs_digest(readable(typed), optimizer) != plan.spec.inputs_digest:
        why = f"{CHANGED}: {SPEC_CHANGED}"
        await store.write(observation, status.superseded(observation, why, context.now()))
        return None
    objects = context.loads.with_known_loads(typed)
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
    observation: Observation[Plan],
    plan: Plan,
    optimizer: Optimizer,
    objects: Sequence[Observation],
    now: datetime,
) -> Sequence[StoredDecision] | Update:
    """Return the decisions of a Plan; or its status, if they are not to be written."""
    resources = readable(objects)
    try:
        decisions = unpack_decisions(plan.spec.decisions)
    except UnreadablePlanError as error:
        return status.finished(observation, "Failed", error.reason, str(error), now)
    if wrong := contradiction(plan.spec, decisions):
        return status.finished(observation, "Failed", "Contradiction", wrong, now)
    system = build_system(resources, optimizer).system
    cards, catalogue = plan.spec.totals.cards, Catalogue(system)
    servers = [*only(Server, resources), *still_running(objects)]
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


async def _write(
    observation: Observation[Plan], updates: Sequence[Update], context: PlanContext
) -> None:
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


async def _follow(observation: Observation[Plan], plan: Plan, context: PlanContext) -> float | None:
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
