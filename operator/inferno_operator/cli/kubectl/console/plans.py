"""The objects of a namespace -> the pages of Plans and of the next one; pure.

A Plan is shown with what the commands print, with how good it is, and with what else was possible
when it was made.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from datetime import datetime
from functools import reduce

from inferno_operator.cli.kubectl.answer import check_open, check_text, choose_plan, sort_plans
from inferno_operator.cli.kubectl.console.history import inputs_of
from inferno_operator.cli.kubectl.console.page import ConsolePage, PlanForm, without_columns
from inferno_operator.cli.kubectl.dry_run import DryRun
from inferno_operator.cli.options.currency import CENTS, Money
from inferno_operator.cli.tables.plans import (
    PHASE_UNKNOWN,
    Alternative,
    PlanPreview,
    describe_difference,
    describe_phase,
    describe_plans,
    describe_preview,
    describe_shrinkage,
    describe_steps,
    encode_preview,
    is_of_strangers,
    preview_plan,
    summarize,
)
from inferno_operator.cli.tables.servers import Labels, cost_of, labels_of
from inferno_operator.cli.tables.table import Part
from inferno_operator.controllers.planning.plan_status import how_to_answer
from inferno_operator.controllers.planning.ports import READ
from inferno_operator.controllers.planning.proposal import inputs_digest
from inferno_operator.pages.html import KeyFigure
from inferno_operator.resources import (
    Certificate,
    LastOptimization,
    Optimizer,
    Plan,
    PlanStep,
    Server,
    moved,
)
from inferno_operator.resources.conditions import READY
from inferno_operator.resources.observation import Observation, only, readable
from inferno_optimizer.errors import InputError
from inferno_optimizer.explain.comparison import Comparison, compare, served
from inferno_optimizer.explain.options import next_best
from inferno_optimizer.sizing.cases import Catalogue
from inferno_optimizer.solution import Solution
from inferno_optimizer.system import Role

TITLE = "Could cost less by"

MOST_STEPS = 200
"""Most steps whose alternatives are computed: those with the largest change of cost."""

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


def could_cost_less(
    proof: Certificate | None, money: Money, time: datetime | None = None
) -> KeyFigure:
    """How far a plan may be from the best one, as its certificate says; None: there is no plan.

    `time` is when the plan was made.
    """
    if proof is None:
        return KeyFigure(TITLE, "-", "no plan was made yet")
    if proof.objective is None or proof.bound is None:
        return KeyFigure(TITLE, "-", f"the solver {proof.solver} proves no bound")
    less = money.amount(max(proof.objective - proof.bound, 0.0))
    inputs = f"the inputs of {time:%H:%M} UTC" if time else "the load it serves"
    return KeyFigure(TITLE, less, f"{money.rate} at most, proven for {inputs}")


def could_cost_less_now(
    observations: Sequence[Observation], last: LastOptimization | None, money: Money
) -> KeyFigure:
    """How far the last plan may be from the best one, unless its inputs have changed since."""
    if last is None:
        return could_cost_less(None, money)
    if any(_changes_since(observations, last)):
        old = f"inputs changed since the proof of {last.time:%H:%M} UTC"
        return KeyFigure(TITLE, "-", f"not known: {old}")
    return could_cost_less(last.certificate, money, last.time)


def _changes_since(observations: Sequence[Observation], last: LastOptimization) -> Iterator[bool]:
    """Yield whether inputs were added, changed or deleted since an optimization, where it shows."""
    inputs = [o for o in observations if o.kind in READ]
    yield sum(o.kind is Server for o in inputs) != last.servers
    for observation in inputs:
        resource = observation.resource
        born = resource.metadata.creation_timestamp if resource else None
        yield born is not None and born > last.time
        if isinstance(resource, Server):
            yield _has_other_load(resource)
        else:
            ready = observation.status.condition(READY)
            seen = ready.observed_generation if ready else None
            yield seen is not None and observation.generation > seen
    resources, plans = readable(observations), sort_plans(observations)
    if plans and plans[0].spec.certificate == last.certificate:
        names = {r.metadata.name: r for r in only(Optimizer, resources)}
        optimizer = names.get(plans[0].spec.optimizer)
        digest = plans[0].spec.inputs_digest
        yield optimizer is not None and compute_inputs_digest(resources, optimizer) != digest


def _has_other_load(server: Server) -> bool:
    """Whether the load is another one than was decided for, beyond the tolerance of Plans."""
    current, desired = server.spec.current_alloc, server.spec.desired_alloc
    if not (current and current.load and desired and desired.load):
        return False
    return bool(moved(desired.load, current.load))


def alternatives_of(plan: Plan, servers: Iterable[Server]) -> Mapping[str, Alternative]:
    """The next best of the steps of a Plan, by name of the Server.

    A Plan names the objects, and its inputs the servers: the objects have both names. Nothing is
    known of Servers that are gone, and where the inputs were left out.
    """
    system = inputs_of(plan)
    if system is None:
        return {}
    names = {server.metadata.name: server.spec.name for server in servers}
    steps = {names[s.server]: s for s in plan.spec.steps[:MOST_STEPS] if s.server in names}
    found = next_best(system, {name: _accelerator(step) for name, step in steps.items()})
    catalogue = Catalogue(system)
    models = {server.name: server.model for server in system.servers}
    return {
        steps[name].server: Alternative(
            option.placement, option.cost - _cost(catalogue, models[name], steps[name])
        )
        for name, option in found.items()
    }


def _accelerator(step: PlanStep) -> str:
    return step.after[0].accelerator if step.after else ""


def _cost(catalogue: Catalogue, model: str, step: PlanStep) -> float:
    """Cost of what a step decides [cents/hour]."""
    return sum(
        part.replicas * catalogue.unit_cost(model, part.accelerator, Role(part.role))
        for part in step.after
    )


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
    planned = preview_plan(observations, outcome.snapshot, outcome.solution)
    name = outcome.optimizer.metadata.name
    warnings = tuple(f"warning: {change}" for change in outcome.idle)
    plan = describe_preview(planned, outcome.solution, money)
    compared = compare(without.solution, outcome.solution) if without else None
    return ConsolePage(
        title=f"Next plan of {name}" + (", what if" if changes else ""),
        parts=(*warnings, *without_columns(plan, *ON_OWN_PAGES), PROOF),
        document=lambda: {
            **encode_preview(name, changes, planned, outcome.solution),
            **({"withoutChanges": _without_document(compared)} if compared else {}),
        },
        figures=(
            *_next_figures(planned, outcome.solution, money),
            *(_difference_figures(compared, money) if compared else ()),
        ),
        changes=changes,
    )


def _next_figures(planned: PlanPreview, solution: Solution, money: Money) -> Iterator[KeyFigure]:
    change = solution.cost - sum(cost_of(item.current) for item in planned.servers)
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
    plans = sort_plans(observations)
    return ConsolePage(
        title="Plans",
        parts=tuple(_plans_parts(plans, now, money)) if plans else (NO_PLANS,),
        document=lambda: [plan.to_json() for plan in plans],
    )


def _plans_parts(plans: Sequence[Plan], now: datetime, money: Money) -> Iterator[Part]:
    for part in describe_plans(plans, now, money):
        if isinstance(part, str):
            yield reduce(_without_commands, plans, part)
        else:
            yield part


def _without_commands(text: str, plan: Plan) -> str:
    """What the operator says of a Plan, without the commands that its page has buttons for."""
    return text.replace(f"; {describe_answers(plan.metadata.name)}", "")


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
    plans = sort_plans(observations)
    plan = choose_plan(plans, namespace, name)
    others = [each.metadata.name for each in plans if each is not plan]
    if other:
        second = choose_plan(plans, namespace, other)
        return ConsolePage(
            title=f"Plans {name} and {other}",
            parts=tuple(describe_difference(plan, second, money, labels_of(observations))),
            document=lambda: [plan.to_json(), second.to_json()],
            figures=[_phase_figure(each, money) for each in (plan, second)],
            others=others,
        )
    servers = [*only(Server, readable(observations))]
    labels = labels_of(observations)
    possible = alternatives_of(plan, servers)
    has_failed = plan.status.phase == FAILED or is_of_strangers(plan)
    return ConsolePage(
        title=f"Plan {name}",
        parts=tuple(describe_steps(plan, money, possible or None, labels)),
        document=lambda: {
            **plan.to_json(),
            "alternatives": {server: asdict(other) for server, other in possible.items()},
        },
        figures=tuple(_figures(plan, labels, money)),
        form=_form_of(plan),
        others=others,
        trouble=describe_phase(plan) if has_failed else "",
        state="" if has_failed else _without_commands(describe_phase(plan), plan),
    )


def _phase_figure(plan: Plan, money: Money) -> KeyFigure:
    """Where a Plan is, and how much it changes."""
    return KeyFigure(plan.metadata.name, plan.status.phase or PHASE_UNKNOWN, summarize(plan, money))


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
        what = "; ".join(filter(None, (describe_shrinkage(plan, labels), load_lost)))
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
