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
from itertools import count
from typing import TypeVar

from inferno_operator.controllers.planning import status
from inferno_operator.controllers.planning.conversions import (
    cards_of,
    count_by_place,
    list_placements,
)
from inferno_operator.controllers.planning.ports import (
    OPTIMIZER,
    PLAN,
    SERVER,
    KeySource,
    Loads,
    ObjectSource,
    Optimization,
    Permission,
)
from inferno_operator.controllers.planning.proposal import (
    DigestCheck,
    Proposal,
    Seal,
    StoredDecision,
    UnreadablePlanError,
    build_proposal,
    build_spec_manifest,
    compute_inputs_digest,
    compute_totals,
    count_cards_after,
    find_contradiction,
    find_missing_cards,
    find_moved_load,
    find_standing,
    is_plan_of,
    is_undecided,
    unpack_decisions,
)
from inferno_operator.controllers.planning.snapshot import build_system
from inferno_operator.controllers.planning.status import Arrivals, Hold, find_hold, summarize_events
from inferno_operator.controllers.planning.updates import Update, mark_approved
from inferno_operator.resources import (
    API_VERSION,
    FINISHED,
    Approval,
    Optimizer,
    Placement,
    Plan,
    PlanStatus,
    Resource,
    Server,
)
from inferno_operator.resources.conditions import (
    ACTUATED,
    ALLOCATED,
    PROPOSED,
    READY,
    UNDECIDED,
    Verdict,
    absence,
)
from inferno_operator.resources.objects import Key, Manifest, Now
from inferno_operator.resources.observation import (
    Observation,
    observe,
    of_kind,
    only,
    readable,
    still_running,
)
from inferno_operator.runtime.informers import Subscription
from inferno_operator.runtime.ports import Cluster, FieldManager, GoneError, RejectedError
from inferno_operator.runtime.updates import Writer
from inferno_operator.runtime.work_queue import Locks, ReconcileResult
from inferno_optimizer.errors import InfernoError
from inferno_optimizer.sizing.cases import Catalogue

FOLLOWED = PLAN, OPTIMIZER, SERVER
"""The kinds that a `PlanStore` reads from memory."""

PATIENCE_SECONDS = 10.0
"""Seconds until the Plans must be known."""


class PlanStore:
    """The Plans that there are; `objects` are of the kinds in `FOLLOWED`, `key` signs Plans."""

    def __init__(self, objects: Subscription, cluster: Cluster, now: Now, key: KeySource) -> None:
        self._objects = objects
        self._cluster = cluster
        self._key = key
        self._digests = DigestCheck()
        self._writer = Writer(cluster, FieldManager.DECISIONS, now)

    def trouble(self) -> InfernoError | None:
        """Return why Plans are not known, such as that their kind is not installed."""
        return self._objects.trouble

    async def read(
        self, namespace: str
    ) -> tuple[Sequence[Observation[Plan]], Sequence[Observation[Plan]]]:
        """Return the Plans that the operator made, the oldest first, and the strangers.

        Somebody else made these, or nobody can read them. Plans that are being deleted are left
        out. Raises `UnavailableError` while they are not known.
        """
        await self._objects.complete(PATIENCE_SECONDS)
        seal = Seal(await self._key())
        ours: list[tuple[object, Observation[Plan]]] = []
        others: list[Observation[Plan]] = []
        for observation in of_kind(self._objects.observations(PLAN, namespace), Plan):
            plan = observation.resource
            if observation.deleted is not None:
                continue
            if plan and self._made(plan, seal):
                ours.append((plan.order, observation))
            else:
                others.append(observation)
        ours.sort(key=lambda pair: pair[0])  # type: ignore[arg-type,return-value]
        return [observation for _, observation in ours], others

    def _made(self, plan: Plan, seal: Seal) -> bool:
        """Whether the operator made a Plan; the digest of a finished one is not computed again."""
        return seal.signed(plan) and (plan.is_finished or self._digests.is_right(plan))

    def history(self, namespace: str) -> Mapping[str, int]:
        """Return how many finished Plans each Optimizer of a namespace keeps."""
        optimizers = readable(self._objects.observations(OPTIMIZER, namespace))
        return {o.metadata.name: o.spec.history for o in only(Optimizer, optimizers)}

    def servers(self, namespace: str) -> Iterator[Observation[Server]]:
        """Return the Servers of a namespace as the watch has shown them; it may be behind."""
        return of_kind(self._objects.observations(SERVER, namespace), Server)

    async def create(self, optimizer: Optimizer, proposal: Proposal) -> Observation[Plan]:
        """Create and sign a Plan that is deleted together with its Optimizer."""
        key = Key(optimizer.metadata.namespace, await self._name(optimizer))
        owner = {
            "apiVersion": API_VERSION,
            "kind": Optimizer.kind,
            "name": optimizer.metadata.name,
            "uid": optimizer.metadata.uid,
            "controller": True,
        }
        metadata = {"name": key.name, "namespace": key.namespace, "ownerReferences": [owner]}
        header = {"apiVersion": API_VERSION, "kind": Plan.kind, "metadata": metadata}
        seal, uid = Seal(await self._key()), optimizer.metadata.uid
        signature = seal.signature(key, uid, proposal.spec.digest)
        manifest = {
            **header,
            "spec": {**build_spec_manifest(proposal.spec), "signature": signature},
        }
        return self._written(await self._cluster.apply(PLAN, manifest, FieldManager.DECISIONS))

    async def write(self, observation: Observation[Plan], update: Update) -> Observation[Plan]:
        """Write the status of a Plan, and return the Plan after the write."""
        manifest = await self._writer.write(update)
        return observation if manifest is None else self._written(manifest)

    async def delete(self, observation: Observation[Plan]) -> None:
        """Delete a Plan."""
        await self._cluster.delete(observation.reference)

    def _written(self, manifest: Manifest) -> Observation[Plan]:
        self._objects.written(PLAN, manifest, echo=True)
        return observe(Plan, manifest)

    async def _name(self, optimizer: Optimizer) -> str:
        """Return the next free name: that of the Optimizer, with a number.

        A name that somebody else took is left out; it does not say where to count on.
        """
        name = optimizer.metadata.name
        plans, strangers = await self.read(optimizer.metadata.namespace)
        keys = (o.reference.key.name.rpartition("-") for o in plans)
        numbers = [int(number) for owner, _, number in keys if owner == name and number.isdigit()]
        taken = {o.reference.key.name for o in strangers}
        names = (f"{name}-{number}" for number in count(max(numbers, default=0) + 1))
        return next(free for free in names if free not in taken)


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


def decide_next(
    observation: Observation[Plan],
    plan: Plan,
    optimizer: Optimizer,
    objects: Iterable[Observation],
    now: datetime,
) -> Next:
    """Decide what to do with a Plan; an answer of a person counts more than mode and guard."""
    if plan.status.approval is not None:
        return _decide_by_answer(observation, plan, plan.status.approval, now)
    hold = find_hold(optimizer, plan.spec.totals, now)
    if hold is None:
        return Next(by=f"mode {optimizer.spec.mode}")
    left = None if hold.until is None else max((hold.until - now).total_seconds(), 0.0)
    absent = list_absences(plan, objects)
    return Next(status.report_waiting(observation, hold, absent), again_after=left)


def _decide_by_answer(
    observation: Observation[Plan], plan: Plan, approval: Approval, now: datetime
) -> Next:
    by = approval.by or SOMEBODY
    if approval.digest != plan.spec.digest:
        message = (
            f"the answer of {by} is for a Plan with digest {approval.digest}, not for this one"
        )
        return Next(status.report_waiting(observation, Hold("WrongDigest", message)))
    if approval.state == "Rejected":
        message = f"rejected by {by}"
        return Next(status.report_end(observation, "Rejected", "NotApproved", message, now, by))
    if approval.until is not None and approval.until <= now:
        message = f"the approval of {by} was valid until {approval.until:%Y-%m-%d %H:%M:%S UTC}"
        return Next(status.report_end(observation, "Expired", "Expired", message, now, by))
    return Next(by=by)


def report_written(
    observation: Observation[Plan], plan: Plan, mode: str, by: str, now: datetime
) -> Update:
    """Return the status of a Plan whose decisions are written on the Servers."""
    if mode == "Recommend":
        return status.report_recommended(observation, by, plan.spec.totals.servers, now)
    return status.report_acting(observation, by, Arrivals(0, plan.spec.totals.servers))


def find_replaced(plans: Sequence[Observation[Plan]]) -> Iterator[tuple[Observation[Plan], str]]:
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


def find_pruned(
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


def find_arrivals(plan: Plan, servers: Iterable[Observation[Server]]) -> Arrivals:
    """Return which Servers of a Plan run what was decided, and which the operator does not scale.

    Nothing is awaited for the latter: those that name no workloads, or are only published.
    """
    by_name = {o.reference.key.name: o for o in servers}
    changed = _list_changed(plan)
    gone = tuple(name for name in changed if name not in by_name)
    present = [by_name[name] for name in changed if name in by_name]
    scaled = [observation for observation in present if _is_scaled(observation)]
    unscaled = tuple(o.reference.key.name for o in present if not _is_scaled(o))
    others = tuple(filter(None, map(_describe_lag, scaled)))
    return Arrivals(len(scaled) - len(others), len(changed), others, gone, unscaled)


def _is_scaled(observation: Observation[Server]) -> bool:
    server = observation.resource
    return server is not None and server.names_workloads and server.spec.actuation != "Publish"


def _describe_lag(observation: Observation[Server]) -> str:
    name, actuated = observation.reference.key.name, observation.status.condition(ACTUATED)
    if actuated is None or actuated.observed_generation != observation.generation:
        return f"{name} (not reported yet)"
    if actuated.status == "True":
        return ""
    return f"{name} ({absence(observation.status) or actuated.reason})"


def list_absences(plan: Plan, objects: Iterable[Observation]) -> Sequence[str]:
    """Return why there is nothing to scale of Servers that a Plan changes."""
    changed = set(_list_changed(plan))
    named = [o for o in objects if o.kind is Server and o.reference.key.name in changed]
    return [f"{o.reference.key.name}: {what}" for o in named if (what := absence(o.status))]


def _list_changed(plan: Plan) -> Sequence[str]:
    """Return the names of the Servers that a Plan changes, those of `read_decisions`, in order."""
    if _is_listed(plan):
        return sorted(step.server for step in plan.spec.steps)
    return _unpack_names(plan.spec.decisions)


@lru_cache(maxsize=8)
def _unpack_names(decisions: str) -> Sequence[str]:
    """Return the names of the Servers in packed decisions, in order.

    They are kept: a Plan that is carried out is looked at each second at first, and to unpack the
    decisions for 10,000 Servers takes most of a second.
    """
    return tuple(sorted(decision.server for decision in unpack_decisions(decisions)))


def _is_listed(plan: Plan) -> bool:
    """Whether the steps that a Plan lists are all that is known of its decisions."""
    return not plan.spec.steps_omitted or not plan.spec.decisions


def read_decisions(plan: Plan) -> Mapping[str, tuple[Placement, ...]]:
    """Return what a Plan decides, by name of the Server object.

    If its decisions are left out, these are only the changes that it lists.
    """
    if _is_listed(plan):
        return {step.server: step.after for step in plan.spec.steps}
    return {
        decision.server: list_placements(decision.after)
        for decision in unpack_decisions(plan.spec.decisions)
    }


def _has_all_changes(plan: Plan, proposal: Proposal) -> bool:
    """Whether a Plan from the same inputs has all changes of a proposal, and perhaps more.

    Those may be written already.
    """
    placed = read_decisions(plan)
    return all(
        name in placed and count_by_place(placed[name]) == count_by_place(step.after)
        for name, step in proposal.steps.items()
    )


def _may_answer_for(plan: Plan, proposal: Proposal, resources: Iterable[Resource]) -> bool:
    """Whether an answer to a Plan from the same inputs is one to a proposal that may differ.

    Loads that are measured move all the time, so decisions move too. The proposal is close if it
    changes no other Server, and no load has moved by more than the tolerance.
    """
    if not plan.spec.decisions or not proposal.steps.keys() <= read_decisions(plan).keys():
        return False
    return not find_moved_load(unpack_decisions(plan.spec.decisions), resources)


def find_additions(optimization: Optimization, proposal: Proposal, now: datetime) -> frozenset[str]:
    """Return the Servers that only get replicas, on cards that nobody has to give up for them.

    They are none if they are beyond the guard by themselves, or if every plan waits.
    """
    catalogue = Catalogue(optimization.snapshot.system)
    resources = readable(optimization.observations)
    servers = {s.metadata.name: s for s in only(Server, resources)}
    adding = [d for d in proposal.decisions if _is_addition(d)]
    classes = {name: server.spec.service_class for name, server in servers.items()}
    adding.sort(key=lambda d: (catalogue.priority(classes[d.server]), d.server))
    if not optimization.optimizer.spec.data.optimizer.unlimited:
        unreadable = still_running(optimization.observations)
        free = Counter(catalogue.system.capacity)
        for server in (*servers.values(), *unreadable):
            free.subtract(cards_of(find_standing(server, catalogue), server, catalogue))
        adding = _select_fitting(adding, servers, catalogue, free)
    totals = compute_totals(adding, resources, catalogue, ())
    if not adding or find_hold(optimization.optimizer, totals, now) is not None:
        return frozenset()
    return frozenset(decision.server for decision in adding)


def _is_addition(decision: StoredDecision) -> bool:
    after = count_by_place(list_placements(decision.after))
    return all(after.get(name, 0) >= n for name, n in count_by_place(decision.before).items())


def _select_fitting(
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
        more.subtract(cards_of(find_standing(server, catalogue), server, catalogue))
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

        Raises `RejectedError` where Plans may have to wait for approval, but there can be none.
        """
        optimizer, proposal, now = optimization.optimizer, build_proposal(optimization), self._now()
        trouble = self._store.trouble()
        if isinstance(trouble, GoneError | RejectedError):
            return _permit_unrecorded(optimization, proposal, trouble, now)
        plans, _ = await self._store.read(optimizer.metadata.namespace)
        if proposal is None:
            await self._supersede_proposed(plans, optimizer, now)
            return Permission(_permit_all(optimization))
        rejected = _find_rejected(plans, proposal, optimization)
        if rejected is not None and not optimization.is_requested:
            message = f"Plan {rejected} was rejected; set spec.optimize to propose it again"
            return _permit_others(optimization, proposal.steps, message)
        # Record it, unless the newest Plan says the same; then do what that one waits for.
        recorded = self._find_recorded(plans, proposal, optimization)
        observation = recorded or await self._store.create(optimizer, proposal)
        plan, objects = observation.resource, optimization.observations
        if plan is None:
            raise RejectedError(f"{observation.reference}: {observation.problem}")
        following = Next()
        if plan.status.phase != "Acting":
            following = decide_next(observation, plan, optimizer, objects, now)
        if following.update is not None:
            why = following.update.main.message
            added = () if plan.status.approval else find_additions(optimization, proposal, now)
            message = f"Plan {plan.metadata.name} awaits approval: {why}{_describe_added(added)}"
            return _permit_others(optimization, proposal.steps.keys() - set(added), message)
        updates = _permit_all(optimization)
        if plan.status.approval is not None:
            updates = _mark_approved(updates, plan, proposal)
        after = report_written(observation, plan, optimizer.spec.mode, following.by, now)
        return Permission(updates, plan=observation, afterwards=after)

    async def _supersede_proposed(
        self, plans: Iterable[Observation[Plan]], optimizer: Optimizer, now: datetime
    ) -> None:
        for known in plans:
            plan = known.resource
            if plan and is_plan_of(plan, optimizer) and plan.status.phase == "Proposed":
                why = "a newer optimization changes nothing"
                await self._store.write(known, status.report_superseded(known, why, now))

    async def permit_additions(self, optimization: Optimization) -> Permission:
        """Return the updates of Servers that only get replicas, unless a person has to approve."""
        proposal, optimizer = build_proposal(optimization), optimization.optimizer
        if proposal is None:
            return Permission(())
        if isinstance(self._store.trouble(), GoneError | RejectedError):
            if optimizer.spec.guard is not None:  # nobody could answer
                return Permission(())
        else:
            plans, _ = await self._store.read(optimizer.metadata.namespace)
            if _find_rejected(plans, proposal, optimization) is not None:
                return Permission(())
        added = find_additions(optimization, proposal, self._now())
        return Permission([u for u in optimization.updates if _is_for(u, added)])

    async def written(self, permission: Permission) -> None:
        """Note on the Plan that its decisions are written."""
        if permission.plan is not None and permission.afterwards is not None:
            await self._store.write(permission.plan, permission.afterwards)

    def _find_recorded(
        self, plans: Sequence[Observation[Plan]], proposal: Proposal, optimization: Optimization
    ) -> Observation[Plan] | None:
        """Return the newest Plan, if it is not finished and is what was decided now."""
        plan = _find_newest(plans, proposal, optimization.optimizer)
        if plan is None or plan.is_finished:
            return None
        if _has_all_changes(plan, proposal):
            return plans[-1]
        if plan.status.phase != "Proposed":
            return None
        following = decide_next(plans[-1], plan, optimization.optimizer, (), self._now())
        resources = readable(optimization.observations)
        stays = following.update is not None and _may_answer_for(plan, proposal, resources)
        return plans[-1] if stays else None


def _find_rejected(
    plans: Sequence[Observation[Plan]], proposal: Proposal, optimization: Optimization
) -> str | None:
    """Return the name of the newest Plan, if a person rejected what is proposed again."""
    plan = _find_newest(plans, proposal, optimization.optimizer)
    if plan is None or plan.status.phase != "Rejected":
        return None
    resources = readable(optimization.observations)
    is_again = _has_all_changes(plan, proposal) or _may_answer_for(plan, proposal, resources)
    return plan.metadata.name if is_again else None


def _find_newest(
    plans: Sequence[Observation[Plan]], proposal: Proposal, optimizer: Optimizer
) -> Plan | None:
    """Return the newest Plan, if it is of this Optimizer and from the inputs of a proposal."""
    plan = plans[-1].resource if plans else None
    if plan is None or not is_plan_of(plan, optimizer):
        return None
    return plan if plan.spec.inputs_digest == proposal.spec.inputs_digest else None


def _permit_all(optimization: Optimization) -> list[Update]:
    """Return all updates; in mode Approve no decision is cleared without a person."""
    updates = optimization.updates
    if optimization.optimizer.spec.mode != "Approve":
        return list(updates)
    return [_keep_decision(update) for update in updates]


def _mark_approved(updates: Iterable[Update], plan: Plan, proposal: Proposal) -> list[Update]:
    name, steps = plan.metadata.name, proposal.steps
    return [
        mark_approved(u, name, steps[u.reference.key.name].after) if _is_for(u, steps.keys()) else u
        for u in updates
    ]


def _permit_others(optimization: Optimization, servers: Collection[str], why: str) -> Permission:
    """Permit nothing of these Servers but to tell those without a decision what it waits for."""
    updates = []
    for observation, update in zip(optimization.observations, optimization.updates, strict=True):
        if not _is_for(update, servers):
            updates.append(_keep_decision(update))
            continue
        allocated = observation.status.condition(ALLOCATED)
        if allocated is None or allocated.reason in UNDECIDED:  # no decision stands
            verdicts = (Verdict(kind, False, PROPOSED, why) for kind in (READY, ALLOCATED))
            updates.append(Update.of(observation, tuple(verdicts), active=False))
    return Permission(updates, why)


def _is_for(update: Update, servers: Collection[str]) -> bool:
    return update.reference.kind == SERVER and update.reference.key.name in servers


def _keep_decision(update: Update) -> Update:
    """Return an update that keeps `desiredAlloc` of a Server for which nothing is decided.

    Actuation keeps what runs, for the reason in the status, whatever is in `desiredAlloc`.
    """
    if update.reference.kind != SERVER or not is_undecided(update):
        return update
    return replace(update, spec=None)


def _permit_unrecorded(
    optimization: Optimization, proposal: Proposal | None, trouble: InfernoError, now: datetime
) -> Permission:
    """Return what may be written without Plans, such as where their kind is not installed."""
    spec = optimization.optimizer.spec
    if spec.mode == "Approve" or spec.guard is not None:
        raise RejectedError(f"mode Approve and guards need Plans: {trouble}") from trouble
    reason = f"decisions are not recorded as Plans: {trouble}"
    hold = find_hold(optimization.optimizer, proposal.spec.totals, now) if proposal else None
    if proposal is None or hold is None:
        return Permission(optimization.updates, reason)
    added = find_additions(optimization, proposal, now)
    why = f"not carried out: {hold.message}{_describe_added(added)}; {reason}"
    return _permit_others(optimization, proposal.steps.keys() - added, why)


def _describe_added(added: Collection[str]) -> str:
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

    `locks` and `writes` are those of the optimizations: no other one runs meanwhile, and nobody
    else writes decisions of the namespace between the check of a Plan and its write.
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
    _, strangers = await store.read(namespace)
    for observation in strangers:
        await steps.take(_dismiss_stranger(observation, context), observation)
    plans, _ = await store.read(namespace)
    for observation, newer in find_replaced(plans):
        update = status.report_superseded(observation, f"Plan {newer} is newer", context.now())
        await steps.take(store.write(observation, update), observation)
    plans, _ = await store.read(namespace)
    waits = [
        await steps.take(_advance_plan(observation, context), observation) for observation in plans
    ]
    plans, strangers = await store.read(namespace)
    for observation in find_pruned(plans, strangers, store.history(namespace)):
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


async def _dismiss_stranger(observation: Observation[Plan], context: PlanContext) -> None:
    before = observation.status
    if isinstance(before, PlanStatus) and before.phase in FINISHED:
        return
    is_read = observation.resource is not None
    update = status.report_stranger if is_read else status.report_unreadable_plan
    await context.store.write(observation, update(observation, context.now()))


async def _advance_plan(observation: Observation[Plan], context: PlanContext) -> float | None:
    """Take the next step of a Plan; returns the seconds until the one after it, if known."""
    plan = observation.resource
    if plan is None or plan.is_finished:
        return None
    if plan.status.phase == "Acting":
        return await _follow_arrivals(observation, plan, context)
    namespace = plan.metadata.namespace
    try:
        key = Key(namespace, plan.spec.optimizer)
        optimizer = observe(Optimizer, await context.cluster.get(OPTIMIZER, key)).resource
    except GoneError:
        return None
    if optimizer is None or not is_plan_of(plan, optimizer):
        return None
    servers = context.store.servers(namespace)
    following = decide_next(observation, plan, optimizer, servers, context.now())
    if following.update is None:
        return await _carry_out(observation, plan, optimizer, following.by, context)
    await context.store.write(observation, following.update)
    return following.again_after


async def _carry_out(
    observation: Observation[Plan], plan: Plan, optimizer: Optimizer, by: str, context: PlanContext
) -> float | None:
    """Write the decisions of a Plan on the Servers, if its inputs are still the same.

    Raises `RejectedError` if the API server refuses a write; a later try may succeed.
    """
    namespace, store = plan.metadata.namespace, context.store
    # Servers that were never measured are waited for now; under the lock, others would wait, too.
    await context.loads.with_loads([o for o in store.servers(namespace) if o.deleted is None])
    async with context.writes[namespace]:
        stored = await context.source.objects(namespace)
        objects = context.loads.with_known_loads(stored)
        if compute_inputs_digest(readable(stored), optimizer) != plan.spec.inputs_digest:
            why = f"{CHANGED}: {SPEC_CHANGED}"
            update = status.report_superseded(observation, why, context.now())
            await store.write(observation, update)
            return None
        checked = _check(observation, plan, optimizer, objects, context.now())
        if isinstance(checked, Update):
            await store.write(observation, checked)
            return None
        if plan.status.phase != "Approved":
            observation = await store.write(observation, status.report_approved(observation, by))
        servers = {o.reference.key.name: o for o in of_kind(objects, Server)}
        name = plan.metadata.name if plan.status.approval else ""
        updates = [d.update(servers[d.server], name) for d in checked if d.server in servers]
        writer = Writer(context.cluster, FieldManager.DECISIONS, context.now)
        try:
            await writer.write_all(updates, summarize_events(observation, updates))
        except RejectedError as error:
            await store.write(observation, status.report_not_written(observation, error))
            raise
        logger.info("%s: written on %d Servers by %s", observation.reference, len(checked), by)
        after = report_written(observation, plan, optimizer.spec.mode, by, context.now())
        await store.write(observation, after)
    return SOONEST


def _check(
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
        return status.report_end(observation, "Failed", error.reason, str(error), now)
    if wrong := find_contradiction(plan.spec, decisions):
        return status.report_end(observation, "Failed", "Contradiction", wrong, now)
    # Others may have got cards since the Plan was made, and loads may have moved.
    system = build_system(resources, optimizer).system
    cards, catalogue = plan.spec.totals.cards, Catalogue(system)
    servers = [*only(Server, resources), *still_running(objects)]
    needed = [] if system.options.unlimited else count_cards_after(decisions, servers, catalogue)
    missing = find_missing_cards([*cards, *needed], system.capacity)
    if change := find_moved_load(decisions, resources) or missing:
        return status.report_superseded(observation, f"{CHANGED}: {change}", now)
    totals = compute_totals(decisions, resources, catalogue, cards)
    hold = None if plan.status.approval else find_hold(optimizer, totals, now)
    if hold is not None:
        return status.report_waiting(observation, hold, list_absences(plan, objects))
    return decisions


async def _follow_arrivals(
    observation: Observation[Plan], plan: Plan, context: PlanContext
) -> float | None:
    """Note how many Servers run what a Plan decided; returns the seconds until another look."""
    arrived = find_arrivals(plan, context.store.servers(plan.metadata.namespace))
    if arrived.is_complete:  # a Server of before the decision looks as if it ran it
        listing = await context.cluster.list(SERVER, plan.metadata.namespace)
        arrived = find_arrivals(plan, [observe(Server, manifest) for manifest in listing.manifests])
    now, by = context.now(), plan.status.by
    if arrived.is_complete:
        await context.store.write(observation, status.report_done(observation, by, arrived, now))
        return None
    await context.store.write(observation, status.report_acting(observation, by, arrived))
    age = status.count_time_acting(observation, now).total_seconds()
    return min(max(age / 10, SOONEST), LATEST)
