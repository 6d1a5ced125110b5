"""The objects of a namespace -> pages as values, with what the commands print; pure."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from datetime import datetime
from functools import reduce

from inferno_operator.cli.kubectl.answer import check_open, check_text, choose_plan, in_order
from inferno_operator.cli.kubectl.console.alternatives import alternatives_of
from inferno_operator.cli.kubectl.console.page import ConsolePage, PlanForm, without_columns
from inferno_operator.cli.kubectl.console.proof import could_cost_less
from inferno_operator.cli.kubectl.dry_run import DryRun
from inferno_operator.cli.options.currency import CENTS, Money
from inferno_operator.cli.preview import PlanPreview, plan_document, preview
from inferno_operator.cli.tables.cluster import Labels, cost, labels_of
from inferno_operator.cli.tables.plan import plan_parts
from inferno_operator.cli.tables.plans import (
    PHASE_UNKNOWN,
    change_parts,
    difference_parts,
    is_of_strangers,
    plans_parts,
    shrinkage,
    state_line,
    summary,
)
from inferno_operator.cli.tables.solution import Part
from inferno_operator.controllers.planning.plan_status import how_to_answer
from inferno_operator.pages.figures import KeyFigure
from inferno_operator.resources import Plan, Server
from inferno_operator.resources.observation import Observation, readable
from inferno_optimizer.errors import InputError
from inferno_optimizer.explain.comparison import Comparison, compare, served
from inferno_optimizer.solution import Solution

PROOF = (
    "Objective: the change of cost and a penalty for each move, which plans make as small as"
    " possible. Gap: how far the plan may be from the best one, as a share."
)
"""What the line of the solver means, with which the parts of a plan end."""

NO_PLANS = (
    "No Plans in this namespace: there is one as soon as an optimization changes what a Server"
    " gets."
)
"""What the page of Plans says before there is one."""

ON_OWN_PAGES = ("BATCH", "CLASS", "DESIRED COST")
"""Columns that the pages of Servers have, and the next plan has no room for."""

FAILED, APPROVED = "Failed", "Approved"
"""Phases of a Plan: it could not be carried out; somebody let it pass."""


def next_view(
    observations: Sequence[Observation],
    outcome: DryRun,
    changes: Sequence[str],
    money: Money = CENTS,
    without: DryRun | None = None,
) -> ConsolePage:
    """What an optimization would change now; with changes, what it would if they were made.

    `without` is the plan without the changes, with which it is compared.
    """
    planned = preview(observations, outcome.snapshot, outcome.solution)
    name = outcome.optimizer.metadata.name
    warnings = tuple(f"warning: {change}" for change in outcome.idle)
    plan = plan_parts(planned, outcome.solution, money)
    compared = compare(without.solution, outcome.solution) if without else None
    return ConsolePage(
        title=f"Next plan of {name}" + (", what if" if changes else ""),
        parts=(*warnings, *without_columns(plan, *ON_OWN_PAGES), PROOF),
        document=lambda: {
            **plan_document(name, changes, planned, outcome.solution),
            **({"withoutChanges": _without_document(compared)} if compared else {}),
        },
        figures=(
            *_next_figures(planned, outcome.solution, money),
            *(_difference_figures(compared, money) if compared else ()),
        ),
        changes=changes,
    )


def _next_figures(planned: PlanPreview, solution: Solution, money: Money) -> Iterator[KeyFigure]:
    change = solution.cost - sum(cost(item.current) for item in planned.servers)
    against_now = f"{money.rate}, {money.change(change)} against now"
    yield KeyFigure("Cost planned", money.amount(solution.cost), against_now)
    changing, count = sum(bool(item.action) for item in planned.servers), len(planned.servers)
    yield KeyFigure("Servers that change", str(changing), f"of {count}")
    yield KeyFigure("Get what they need", str(served(solution)), f"of {count} Servers")


def _difference_figures(compared: Comparison, money: Money) -> Iterator[KeyFigure]:
    """What the changes of a person make different from the plan without them."""
    before, after = compared.before, compared.after
    against_before = f"{money.rate} against the plan without it"
    yield KeyFigure("What if: cost", money.change(after.cost - before.cost), against_before)
    more, others = served(after) - served(before), len(compared.differences)
    needs = f"{abs(more)} {'more' if more > 0 else 'fewer'}" if more else "as many"
    decided = f"of {len(after.decisions)} decided otherwise; {needs} get what they need"
    yield KeyFigure("What if: Servers", str(others), decided)


def _without_document(compared: Comparison) -> Mapping[str, object]:
    return {
        "cost": compared.before.cost,
        "served": served(compared.before),
        "different": [difference.server for difference in compared.differences],
    }


def plans_view(
    observations: Sequence[Observation], now: datetime, money: Money = CENTS
) -> ConsolePage:
    """All recorded Plans, the newest first."""
    plans = in_order(observations)
    return ConsolePage(
        title="Plans",
        parts=tuple(_plans_parts(plans, now, money)) if plans else (NO_PLANS,),
        document=lambda: [plan.to_json() for plan in plans],
    )


def _plans_parts(plans: Sequence[Plan], now: datetime, money: Money) -> Iterator[Part]:
    for part in plans_parts(plans, now, money):
        if isinstance(part, str):
            yield reduce(_without_commands, plans, part)
        else:
            yield part


def _without_commands(text: str, plan: Plan) -> str:
    """What the operator says of a Plan, without the commands that its page has buttons for."""
    return text.replace(f"; {how_to_answer(plan.metadata.name)}", "")


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
            parts=tuple(difference_parts(plan, second, money, labels_of(observations))),
            document=lambda: [plan.to_json(), second.to_json()],
            figures=[_phase_figure(each, money) for each in (plan, second)],
            others=others,
        )
    servers = [r for r in readable(observations) if isinstance(r, Server)]
    labels = labels_of(observations)
    possible = alternatives_of(plan, servers)
    has_failed = plan.status.phase == FAILED or is_of_strangers(plan)
    return ConsolePage(
        title=f"Plan {name}",
        parts=tuple(change_parts(plan, money, possible or None, labels)),
        document=lambda: {
            **plan.to_json(),
            "alternatives": {server: asdict(other) for server, other in possible.items()},
        },
        figures=tuple(_figures(plan, labels, money)),
        form=_form_of(plan),
        others=others,
        trouble=state_line(plan) if has_failed else "",
        state="" if has_failed else _without_commands(state_line(plan), plan),
    )


def _phase_figure(plan: Plan, money: Money) -> KeyFigure:
    """Where a Plan is, and how much it changes."""
    return KeyFigure(plan.metadata.name, plan.status.phase or PHASE_UNKNOWN, summary(plan, money))


def _figures(plan: Plan, labels: Labels, money: Money) -> Iterator[KeyFigure]:
    totals, proof = plan.spec.totals, plan.spec.certificate
    arrived = plan.status.arrived
    told = "" if arrived is None else f"{arrived} run what was decided"
    yield KeyFigure("Servers that change", str(totals.servers), told)
    change = totals.cost_after - totals.cost_before
    cost_after = f"{money.amount(totals.cost_after)} {money.rate} after it"
    yield KeyFigure("Change of cost", money.change(change), cost_after)
    yield could_cost_less(proof, money, plan.metadata.creation_timestamp)
    if taken := totals.reduction:
        load_lost = f"{taken.load_lost:g} requests/min not served any more"
        percent = 100 * taken.replicas_taken / taken.replicas if taken.replicas else 0.0
        what = "; ".join(filter(None, (shrinkage(plan, labels), load_lost)))
        yield KeyFigure("Capacity shrinks by", f"{percent:.0f} %", what)


def _form_of(plan: Plan) -> PlanForm | None:
    try:
        check_open(plan)
    except InputError:
        return None
    try:
        check_text(plan)
    except InputError as error:
        return PlanForm(plan.metadata.name, plan.spec.digest, str(error))
    is_approved = plan.status.phase == APPROVED
    return PlanForm(plan.metadata.name, plan.spec.digest, is_approved=is_approved)
