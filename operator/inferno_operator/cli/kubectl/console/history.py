"""The objects of a namespace -> the page of its past: decisions, moves, and the cost decided."""

from collections.abc import Iterator, Sequence
from datetime import datetime

from inferno_operator.cli.kubectl.answer import in_order
from inferno_operator.cli.kubectl.console.page import ConsolePage
from inferno_operator.cli.options.currency import CENTS, Money
from inferno_operator.cli.tables.plans import PHASE_UNKNOWN, placed_cell
from inferno_operator.cli.tables.solution import Part, TextTable
from inferno_operator.pages.charts import Chart, line_chart
from inferno_operator.pages.figures import KeyFigure
from inferno_operator.pages.svg import Frame, stairs
from inferno_operator.pages.timeline import Timeline
from inferno_operator.resources import Plan, PlanStep
from inferno_operator.resources.observation import Observation

ABOVE = 1.1
"""Height of an axis, where the highest value is 1."""


def history_view(
    observations: Sequence[Observation], now: datetime, money: Money = CENTS
) -> ConsolePage:
    """What was decided for each Server and why, the newest first."""
    plans = in_order(observations)
    return ConsolePage(
        title="History",
        parts=tuple(_parts(plans, money)),
        document=lambda: {"plans": [plan.to_json() for plan in plans]},
        figures=tuple(_figures(plans)),
        charts=tuple(_charts(plans, now, money)),
    )


def is_move(step: PlanStep) -> bool:
    """Whether a Server leaves an accelerator for another one."""
    before = {placed.accelerator for placed in step.before if placed.replicas}
    after = {placed.accelerator for placed in step.after if placed.replicas}
    return bool(before - after) and bool(after - before)


def _figures(plans: Sequence[Plan]) -> Iterator[KeyFigure]:
    done = [plan for plan in plans if plan.status.took_effect]
    steps = [step for plan in done for step in plan.spec.steps]
    yield KeyFigure("Plans", str(len(plans)), f"{len(done)} took effect")
    yield KeyFigure("Changes of Servers", str(len(steps)), "by Plans that took effect")
    yield KeyFigure("Moves", str(sum(map(is_move, steps))), "to another accelerator")


def _parts(plans: Sequence[Plan], money: Money) -> Iterator[Part]:
    if plans:
        headings = ("WHEN", "PLAN", "SERVER", "FROM", "TO", ">CHANGE", "PHASE", "WHY")
        rows = [_row(plan, step, money) for plan in plans for step in plan.spec.steps]
        yield TextTable(headings, rows)
        yield from _omitted(plans)
    else:
        yield "No Plans in this namespace: nothing was changed yet."


def _omitted(plans: Sequence[Plan]) -> Iterator[str]:
    """Yield how many changes a Plan does not list."""
    for plan in plans:
        if plan.spec.steps_omitted:
            yield f"{plan.metadata.name}: and {plan.spec.steps_omitted} more changes"


def _row(plan: Plan, step: PlanStep, money: Money) -> Sequence[str]:
    born = plan.metadata.creation_timestamp
    return (
        f"{born:%Y-%m-%d %H:%M} UTC" if born else "-",
        plan.metadata.name,
        step.server,
        placed_cell(step.before),
        placed_cell(step.after),
        money.change(step.cost_change),
        plan.status.phase or PHASE_UNKNOWN,
        step.message or step.reason,
    )


def _charts(plans: Sequence[Plan], now: datetime, money: Money) -> Iterator[Chart]:
    """Yield the cost by the Plans that took effect, and how many Servers each changed."""
    done = [plan for plan in reversed(plans) if plan.status.took_effect]
    born = [(plan, moment) for plan in done if (moment := plan.metadata.creation_timestamp)]
    if not born:
        return
    line = Timeline.of((moment for _, moment in born), now)
    totals = [(line.at(moment), plan.spec.totals) for plan, moment in born]
    costs = [(at, found.cost_after / money.cents) for at, found in totals]
    changed = [(at, float(found.servers)) for at, found in totals]
    yield line_chart(
        _frame("Cost decided", line, money.rate, costs),
        [("line", stairs(costs, line.end))],
        f"Cost decided over time, now {costs[-1][1]:.2f} {money.rate}",
    )
    yield line_chart(
        _frame("Servers that a Plan changes", line, "Servers", changed),
        [("line", [(at, 0.0), (at, count), (at, 0.0)]) for at, count in changed],
        f"Servers that each Plan changes; Plans that took effect: {len(changed)}",
    )


def _frame(title: str, line: Timeline, unit: str, values: Sequence[tuple[float, float]]) -> Frame:
    most = max(value for _, value in values) * ABOVE or 1.0
    return Frame(title, line.label, unit, line.end, most)
