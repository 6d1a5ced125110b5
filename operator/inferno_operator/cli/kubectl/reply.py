"""Answer a Plan with the rights of a session."""

from datetime import datetime

from inferno_operator.adapters.kubernetes.kubectl import Session
from inferno_operator.cli.kubectl.answer import (
    PlanAnswer,
    approval,
    check_open,
    check_text,
    choose_plan,
    in_order,
)
from inferno_operator.resources import Plan
from inferno_optimizer.errors import InputError


async def answer_plan(
    session: Session,
    name: str,
    state: PlanAnswer,
    until: datetime | None = None,
    digest: str = "",
) -> Plan:
    """Approve or reject a Plan; returns the Plan as it was before the answer.

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
    plan = choose_plan(in_order(await session.plans()), session.namespace, name)
    check_open(plan)
    if digest and digest != plan.spec.digest:
        raise InputError(f"Plan {name}: it is another one than was shown: look at it again")
    if state == "Approved":
        check_text(plan)
    await session.answer(name, approval(plan, state, await session.user(), until))
    return plan
