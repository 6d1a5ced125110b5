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


async def answer_plan(
    session: Session, name: str, state: PlanAnswer, until: datetime | None = None
) -> Plan:
    """Approve or reject a Plan; returns the Plan as it was before the answer.

    Raises
    ------
    InputError
        There is no such Plan, it needs no answer, or its decisions are not what it shows.
    RejectedError
        The user has no right to answer.
    """
    plan = choose_plan(in_order(await session.plans()), session.namespace, name)
    check_open(plan)
    if state == "Approved":
        check_text(plan)
    await session.answer(name, approval(plan, state, await session.user(), until))
    return plan
