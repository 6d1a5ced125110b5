"""The objects of a namespace -> pages as values, with what the commands print; pure."""

from collections.abc import Sequence
from datetime import datetime

from inferno_operator.cli.kubectl.answer import check_open, check_text, choose_plan, in_order
from inferno_operator.cli.kubectl.console.page import ConsolePage, PlanForm
from inferno_operator.cli.kubectl.dry_run import DryRun
from inferno_operator.cli.options.currency import CENTS, Money
from inferno_operator.cli.preview import plan_document, preview
from inferno_operator.cli.tables.plan import plan_parts
from inferno_operator.cli.tables.plans import diff_parts, difference_parts, plans_parts
from inferno_operator.resources import Plan
from inferno_operator.resources.observation import Observation
from inferno_optimizer.errors import InputError

ABOVE = 1.1
"""Height of an axis, where the highest value is 1."""


def next_view(
    observations: Sequence[Observation],
    outcome: DryRun,
    changes: Sequence[str],
    money: Money = CENTS,
) -> ConsolePage:
    """What an optimization would change now; with changes, what it would if they were made."""
    planned = preview(observations, outcome.snapshot, outcome.solution)
    name = outcome.optimizer.metadata.name
    warnings = tuple(f"warning: {change}" for change in outcome.idle)
    return ConsolePage(
        title=f"Next plan of {name}" + (", what if" if changes else ""),
        parts=(*warnings, *plan_parts(planned, outcome.solution, money)),
        document=lambda: plan_document(name, changes, planned, outcome.solution),
        changes=changes,
    )


def plans_view(
    observations: Sequence[Observation], now: datetime, money: Money = CENTS
) -> ConsolePage:
    """All recorded Plans, the newest first."""
    plans = in_order(observations)
    return ConsolePage(
        title="Plans",
        parts=tuple(plans_parts(plans, now, money)),
        document=lambda: [plan.to_json() for plan in plans],
    )


def plan_view(
    observations: Sequence[Observation],
    namespace: str,
    name: str,
    other: str = "",
    money: Money = CENTS,
) -> ConsolePage:
    """What one Plan changes, and the form to answer it while it needs an answer.

    With another one: the Servers that the two leave in different states.
    """
    plans = in_order(observations)
    plan = choose_plan(plans, namespace, name)
    others = [each.metadata.name for each in plans if each is not plan]
    if other:
        second = choose_plan(plans, namespace, other)
        return ConsolePage(
            title=f"Plans {name} and {other}",
            parts=tuple(difference_parts(plan, second, money)),
            document=lambda: [plan.to_json(), second.to_json()],
            others=others,
        )
    return ConsolePage(
        title=f"Plan {name}",
        parts=tuple(diff_parts(plan, money)),
        document=plan.to_json,
        form=_form_of(plan),
        others=others,
    )


def _form_of(plan: Plan) -> PlanForm | None:
    try:
        check_open(plan)
    except InputError:
        return None
    try:
        check_text(plan)
    except InputError as error:
        return PlanForm(plan.metadata.name, plan.spec.digest, str(error))
    return PlanForm(plan.metadata.name, plan.spec.digest)
