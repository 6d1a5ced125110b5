"""Record what an optimization decided as a Plan, and say what of it may be written now."""

from collections.abc import Collection, Sequence
from dataclasses import replace
from datetime import datetime

from inferno_operator.controllers.actuation.decision import PROPOSED, UNDECIDED
from inferno_operator.controllers.approval import status
from inferno_operator.controllers.approval.additions import additions
from inferno_operator.controllers.approval.guard import hold_of
from inferno_operator.controllers.approval.proposal import Proposal, is_undecided, proposal_of
from inferno_operator.controllers.approval.seal import is_of
from inferno_operator.controllers.approval.store import PlanStore
from inferno_operator.controllers.approval.transitions import (
    Next,
    is_close,
    is_same,
    next_of,
    written,
)
from inferno_operator.controllers.optimization.changes import Update, approve
from inferno_operator.controllers.optimization.permission import Optimization, Permission
from inferno_operator.resources import Optimizer, Plan, Server
from inferno_operator.resources.conditions import ALLOCATED, READY, Verdict
from inferno_operator.resources.objects import Now, kind_of
from inferno_operator.resources.observation import Observation, readable
from inferno_operator.runtime.ports import GoneError, RejectedError
from inferno_optimizer.errors import InfernoError

SERVER = kind_of(Server)


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

    async def _withdraw(self, plans: Sequence[Observation], optimizer: Optimizer) -> None:
        """Finish the Plans that wait, as nothing is to be changed any more."""
        for observation in plans:
            plan = observation.resource
            if not isinstance(plan, Plan) or not is_of(plan, optimizer):
                continue
            if plan.status.phase == "Proposed":
                why = "a newer optimization changes nothing"
                await self._store.write(
                    observation, status.superseded(observation, why, self._now())
                )

    def _known(
        self, plans: Sequence[Observation], proposal: Proposal, optimization: Optimization
    ) -> Observation | None:
        """Return the newest Plan, if it is not finished and is what was decided now."""
        plan = plans[-1].resource if plans else None
        if not isinstance(plan, Plan) or plan.is_finished:
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
        self, observation: Observation, optimization: Optimization, proposal: Proposal
    ) -> Permission:
        """Return what may be written of a Plan."""
        plan, optimizer, now = observation.resource, optimization.optimizer, self._now()
        if not isinstance(plan, Plan):
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
    plans: Sequence[Observation], proposal: Proposal, optimization: Optimization
) -> str | None:
    """Return the name of the newest Plan, if a person rejected what is proposed again."""
    plan = plans[-1].resource if plans else None
    if not isinstance(plan, Plan) or plan.status.phase != "Rejected":
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
