"""Find the Plan that a name refers to, and answer it with the rights of a person."""

from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Literal

from inferno_operator.adapters.kubernetes.kubectl import Session
from inferno_operator.cli.kubectl.selection import build_missing_error
from inferno_operator.cli.options.inputs import duration_of
from inferno_operator.controllers.planning.proposal import (
    UnreadablePlanError,
    compute_plan_digest,
    find_contradiction,
    unpack_decisions,
)
from inferno_operator.resources import Plan
from inferno_operator.resources.objects import Key
from inferno_operator.resources.observation import Observation
from inferno_optimizer.errors import InputError

PlanAnswer = Literal["Approved", "Rejected"]
"""What a person may say to a Plan."""

LONGEST_NAME = 256
"""Longest name that an answer may have [characters]."""


def sort_plans(observations: Iterable[Observation]) -> list[Plan]:
    """Return the Plans that can be read, the newest first."""
    plans = [o.resource for o in observations if isinstance(o.resource, Plan)]
    return sorted(plans, key=lambda plan: plan.order, reverse=True)


def list_waiting(plans: Iterable[Plan], optimizer: str) -> list[Plan]:
    """Return the Plans of an Optimizer that wait, also one that the operator only recorded yet."""
    phases = (None, "Proposed")
    return [p for p in plans if p.spec.optimizer == optimizer and p.status.phase in phases]


def choose_plan(plans: Iterable[Plan], namespace: str, name: str) -> Plan:
    """Return the Plan of this name.

    Raises
    ------
    InputError
        There is none.
    """
    by_name = {plan.metadata.name: plan for plan in plans}
    if name not in by_name:
        raise build_missing_error(Plan, Key(namespace, name), sorted(by_name))
    return by_name[name]


def check_open(plan: Plan) -> None:
    """Refuse to answer a Plan that is being carried out, or is finished.

    Raises
    ------
    InputError
        Nothing can be decided about it any more.
    """
    if plan.is_finished or plan.status.phase == "Acting":
        name, phase = plan.metadata.name, plan.status.phase
        raise InputError(f"Plan {name} is already {phase}; there is nothing to approve or reject")


def check_text(plan: Plan) -> None:
    """Refuse a Plan whose decisions are not what it shows, computed from the decisions again.

    Only the operator knows whether it signed the Plan; it says so on the Plan if it did not.

    Raises
    ------
    InputError
        The Plan is not what it shows, or its decisions cannot be read.
    """
    about = f"Plan {Key(plan.metadata.namespace, plan.metadata.name)}"
    if not plan.spec.signature:
        raise InputError(f"{about}: has no signature: the operator does not carry it out")
    if compute_plan_digest(plan.spec) != plan.spec.digest:
        raise InputError(
            f"{about}: spec.digest is not the digest of what it says: do not approve it"
        )
    try:
        wrong = find_contradiction(plan.spec, unpack_decisions(plan.spec.decisions))
    except UnreadablePlanError as error:
        raise InputError(f"{about}: {error}") from error
    if wrong:
        raise InputError(f"{about}: {wrong}: do not approve it")


def parse_deadline(text: str, now: datetime) -> datetime:
    """Return the time that a text means: a time with its zone, or a duration from now.

    Raises
    ------
    InputError
        It is neither.
    """
    if (duration := duration_of(text)) is not None:
        return now + duration
    try:
        time = datetime.fromisoformat(text)
    except ValueError:
        time = None
    if time is None or time.tzinfo is None:
        raise InputError(f"--until {text}: give a time such as 2026-07-01T18:00:00Z, or 90m, 2h")
    return time.astimezone(UTC)


def build_approval(
    plan: Plan, state: PlanAnswer, by: str, until: datetime | None
) -> dict[str, str | None]:
    """Return the answer to a Plan, as its status has it; None removes a field."""
    return {
        "state": state,
        "digest": plan.spec.digest,
        "by": by[:LONGEST_NAME] or None,
        "until": until.strftime("%Y-%m-%dT%H:%M:%SZ") if until else None,
    }


async def answer_plan(
    session: Session,
    name: str,
    state: PlanAnswer,
    until: datetime | None = None,
    digest: str = "",
) -> Plan:
    """Approve or reject a Plan; return the Plan as it was before the answer.

    Parameters
    ----------
    session, name, state
        The namespace, the Plan, and what is said to it.
    until
        When an approval ends; None means never.
    digest
        That of the Plan that the person saw; "" if the Plan is read for the first time.

    Raises
    ------
    InputError
        There is no such Plan, it needs no answer, it is not the one that the person saw, or its
        decisions are not what it shows.
    RejectedError
        The user has no right to answer.
    """
    plan = choose_plan(sort_plans(await session.plans()), session.namespace, name)
    check_open(plan)
    if digest and digest != plan.spec.digest:
        raise InputError(f"Plan {name}: it is another one than was shown: look at it again")
    if state == "Approved":
        check_text(plan)
    await session.answer(name, build_approval(plan, state, await session.user(), until))
    return plan
