"""The objects of a namespace -> pages as values, with what the commands print; pure."""

from collections.abc import Iterator, Sequence
from datetime import datetime

from inferno_operator.cli.kubectl.answer import check_open, check_text, choose_plan, in_order
from inferno_operator.cli.kubectl.console.page import ConsolePage, PlanForm
from inferno_operator.cli.kubectl.dry_run import DryRun
from inferno_operator.cli.kubectl.selection import choose_server
from inferno_operator.cli.measurement import reported
from inferno_operator.cli.options.currency import CENTS, Money
from inferno_operator.cli.preview import plan_document, preview
from inferno_operator.cli.tables.cluster import cost, placement
from inferno_operator.cli.tables.measurement import comparison_parts
from inferno_operator.cli.tables.plan import plan_parts
from inferno_operator.cli.tables.plans import diff_parts, difference_parts, plans_parts
from inferno_operator.cli.tables.solution import option_parts, saved_work_parts
from inferno_operator.cli.tables.top import condition_parts
from inferno_operator.cli.tables.what_if import remedy_parts
from inferno_operator.pages.charts import Chart, Named, limit_chart
from inferno_operator.pages.figures import KeyFigure
from inferno_operator.pages.svg import Frame
from inferno_operator.resources import Plan, Server
from inferno_operator.resources.observation import Observation, readable
from inferno_optimizer.errors import InputError
from inferno_optimizer.explain.options import Option, explain
from inferno_optimizer.explain.remedies import remedies
from inferno_optimizer.sizing.cases import Catalogue
from inferno_optimizer.system import Target
from inferno_optimizer.wire.codec import encode_explanation, encode_remedies

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


def server_view(
    observations: Sequence[Observation],
    outcome: DryRun,
    namespace: str,
    name: str,
    now: datetime,
    money: Money = CENTS,
) -> ConsolePage:
    """Every option of a Server, what would serve it, what is measured, and its conditions."""
    chosen = choose_server(observations, namespace, name)
    system, solution = outcome.snapshot.system, outcome.solution
    options = explain(system, chosen.spec.name)
    found = remedies(system, solution, chosen.spec.name)
    decision = next(d for d in solution.decisions if d.server == chosen.spec.name)
    target = Catalogue(system).target(next(s for s in system.servers if s.name == decision.server))
    measurements = [item for item in reported(readable(observations)) if item.server is chosen]
    return ConsolePage(
        title=f"Server {chosen.metadata.name}",
        parts=(
            *option_parts(options, money),
            *saved_work_parts(system, chosen.spec.name),
            *remedy_parts(decision, found),
            *(part for item in measurements for part in comparison_parts(item)),
            *condition_parts(chosen.status.conditions, now),
        ),
        document=lambda: {
            "options": encode_explanation(options),
            "remedies": encode_remedies(found),
        },
        figures=tuple(_figures_of(chosen, money)),
        charts=tuple(_choices(options, target, money)),
    )


def _figures_of(server: Server, money: Money) -> Iterator[KeyFigure]:
    spec = server.spec
    current, desired = spec.current_alloc, spec.desired_alloc
    yield KeyFigure("Model", spec.model, f"class {spec.service_class}")
    load = f"{current.load.arrival_rate:g}" if current and current.load else "-"
    yield KeyFigure("Load", load, "requests/min")
    for title, found in (("Now", current), ("Desired", desired)):
        yield KeyFigure(title, placement(found), f"{money.amount(cost(found))} {money.rate}")


def _choices(options: Sequence[Option], target: Target, money: Money) -> Iterator[Chart]:
    """Yield what each accelerator would cost against the latencies that have a target."""
    possible = [option for option in options if not option.reason]
    named = (("ITL", "itl_ms", target.itl_ms), ("TTFT", "ttft_ms", target.ttft_ms))
    for title, field, limit in named if possible else ():
        if limit:
            points = [
                Named(o.accelerator, o.cost / money.cents, getattr(o, field)) for o in possible
            ]
            widest = max(point.x for point in points) * ABOVE or 1.0
            highest = max(limit, *(point.y for point in points)) * ABOVE
            frame = Frame(f"Cost and {title}", money.rate, "ms", widest, highest)
            words = (
                f"{title} of each accelerator against its cost; dashed: the target, {limit:g} ms"
            )
            yield limit_chart(frame, points, limit, words)
