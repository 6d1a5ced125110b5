"""The objects of a namespace -> the pages of Plans: next, all, each, and history; pure.

A Plan is shown with what the commands print, with how good it is, and with what else was possible
when it was made. It keeps the Servers that it was made for, of which pages draw loads over time.
"""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from functools import reduce
from sys import intern
from typing import NamedTuple

from inferno_operator.cli.kubectl.choices import (
    DryRun,
    check_open,
    check_text,
    choose_plan,
    sort_plans,
)
from inferno_operator.cli.kubectl.console.page import (
    ConsolePage,
    PlanForm,
    SeenNamespace,
)
from inferno_operator.cli.options import Money
from inferno_operator.cli.tables.html import join_cards
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
    find_cost_change,
    format_placements,
    is_of_strangers,
    preview_plan,
    summarize,
)
from inferno_operator.cli.tables.servers import Labels, find_cost, find_labels
from inferno_operator.cli.tables.table import Part, TextTable
from inferno_operator.controllers.planning.ports import READ
from inferno_operator.controllers.planning.proposal import (
    UnreadablePlanError,
    compute_inputs_digest,
    unpack,
)
from inferno_operator.controllers.planning.status import describe_answers
from inferno_operator.pages.charts import Chart, Frame, Timeline, draw_lines, to_stairs
from inferno_operator.pages.html import KeyFigure
from inferno_operator.resources import (
    Certificate,
    LastOptimization,
    Optimizer,
    Plan,
    PlanStep,
    Server,
    ServerSpec,
    describe_change,
)
from inferno_operator.resources.conditions import READY
from inferno_operator.resources.observation import Observation, only, readable
from inferno_optimizer.errors import InputError
from inferno_optimizer.explain.comparison import Comparison, compare, served
from inferno_optimizer.explain.options import next_best
from inferno_optimizer.sizing.cases import Catalogue
from inferno_optimizer.solution import Solution
from inferno_optimizer.system import Role, System
from inferno_optimizer.wire.codec import decode_system

# Objects in a namespace whose past is shown of all Servers: each Plan has all of them.
MOST_OBJECTS = 3000

ABOVE = 1.1  # height of an axis, where the highest value is 1


class PastServer(NamedTuple):
    """A Server at a moment: arrival rate [requests/min], mean latencies [ms], 0 if not known."""

    rate: float
    itl: float
    wait: float
    ttft: float


@dataclass(frozen=True, slots=True)
class PastLoads:
    """All Servers at a moment, by their `spec.name`."""

    time: datetime
    servers: Mapping[str, PastServer]


def list_loads(
    server: ServerSpec, past: Sequence[PastLoads], now: datetime
) -> Sequence[tuple[datetime, float]]:
    """Return when a Server had which load [requests/min]: when Plans were made, and now."""
    name, current = server.name, server.current_alloc
    rates = [(item.time, item.servers[name].rate) for item in past if name in item.servers]
    return [*rates, (now, current.load.arrival_rate)] if current and current.load else rates


def list_latencies(
    server: Server, past: Sequence[PastLoads]
) -> Sequence[tuple[datetime, PastServer]]:
    """Return what was measured of a Server when Plans were made, and last; nothing if it is not."""
    name, last = server.spec.name, server.status.measured
    if server.spec.measure is None:
        return ()
    measured = [(item.time, item.servers[name]) for item in past if name in item.servers]
    if last is not None:
        values = (last.arrival_rate, last.itl_average, last.wait_average, last.ttft_average)
        measured.append((last.time, PastServer(*(value or 0.0 for value in values))))
    return [(time, found) for time, found in measured if found.itl or found.ttft]


class PlanLoads:
    """The past, each Plan unpacked once: a Plan does not change."""

    def __init__(self) -> None:
        self._read: dict[str, Mapping[str, PastServer]] = {}
        """The Servers of Plans that are unpacked, by digest."""

    def loads(self, plans: Iterable[Plan]) -> Sequence[PastLoads]:
        """Return the Servers that Plans were made for, the oldest first."""
        read, past = dict[str, Mapping[str, PastServer]](), list[PastLoads]()
        for plan in plans:
            digest, time = plan.spec.digest, plan.metadata.creation_timestamp
            servers = self._read[digest] if digest in self._read else _read_servers(plan)
            read[digest] = servers
            if time and servers:
                past.append(PastLoads(time, servers))
        self._read = read
        return sorted(past, key=lambda item: item.time)


def _read_servers(plan: Plan) -> Mapping[str, PastServer]:
    """Return the Servers of a Plan; names are interned, as all Plans have the same ones."""
    system, servers = read_inputs(plan), dict[str, PastServer]()
    for server in system.servers if system else ():
        now = server.current
        latencies = (now.itl_ms, now.wait_ms, now.ttft_ms)
        servers[intern(server.name)] = PastServer(now.load.arrival_rate, *latencies)
    return servers


def read_inputs(plan: Plan) -> System | None:
    """Return the system that a Plan was made for; None if it was left out, or cannot be read."""
    if not plan.spec.inputs:
        return None
    try:
        return decode_system(json.loads(unpack(plan.spec.inputs)))
    except (UnreadablePlanError, InputError, ValueError):
        return None


def is_move(step: PlanStep) -> bool:
    """Whether a Server leaves an accelerator for another one."""
    before = {placed.accelerator for placed in step.before if placed.replicas}
    after = {placed.accelerator for placed in step.after if placed.replicas}
    return bool(before - after) and bool(after - before)


def view_history(seen: SeenNamespace) -> ConsolePage:
    """What was decided for each Server and why, the newest first."""
    plans = sort_plans(seen.objects)
    done = [plan for plan in plans if plan.status.took_effect]
    steps = [step for plan in done for step in plan.spec.steps]
    return ConsolePage(
        title="History",
        parts=tuple(_describe_history(plans, seen.money)),
        document=lambda: {"plans": [plan.to_json() for plan in plans]},
        figures=(
            KeyFigure("Plans", str(len(plans)), f"{len(done)} took effect"),
            KeyFigure("Changes of Servers", str(len(steps)), "by Plans that took effect"),
            KeyFigure("Moves", str(sum(map(is_move, steps))), "to another accelerator"),
        ),
        charts=tuple(_draw_history(done[::-1], seen.now, seen.money)),
    )


def _describe_history(plans: Sequence[Plan], money: Money) -> Iterator[Part]:
    if not plans:
        yield "No Plans in this namespace: nothing was changed yet."
        return
    rows = []
    for plan in plans:
        born = plan.metadata.creation_timestamp
        rows += [
            (
                f"{born:%Y-%m-%d %H:%M} UTC" if born else "-",
                plan.metadata.name,
                step.server,
                format_placements(step.before),
                format_placements(step.after),
                money.change(step.cost_change),
                plan.status.phase or PHASE_UNKNOWN,
                step.message or step.reason,
            )
            for step in plan.spec.steps
        ]
    headings = ("WHEN", "PLAN", "SERVER", "FROM", "TO", ">CHANGE", "PHASE", "WHY")
    yield TextTable(headings, rows)
    for plan in plans:
        if plan.spec.steps_omitted:
            yield f"{plan.metadata.name}: and {plan.spec.steps_omitted} more changes"


def _draw_history(plans: Sequence[Plan], now: datetime, money: Money) -> Iterator[Chart]:
    born = [(plan, moment) for plan in plans if (moment := plan.metadata.creation_timestamp)]
    if not born:
        return
    line = Timeline.of((moment for _, moment in born), now)
    totals = [(line.at(moment), plan.spec.totals) for plan, moment in born]
    costs = [(at, found.cost_after / money.cents) for at, found in totals]
    changed = [(at, float(found.servers)) for at, found in totals]
    highest_cost, highest_count = (
        max(value for _, value in values) * ABOVE or 1.0 for values in (costs, changed)
    )
    yield draw_lines(
        Frame("Cost decided", line.label, money.rate, line.end, highest_cost),
        [("line", to_stairs(costs, line.end))],
        f"Cost decided over time, now {costs[-1][1]:.2f} {money.rate}",
    )
    yield draw_lines(
        Frame("Servers that a Plan changes", line.label, "Servers", line.end, highest_count),
        [("line", [(at, 0.0), (at, count), (at, 0.0)]) for at, count in changed],
        f"Servers that each Plan changes; Plans that took effect: {len(changed)}",
    )


GAIN_TITLE = "Could cost less by"

# Most steps whose alternatives are computed: those with the largest change of cost.
MOST_STEPS = 200

# What the line of the solver means, with which the parts of a plan end.
PROOF = (
    "Objective: the change of cost and a penalty for each move, which plans make as small as"
    " possible. Gap: how far the plan may be from the best one, as a share."
)

# What the page of Plans says before there is one.
NO_PLANS = (
    "No Plans in this namespace: there is one as soon as an optimization changes what a Server"
    " gets."
)

# Columns that the pages of Servers have, and the next plan has no room for.
ON_OTHER_PAGES = ("BATCH", "CLASS", "DESIRED COST")


def build_gap_figure(
    proof: Certificate | None, money: Money, time: datetime | None = None
) -> KeyFigure:
    """Return how far a plan may be from the best one, by its certificate; None: there is no plan.

    `time` is when the plan was made.
    """
    if proof is None:
        return KeyFigure(GAIN_TITLE, "-", "no plan was made yet")
    if proof.objective is None or proof.bound is None:
        return KeyFigure(GAIN_TITLE, "-", f"the solver {proof.solver} proves no bound")
    less = money.amount(max(proof.objective - proof.bound, 0.0))
    inputs = f"the inputs of {time:%H:%M} UTC" if time else "the load it serves"
    return KeyFigure(GAIN_TITLE, less, f"{money.rate} at most, proven for {inputs}")


def build_current_gap_figure(
    observations: Sequence[Observation], last: LastOptimization | None, money: Money
) -> KeyFigure:
    """Return how far the last plan may be from the best, unless its inputs have changed since."""
    if last is None:
        return build_gap_figure(None, money)
    if _has_changed(observations, last):
        old = f"inputs changed since the proof of {last.time:%H:%M} UTC"
        return KeyFigure(GAIN_TITLE, "-", f"not known: {old}")
    return build_gap_figure(last.certificate, money, last.time)


def _has_changed(observations: Sequence[Observation], last: LastOptimization) -> bool:
    """Whether inputs were added, changed or deleted since an optimization, where it shows."""
    inputs = [o for o in observations if o.kind in READ]
    if sum(o.kind is Server for o in inputs) != last.servers:
        return True
    if any(_is_newer(observation, last) for observation in inputs):
        return True
    resources, plans = readable(observations), sort_plans(observations)
    if not plans or plans[0].spec.certificate != last.certificate:
        return False
    names = {r.metadata.name: r for r in only(Optimizer, resources)}
    optimizer, digest = names.get(plans[0].spec.optimizer), plans[0].spec.inputs_digest
    return optimizer is not None and compute_inputs_digest(resources, optimizer) != digest


def _is_newer(observation: Observation, last: LastOptimization) -> bool:
    resource = observation.resource
    born = resource.metadata.creation_timestamp if resource else None
    if born is not None and born > last.time:
        return True
    if isinstance(resource, Server):  # its load may be another one, beyond a tolerance
        current, desired = resource.spec.current_alloc, resource.spec.desired_alloc
        now, then = current and current.load, desired and desired.load
        return bool(now and then and describe_change(then, now))
    ready = observation.status.condition(READY)
    seen = ready.observed_generation if ready else None
    return seen is not None and observation.generation > seen


def view_next_plan(
    seen: SeenNamespace, outcome: DryRun, changes: Sequence[str], without: DryRun | None = None
) -> ConsolePage:
    """What an optimization would change now; with changes, what it would if they were made.

    `without` is the plan without the changes, with which it is compared.
    """
    planned = preview_plan(seen.objects, outcome.snapshot, outcome.solution)
    name = outcome.optimizer.metadata.name
    warnings = tuple(f"warning: {change}" for change in outcome.idle)
    plan = describe_preview(planned, outcome.solution, seen.money)
    compared = compare(without.solution, outcome.solution) if without else None
    return ConsolePage(
        title=f"Next plan of {name}" + (", what if" if changes else ""),
        parts=(
            *warnings,
            *(p if isinstance(p, str) else join_cards(p.without(*ON_OTHER_PAGES)) for p in plan),
            PROOF,
        ),
        document=lambda: {
            **encode_preview(name, changes, planned, outcome.solution),
            **({"withoutChanges": _encode_comparison(compared)} if compared else {}),
        },
        figures=(
            *_list_next_figures(planned, outcome.solution, seen.money),
            *(_list_differences(compared, seen.money) if compared else ()),
        ),
        changes=changes,
    )


def _list_next_figures(
    planned: PlanPreview, solution: Solution, money: Money
) -> Iterator[KeyFigure]:
    change = solution.cost - sum(find_cost(item.current) for item in planned.servers)
    against_now = f"{money.rate}, {money.change(change)} against now"
    yield KeyFigure("Cost planned", money.amount(solution.cost), against_now)
    changing, count = sum(bool(item.action) for item in planned.servers), len(planned.servers)
    yield KeyFigure("Servers that change", str(changing), f"of {count}")
    yield KeyFigure("Get what they need", str(served(solution)), f"of {count} Servers")


def _list_differences(compared: Comparison, money: Money) -> Iterator[KeyFigure]:
    before, after = compared.before, compared.after
    against_before = f"{money.rate} against the plan without it"
    yield KeyFigure("What if: cost", money.change(after.cost - before.cost), against_before)
    more, others = served(after) - served(before), len(compared.differences)
    needs = f"{abs(more)} {'more' if more > 0 else 'fewer'}" if more else "as many"
    decided = f"of {len(after.decisions)} decided otherwise; {needs} get what they need"
    yield KeyFigure("What if: Servers", str(others), decided)


def _encode_comparison(compared: Comparison) -> Mapping[str, object]:
    return {
        "cost": compared.before.cost,
        "served": served(compared.before),
        "different": [difference.server for difference in compared.differences],
    }


def view_plans(seen: SeenNamespace) -> ConsolePage:
    """All recorded Plans, the newest first."""
    plans, parts = sort_plans(seen.objects), list[Part]()
    for part in describe_plans(plans, seen.now, seen.money) if plans else (NO_PLANS,):
        parts.append(reduce(_drop_commands, plans, part) if isinstance(part, str) else part)
    return ConsolePage("Plans", parts, document=lambda: [plan.to_json() for plan in plans])


def _drop_commands(text: str, plan: Plan) -> str:
    """Return what is said of a Plan, without the commands that its page has buttons for."""
    return text.replace(f"; {describe_answers(plan.metadata.name)}", "")


def view_plan(seen: SeenNamespace, name: str, other: str = "") -> ConsolePage:
    """What one Plan changes, and the form to answer it while it needs an answer.

    With another one: the Servers that the two leave in different states.
    """
    plans, labels, money = sort_plans(seen.objects), find_labels(seen.objects), seen.money
    plan = choose_plan(plans, seen.name, name)
    others = [each.metadata.name for each in plans if each is not plan]
    if other:
        second = choose_plan(plans, seen.name, other)
        return ConsolePage(
            title=f"Plans {name} and {other}",
            parts=tuple(describe_difference(plan, second, money, labels)),
            document=lambda: [plan.to_json(), second.to_json()],
            figures=[
                KeyFigure(
                    each.metadata.name, each.status.phase or PHASE_UNKNOWN, summarize(each, money)
                )
                for each in (plan, second)
            ],
            others=others,
        )
    alternatives = _find_alternatives(plan, only(Server, readable(seen.objects)))
    has_failed = plan.status.phase == "Failed" or is_of_strangers(plan)
    return ConsolePage(
        title=f"Plan {name}",
        parts=tuple(describe_steps(plan, money, alternatives or None, labels)),
        document=lambda: {
            **plan.to_json(),
            "alternatives": {server: asdict(found) for server, found in alternatives.items()},
        },
        figures=tuple(_list_figures(plan, labels, money)),
        form=_build_form(plan),
        others=others,
        troubles=(describe_phase(plan),) if has_failed else (),
        state="" if has_failed else _drop_commands(describe_phase(plan), plan),
    )


def _find_alternatives(plan: Plan, servers: Iterable[Server]) -> Mapping[str, Alternative]:
    """Find the next best of the steps of a Plan, by name of the Server.

    A Plan names the objects, and its inputs the servers: the objects have both names. Nothing is
    known of Servers that are gone, and where the inputs were left out.
    """
    system = read_inputs(plan)
    if system is None:
        return {}
    names = {server.metadata.name: server.spec.name for server in servers}
    models = {server.name: server.model for server in system.servers}
    steps = {names[s.server]: s for s in plan.spec.steps[:MOST_STEPS] if s.server in names}
    decided = {name: s.after[0].accelerator if s.after else "" for name, s in steps.items()}
    catalogue, found = Catalogue(system), dict[str, Alternative]()
    for name, option in next_best(system, decided).items():
        cost = sum(
            part.replicas * catalogue.unit_cost(models[name], part.accelerator, Role(part.role))
            for part in steps[name].after
        )
        found[steps[name].server] = Alternative(option.placement, option.cost - cost)
    return found


def _list_figures(plan: Plan, labels: Labels, money: Money) -> Iterator[KeyFigure]:
    totals, arrived = plan.spec.totals, plan.status.arrived
    note = "" if arrived is None else f"{arrived} run what was decided"
    yield KeyFigure("Servers that change", str(totals.servers), note)
    cost_after = f"{money.amount(totals.cost_after)} {money.rate} after it"
    yield KeyFigure("Change of cost", money.change(find_cost_change(plan)), cost_after)
    yield build_gap_figure(plan.spec.certificate, money, plan.metadata.creation_timestamp)
    if taken := totals.reduction:
        load_lost = f"{taken.load_lost:g} requests/min not served any more"
        percent = 100 * taken.replicas_taken / taken.replicas if taken.replicas else 0.0
        what = "; ".join(filter(None, (describe_shrinkage(plan, labels), load_lost)))
        yield KeyFigure("Capacity shrinks by", f"{percent:.0f} %", what)


def _build_form(plan: Plan) -> PlanForm | None:
    name, digest = plan.metadata.name, plan.spec.digest
    try:
        check_open(plan)
    except InputError:
        return None
    try:
        check_text(plan)
    except InputError as error:
        return PlanForm(name, digest, str(error))
    return PlanForm(name, digest, is_approved=plan.status.phase == "Approved")
